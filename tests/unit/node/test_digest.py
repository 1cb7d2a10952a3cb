"""The page `/digest`: what it tells of a replica, and what it answers to nonsense."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import pytest

from ottla.node import digest as page
from ottla.node.digest import digest_pages
from ottla.node.http import Answer
from ottla.proto.errors import ErrorCode, RequestError
from ottla.proto.ids import INT64_MAX, BrokerId
from ottla.replication.log.log import Log
from tests.builders import OneLog, append, committed


@dataclass
class Standing:
    """As much of a replica as the page looks at."""

    log: Log
    leader_epoch: int = 4
    is_leader: bool = True


class Shelf:
    """A node with one replica, of `t-0`, and one that it has lost, of `lost-0`."""

    def __init__(self, batches: int = 3) -> None:
        log = OneLog().create()
        for number in range(batches):
            append(log, b"hello", f"{number}".encode())
        self.replica = Standing(committed(log))

    def get(self, topic: str, index: int) -> Standing | None:
        return self.replica if (topic, index) == ("t", 0) else None

    def refusal(self, topic: str, index: int) -> RequestError:
        if topic == "lost":
            return RequestError(ErrorCode.KAFKA_STORAGE_ERROR, "its records are gone")
        return RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _ask(shelf: Shelf | None, **query: str) -> Answer:
    async def run() -> Answer:
        answer = await digest_pages(BrokerId(7), lambda: shelf)["/digest"](query)
        assert isinstance(answer, Answer)
        return answer

    return asyncio.run(run())


def _told(shelf: Shelf, **query: str) -> dict[str, Any]:
    answer = _ask(shelf, topic="t", partition="0", **query)
    assert answer.status is HTTPStatus.OK, answer.body
    told: dict[str, Any] = json.loads(answer.body)
    return told


def test_a_digest_tells_the_replica_and_its_committed_batches() -> None:
    shelf = Shelf()
    append(shelf.replica.log, b"not committed")
    told = _told(shelf)
    batches = told.pop("batches")
    assert told == {
        "node": 7,
        "topic": "t",
        "partition": 0,
        "leader_epoch": 4,
        "is_leader": True,
        "log_start_offset": 0,
        "high_watermark": 6,
        "end_offset": 7,
        "compacted_below": 0,
        "from": 0,
        "to": 6,
        "checked": False,
        "damage": None,
        "next": None,
    }
    assert [(one["base_offset"], one["last_offset"]) for one in batches] == [(0, 1), (2, 3), (4, 5)]
    assert set(batches[0]) == {
        "base_offset", "last_offset", "leader_epoch", "crc", "size", "attributes"
    }  # fmt: skip


def test_what_is_not_committed_is_told_up_to_the_end() -> None:
    shelf = Shelf()
    append(shelf.replica.log, b"not committed")
    told = _told(shelf, **{"from": "6", "to": "9999"})
    assert [one["base_offset"] for one in told["batches"]] == [6]
    assert (told["from"], told["to"]) == (6, 7)


def test_a_long_digest_comes_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "BATCHES_MAX", 10)
    shelf = Shelf(25)
    at, offsets = "0", list[int]()
    for _ in range(3):
        told = _told(shelf, **{"from": at, "check": "true"})
        offsets += [one["base_offset"] for one in told["batches"]]
        at = str(told["next"])
    assert (at, offsets) == ("None", list(range(0, 50, 2)))


def test_a_digest_that_checks_ends_a_part_by_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "CHECK_BYTES_MAX", 1)
    told = _told(Shelf(25), check="true")
    assert told["checked"] is True
    assert 0 < len(told["batches"]) < 25
    assert told["next"] == told["batches"][-1]["last_offset"] + 1


def test_an_empty_range_has_no_batches() -> None:
    assert _told(Shelf(), **{"from": "6"})["batches"] == []
    assert _told(Shelf(), **{"from": "999", "to": "1000"})["next"] is None
    most = str(INT64_MAX)
    assert _told(Shelf(), **{"from": most, "to": most, "check": "true"})["batches"] == []
    assert len(_told(Shelf(), to=most)["batches"]) == 3
    assert _told(Shelf(0))["batches"] == []


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"topic": "t"},
        {"partition": "0"},
        {"topic": "", "partition": "0"},
        {"topic": "t", "partition": "-1"},
        {"topic": "t", "partition": "2147483648"},
        {"topic": "t", "partition": "0x1"},
        {"topic": "t", "partition": "٣"},
        {"topic": "t", "partition": ""},
        {"topic": "t", "partition": "1" * 7000},
        {"topic": "t", "partition": "0", "from": "-5"},
        {"topic": "t", "partition": "0", "to": "9223372036854775808"},
        {"topic": "t", "partition": "0", "from": "5", "to": "4"},
        {"topic": "t", "partition": "0", "check": "yes"},
        {"topic": "t", "partition": "0", "form": "5"},
    ],
)
def test_nonsense_is_refused_with_a_sentence(query: dict[str, str]) -> None:
    answer = _ask(Shelf(), **query)
    assert answer.status is HTTPStatus.BAD_REQUEST
    reason = json.loads(answer.body)["reason"]
    assert 10 < len(reason) < 200


@pytest.mark.parametrize(
    ("topic", "status", "told"),
    [
        ("x" * 5000, HTTPStatus.NOT_FOUND, "no replica of that partition"),
        ("../etc", HTTPStatus.NOT_FOUND, "no replica of that partition"),
        ("lost", HTTPStatus.SERVICE_UNAVAILABLE, "its records are gone"),
    ],
)
def test_what_is_not_here_is_said_to_be_so(topic: str, status: HTTPStatus, told: str) -> None:
    answer = _ask(Shelf(), topic=topic, partition="0")
    assert answer.status is status
    assert told in json.loads(answer.body)["reason"]


def test_a_log_that_is_offline_and_a_node_that_starts_say_so() -> None:
    shelf = Shelf()
    shelf.replica.log.fail("read", OSError(5, "broken"))
    for answer in (_ask(shelf, topic="t", partition="0"), _ask(None, topic="t", partition="0")):
        assert answer.status is HTTPStatus.SERVICE_UNAVAILABLE


def test_many_at_once_are_all_answered() -> None:
    async def run() -> list[Answer]:
        route = digest_pages(BrokerId(7), lambda: shelf)["/digest"]
        fields = {"topic": "t", "partition": "0", "check": "true"}
        return [await one for one in asyncio.as_completed([route(fields) for _ in range(20)])]

    shelf = Shelf(25)
    bodies = {answer.body for answer in asyncio.run(run())}
    assert len(bodies) == 1
