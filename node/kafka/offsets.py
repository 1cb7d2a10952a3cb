"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords: where a log begins, ends, and was at a time.

A log has one owner, the event loop, so a look-up by time is done there too, in short steps between
which whoever else waits gets a turn. Most often it is one: a few index entries and headers, and
the records of one batch.

DeleteRecords need not wait for a sync in flight: the start moves by a commit of its own, and a file
that leaves the log stays open for as long as a job on another thread is syncing it. It does wait
for the cleaner, which looks for the segments that it has read. Followers hear of the new start with
their next answer, and are not waited for.

A1  nothing at or above the high watermark is told, but for where an epoch ends; and to who reads
    committed nothing at or above the last stable offset
A2  a client cannot pose as a replica: replicas speak to each other elsewhere (CVE-2018-1288).
    CLUSTER_AUTHORIZATION_FAILED is what Kafka answers to who may not act as a broker
A3  a new leader that may have committed less than was seen already does not say where the log ends
    (rule 23), nor does one that may have been replaced (rule 13)

Not here: finding an offset in a log (`replication/log`).
"""

from __future__ import annotations

import asyncio
import operator
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.controller.names import is_internal
from ottla.node.kafka.isolation import ISOLATION_LEVELS, READ_UNCOMMITTED, readable_end
from ottla.node.kafka.leading import led_here, require_standing
from ottla.node.kafka.requests import Request
from ottla.node.logs import logger
from ottla.proto.errors import ErrorCode, RequestError, StorageError
from ottla.proto.ids import NO_EPOCH, NO_TIMESTAMP, LeaderEpoch, Offset
from ottla.proto.kafka.message import Message
from ottla.replication.epochs import EpochEnd
from ottla.replication.log import surgery
from ottla.replication.log.lookup import Search, TimedOffset, search_first, search_latest
from ottla.replication.replica import Replica

if TYPE_CHECKING:
    from ottla.node.broker import Broker

_log = logger("kafka.offsets")

NO_OFFSET: Final = -1

# What ListOffsets means by times that are none, and the first version that does.
_LATEST: Final = -1
_EARLIEST: Final = -2
_OF_LARGEST_TIME: Final = -3
_EARLIEST_HERE: Final = -4
_LATEST_TIERED: Final = -5
_EARLIEST_TO_UPLOAD: Final = -6
_SINCE: Final = {
    _LATEST: 1,
    _EARLIEST: 1,
    _OF_LARGEST_TIME: 7,
    _EARLIEST_HERE: 8,
    _LATEST_TIERED: 9,
    _EARLIEST_TO_UPLOAD: 11,
}
# Older clients do not know OFFSET_NOT_AVAILABLE, and are told of a leader that is not ready.
_NOT_AVAILABLE_SINCE: Final = 5

# What DeleteRecords means by an offset that is none.
_HIGH_WATERMARK: Final = -1


def _require_consumer(body: Message) -> None:
    if body.get("replica_id", -1) >= 0:
        raise RequestError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if body.get("isolation_level", READ_UNCOMMITTED) not in ISOLATION_LEVELS:
        raise RequestError(ErrorCode.INVALID_REQUEST)


def _code_of(error: RequestError | StorageError, partition: str) -> int:
    if isinstance(error, RequestError):
        return int(error.code)
    _log.error("partition_failed", partition=partition, error=str(error))
    return int(ErrorCode.KAFKA_STORAGE_ERROR)


# ── ListOffsets ───────────────────────────────────────────────────────────────────────────────


class _Told(NamedTuple):
    """An answer to ListOffsets; the defaults mean that there is no such record."""

    timestamp: int = NO_TIMESTAMP
    offset: int = NO_OFFSET
    epoch: int = NO_EPOCH


async def list_offsets(broker: Broker, request: Request) -> dict[str, Any]:
    times = Counter((topic.name, one.partition_index) for topic, one in _partitions(request.body))
    topics: dict[str, dict[int, dict[str, Any]]] = {}
    for topic, wanted in _partitions(request.body):
        name, index = topic.name, wanted.partition_index
        if index in topics.setdefault(name, {}):
            continue
        error, told = 0, _Told()
        try:
            _require_consumer(request.body)
            _require_once(times[name, index])
            isolation = request.body.get("isolation_level", READ_UNCOMMITTED)
            told = await _look_up(broker, name, wanted, request.version, isolation)
        except (RequestError, StorageError) as failure:
            error = _code_of(failure, f"{name}-{index}")
        topics[name][index] = {
            "partition_index": index,
            "error_code": error,
            "timestamp": told.timestamp,
            "offset": told.offset,
            "leader_epoch": told.epoch,
        }
    return _answer(topics, "name")


def _require_once(times: int) -> None:
    if times > 1:
        raise RequestError(ErrorCode.INVALID_REQUEST)


async def _look_up(
    broker: Broker, topic: str, wanted: Message, version: int, isolation: int
) -> _Told:
    timestamp = wanted.timestamp
    if timestamp < 0 and version < _SINCE.get(timestamp, version + 1):
        raise RequestError(ErrorCode.UNSUPPORTED_VERSION)
    known_epoch = wanted.get("current_leader_epoch", NO_EPOCH)
    replica = led_here(broker, topic, wanted.partition_index, known_epoch)
    if timestamp in (_EARLIEST, _EARLIEST_HERE):
        start = replica.log.start_offset
        return _Told(NO_TIMESTAMP, start, _epoch_at(replica, start))
    if timestamp in (_LATEST_TIERED, _EARLIEST_TO_UPLOAD):
        # There is no remote storage: nothing was tiered, and nothing waits to be.
        return _Told()
    if timestamp == _LATEST:
        _require_known_end(broker, replica, version)
        return _Told(NO_TIMESTAMP, readable_end(replica.log, isolation), replica.leader_epoch)
    return await _by_time(broker, replica, timestamp, version, isolation)


async def _by_time(
    broker: Broker, replica: Replica, timestamp: int, version: int, isolation: int
) -> _Told:
    log, end = replica.log, readable_end(replica.log, isolation)
    if timestamp == _OF_LARGEST_TIME:
        _require_known_end(broker, replica, version)
        found = await _at_leisure(broker, replica, lambda: search_latest(log))
    else:
        found = await _at_leisure(broker, replica, lambda: search_first(log, timestamp, before=end))
    if found is not None and found.offset < end:
        return _Told(found.timestamp, found.offset, _epoch_at(replica, found.offset))
    _require_known_end(broker, replica, version)
    return _Told()


async def _at_leisure(
    broker: Broker, replica: Replica, begin: Callable[[], Search]
) -> TimedOffset | None:
    """Search step by step, and anew whenever segments have gone."""
    log, topic, index = replica.log, replica.partition.topic, replica.partition.partition
    while True:
        segments, search = tuple(log.segments), begin()
        while all(map(operator.is_, segments, log.segments)):
            is_over, found = _step(search)
            await asyncio.sleep(0)
            if is_over:
                return found
            if led_here(broker, topic, index) is not replica:
                raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _step(search: Search) -> tuple[bool, TimedOffset | None]:
    try:
        next(search)
    except StopIteration as done:
        return True, done.value
    return False, None


def _require_known_end(broker: Broker, replica: Replica, version: int) -> None:
    """Refuse unless it is known here how much is committed (A3, KIP-207)."""
    core = replica.leader
    if core is None:
        # While it was searched, another one was elected.
        raise RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    require_standing(broker, replica)
    if not core.knows_high_watermark:
        is_known = version >= _NOT_AVAILABLE_SINCE
        raise RequestError(
            ErrorCode.OFFSET_NOT_AVAILABLE if is_known else ErrorCode.LEADER_NOT_AVAILABLE
        )


def _epoch_at(replica: Replica, offset: Offset) -> LeaderEpoch:
    """Return the epoch of the record there, or that of the one that comes next there."""
    log = replica.log
    return replica.leader_epoch if offset >= log.end_offset else log.epochs.epoch_at(offset)


# ── OffsetForLeaderEpoch ──────────────────────────────────────────────────────────────────────


async def offset_for_leader_epoch(broker: Broker, request: Request) -> dict[str, Any]:
    """Tell a consumer where the log that it read parts from this one (KIP-320)."""
    topics: dict[str, dict[int, dict[str, Any]]] = {}
    for topic, wanted in _partitions(request.body):
        error, end = 0, None
        try:
            _require_consumer(request.body)
            known_epoch = wanted.current_leader_epoch
            replica = led_here(broker, topic.topic, wanted.partition, known_epoch)
            if wanted.leader_epoch >= replica.leader_epoch:
                _require_known_end(broker, replica, _NOT_AVAILABLE_SINCE)
            end = end_of_epoch(replica, wanted.leader_epoch)
        except (RequestError, StorageError) as failure:
            error = _code_of(failure, f"{topic.topic}-{wanted.partition}")
        topics.setdefault(topic.topic, {})[wanted.partition] = {
            "partition": wanted.partition,
            "error_code": error,
            "leader_epoch": NO_EPOCH if end is None else end.epoch,
            "end_offset": NO_OFFSET if end is None else end.end_offset,
        }
    return _answer(topics, "topic")


def end_of_epoch(replica: Replica, epoch: int) -> EpochEnd | None:
    """Return where the largest epoch ≤ `epoch` ends, or None if that cannot be known.

    A leader that has written nothing has no entry in the history yet; its epoch began at the end.
    """
    log = replica.log
    if not 0 <= epoch <= replica.leader_epoch:
        return None
    if epoch == replica.leader_epoch:
        return EpochEnd(replica.leader_epoch, log.end_offset)
    if epoch > log.epochs.latest:
        before = log.epochs.latest
        return EpochEnd(LeaderEpoch(epoch) if before == NO_EPOCH else before, log.end_offset)
    return log.epochs.end_of(LeaderEpoch(epoch), log.end_offset)


# ── DeleteRecords ─────────────────────────────────────────────────────────────────────────────


async def delete_records(broker: Broker, request: Request) -> dict[str, Any]:
    """Let logs begin later. Here it has happened, durably, when it is answered."""
    deadline_ms = broker.clock.monotonic_ms() + max(0, request.body.timeout)
    # Of two wishes for one partition the last counts, as in Kafka.
    wishes = {
        (topic.name, one.partition_index): one.offset for topic, one in _partitions(request.body)
    }
    topics: dict[str, dict[int, dict[str, Any]]] = {}
    for (name, index), before in wishes.items():
        error, start = 0, NO_OFFSET
        try:
            async with _not_cleaned(broker, led_here(broker, name, index), deadline_ms):
                start = _delete_below(broker, name, index, before)
        except (RequestError, StorageError) as failure:
            error = _code_of(failure, f"{name}-{index}")
        topics.setdefault(name, {})[index] = {
            "partition_index": index,
            "low_watermark": start,
            "error_code": error,
        }
        # Each is a commit of its own.
        await asyncio.sleep(0)
    return _answer(topics, "name")


@asynccontextmanager
async def _not_cleaned(broker: Broker, replica: Replica, deadline_ms: int) -> AsyncIterator[None]:
    """Keep the cleaner away: it must find the segments that it reads where they were."""
    if replica.cleaning.locked():
        left_s = max(0, deadline_ms - broker.clock.monotonic_ms()) / 1000
        try:
            await asyncio.wait_for(replica.cleaning.acquire(), left_s)
        except TimeoutError:
            raise RequestError(ErrorCode.REQUEST_TIMED_OUT) from None
    else:
        await replica.cleaning.acquire()
    try:
        yield
    finally:
        replica.cleaning.release()


def _delete_below(broker: Broker, topic: str, index: int, before: int) -> Offset:
    replica = led_here(broker, topic, index)
    require_standing(broker, replica)
    if is_internal(topic):
        raise RequestError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    log = replica.log
    if not log.settings.delete:
        # The last record of each key is promised to stay.
        raise RequestError(ErrorCode.POLICY_VIOLATION)
    offset = log.high_watermark if before == _HIGH_WATERMARK else Offset(before)
    start = surgery.delete_records(log, offset, now_ms=broker.clock.now_ms())
    replica.start_moved()
    return start


# ── What all of them need ─────────────────────────────────────────────────────────────────────


def _partitions(body: Message) -> Iterator[tuple[Message, Message]]:
    for topic in body.topics:
        for one in topic.partitions:
            yield topic, one


def _answer(topics: dict[str, dict[int, dict[str, Any]]], key: str) -> dict[str, Any]:
    """Return an answer in which each topic, and in it each partition, stands once."""
    return {
        "throttle_time": 0,
        "topics": [
            {key: name, "partitions": list(partitions.values())}
            for name, partitions in topics.items()
        ],
    }
