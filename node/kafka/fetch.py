"""Fetch: where the bytes lie, and how long to wait for more of them.

No record is looked at and no batch is copied: an answer is a few bytes of our own around pieces of
segment files that the kernel sends (`outbox.py`).

A fetch that finds less than it asks for waits. It is woken by the partitions it names, counts
again, and is answered when there is enough, when something is wrong, or when its time is up.

F1  nothing at or above the high watermark is sent
F2  the first batch is always whole, else a batch larger than a client's limit would stop it for
    ever (KIP-74); all in all no more than `fetch.max.bytes` and that batch
F3  a client cannot pose as a replica: replicas speak to each other elsewhere (CVE-2018-1288)

Not here: how a log finds an offset (`replication/log`), and how the answer is encoded
(`proto/kafka/fetch.py`).
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from ottla.node.broker import Broker
from ottla.node.kafka.connection import Connection, Slot
from ottla.node.kafka.outbox import FilePart, Part
from ottla.node.logs import logger
from ottla.proto.errors import ErrorCode, RequestError, StorageError
from ottla.proto.ids import NO_EPOCH, LeaderEpoch, Offset
from ottla.proto.kafka.apis import FETCH
from ottla.proto.kafka.fetch import (
    FetchAnswer,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    TopicAnswer,
    decode_fetch,
    encode_fetch_response,
)
from ottla.proto.kafka.framing import RequestHead, response_head
from ottla.proto.options import node as node_options
from ottla.replication.replica import Replica

_log = logger("kafka.fetch")

NO_OFFSET: Final = -1
READ_COMMITTED: Final = 1
_ISOLATION_LEVELS: Final = (0, READ_COMMITTED)
_NO_SESSION: Final = 0
# Session epochs that ask for everything: begin a session, and go without one.
_FULL_FETCHES: Final = (0, -1)
_WAIT_MAX_MS: Final = 24 * 60 * 60 * 1000


class _Found(NamedTuple):
    """What there is for a request now."""

    topics: list[TopicAnswer]
    parts: list[FilePart | None]
    size: int
    has_error: bool


class _Waiting:
    """A fetch that waits for more. Woken by its partitions, its timer or the end of its client."""

    __slots__ = ("_fetch", "_handle", "_head", "_is_woken", "_replicas", "_request", "_slot")

    def __init__(
        self,
        fetch: Fetch,
        slot: Slot,
        head: RequestHead,
        request: FetchRequest,
        replicas: list[Replica],
    ) -> None:
        self._fetch: Final = fetch
        self._slot: Final = slot
        self._head: Final = head
        self._request: Final = request
        self._replicas: Final = replicas
        self._is_woken = False
        wait_ms = min(request.max_wait_ms, _WAIT_MAX_MS)
        self._handle = asyncio.get_running_loop().call_later(wait_ms / 1000, self._time_is_up)
        slot.on_closed = self._leave
        for replica in replicas:
            replica.readers.add(self)
        fetch.waiting.add(self)
        fetch.metrics.waiting_fetches = len(fetch.waiting)

    def woken(self) -> None:
        # Not at once: more may be appended before this turn of the loop is over.
        if not self._is_woken:
            self._is_woken = True
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        self._is_woken = False
        if self not in self._fetch.waiting:
            return
        found = self._fetch.find(self._request)
        if found.has_error or found.size >= self._request.min_bytes:
            self._finish(found)

    def _time_is_up(self) -> None:
        self._finish(self._fetch.find(self._request))

    def finish_now(self) -> None:
        """Answer with what there is: the node is stopping."""
        self._finish(self._fetch.find(self._request))

    def _finish(self, found: _Found) -> None:
        self._leave()
        self._fetch.answer(self._slot, self._head, found)

    def _leave(self) -> None:
        self._handle.cancel()
        self._fetch.waiting.discard(self)
        self._fetch.metrics.waiting_fetches = len(self._fetch.waiting)
        for replica in self._replicas:
            replica.readers.discard(self)


class Fetch:
    """Serves Fetch for one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker: Final = broker
        self._replicas: Final = broker.replicas
        self.metrics: Final = broker.metrics
        self._times: Final = broker.metrics.requests[FETCH.name]
        self.waiting: Final[set[_Waiting]] = set()

    def serve(self, connection: Connection, head: RequestHead, frame: memoryview) -> None:
        request = decode_fetch(head.api_version, frame, head.body_at)
        slot = connection.open_slot(len(frame))
        refusal = _refusal(request)
        if refusal is not None:
            self._refuse(slot, head, request, refusal)
            return
        found = self.find(request)
        if found.has_error or found.size >= request.min_bytes or request.max_wait_ms <= 0:
            self.answer(slot, head, found)
            return
        replicas = self._replicas_of(request)
        if not replicas or len(replicas) < len(found.parts):
            # Who names a partition twice does not wait either: a hundred thousand names of one
            # would all be looked at again whenever something is appended to it.
            self.answer(slot, head, found)
            return
        _Waiting(self, slot, head, request, replicas)

    def stop(self) -> None:
        for waiting in tuple(self.waiting):
            waiting.finish_now()

    # -- what there is ---------------------------------------------------------------------------

    def find(self, request: FetchRequest) -> _Found:
        limit = self._broker.options.current.value_of(node_options.FETCH_MAX_BYTES)
        left = min(request.bytes_max, limit)
        topics = list[TopicAnswer]()
        parts = list[FilePart | None]()
        total, has_error = 0, False
        for topic in request.topics:
            name, unknown = self._name_of(topic)
            answers = list[FetchAnswer]()
            topics.append((topic.name, topic.topic_id, answers))
            for wanted in topic.partitions:
                replica = None if name is None else self._replicas.get(name, wanted.index)
                part: FilePart | None = None
                if replica is None:
                    why = unknown if name is None else self._replicas.refusal(name, wanted.index)
                    answer = _failed(wanted, why.code)
                else:
                    answer, part = self._read(replica, wanted, request, left, is_first=not total)
                answers.append(answer)
                parts.append(part)
                has_error = has_error or bool(answer.error) or answer.diverging is not None
                if part is not None:
                    total += part.size
                    left = max(0, left - part.size)
        return _Found(topics, parts, total, has_error)

    def _name_of(self, topic: FetchTopic) -> tuple[str | None, RequestError]:
        if topic.name is not None:
            known = topic.name in self._broker.controller.image.topics
            return topic.name if known else None, _UNKNOWN_PARTITION
        info = None
        if topic.topic_id is not None:
            info = self._broker.controller.image.topic_by_id(topic.topic_id)
        return (None, _UNKNOWN_ID) if info is None else (info.name, _UNKNOWN_PARTITION)

    def _read(
        self,
        replica: Replica,
        wanted: FetchPartition,
        request: FetchRequest,
        left: int,
        *,
        is_first: bool,
    ) -> tuple[FetchAnswer, FilePart | None]:
        log = replica.log
        part: FilePart | None = None
        diverging: tuple[int, int] | None = None
        try:
            require_epoch(replica, wanted.leader_epoch)
            _require_size(wanted.bytes_max)
            diverging = _divergence(replica, wanted)
            if diverging is None:
                part = _slice(replica, wanted, left, is_first=is_first)
        except RequestError as refusal:
            return _failed(wanted, refusal.code), None
        except StorageError as error:
            _log.error("read_failed", partition=str(replica.partition), error=str(error))
            return _failed(wanted, ErrorCode.KAFKA_STORAGE_ERROR), None
        high_watermark = log.high_watermark
        aborted = () if request.isolation_level == READ_COMMITTED else None
        answer = FetchAnswer(
            wanted.index,
            0,
            high_watermark,
            # Without transactions nothing is undecided.
            high_watermark,
            log.start_offset,
            0 if part is None else part.size,
            diverging=diverging,
            aborted=aborted,
        )
        return answer, part

    def _replicas_of(self, request: FetchRequest) -> list[Replica]:
        found = dict[int, Replica]()
        for topic in request.topics:
            name, _ = self._name_of(topic)
            for wanted in topic.partitions:
                replica = None if name is None else self._replicas.get(name, wanted.index)
                if replica is not None:
                    found[id(replica)] = replica
        return list(found.values())

    # -- the answer ------------------------------------------------------------------------------

    def answer(self, slot: Slot, head: RequestHead, found: _Found) -> None:
        self._send(slot, head, ErrorCode.NONE, found)
        self._count(found)

    def _refuse(
        self, slot: Slot, head: RequestHead, request: FetchRequest, error: RequestError
    ) -> None:
        topics = list[TopicAnswer]()
        if error.code not in _SESSION_ERRORS:
            topics = [
                (
                    topic.name,
                    topic.topic_id,
                    [_failed(wanted, error.code) for wanted in topic.partitions],
                )
                for topic in request.topics
            ]
        parts: list[FilePart | None] = [None for _, _, answers in topics for _ in answers]
        self._send(slot, head, error.code, _Found(topics, parts, 0, True))

    def _send(self, slot: Slot, head: RequestHead, error: ErrorCode, found: _Found) -> None:
        version = head.api_version
        pieces = encode_fetch_response(
            version, throttle_ms=0, error=int(error), session_id=_NO_SESSION, topics=found.topics
        )
        start = response_head(FETCH, version, head.correlation_id)
        size = len(start) + sum(map(len, pieces)) + found.size
        parts: list[Part] = [size.to_bytes(4, "big") + start + pieces[0]]
        for number, part in enumerate(found.parts, 1):
            if part is not None:
                parts.append(part)
            parts.append(pieces[number])
        slot.answer(parts)
        took_us = self._broker.clock.monotonic_us() - slot.began_us
        self._times.observe(took_us / 1000, version)

    def _count(self, found: _Found) -> None:
        for name, topic_id, answers in found.topics:
            known, _ = self._name_of(FetchTopic(name, topic_id, []))
            metrics = self.metrics.unknown_topic if known is None else self.metrics.topic(known)
            metrics.fetch_requests += 1
            for answer in answers:
                metrics.failed_fetch += bool(answer.error)
                metrics.bytes_out += answer.records_size


_UNKNOWN_PARTITION: Final = RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
_UNKNOWN_ID: Final = RequestError(ErrorCode.UNKNOWN_TOPIC_ID)
_SESSION_ERRORS: Final = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
)


def _refusal(request: FetchRequest) -> RequestError | None:
    """Return why the whole request is refused, or None."""
    if request.session_epoch not in _FULL_FETCHES:
        # We hand out no sessions, so there is none to go on with.
        return RequestError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    if request.replica_id >= 0:
        return RequestError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if request.isolation_level not in _ISOLATION_LEVELS:
        return RequestError(ErrorCode.INVALID_REQUEST)
    if request.bytes_max < 0:
        return RequestError(ErrorCode.INVALID_FETCH_SIZE)
    return None


def _failed(wanted: FetchPartition, code: ErrorCode) -> FetchAnswer:
    return FetchAnswer(wanted.index, int(code), NO_OFFSET, NO_OFFSET, NO_OFFSET, 0)


def _require_size(bytes_max: int) -> None:
    if bytes_max < 0:
        raise RequestError(ErrorCode.INVALID_FETCH_SIZE)


def require_epoch(replica: Replica, epoch: int) -> None:
    """Refuse a client that knows another leader epoch than ours; −1 knows none (KIP-320)."""
    if epoch < 0 or epoch == replica.leader_epoch:
        return
    if epoch < replica.leader_epoch:
        raise RequestError(ErrorCode.FENCED_LEADER_EPOCH)
    raise RequestError(ErrorCode.UNKNOWN_LEADER_EPOCH)


def _divergence(replica: Replica, wanted: FetchPartition) -> tuple[int, int] | None:
    """Return where the client's history parts from ours, or None if it does not (KIP-595)."""
    epoch = wanted.last_fetched_epoch
    if epoch < 0:
        return None
    log = replica.log
    end = log.epochs.end_of(LeaderEpoch(epoch), log.end_offset)
    if end is None or end.epoch == NO_EPOCH:
        raise RequestError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if end.epoch < epoch or end.end_offset < wanted.offset:
        return end.epoch, end.end_offset
    return None


def _slice(
    replica: Replica, wanted: FetchPartition, left: int, *, is_first: bool
) -> FilePart | None:
    log = replica.log
    bytes_max = min(wanted.bytes_max, left)
    found = log.read(Offset(wanted.offset), bytes_max=bytes_max, before=Offset(log.high_watermark))
    if found is None or (found.size > bytes_max and not is_first):
        return None
    return FilePart(found.file, found.position, found.size)
