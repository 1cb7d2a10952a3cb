"""Produce: batches go into logs, and the answer waits for as long as its acks ask.

The life of a request, all of it on the event loop:
  1. decoded where it lies; each partition's batch is checked and written at once
  2. acks=0 has no answer: a refusal closes the connection, which is all that can be said
  3. acks=1 is answered when this replica holds the batch: with `fsync`, when it is synced
  4. acks=all is refused, and nothing is written, while too few are in sync; else it is answered
     when it is committed, or when the time is up: then nobody knows

Which of them is answered what, and what consumers see then: docs/acks.md.

U1  no answer claims more than is held (acks=1) or committed (acks=all)
U2  a partition that fails says so alone; the others of the request go on
U3  a leader that may have been replaced writes nothing and acknowledges nothing (rule 13)
U4  a batch that was sent again is answered like one that is new (rule 61)
U5  what its producer had sent behind a refused batch is refused like that one, not called out of
    order, and not written (`ottla.replication.behind`)

Not here: whether a batch is good (`ottla.proto.records.validate`), how it is written (the log).
"""

from __future__ import annotations

import asyncio
from typing import Final

from ottla.controller.names import NAME_MAX, is_internal
from ottla.node.broker import Broker
from ottla.node.kafka.admission import Questions, Refusals, questions_of, refusals_of
from ottla.node.kafka.connection import Connection
from ottla.node.kafka.deadlines import Deadlines
from ottla.node.kafka.leading import (
    endpoints_of,
    leader_of,
    led_here,
    name_of,
    require_standing,
)
from ottla.node.kafka.produce_waiting import (
    NO_OFFSET,
    TopicAnswer,
    Waiting,
    as_request_error,
    refused,
)
from ottla.node.kafka.slot import Slot
from ottla.node.logs import logger
from ottla.node.metrics import TopicMetrics
from ottla.node.transactions.words import Place
from ottla.proto.errors import ErrorCode, RemoteProtocolError, RequestError, StorageError
from ottla.proto.ids import NO_TIMESTAMP, BrokerId, Offset
from ottla.proto.kafka.apis import PRODUCE
from ottla.proto.kafka.framing import RequestHead, response_head
from ottla.proto.kafka.hot import Endpoint
from ottla.proto.kafka.produce import (
    PartitionAnswer,
    ProduceRequest,
    ProduceTopic,
    decode_produce,
    encode_produce_response,
)
from ottla.proto.kafka.uuids import UUID
from ottla.replication.behind import Behind
from ottla.replication.replica import Replica

_log = logger("kafka.produce")

ACKS_ALL: Final = -1
ACKS_NONE: Final = 0
ACKS_LEADER: Final = 1
_ACKS: Final = (ACKS_ALL, ACKS_NONE, ACKS_LEADER)
_NO_REFUSALS: Final[Refusals] = {}
# Where a batch says how it is packed, and the bits of it (proto/records/header.py).
_ATTRIBUTES_AT: Final = 22
_TRANSACTIONAL: Final = 0x10
_CODEC: Final = 0x07
_ZSTD: Final = 4
_ZSTD_SINCE: Final = 7
_LEADERS_SINCE: Final = 10
# The newest timestamp of its records, and how many there are.
_NEWEST_AT: Final = 35
_NEWEST_END: Final = 43
_COUNT_AT: Final = 57
_HEADER_BYTES: Final = 61
# A partition as the request names it: by then its topic may be unknown here.
Asked = tuple[str | UUID | None, int]


class Produce:
    """Serves Produce for one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker: Final = broker
        self._clock: Final = broker.clock
        self.metrics: Final = broker.metrics
        self._times: Final = broker.metrics.requests[PRODUCE.name]
        self.deadlines: Final = Deadlines(broker.clock.monotonic_ms)
        self.now_us: Final = broker.clock.monotonic_us
        self._behind: Final = Behind()
        # Kept, so that a task that nobody waits for is not forgotten half-way.
        self._tasks: Final[set[asyncio.Task[None]]] = set()

    def require_standing(self, replica: Replica) -> None:
        require_standing(self._broker, replica)

    def serve(self, connection: Connection, head: RequestHead, frame: memoryview) -> None:
        version = head.api_version
        request = decode_produce(version, frame, head.body_at)
        if request.acks not in _ACKS:
            answers = self._refuse_all(request, _bad_acks(request.acks))
            self.answer(connection.open_slot(len(frame)), head, answers)
            return
        if request.transactional_id is not None:
            questions = questions_of(self._broker, request)
            if questions:
                self._serve_later(connection, head, frame, questions)
                return
        if request.acks == ACKS_NONE:
            self._serve_without_answer(connection, version, request)
            return
        self._serve(connection.open_slot(len(frame)), head, request)

    def _serve(
        self,
        slot: Slot,
        head: RequestHead,
        request: ProduceRequest,
        refusals: Refusals = _NO_REFUSALS,
    ) -> None:
        answers: list[TopicAnswer] = []
        ends: list[tuple[tuple[int, int], Replica, Offset]] = []
        for topic in request.topics:
            self._append_topic(head.api_version, request, topic, answers, ends, refusals)
        if not ends:
            self.answer(slot, head, answers)
            return
        self._wait(slot, head, request, answers, ends)

    def _serve_later(
        self, connection: Connection, head: RequestHead, frame: memoryview, questions: Questions
    ) -> None:
        """Ask the coordinator, and serve then; whatever comes behind waits for that."""
        # A copy: the frame is lent only until this returns.
        copy = memoryview(bytes(frame))
        request = decode_produce(head.api_version, copy, head.body_at)
        slot = None if request.acks == ACKS_NONE else connection.open_slot(len(frame))
        connection.begin_serial()
        task = asyncio.get_running_loop().create_task(
            self._asked(connection, slot, head, request, questions)
        )
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def _asked(
        self,
        connection: Connection,
        slot: Slot | None,
        head: RequestHead,
        request: ProduceRequest,
        questions: Questions,
    ) -> None:
        version = head.api_version
        try:
            refusals = await refusals_of(
                self._broker, request.transactional_id or "", version, questions
            )
            if slot is None:
                self._serve_without_answer(connection, version, request, refusals)
            else:
                self._serve(slot, head, request, refusals)
        except RefusedWithoutAcksError as error:
            connection.close(str(error))
        except BaseException:
            # Without its answer nothing behind it could be answered either.
            connection.close("a produce could not be served")
            raise
        finally:
            connection.end_serial()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            what = {"message": "a produce failed", "exception": error}
            task.get_loop().call_exception_handler(what)

    def _wait(
        self,
        slot: Slot,
        head: RequestHead,
        request: ProduceRequest,
        answers: list[TopicAnswer],
        ends: list[tuple[tuple[int, int], Replica, Offset]],
    ) -> None:
        is_all = request.acks == ACKS_ALL
        waiting: Waiting | None = None
        for place, replica, end_offset in ends:
            # It was asked in this very turn whether enough are in sync, and whether it may serve.
            if (replica.log.high_watermark if is_all else replica.held_offset) >= end_offset:
                continue
            if waiting is None:
                waiting = Waiting(self, slot, head, answers, request.timeout_ms if is_all else None)
            waiter = waiting.expect(place, replica, end_offset)
            if is_all:
                outcome = replica.when_committed(end_offset, waiter)
                if outcome is not None:
                    waiting.settle(place, RequestError(outcome) if outcome else None)
            elif replica.when_held(end_offset, waiter):
                waiting.settle(place, None)
        if waiting is None:
            self.answer(slot, head, answers)
        else:
            waiting.seal()

    def _append_topic(
        self,
        version: int,
        request: ProduceRequest,
        topic: ProduceTopic,
        answers: list[TopicAnswer],
        ends: list[tuple[tuple[int, int], Replica, Offset]],
        refusals: Refusals = _NO_REFUSALS,
    ) -> None:
        name, unknown = name_of(self._broker.controller.image, topic.name, topic.topic_id)
        partitions: list[PartitionAnswer] = []
        number = len(answers)
        answers.append((topic.name, topic.topic_id, partitions))
        metrics = None if name is None else self.metrics.topic(name)
        counted = self.metrics.unknown_topic if metrics is None else metrics
        counted.produce_requests += len(topic.partitions)
        for index, records in topic.partitions:
            asked = (topic.topic_id if topic.name is None else topic.name, index)
            if name is None or metrics is None:
                counted.failed_produce += 1
                partitions.append(self._refuse(asked, records, unknown))
                continue
            replica: Replica | None = None
            try:
                _require_not_internal(name)
                led = led_here(self._broker, name, index)
                _require_admitted(refusals, (name, index))
                # From here on it is the log that refuses, and says where it starts.
                replica = led
                answer, end_offset = self._append(
                    version, request, replica, asked, records, metrics
                )
            except RequestError as refusal:
                metrics.failed_produce += 1
                partitions.append(self._refuse(asked, records, refusal, replica))
                continue
            except StorageError as error:
                metrics.failed_produce += 1
                _log.error("append_failed", partition=f"{name}-{index}", error=str(error))
                partitions.append(self._refuse(asked, records, as_request_error(error)))
                continue
            ends.append(((number, len(partitions)), replica, end_offset))
            partitions.append(answer)

    def _refuse(
        self,
        asked: Asked,
        records: memoryview | None,
        refusal: RequestError,
        replica: Replica | None = None,
    ) -> PartitionAnswer:
        topic, index = asked
        # Whoever invents longer names has no topic here, and gets no memory either.
        if not isinstance(topic, str) or len(topic) <= NAME_MAX:
            self._behind.refused(asked, records, refusal.code)
        return refused(index, refusal, _start_told(replica, refusal))

    def _append(
        self,
        version: int,
        request: ProduceRequest,
        replica: Replica,
        asked: Asked,
        records: memoryview | None,
        metrics: TopicMetrics,
    ) -> tuple[PartitionAnswer, Offset]:
        now_ms = self._clock.now_ms()
        if records is None:
            raise RequestError(ErrorCode.INVALID_RECORD, "A partition without a batch.")
        require_standing(self._broker, replica)
        if request.acks == ACKS_ALL and (code := replica.refusal_of_all()) is not None:
            raise RequestError(code, _too_few(replica))
        if len(records) >= _HEADER_BYTES:
            _require_attributes(records[_ATTRIBUTES_AT], version, request)
        behind = self._behind
        # Nearly always nobody is: whether there is a run at all is all that is asked then.
        has_queue = bool(behind) and behind.check(asked, records, replica.log.producers)
        (appended,) = replica.append((records,), now_ms=now_ms)
        if isinstance(appended, RequestError):
            # Not itself: it and this frame would hold each other until the next collection.
            raise RequestError(appended.code, appended.sentence)
        if has_queue:
            behind.taken(asked, records)
        if not appended.is_duplicate:
            metrics.bytes_in += len(records)
            metrics.messages_in += int.from_bytes(records[_COUNT_AT:_HEADER_BYTES], "big")
            newest_ms = int.from_bytes(records[_NEWEST_AT:_NEWEST_END], "big", signed=True)
            if newest_ms != NO_TIMESTAMP:
                self.metrics.batch_appended(now_ms - newest_ms)
        answer = PartitionAnswer(
            asked[1], 0, appended.first_offset, appended.append_time_ms, replica.log.start_offset
        )
        return answer, Offset(appended.last_offset + 1)

    def _serve_without_answer(
        self,
        connection: Connection,
        version: int,
        request: ProduceRequest,
        refusals: Refusals = _NO_REFUSALS,
    ) -> None:
        answers: list[TopicAnswer] = []
        for topic in request.topics:
            self._append_topic(version, request, topic, answers, [], refusals)
        self._count_errors(answers)
        for _, _, partitions in answers:
            for answer in partitions:
                if answer.error:
                    # The only way to say anything (Kafka does the same).
                    _log.debug("produce_without_acks_refused", peer=str(connection))
                    raise RefusedWithoutAcksError(
                        f"a produce with acks=0 was refused: {ErrorCode(answer.error).name}"
                    )

    def _refuse_all(self, request: ProduceRequest, error: RequestError) -> list[TopicAnswer]:
        return [
            (topic.name, topic.topic_id, [refused(index, error) for index, _ in topic.partitions])
            for topic in request.topics
        ]

    def answer(self, slot: Slot, head: RequestHead, answers: list[TopicAnswer]) -> None:
        version = head.api_version
        listener = slot.connection.listener
        endpoints = self._tell_leaders(answers, listener) if version >= _LEADERS_SINCE else ()
        body = encode_produce_response(version, answers, endpoints=endpoints)
        start = response_head(PRODUCE, version, head.correlation_id)
        size = (len(start) + len(body)).to_bytes(4, "big")
        slot.answer((size + start + body,))
        self._count(slot, version, answers)

    def _count(self, slot: Slot, version: int, answers: list[TopicAnswer]) -> None:
        now_us = self._clock.monotonic_us()
        worked_until_us = now_us if slot.waits_us is None else slot.waits_us
        times, came_us, began_us = self._times, slot.came_us, slot.began_us
        times.observe((now_us - came_us) / 1000, (began_us - came_us) / 1000, version)
        times.observe_phases((worked_until_us - began_us) / 1000, (now_us - worked_until_us) / 1000)
        self._count_errors(answers)

    def _count_errors(self, answers: list[TopicAnswer]) -> None:
        for _, _, partitions in answers:
            for answer in partitions:
                if answer.error:
                    self.metrics.request_failed(PRODUCE.name, answer.error)

    def _tell_leaders(self, answers: list[TopicAnswer], listener: str) -> list[Endpoint]:
        """Write into refusals who leads instead, and return where that is (KIP-951)."""
        leaders: list[BrokerId] = []
        for given_name, topic_id, partitions in answers:
            for place, answer in enumerate(partitions):
                if answer.error == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    image = self._broker.controller.image
                    name, _ = name_of(image, given_name, topic_id)
                    leader = leader_of(image, name, answer.index)
                    # Who lost its standing would send clients to itself.
                    if leader is not None and leader[0] != self._broker.node_id:
                        leaders.append(leader[0])
                        partitions[place] = answer._replace(leader=leader)
        return endpoints_of(self._broker.controller.image, leaders, listener) if leaders else []


class RefusedWithoutAcksError(RemoteProtocolError):
    """A client that wants no answers is told by closing its connection."""


# What a producer may have missed because retention was faster: it is told where the log starts.
_BY_PRODUCER: Final = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
)


def _start_told(replica: Replica | None, refusal: RequestError) -> int:
    """Return where the log starts, for a producer that may have missed it, or −1."""
    if replica is None or refusal.code not in _BY_PRODUCER:
        return NO_OFFSET
    return replica.log.start_offset


def _too_few(replica: Replica) -> str:
    core = replica.leader
    if core is None:
        return ""
    in_sync, needed = len(core.view.isr), core.view.min_isr
    return (
        f"{in_sync} of {len(core.view.replicas)} replicas of {replica.partition} "
        f"{'is' if in_sync == 1 else 'are'} in sync, and acks=all needs {needed}: "
        "nothing was written."
    )


def _bad_acks(acks: int) -> RequestError:
    return RequestError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is 0, 1 or −1, not {acks}.")


def _require_attributes(low_bits: int, version: int, request: ProduceRequest) -> None:
    if low_bits & _CODEC == _ZSTD and version < _ZSTD_SINCE:
        raise RequestError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"zstd needs Produce {_ZSTD_SINCE} or later, and this is {version}.",
        )
    if low_bits & _TRANSACTIONAL and request.transactional_id is None:
        raise RequestError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "A transactional batch in a request without a transactional id.",
        )


def _require_admitted(refusals: Refusals, place: Place) -> None:
    refusal = refusals.get(place) if refusals else None
    if refusal is not None:
        raise RequestError(refusal.code, refusal.sentence)


def _require_not_internal(topic: str) -> None:
    if is_internal(topic):
        sentence = "Brokers keep this topic for themselves; nobody else writes to it."
        raise RequestError(ErrorCode.INVALID_TOPIC_EXCEPTION, sentence)
