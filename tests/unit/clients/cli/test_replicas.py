"""`ottla replicas verify`, against pages of real logs on real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from click.testing import CliRunner

from ottla.__main__ import main
from ottla.clients.cli.replicas import Outcome, compare_partition, http_address
from ottla.node.clock import Clock
from ottla.node.digest import digest_pages
from ottla.node.http import HttpListener, Route
from ottla.proto.errors import ErrorCode, RequestError
from ottla.proto.ids import BrokerId
from ottla.proto.kafka.message import Message
from ottla.proto.options.endpoints import Address
from ottla.replication.compaction.cleaner import clean
from ottla.replication.log.log import Log
from tests.builders import NOW_MS, OneLog, append, committed, small_settings

Told = Address | str


class Held:
    """A replica, as far as the page looks at it."""

    def __init__(self, log: Log) -> None:
        self.log, self.leader_epoch, self.is_leader = log, 3, False

    def get(self, topic: str, index: int) -> Held | None:
        return self if (topic, index) == ("t", 0) else None

    def refusal(self, topic: str, index: int) -> RequestError:
        return RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _log(*values: bytes, compact: bool = False) -> Log:
    settings = small_settings(compact=compact, min_cleanable_dirty_ratio=0.0)
    log = OneLog(settings).create()
    for value in values:
        append(log, (b"key", value))
    return committed(log)


def _verify(
    logs: Sequence[Log],
    *,
    check: bool = True,
    change: Callable[[dict[int, Told]], None] = lambda addresses: None,
    pages: Callable[[int, Log], dict[str, Route]] | None = None,
) -> Outcome:
    """Let each log be a node's, and compare them as the command does."""

    def usual(node: int, log: Log) -> dict[str, Route]:
        return digest_pages(BrokerId(node), lambda: Held(log))

    async def run() -> Outcome:
        listeners = [
            HttpListener(Address("127.0.0.1", 0), (pages or usual)(node, log), Clock())
            for node, log in enumerate(logs, 1)
        ]
        addresses: dict[int, Told] = {}
        for node, listener in enumerate(listeners, 1):
            addresses[node] = await listener.start()
        change(addresses)
        partition = Message({"partition_index": 0, "replica_nodes": list(addresses)})
        try:
            return await compare_partition("t", partition, addresses, check=check)
        finally:
            for listener in listeners:
                await listener.stop()

    return asyncio.run(run())


VALUES = [f"{number}".encode() for number in range(12)]


@pytest.mark.parametrize("check", [True, False])
def test_equal_replicas_are_identical_up_to_the_lowest_high_watermark(check: bool) -> None:
    logs = [_log(*VALUES), _log(*VALUES), _log(*VALUES)]
    append(logs[0], b"not committed")
    logs.append(_log(*VALUES[:8]))
    found = _verify(logs, check=check)
    assert found.is_identical
    assert found.sentence == "identical, 8 batches, offsets 0–7"


def test_the_first_difference_is_told_in_words() -> None:
    other = [*VALUES[:7], b"x", *VALUES[8:]]
    found = _verify([_log(*VALUES), _log(*VALUES), _log(*other)])
    assert not found.is_identical
    assert found.sentence.startswith("different from offset 7 on: node 1 has a batch from 7 to 7")
    assert found.as_json()["batches"] == 7


def test_a_flipped_bit_is_damage_to_whoever_reads_every_byte() -> None:
    logs = [_log(*VALUES), _log(*VALUES)]
    segment = logs[1].segments[0]
    at = segment.size - 1
    (before,) = segment.reader().read_at(at, 1)
    segment.writer().write_at(at, [bytes([before ^ 0x10])])
    assert _verify(logs, check=False).is_identical
    found = _verify(logs)
    assert not found.is_identical
    assert found.sentence.startswith("damaged on node 2: ")
    assert "checksum" in found.sentence


def test_replicas_that_were_compacted_at_different_times_say_what_was_compared() -> None:
    logs = [_log(*VALUES, compact=True), _log(*VALUES, compact=True)]
    assert clean(logs[0], now_ms=NOW_MS) is not None
    found = _verify(logs)
    assert found.is_identical
    assert f"; compacted below {logs[0].gaps_below}: compared where all have" in found.sentence


def test_one_replica_and_nothing_committed_are_said_as_they_are() -> None:
    assert _verify([_log(*VALUES)]).sentence == "one replica, 12 batches, offsets 0–11"
    nothing = _verify([_log(), _log()])
    assert nothing.is_identical
    assert nothing.sentence == "identical, nothing is committed that all of them have"


def _gone(addresses: dict[int, Told]) -> None:
    addresses[2] = "is not there"


def _swapped(addresses: dict[int, Told]) -> None:
    addresses[1], addresses[2] = addresses[2], addresses[1]


def _closed(addresses: dict[int, Told]) -> None:
    addresses[2] = Address("127.0.0.1", 1)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (_gone, "not compared: node 2 is not there"),
        (_swapped, "not compared: node 1 is not at 127.0.0.1:"),
        (_closed, "not compared: node 2 cannot be asked at 127.0.0.1:1: "),
    ],
)
def test_a_replica_that_cannot_be_compared_is_not_called_identical(
    change: Callable[[dict[int, Told]], None], told: str
) -> None:
    found = _verify([_log(*VALUES), _log(*VALUES)], change=change)
    assert not found.is_identical
    assert found.sentence.startswith(told)


def test_a_node_without_the_page_or_without_the_replica_is_told() -> None:
    logs = [_log(*VALUES), _log(*VALUES)]
    found = _verify(logs, pages=lambda node, log: {})
    assert found.sentence.startswith("not compared: node 1 cannot tell at 127.0.0.1:")

    def elsewhere(node: int, log: Log) -> dict[str, Route]:
        holder = Held(log)
        holder.get = lambda topic, index: None  # type: ignore[method-assign]
        return digest_pages(BrokerId(node), lambda: holder)

    assert "no replica of that partition" in _verify(logs, pages=elsewhere).sentence


@pytest.mark.parametrize(
    ("listeners", "address"),
    [
        ("CLIENT://127.0.0.1:9092,HTTP://127.0.0.1:9292", Address("127.0.0.1", 9292)),
        ("CLIENT://:9092,INTERNAL://:9093,HTTP://:9100", Address("node-1", 9100)),
        ("HTTP://0.0.0.0:9101", Address("node-1", 9101)),
        ("CLIENT://:9092", Address("127.0.0.1", 9100)),
        ("HTTP://127.0.0.1:0", None),
        ("SSL://:9092", None),
    ],
)
def test_where_a_node_is_asked_follows_from_its_listeners(
    listeners: str, address: Address | None
) -> None:
    found: Any = http_address(listeners, "node-1")
    assert found == address if address else isinstance(found, str)


@pytest.mark.parametrize("text", ["1", "x=h:1", "1=h", "1=h:99999", "=h:1"])
def test_addresses_that_are_none_are_refused_before_anybody_is_asked(text: str) -> None:
    done = CliRunner().invoke(main, ["replicas", "verify", "t", "--http", text])
    assert done.exit_code == 2
    assert "--http" in done.stderr
