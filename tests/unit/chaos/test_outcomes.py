"""What answers mean: when in doubt, unknown."""

from __future__ import annotations

import pytest

from ottla.chaos.history import Kind
from ottla.chaos.outcomes import SURELY_NOT, commit_outcome, is_kept, least_certain, outcome_of
from ottla.proto.errors import ErrorCode


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.NONE, Kind.OK),
        (ErrorCode.NOT_ENOUGH_REPLICAS, Kind.FAIL),
        (ErrorCode.MESSAGE_TOO_LARGE, Kind.FAIL),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, Kind.UNKNOWN),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, Kind.UNKNOWN),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, Kind.UNKNOWN),
        (ErrorCode.REQUEST_TIMED_OUT, Kind.UNKNOWN),
        (ErrorCode.KAFKA_STORAGE_ERROR, Kind.UNKNOWN),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, Kind.UNKNOWN),
        (ErrorCode.UNKNOWN_SERVER_ERROR, Kind.UNKNOWN),
        (12345, Kind.UNKNOWN),
        (None, Kind.UNKNOWN),
    ],
)
def test_an_answer_is_unknown_unless_it_came_before_the_append(code: int, kind: Kind) -> None:
    assert outcome_of(code, was_sent=True, acks=-1) is kind


def test_the_sure_refusals_are_those_of_the_specification() -> None:
    known = {2, 10, 17, 19, 21, 29, 31, 32, 35, 37, 38, 39, 40, 42, 43, 58, 76, 87}
    assert {int(code) for code in SURELY_NOT} == known


def test_what_was_never_sent_has_failed() -> None:
    assert outcome_of(None, was_sent=False, acks=-1) is Kind.FAIL


def test_with_acks_0_nothing_is_known_of_what_was_sent() -> None:
    assert outcome_of(ErrorCode.NONE, was_sent=True, acks=0) is Kind.UNKNOWN
    assert outcome_of(None, was_sent=False, acks=0) is Kind.FAIL


def test_an_acknowledgement_without_an_offset_is_unknown() -> None:
    assert outcome_of(ErrorCode.NONE, was_sent=True, acks=-1, offset=-1) is Kind.UNKNOWN
    assert outcome_of(ErrorCode.NONE, was_sent=True, acks=-1, offset=0) is Kind.OK


@pytest.mark.parametrize(
    ("attempts", "kind"),
    [
        ([Kind.UNKNOWN, Kind.FAIL], Kind.UNKNOWN),
        ([Kind.FAIL, Kind.FAIL], Kind.FAIL),
        ([Kind.UNKNOWN, Kind.OK], Kind.OK),
        ([], Kind.FAIL),
    ],
)
def test_a_write_that_was_tried_often_is_what_its_least_certain_attempt_is(
    attempts: list[Kind], kind: Kind
) -> None:
    assert least_certain(attempts) is kind


def test_a_known_duplicate_is_unknown_and_kept() -> None:
    code = ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert outcome_of(code, was_sent=True, acks=-1) is Kind.UNKNOWN
    assert is_kept(code)
    assert not is_kept(ErrorCode.NONE)
    assert not is_kept(None)


@pytest.mark.parametrize(
    ("codes", "kind"),
    [
        ([ErrorCode.NONE, ErrorCode.NONE], Kind.OK),
        ([ErrorCode.ILLEGAL_GENERATION], Kind.FAIL),
        ([ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID], Kind.FAIL),
        # It may have been written, and the partition of the group moved away.
        ([ErrorCode.NOT_COORDINATOR], Kind.UNKNOWN),
        ([ErrorCode.COORDINATOR_NOT_AVAILABLE], Kind.UNKNOWN),
        ([ErrorCode.NETWORK_EXCEPTION], Kind.UNKNOWN),
        # Half of it is not nothing.
        ([ErrorCode.NONE, ErrorCode.ILLEGAL_GENERATION], Kind.UNKNOWN),
        ([], Kind.UNKNOWN),
    ],
)
def test_a_commit_has_failed_only_if_it_was_refused_before_it_was_written(
    codes: list[ErrorCode], kind: Kind
) -> None:
    assert commit_outcome(codes) is kind
