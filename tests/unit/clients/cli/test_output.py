"""Tables, refusals, and what a broker sent made printable."""

from __future__ import annotations

import pytest

from ottla.clients.cli.output import printable, refusal_of, tell_table, told_refusal, told_undone
from ottla.proto.errors import ErrorCode, RequestError
from ottla.proto.kafka.message import Message


def test_a_table_that_is_piped_is_not_folded(capsys: pytest.CaptureFixture[str]) -> None:
    tell_table(("name", "count"), [("x" * 300, 1), ("[bold]y", 12)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["name", "count"]
    assert lines[1] == "x" * 300 + "      1"
    assert lines[2].split() == ["[bold]y", "12"]


def test_a_table_may_stand_to_the_right(capsys: pytest.CaptureFixture[str]) -> None:
    tell_table(("a", ""), [("b", "")], indent=2)
    assert capsys.readouterr().out == "  a\n  b\n"


def test_what_could_move_a_cursor_is_escaped() -> None:
    assert printable("\x1b[2Jgone") == '"\\u001b[2Jgone"'
    assert printable("größer") == "größer"


def test_a_refusal_is_told_in_the_words_of_the_broker() -> None:
    refusal = refusal_of(Message({"error_code": 36, "error_message": "It is there."}))
    assert refusal is not None
    assert told_refusal("topic t was not created", refusal) == (
        "topic t was not created: It is there. (TOPIC_ALREADY_EXISTS)"
    )


def test_what_timed_out_may_have_been_done() -> None:
    late = RequestError(ErrorCode.REQUEST_TIMED_OUT, "It is under way.")
    assert told_undone("topic t", "created", late) == (
        "topic t: not known whether it was created: It is under way. (REQUEST_TIMED_OUT)"
    )
    refused = RequestError(ErrorCode.INVALID_CONFIG, "It is wrong.")
    assert told_undone("topic t", "altered", refused) == (
        "topic t was not altered: It is wrong. (INVALID_CONFIG)"
    )


def test_a_refusal_without_words_gets_ours() -> None:
    refusal = refusal_of(Message({"error_code": 3}))
    assert refusal is not None
    assert refusal.sentence == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.sentence


def test_a_code_that_nobody_knows_yet_keeps_its_number() -> None:
    refusal = refusal_of(Message({"error_code": 9999, "error_message": None}))
    assert refusal is not None
    assert refusal.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert refusal.sentence.endswith("(code 9999)")


def test_no_error_is_no_refusal() -> None:
    assert refusal_of(Message({"error_code": 0, "error_message": None})) is None
