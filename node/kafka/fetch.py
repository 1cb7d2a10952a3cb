"""Fetch: where the bytes lie, and how long to wait for more of them.

No record is looked at: an answer is a few bytes of our own around pieces of segment files, which
leave as they are (`outbox.py`).

A fetch that finds less than it asks for waits. It is woken by the partitions it names, counts what
these have, and is answered when there is enough, when something is wrong, or when its time is up.
Only then are all the partitions looked at again: an append costs a fetch that waits for two
thousand partitions no more than one that waits for one.

F1  nothing at or above the high watermark is sent, and to who reads committed nothing at or above
    the last stable offset
F2  the first batch is always whole, else a batch larger than a client's limit would stop it for
    ever (KIP-74); all in all no more than `fetch.max.bytes` and that batch
F3  a client cannot pose as a replica: replicas speak to each other elsewhere (CVE-2018-1288)
F4  of one connection one fetch waits at a time, and of all of them so many that they watch
    `WATCHED_MAX` partitions; beyond that those that wait longest are answered with what there is
F5  a leader that may have been replaced says nothing of its end (rule 13): who reads there would
    wait at a log that has stopped, or hear that what the new leader gave it does not exist

Not here: how a log finds an offset (`replication/log`), and how the answer is encoded
(`proto/kafka/fetch.py`).
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from ottla.node.broker import Broker
from ottla.node.kafka.connection import Connection
from ottla.node.kafka.isolation import ISOLATION_LEVELS, aborted_in, readable_end
from ottla.node.kafka.leading import (
    endpoints_of,
    leader_of,
    led_here,
    name_of,
    require_standing,
)
from ottla.node.kafka.offsets import end_of_epoch
from ottla.node.kafka.outbox import FilePart, Part
from ottla.node.kafka.slot import Slot
from ottla.node.logs import logger
from ottla.proto.errors import ErrorCode, RequestError, StorageError
from ottla.proto.ids import NO_EPOCH, BrokerId, Offset
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
from ottla.proto.kafka.hot import Endpoint
from ottla.proto.options import node as node_options
from ottla.replication.log.log import Log
from ottla.replication.log.slices import LogSlice
from ottla.replication.replica import Replica

_log = logger("kafka.fetch")

NO_OFFSET: Final = -1
_NO_SESSION: Final = 0
# Session epochs that ask for everything: begin a session, and go without one.
_FULL_FETCHES: Final = (0, -1)
_WAIT_MAX_MS: Final = 24 * 60 * 60 * 1000
_LEADERS_SINCE: Final = 16
# A watched partition takes some 400 bytes.
WATCHED_MAX: Final = 250_000


class _Found(NamedTuple):
    """What there is for a request now."""

    topics: list[TopicAnswer]
    parts: list[FilePart | None]
    size: int
    has_error: bool


class _Watch:
    """One partition of a fetch that waits, and how much it has for it."""

    __slots__ = ("_waiting", "is_woken", "replica", "size", "topic", "wanted")

    def __init__(
        self, waiting: _Waiting, replica: Replica, topic: FetchTopic, wanted: FetchPartition
    ) -> None:
        self._waiting: Final = waiting
        self.replica: Final = replica
        self.topic: Final = topic
        self.wanted: Final = wanted
        self.size = 0
        self.is_woken = False

    def woken(self) -> None:
        if not self.is_woken:
            self.is_woken = True
            self._waiting.woken_by(self)


class _Waiting:
    """A fetch that waits for more. Woken by its partitions, its timer or the end of its client."""

    __slots__ = (
        "_fetch",
        "_handle",
        "_head",
        "_least",
        "_left",
        "_request",
        "_slot",
        "_woken_by",
        "watches",
    )

    def __init__(
        self,
        fetch: Fetch,
        slot: Slot,
        head: RequestHead,
        request: FetchRequest,
        found: _Found,
    ) -> None:
        self._fetch: Final = fetch
        self._slot: Final = slot
        self._head: Final = head
        self._request: Final = request
        # How many bytes are worth an answer, and how many of them are still missing.
        self._least: Final = fetch.bytes_least(request)
        self._left = self._least - found.size
        self._woken_by: list[_Watch] = []
        self.watches = fetch.watches_of(self, request, found)
        wait_ms = min(request.max_wait_ms, _WAIT_MAX_MS)
        self._handle = asyncio.get_running_loop().call_later(wait_ms / 1000, self.finish)
        slot.on_closed = self._leave
        slot.waits_us = fetch.now_us()
        slot.connection.begin_wait(self.finish)
        for watch in self.watches:
            watch.replica.readers.add(watch)
        fetch.began_to_wait(self)

    def woken_by(self, watch: _Watch) -> None:
        # Not at once: more may be appended before this turn of the loop is over.
        if not self._woken_by:
            asyncio.get_running_loop().call_soon(self._look)
        self._woken_by.append(watch)

    def _look(self) -> None:
        woken_by, self._woken_by = self._woken_by, []
        if self not in self._fetch.waiting:
            return
        for watch in woken_by:
            watch.is_woken = False
        if self._least > 1 and len(self.watches) > 1:
            if self._has_enough(woken_by):
                self.finish()
            return
        # Whatever has come is enough, nearly always: do not look for it twice.
        found = self._fetch.find(self._request)
        if found.has_error or found.size >= self._least:
            self.finish(found)

    def _has_enough(self, woken_by: list[_Watch]) -> bool:
        for watch in woken_by:
            size = self._fetch.size_of(watch, self._request)
            if size is None:
                return True
            self._left -= size - watch.size
            watch.size = size
        return self._left <= 0

    def finish(self, found: _Found | None = None) -> None:
        """Answer with what there is: it is enough, time is up, or somebody leaves."""
        self._leave()
        self._fetch.answer(self._slot, self._head, found or self._fetch.find(self._request))

    def _leave(self) -> None:
        self._handle.cancel()
        self._slot.connection.end_wait()
        for watch in self.watches:
            watch.replica.readers.discard(watch)
        self._fetch.ended_waiting(self)
        # They know each other: nobody should have to come and collect them.
        self.watches = ()


class Fetch:
    """Serves Fetch for one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker: Final = broker
        self._replicas: Final = broker.replicas
        self.metrics: Final = broker.metrics
        self._times: Final = broker.metrics.requests[FETCH.name]
        self.now_us: Final = broker.clock.monotonic_us
        # Longest waiting first.
        self.waiting: Final[dict[_Waiting, None]] = {}
        self._watched = 0

    def serve(self, connection: Connection, head: RequestHead, frame: memoryview) -> None:
        request = decode_fetch(head.api_version, frame, head.body_at)
        slot = connection.open_slot(len(frame))
        refusal = _refusal(request)
        if refusal is not None:
            self._refuse(slot, head, request, refusal)
            return
        found = self.find(request)
        if found.has_error or found.size >= self.bytes_least(request) or request.max_wait_ms <= 0:
            self.answer(slot, head, found)
            return
        if connection.is_leaving or not found.parts or self._names_one_twice(request):
            # Who names a partition twice does not wait either: a hundred thousand names of one
            # would all be looked at again whenever something is appended to it.
            self.answer(slot, head, found)
            return
        _Waiting(self, slot, head, request, found)

    def stop(self) -> None:
        for waiting in tuple(self.waiting):
            waiting.finish()

    # -- waiting ---------------------------------------------------------------------------------

    def began_to_wait(self, waiting: _Waiting) -> None:
        self.waiting[waiting] = None
        self._watched += len(waiting.watches)
        self.metrics.waiting_fetches = len(self.waiting)
        while self._watched > WATCHED_MAX and len(self.waiting) > 1:
            next(iter(self.waiting)).finish()

    def ended_waiting(self, waiting: _Waiting) -> None:
        del self.waiting[waiting]
        self._watched -= len(waiting.watches)
        self.metrics.waiting_fetches = len(self.waiting)

    def watches_of(
        self, waiting: _Waiting, request: FetchRequest, found: _Found
    ) -> tuple[_Watch, ...]:
        watches: list[_Watch] = []
        parts = iter(found.parts)
        for topic in request.topics:
            name = self._name_of(topic)
            for wanted in topic.partitions:
                part = next(parts)
                replica = None if name is None else self._replicas.get(name, wanted.index)
                # A partition that is not here is an error, and who finds one does not wait.
                assert replica is not None
                watch = _Watch(waiting, replica, topic, wanted)
                watch.size = 0 if part is None else part.size
                watches.append(watch)
        return tuple(watches)

    def size_of(self, watch: _Watch, request: FetchRequest) -> int | None:
        """Return how much a partition has now for the fetch, or None if something is wrong."""
        name = self._name_of(watch.topic)
        if name is None or self._replicas.get(name, watch.wanted.index) is not watch.replica:
            return None
        limit = self._bytes_most(request)
        answer, part = self._read(name, watch.wanted, request, limit, is_first=True)
        if answer.error or answer.diverging is not None:
            return None
        return 0 if part is None else part.size

    def bytes_least(self, request: FetchRequest) -> int:
        """Return what is worth an answer: never more than an answer may have."""
        return min(request.min_bytes, self._bytes_most(request))

    def _bytes_most(self, request: FetchRequest) -> int:
        limit = self._broker.options.current.value_of(node_options.FETCH_MAX_BYTES)
        return min(request.bytes_max, limit)

    def _names_one_twice(self, request: FetchRequest) -> bool:
        named = [
            (topic.name, topic.topic_id, wanted.index)
            for topic in request.topics
            for wanted in topic.partitions
        ]
        return len(set(named)) < len(named)

    # -- what there is ---------------------------------------------------------------------------

    def find(self, request: FetchRequest) -> _Found:
        left = self._bytes_most(request)
        topics: list[TopicAnswer] = []
        parts: list[FilePart | None] = []
        total, has_error = 0, False
        for topic in request.topics:
            image = self._broker.controller.image
            name, unknown = name_of(image, topic.name, topic.topic_id)
            answers: list[FetchAnswer] = []
            topics.append((topic.name, topic.topic_id, answers))
            for wanted in topic.partitions:
                part: FilePart | None = None
                if name is None:
                    answer = _failed(wanted, unknown.code)
                else:
                    answer, part = self._read(name, wanted, request, left, is_first=not total)
                answers.append(answer)
                parts.append(part)
                has_error = has_error or bool(answer.error) or answer.diverging is not None
                if part is not None:
                    total += part.size
                    left = max(0, left - part.size)
        return _Found(topics, parts, total, has_error)

    def _name_of(self, topic: FetchTopic) -> str | None:
        return name_of(self._broker.controller.image, topic.name, topic.topic_id)[0]

    def _read(
        self,
        topic: str,
        wanted: FetchPartition,
        request: FetchRequest,
        left: int,
        *,
        is_first: bool,
    ) -> tuple[FetchAnswer, FilePart | None]:
        found: LogSlice | None = None
        diverging: tuple[int, int] | None = None
        try:
            # Here any number below 0 knows no epoch; as in Kafka, nowhere else.
            replica = led_here(
                self._broker, topic, wanted.index, max(wanted.leader_epoch, NO_EPOCH)
            )
            _require_size(wanted.bytes_max)
            log = replica.log
            bound = readable_end(log, request.isolation_level)
            if wanted.offset >= bound:
                require_standing(self._broker, replica)
            diverging = _divergence(replica, wanted)
            if diverging is None:
                found = _slice(log, wanted, min(wanted.bytes_max, left), bound, is_first=is_first)
            aborted = aborted_in(log, wanted.offset, found, request.isolation_level)
        except RequestError as refusal:
            return _failed(wanted, refusal.code), None
        except StorageError as error:
            _log.error("read_failed", partition=f"{topic}-{wanted.index}", error=str(error))
            return _failed(wanted, ErrorCode.KAFKA_STORAGE_ERROR), None
        part = None if found is None else FilePart(found.file, found.position, found.size)
        answer = FetchAnswer(
            wanted.index,
            0,
            log.high_watermark,
            log.last_stable_offset,
            log.start_offset,
            0 if part is None else part.size,
            diverging=diverging,
            aborted=aborted,
        )
        return answer, part

    # -- the answer ------------------------------------------------------------------------------

    def answer(self, slot: Slot, head: RequestHead, found: _Found) -> None:
        self._send(slot, head, ErrorCode.NONE, found)
        self._count(found)

    def _refuse(
        self, slot: Slot, head: RequestHead, request: FetchRequest, error: RequestError
    ) -> None:
        topics: list[TopicAnswer] = []
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
        is_moved = found.has_error and version >= _LEADERS_SINCE
        topics, endpoints = found.topics, list[Endpoint]()
        if is_moved:
            topics, endpoints = self._with_leaders(found.topics, slot.connection.listener)
        pieces = encode_fetch_response(
            version,
            throttle_ms=0,
            error=int(error),
            session_id=_NO_SESSION,
            topics=topics,
            endpoints=endpoints,
        )
        start = response_head(FETCH, version, head.correlation_id)
        size = len(start) + sum(map(len, pieces)) + found.size
        parts: list[Part] = [size.to_bytes(4, "big") + start + pieces[0]]
        for number, part in enumerate(found.parts, 1):
            if part is not None:
                parts.append(part)
            parts.append(pieces[number])
        slot.answer(parts)
        self._observe(slot, version)
        if found.has_error:
            self._count_errors(error, found)

    def _observe(self, slot: Slot, version: int) -> None:
        now_us = self.now_us()
        worked_until_us = now_us if slot.waits_us is None else slot.waits_us
        times, came_us, began_us = self._times, slot.came_us, slot.began_us
        times.observe((now_us - came_us) / 1000, (began_us - came_us) / 1000, version)
        times.observe_phases((worked_until_us - began_us) / 1000, (now_us - worked_until_us) / 1000)

    def _count_errors(self, error: ErrorCode, found: _Found) -> None:
        if error:
            self.metrics.request_failed(FETCH.name, error)
        for _, _, answers in found.topics:
            for answer in answers:
                if answer.error:
                    self.metrics.request_failed(FETCH.name, answer.error)

    def _with_leaders(
        self, topics: list[TopicAnswer], listener: str
    ) -> tuple[list[TopicAnswer], list[Endpoint]]:
        """Return the answers with who leads instead, and where that is (KIP-951)."""
        image, leaders = self._broker.controller.image, list[BrokerId]()

        def told(name: str | None, answer: FetchAnswer) -> FetchAnswer:
            leader = leader_of(image, name, answer.index) if answer.error in _MOVED else None
            if leader is None:
                return answer
            if leader[0] == self._broker.node_id and answer.error == _NOT_LEADER:
                # Who lost its standing would send clients to itself.
                return answer
            leaders.append(leader[0])
            return answer._replace(leader=leader)

        changed: list[TopicAnswer] = []
        for given_name, topic_id, answers in topics:
            name, _ = name_of(image, given_name, topic_id)
            changed.append((given_name, topic_id, [told(name, answer) for answer in answers]))
        return changed, endpoints_of(image, leaders, listener)

    def _count(self, found: _Found) -> None:
        for name, topic_id, answers in found.topics:
            known = self._name_of(FetchTopic(name, topic_id, []))
            metrics = self.metrics.unknown_topic if known is None else self.metrics.topic(known)
            metrics.fetch_requests += len(answers)
            for answer in answers:
                metrics.failed_fetch += bool(answer.error)
                metrics.bytes_out += answer.records_size


# To which a client is told who leads.
_NOT_LEADER: Final = ErrorCode.NOT_LEADER_OR_FOLLOWER
_MOVED: Final = (_NOT_LEADER, ErrorCode.FENCED_LEADER_EPOCH)
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
    if request.isolation_level not in ISOLATION_LEVELS:
        return RequestError(ErrorCode.INVALID_REQUEST)
    if request.bytes_max < 0:
        return RequestError(ErrorCode.INVALID_FETCH_SIZE)
    return None


def _failed(wanted: FetchPartition, code: ErrorCode) -> FetchAnswer:
    return FetchAnswer(wanted.index, int(code), NO_OFFSET, NO_OFFSET, NO_OFFSET, 0)


def _require_size(bytes_max: int) -> None:
    if bytes_max < 0:
        raise RequestError(ErrorCode.INVALID_FETCH_SIZE)


def _divergence(replica: Replica, wanted: FetchPartition) -> tuple[int, int] | None:
    """Return where the client's history parts from ours, or None if it does not (KIP-595)."""
    epoch = wanted.last_fetched_epoch
    if epoch < 0:
        return None
    end = end_of_epoch(replica, epoch)
    if end is None or end.epoch == NO_EPOCH:
        raise RequestError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if end.epoch < epoch or end.end_offset < wanted.offset:
        return end.epoch, end.end_offset
    return None


def _slice(
    log: Log, wanted: FetchPartition, bytes_max: int, bound: Offset, *, is_first: bool
) -> LogSlice | None:
    found = log.read(Offset(wanted.offset), bytes_max=bytes_max, before=bound)
    return None if found is None or (found.size > bytes_max and not is_first) else found
