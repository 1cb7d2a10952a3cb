"""What a node says when it ends: a sentence, the variable to change, and an exit code."""

from __future__ import annotations

import pytest

from ottla.node.last_words import exit_code_of, sentences_of, wants_json
from ottla.proto.errors import ConfigError, InvariantError, OttlaError, StorageError

ENVIRONMENT = {"OTTLA_LISTENERS": "x", "OTTLA_NODE_ID": "1", "OTTLA_LOG_DIR": "/data"}


@pytest.mark.parametrize(
    ("sentence", "told"),
    [
        ("Choose another: listeners=HTTP://a:1", "(environment OTTLA_LISTENERS)"),
        ("Correct node.id, or use another.", "(environment OTTLA_NODE_ID)"),
        ("Set log.dir.", "(environment OTTLA_LOG_DIR)"),
        ("node.id and listeners disagree.", "(environment OTTLA_LISTENERS, OTTLA_NODE_ID)"),
        # Another option, whose name only ends or begins so.
        ("Set advertised.listeners.", ""),
        ("Set node.id.range.", ""),
        ("It is 1 (environment OTTLA_NODE_ID): correct node.id.", ""),
        ("The disk is full.", ""),
    ],
)
def test_a_setting_that_came_from_the_environment_is_told_with_its_variable(
    sentence: str, told: str
) -> None:
    (found,) = sentences_of(StorageError(sentence), ENVIRONMENT, {})
    assert found == f"{sentence} {told}".rstrip()


def test_what_the_command_line_says_is_not_looked_for_in_the_environment() -> None:
    error = ConfigError("Correct node.id.")
    assert sentences_of(error, ENVIRONMENT, {"node.id": "7"}) == ("Correct node.id.",)


def test_every_wrong_option_has_its_sentence() -> None:
    assert len(sentences_of(ConfigError("One.", "Another."), {}, {})) == 2


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("x"), 2),
        (StorageError("x"), 1),
        (OttlaError("x"), 1),
        (InvariantError("x"), 70),
    ],
)
def test_each_kind_of_end_has_its_exit_code(error: OttlaError, code: int) -> None:
    assert exit_code_of(error) == code


@pytest.mark.parametrize(
    ("environment", "flags", "file", "is_json"),
    [
        ({}, {}, None, False),
        ({"OTTLA_LOG_FORMAT": "json"}, {}, None, True),
        ({"OTTLA_LOG_FORMAT": "json"}, {"ottla.log.format": "text"}, None, False),
        ({}, {"ottla.log.format": "json"}, b"ottla.log.format=text", True),
        ({}, {}, b"num.partitions=many\nottla.log.format=json\n", True),
        ({}, {}, b"\xff", False),
    ],
)
def test_the_form_of_the_log_is_known_where_other_options_are_wrong(
    environment: dict[str, str], flags: dict[str, str], file: bytes | None, is_json: bool
) -> None:
    assert wants_json(environment, flags, file) is is_json
