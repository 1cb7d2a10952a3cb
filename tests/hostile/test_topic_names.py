"""hostile-input.md, "Topic/resource names": names become directories, so none may leave its place.

The codes are those of Kafka 4.3.1 unless a row says why ours is stricter. Each name is tried where
topics are made, found, written, read, grown, configured and deleted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from ottla.proto.kafka.apis import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    FETCH,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
)
from tests.hostile.stage import (
    FILLED,
    Target,
    batch,
    codes_of,
    fetch_fields,
    fetch_partition,
    list_fields,
    metadata_fields,
    produce_fields,
    target,
)

pytestmark = pytest.mark.integration

BAD_NAMES: Final = {
    "empty": "",
    "a dot": ".",
    "two dots": "..",
    "250 characters": "a" * 250,
    "a slash": "a/b",
    "an absolute path": "/etc/passwd",
    "a backslash": "a\\b",
    "a NUL": "a\0b",
    "a path upwards": "../../etc/x",
    "a letter beyond ASCII": "é",
    "a letter that looks like another": "ⅰnbox",
    "a leading blank": " a",
    "a line end": "a\n",
    "a colon": "a:b",
}


def new_topic(name: str, **changes: Any) -> dict[str, Any]:
    return {
        "name": name,
        "num_partitions": 1,
        "replication_factor": 1,
        "assignments": [],
        "configs": [],
        **changes,
    }


def create_fields(*topics: dict[str, Any]) -> dict[str, Any]:
    return {"topics": list(topics), "timeout": 10_000, "validate_only": False}


def delete_fields(*names: str) -> dict[str, Any]:
    topics = [{"name": name, "topic_id": None} for name in names]
    return {"topic_names": list(names), "topics": topics, "timeout": 10_000}


def entries_of(directory: Path) -> set[str]:
    """Return what is there, but for what an earlier test deleted, which goes by and by."""
    return {path.name for path in directory.iterdir() if not path.name.endswith("-delete")}


@pytest.mark.parametrize("name", BAD_NAMES.values(), ids=BAD_NAMES.keys())
def test_a_name_that_cannot_be_is_refused_everywhere(attacked: Target, name: str) -> None:
    above = attacked.node.data_dir.parent
    before = entries_of(above), entries_of(attacked.node.data_dir)
    resource = {"resource_type": 2, "resource_name": name, "configuration_keys": None}
    change = {"name": "retention.ms", "config_operation": 0, "value": "1"}
    records = {"name": name, "partitions": [{"partition_index": 0, "offset": 0}]}
    more = {"name": name, "count": 5, "assignments": None}
    asked: dict[str, tuple[Any, int, dict[str, Any], tuple[int, ...]]] = {
        "create": (CREATE_TOPICS, 7, create_fields(new_topic(name)), (17,)),
        "find": (METADATA, 12, metadata_fields(name), (17,)),
        "write": (PRODUCE, 9, produce_fields(name, [(0, batch())]), (3,)),
        "read": (FETCH, 12, fetch_fields(topic=name), (0, 3)),
        "offsets": (LIST_OFFSETS, 4, list_fields(topic=name), (3,)),
        "cut": (DELETE_RECORDS, 1, {"timeout": 1000, "topics": [records]}, (3,)),
        "grow": (
            CREATE_PARTITIONS,
            1,
            {"topics": [more], "timeout": 1000, "validate_only": False},
            (3,),
        ),
        "describe": (
            DESCRIBE_CONFIGS,
            1,
            {"resources": [resource], "include_synonyms": False},
            (17,),
        ),
        "configure": (
            INCREMENTAL_ALTER_CONFIGS,
            0,
            {"resources": [{**resource, "configs": [change]}], "validate_only": False},
            # Where a broker may be named, "" means all of them: not so here (Kafka's code).
            (17,) if name else (42,),
        ),
        "delete": (DELETE_TOPICS, 5, delete_fields(name), (3,)),
    }
    with attacked.wire() as wire:
        answers = {
            word: codes_of(wire.ask(row, version, fields))
            for word, (row, version, fields, _) in asked.items()
        }
    assert answers == {word: expected for word, (*_, expected) in asked.items()}
    assert (entries_of(above), entries_of(attacked.node.data_dir)) == before


GOOD_NAMES: Final = {
    "249 characters": "a" * 249,
    "all that is allowed": "Zz0-9._x",
    "three dots": "...",
    "a dash first": "-x",
    "like a directory of ours": "x-0",
    "like a part of a log": "00000000000000000000.log",
}


@pytest.mark.parametrize("name", GOOD_NAMES.values(), ids=GOOD_NAMES.keys())
def test_a_name_that_looks_strange_but_is_allowed_works(attacked: Target, name: str) -> None:
    with attacked.wire() as wire:
        assert codes_of(wire.ask(CREATE_TOPICS, 7, create_fields(new_topic(name)))) == (0,)
        written = wire.ask(PRODUCE, 9, produce_fields(name, [(0, batch())]))
        assert codes_of(written) == (0,)
        assert codes_of(wire.ask(FETCH, 12, fetch_fields(topic=name))) == (0, 0)
        assert codes_of(wire.ask(DELETE_TOPICS, 5, delete_fields(name))) == (0,)


def test_a_dot_and_an_underscore_collide(attacked: Target) -> None:
    with attacked.wire() as wire:
        assert codes_of(wire.ask(CREATE_TOPICS, 7, create_fields(new_topic("dots.a_b")))) == (0,)
        for name, code in {"dots_a.b": 17, "dots_a_b": 17, "dots.a.b": 17, "dots.a_b": 36}.items():
            answer = wire.ask(CREATE_TOPICS, 7, create_fields(new_topic(name)))
            assert codes_of(answer) == (code,)


def test_two_spellings_in_one_request_collide_as_well(attacked: Target) -> None:
    """Stricter than Kafka, which looks only at topics that exist, and makes both."""
    answer = attacked.ask(CREATE_TOPICS, 7, create_fields(new_topic("both.x"), new_topic("both_x")))
    assert codes_of(answer) == (0, 17)


INTERNAL: Final = {"__consumer_offsets": 0, "__transaction_state": 0, "__cluster_metadata": 42}


def test_internal_names_by_clients(tmp_path: Path) -> None:
    # A node of its own: on the one that all share, groups and transactions may have made theirs.
    with target(tmp_path) as untouched:
        for name, code in INTERNAL.items():
            answer = untouched.ask(CREATE_TOPICS, 7, create_fields(new_topic(name)))
            assert codes_of(answer) == (code,)


@pytest.mark.parametrize("index", [-1, 2, 2**31 - 1, -(2**31)])
def test_a_partition_that_is_not_there(attacked: Target, index: int) -> None:
    before = entries_of(attacked.node.data_dir)
    records = {"name": FILLED, "partitions": [{"partition_index": index, "offset": 0}]}
    with attacked.wire() as wire:
        written = wire.ask(PRODUCE, 9, produce_fields(FILLED, [(index, batch())]))
        assert codes_of(written) == (3,)
        assert codes_of(wire.ask(FETCH, 12, fetch_fields(fetch_partition(index)))) == (0, 3)
        assert codes_of(wire.ask(LIST_OFFSETS, 4, list_fields(index=index))) == (3,)
        cut = wire.ask(DELETE_RECORDS, 1, {"timeout": 1000, "topics": [records]})
        assert codes_of(cut) == (3,)
    assert entries_of(attacked.node.data_dir) == before
