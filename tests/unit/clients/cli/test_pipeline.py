"""`ottla pipeline`: what it tells of a file before anything is asked or started."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from ottla.clients.cli.pipeline import pipeline
from ottla.proto.errors import ConfigError

FILE = """
[pipeline]
name = "clicks"
checkpoint = "state"
guarantee = "at-least-once"

[[sources]]
name = "raw"
kind = "topic"
topic = "clicks"

[[steps]]
name = "events"
kind = "parse_json"
from = "raw"
schema = "page string"

[[sinks]]
name = "out"
kind = "topic"
from = "events"
topic = "views"
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    file = tmp_path / "clicks.toml"
    file.write_text(FILE)
    return str(file)


def test_check_names_the_steps_that_drop_what_they_cannot_read(path: str) -> None:
    told = CliRunner().invoke(pipeline, ["check", path])
    assert told.output.splitlines() == [
        "clicks: 1 sources, 1 steps, 1 sinks.",
        "steps events has no dead_letters: rows that it cannot read are dropped.",
    ]


def test_a_pipeline_that_writes_nothing_exactly_once_has_nothing_to_take_over(path: str) -> None:
    told = CliRunner().invoke(pipeline, ["run", "--take-over", path])
    assert isinstance(told.exception, ConfigError)
    assert str(told.exception) == (
        "--take-over is for topics that are written exactly once, and clicks writes none so."
    )
