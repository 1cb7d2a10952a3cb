"""DescribeLogDirs. What is asked and answered here is the same as with Apache Kafka 4.3.1."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.proto.errors import ErrorCode
from ottla.proto.kafka.apis import DESCRIBE_LOG_DIRS
from tests.builders import produced
from tests.unit.node.kafka.desk import Desk, open_desk


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with open_desk() as opened:
        # The logs are in memory; the room on the disk is asked of a real one.
        opened.broker.data_dir = str(tmp_path)
        opened.create("t", 2)
        opened.create("u")
        opened.write("t", produced(b"a" * 100))
        yield opened


def described(desk: Desk, topics: list[tuple[str, list[int]]] | None, version: int = 5) -> Any:
    asked = (
        None
        if topics is None
        else [{"topic": name, "partitions": indexes} for name, indexes in topics]
    )
    answer = desk.ask(DESCRIBE_LOG_DIRS, version, topics=asked)
    assert answer.get("error_code", 0) == 0
    (directory,) = answer["results"]
    return directory


def sizes(directory: Any) -> dict[str, dict[int, int]]:
    return {
        topic["name"]: {
            one["partition_index"]: one["partition_size"] for one in topic["partitions"]
        }
        for topic in directory["topics"]
    }


@pytest.mark.parametrize("version", range(DESCRIBE_LOG_DIRS.low, DESCRIBE_LOG_DIRS.high + 1))
def test_every_version_tells_what_lies_where(desk: Desk, version: int) -> None:
    directory = described(desk, None, version)
    size = desk.replica("t").log.size_bytes
    assert size > 100
    assert directory["error_code"] == 0
    assert directory["log_dir"] == desk.broker.data_dir
    assert sizes(directory) == {"t": {0: size, 1: 0}, "u": {0: 0}}
    (first, _) = directory["topics"][0]["partitions"]
    assert (first["offset_lag"], first["is_future_key"]) == (0, False)


def test_later_versions_tell_the_room_on_the_disk(desk: Desk) -> None:
    assert "total_bytes" not in described(desk, None, 3)
    directory = described(desk, None, 4)
    assert 0 < directory["usable_bytes"] <= directory["total_bytes"]
    assert described(desk, None, 5)["is_cordoned"] is False


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ([], {}),
        ([("t", [1])], {"t": {1: 0}}),
        ([("t", [5, -1])], {}),
        ([("nope", [0])], {}),
        ([("t", [])], {}),
        ([("t", [1, 1]), ("t", [1]), ("u", [0])], {"t": {1: 0}, "u": {0: 0}}),
    ],
)
def test_only_what_is_asked_for_and_there_is_told(
    desk: Desk, asked: list[tuple[str, list[int]]], told: dict[str, dict[int, int]]
) -> None:
    for version in (1, 5):
        assert sizes(described(desk, asked, version)) == told


def test_a_directory_that_is_offline_says_so(desk: Desk) -> None:
    desk.broker.replicas.manager.offline = "the disk is gone"
    directory = described(desk, None)
    assert directory["error_code"] == ErrorCode.KAFKA_STORAGE_ERROR
    assert (directory["topics"], directory["total_bytes"]) == ([], -1)
    desk.broker.replicas.manager.offline = None


def test_a_disk_that_cannot_be_asked_is_taken_for_broken(desk: Desk, tmp_path: Path) -> None:
    desk.broker.data_dir = str(tmp_path / "gone")
    assert described(desk, None)["error_code"] == ErrorCode.KAFKA_STORAGE_ERROR
