"""The error codes are Kafka's: kio, generated from Kafka's own sources, is the judge."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode as KafkaErrorCode

from ottla.proto.errors import ErrorCode, InvariantError, RequestError, ensure

CODES_OF_KAFKA_4_3 = range(-1, 134)


def test_names_and_numbers_are_those_of_kafka() -> None:
    theirs = {code.name.upper(): int(code.value) for code in KafkaErrorCode}
    assert {code.name: int(code) for code in ErrorCode} == theirs


def test_there_is_a_row_for_every_code_of_kafka_4_3() -> None:
    assert sorted(ErrorCode) == list(CODES_OF_KAFKA_4_3)


def test_a_client_tries_again_after_the_same_codes_as_with_kafka() -> None:
    theirs = {code.name.upper() for code in KafkaErrorCode if code.retriable}
    assert {code.name for code in ErrorCode if code.retriable} == theirs


def test_a_number_from_the_wire_becomes_its_row() -> None:
    assert ErrorCode(6) is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("code", list(ErrorCode), ids=lambda code: code.name)
def test_every_code_says_what_happened_in_one_short_sentence(code: ErrorCode) -> None:
    assert code.sentence.endswith(".")
    assert len(code.sentence) <= 80
    assert code.sentence == code.sentence.strip()


def test_no_two_codes_say_the_same() -> None:
    assert len({code.sentence for code in ErrorCode}) == len(ErrorCode)


def test_a_request_error_without_words_of_its_own_borrows_those_of_its_code() -> None:
    error = RequestError(ErrorCode.NOT_CONTROLLER)
    assert str(error) == "NOT_CONTROLLER: Another node is the active controller now."


def test_a_request_error_with_words_of_its_own_says_them() -> None:
    error = RequestError(ErrorCode.INVALID_CONFIG, "segment.bytes is 0.")
    assert (error.code, error.sentence) == (ErrorCode.INVALID_CONFIG, "segment.bytes is 0.")


def test_a_claim_that_does_not_hold_tells_its_facts() -> None:
    with pytest.raises(InvariantError, match=r"ends meet \(low=3, high=2\)"):
        ensure(False, "ends meet", low=3, high=2)


def test_a_claim_that_holds_is_silent() -> None:
    ensure(True, "ends meet", low=2, high=3)
