"""Where reading begins: from what somebody typed to an offset in each partition.

    earliest   latest   @1794820126222   @2026-11-16T09:00:00Z   42 (of one partition)

The leaders are asked before our consumer is started: it has patience with what is missing, and
whoever typed a wrong name or number wants to know at once.

Not here: reading.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.clients.cli.cluster import Cluster, open_cluster
from ottla.clients.cli.text import parse_time
from ottla.clients.connection import error_code_of
from ottla.proto.errors import ConfigError, ErrorCode, OttlaError
from ottla.proto.ids import INT64_MAX
from ottla.proto.kafka.apis import LIST_OFFSETS
from ottla.proto.kafka.message import Message
from ottla.proto.options.endpoints import Address
from ottla.proto.options.option import shown, shown_name

# What stands for a time in ListOffsets.
_LATEST: Final = -1
_EARLIEST: Final = -2
_NO_SUCH_RECORD: Final = -1
_TIMEOUT_MS: Final = 10_000
_NUMBER: Final = re.compile(r"[0-9]{1,19}")


class ReadError(OttlaError):
    """The records cannot be read, or not from there."""


@dataclass(frozen=True, slots=True)
class Start:
    """Where to begin: at a time, or at an offset. One of the two is set."""

    timestamp: int | None = None
    offset: int | None = None


def parse_start(text: str | None, *, from_beginning: bool, partition: int | None) -> Start:
    """Return where to begin, or raise `ConfigError`."""
    if from_beginning and text is not None:
        raise ConfigError("--from-beginning and --offset: say one of them.")
    if from_beginning or text == "earliest":
        return Start(timestamp=_EARLIEST)
    if text is None or text == "latest":
        return Start(timestamp=_LATEST)
    if text.startswith("@"):
        return Start(timestamp=parse_time(text[1:]))
    if not _NUMBER.fullmatch(text) or int(text) > INT64_MAX:
        raise ConfigError(
            f"--offset is earliest, latest, @TIME or a number, and {shown(text)} is none of them."
        )
    if partition is None:
        raise ConfigError("--offset with a number belongs to one partition: say --partition too.")
    return Start(offset=int(text))


@dataclass(frozen=True, slots=True)
class Found:
    """A topic that can be read."""

    # All brokers of the cluster: those that were named may go.
    brokers: tuple[Address, ...]
    # Where to begin, by partition. Empty for a group, which knows itself.
    positions: dict[int, int]


async def find_topic(bootstrap: Sequence[Address], topic: str) -> Found:
    """Return a topic that a group is to read, or raise if it is not there."""
    async with open_cluster(bootstrap) as cluster:
        await cluster.topic(topic)
        return Found(await _brokers_of(cluster), {})


async def find_positions(
    bootstrap: Sequence[Address], topic: str, partition: int | None, start: Start
) -> Found:
    """Return the offset to begin at, by partition: of all of them, or of one."""
    async with open_cluster(bootstrap) as cluster:
        leaders = _leaders_of(await cluster.topic(topic), topic, partition)
        if start.timestamp is None:
            offsets = await _checked(cluster, topic, leaders, start.offset or 0)
        else:
            offsets = await _offsets_at(cluster, topic, leaders, start.timestamp)
        if _NO_SUCH_RECORD in offsets.values():
            # Nothing is as late as that, so what comes next is the first that may be.
            ends = await _offsets_at(cluster, topic, leaders, _LATEST)
            offsets |= {at: ends[at] for at, one in offsets.items() if one == _NO_SUCH_RECORD}
        return Found(await _brokers_of(cluster), offsets)


async def _brokers_of(cluster: Cluster) -> tuple[Address, ...]:
    brokers = (await cluster.metadata([])).brokers
    return tuple(Address(one.host, one.port) for one in brokers)


def _leaders_of(found: Message, topic: str, partition: int | None) -> dict[int, int]:
    """Return the partitions that are to be read, each with its leader."""
    leaders = {one.partition_index: one.leader_id for one in found.partitions}
    if partition is not None:
        if partition not in leaders:
            raise ConfigError(
                f"--partition {partition}: {shown_name(topic)} has partitions 0 to "
                f"{len(leaders) - 1}."
            )
        leaders = {partition: leaders[partition]}
    orphan = next((at for at, leader in leaders.items() if leader < 0), None)
    if orphan is not None:
        raise ReadError(
            f"partition {orphan} of {shown_name(topic)} has no leader now, and cannot be read."
        )
    return leaders


async def _checked(
    cluster: Cluster, topic: str, leaders: Mapping[int, int], offset: int
) -> dict[int, int]:
    (partition,) = leaders
    start = (await _offsets_at(cluster, topic, leaders, _EARLIEST))[partition]
    end = (await _offsets_at(cluster, topic, leaders, _LATEST))[partition]
    if not start <= offset <= end:
        raise ReadError(
            f"offset {offset} is not in partition {partition} of {shown_name(topic)}: it begins at "
            f"{start}, and the next record will be {end}."
        )
    return {partition: offset}


async def _offsets_at(
    cluster: Cluster, topic: str, leaders: Mapping[int, int], timestamp: int
) -> dict[int, int]:
    offsets = dict[int, int]()
    for leader in sorted(set(leaders.values())):
        asked = [
            {"partition_index": at, "current_leader_epoch": -1, "timestamp": timestamp}
            for at, its_leader in leaders.items()
            if its_leader == leader
        ]
        fields = {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": [{"name": topic, "partitions": asked}],
            "timeout": _TIMEOUT_MS,
        }
        answer = await cluster.ask_broker(leader, LIST_OFFSETS, fields)
        for one in (one for told in answer.topics for one in told.partitions):
            if one.error_code != ErrorCode.NONE:
                code = error_code_of(one.error_code)
                raise ReadError(
                    f"partition {one.partition_index} of {shown_name(topic)}: {code.sentence} "
                    f"({code.name})"
                )
            offsets[one.partition_index] = one.offset
    missing = next((at for at in leaders if at not in offsets), None)
    if missing is not None:
        raise ReadError(f"the leader of partition {missing} does not tell where it begins.")
    return dict(sorted(offsets.items()))
