"""Pipelines: from topics to topics and files, with dead letters, and again after an end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ottla.clients.pipeline.declaration import read_pipeline
from ottla.clients.pipeline.running import Run
from ottla.clients.pipeline.validation import require_topics
from ottla.proto.errors import ConfigError
from tests.integration.spark.conftest import MakeTopic
from tests.integration.spark.running import headers_of, rows_of, run_to_end, send

pytestmark = [pytest.mark.integration, pytest.mark.long]

FILE = """
[pipeline]
name = "test"
checkpoint = "state"
bootstrap = "{bootstrap}"

[[sources]]
name = "raw"
kind = "topic"
topic = "{source}"

[[steps]]
name = "events"
kind = "parse_json"
from = "raw"
schema = "id string, page string, at timestamp"
check = "id is not null"
dead_letters = "{dead}"

[[steps]]
name = "each_once"
kind = "deduplicate"
from = "events"
keys = ["id"]
time = "at"
watermark = "1 minute"

[[steps]]
name = "views"
kind = "window"
from = "each_once"
time = "at"
size = "1 minute"
by = ["page"]
select = ["count(*) as views"]

[[sinks]]
name = "counted"
kind = "topic"
from = "views"
topic = "{target}"
key = "page"

[[sinks]]
name = "lake"
kind = "parquet"
from = "each_once"
path = "lake"
"""


def _event(number: int, minute: int, page: str = "home") -> bytes:
    at = f"2026-01-01T00:{minute:02}:00Z"
    return json.dumps({"id": f"e{number}", "page": page, "at": at}).encode()


def test_events_are_counted_once_kept_once_and_the_broken_ones_told_across_a_restart(
    spark: Any, bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    source, dead, target = make_topic(), make_topic(), make_topic()
    text = FILE.format(bootstrap=bootstrap, source=source, dead=dead, target=target)
    first = [_event(1, 0), _event(2, 0), _event(2, 0), b"{not json", _event(3, 0, "help")]
    send(bootstrap, source, first)
    run_to_end(spark, text, tmp_path)
    # Minute 9 closes the window of minute 0; what then still comes for minute 0 is too late.
    send(bootstrap, source, [_event(4, 9), b'{"page": "home"}'])
    run_to_end(spark, text, tmp_path)
    send(bootstrap, source, [_event(5, 0)])
    run_to_end(spark, text, tmp_path)

    told = [json.loads(bytes(row.value)) for row in rows_of(spark, bootstrap, target)]
    assert {(one["page"], one["views"]) for one in told} == {("home", 2), ("help", 1)}
    assert len(told) == 2
    kept = spark.read.parquet(str(tmp_path / "lake")).select("id").collect()
    assert sorted(row.id for row in kept) == ["e1", "e2", "e3", "e4"]
    letters = {bytes(row.value): headers_of(row) for row in rows_of(spark, bootstrap, dead)}
    assert letters.keys() == {b"{not json", b'{"page": "home"}'}
    assert letters[b"{not json"]["ottla-error"].startswith("it is no JSON of the schema")
    assert letters[b"{not json"]["ottla-origin-offset"] == "3"
    assert letters[b'{"page": "home"}']["ottla-error"] == "it fails the check: id is not null"


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('check = "id is not null"', 'check = "idd is not null"', "steps events: .*`?idd`?"),
        ('by = ["page"]', 'by = ["pag"]', "steps views: .*`pag`"),
        ('key = "page"', 'key = "pag"', "sinks counted: .*`pag`"),
        ('size = "1 minute"', 'size = "1 minute"\nwatermark = "1 hour"', "one only"),
        ('watermark = "1 minute"\n', "", "steps each_once: watermark is missing"),
        ('schema = "id string', 'schema = "id strnig', "steps events: .*strnig"),
    ],
)
def test_what_spark_cannot_make_sense_of_is_one_sentence_before_anything_runs(
    spark: Any, bootstrap: str, tmp_path: Path, old: str, new: str, sentence: str
) -> None:
    text = FILE.format(bootstrap=bootstrap, source="a", dead="b", target="c")
    assert old in text
    pipeline = read_pipeline(text.replace(old, new).encode())
    with pytest.raises(ConfigError, match=sentence) as caught:
        Run(spark, pipeline, tmp_path)
    assert "\n" not in str(caught.value)


def test_a_topic_that_is_not_there_is_told_before_spark_starts(bootstrap: str) -> None:
    text = FILE.format(bootstrap=bootstrap, source="no-a", dead="no-b", target="no-c")
    with pytest.raises(ConfigError) as caught:
        require_topics(read_pipeline(text.encode()))
    assert caught.value.problems == tuple(
        f"Topic {name} is not there; `ottla topics create {name}` makes it."
        for name in ("no-a", "no-b", "no-c")
    )
