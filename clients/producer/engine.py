"""What drives a producer's cores on an event loop: metadata in, requests out, outcomes told.

Both producers stand on this. `append` may be called from any thread; everything else happens on the
loop. One lock guards the cores, and nothing waits while it is held.

E1  a batch goes only to a broker that is connected: what was never written to a socket is never in
    flight
E2  requests to a broker leave in the order in which they were decided on: nothing is awaited before
    the bytes are in the socket's buffer
E3  callbacks are called on the loop's thread without the lock, in the order of their records within
    a batch, each exactly once; one that raises is told to the loop's exception handler

Not here: decisions (`accumulator.py`, `sender.py`).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from random import SystemRandom
from typing import Any, Final

from ottla.clients import options as rows
from ottla.clients.clock import now_ms
from ottla.clients.cluster import ClusterClient
from ottla.clients.connection import Connection, error_code_of
from ottla.clients.errors import ClientClosedError, NotSentError, TransactionError
from ottla.clients.metadata import NO_LEADER, TopicInfo
from ottla.clients.options import ClientOptions
from ottla.clients.producer import wire
from ottla.clients.producer.accumulator import Accumulator, AccumulatorSettings
from ottla.clients.producer.batch import Batch, Headers, Report, State
from ottla.clients.producer.encoding import encode_batch
from ottla.clients.producer.sender import Dispatch, Sender, SenderSettings
from ottla.clients.producer.transacting import Transacting
from ottla.clients.producer.transactions import Transactions
from ottla.clients.retrying import STALE_METADATA, Backoff
from ottla.proto.errors import ErrorCode, OttlaError, RemoteProtocolError
from ottla.proto.kafka.apis import INIT_PRODUCER_ID, PRODUCE
from ottla.proto.kafka.decode import decode_response
from ottla.proto.kafka.uuids import UUID, ZERO_UUID
from ottla.proto.records.compression import Codec

_CLOSED: Final = "the producer is closed."


class Engine:
    """One producer at work, from its first use until `close`; made on its event loop."""

    def __init__(self, options: ClientOptions) -> None:
        self.options: Final = options
        self.cluster: Final = ClusterClient(options)
        self.metrics: Final = self.cluster.metrics
        self.lock: Final = threading.Lock()
        self.accumulator: Final = Accumulator(
            _accumulator_settings(options), SystemRandom().randrange
        )
        transactional_id = options.value_of(rows.TRANSACTIONAL_ID)
        self._transactions: Final = (
            Transactions(transactional_id, is_two_phase=options.value_of(rows.TWO_PHASE_COMMIT))
            if transactional_id
            else None
        )
        self.transacting: Final = (
            None if self._transactions is None else Transacting(self._transactions, self, options)
        )
        self.sender: Final = Sender(_sender_settings(options), self.accumulator, self._transactions)
        self.max_block_s: Final = options.value_of(rows.MAX_BLOCK_MS) / 1000
        self._loop: Final = asyncio.get_running_loop()
        self._codec: Final = _codec_of(options.value_of(rows.COMPRESSION_TYPE))
        level = options.value_of(rows.COMPRESSION_LEVEL)
        self._level: Final = None if level < 0 else level
        self._acks: Final = options.value_of(rows.ACKS)
        self._timeout_ms: Final = options.value_of(rows.REQUEST_TIMEOUT_MS)
        self._tasks: Final = set[asyncio.Task[None]]()
        self._requests: Final = set[asyncio.Task[None]]()
        # Whose connection is being made, and what else runs at most once at a time.
        self._under_way: Final = set[object]()
        self._timer: asyncio.TimerHandle | None = None
        self._room_waiters: Final = list[asyncio.Future[None]]()
        self._is_pump_due = False
        self._flushes = 0
        self.is_closed = False
        self.cluster.listeners.append(self._take_metadata)

    # --- from any thread ---

    def append(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None,
        timestamp_ms: int,
        headers: Headers,
        on_delivery: Callable[[Report], object] | None,
        has_own_time: bool,
    ) -> tuple[Batch, int]:
        """Put a record into its batch; raises as `Accumulator.append` does."""
        accumulator = self.accumulator
        with self.lock:
            if self.is_closed:
                raise ClientClosedError(_CLOSED)
            if self._transactions is not None:
                self._transactions.require_open()
            place = accumulator.append(
                topic,
                key,
                value,
                partition,
                timestamp_ms,
                headers,
                on_delivery,
                now_ms,
                has_own_time,
            )
            if accumulator.wants_attention:
                accumulator.wants_attention = False
                if not self._is_pump_due:
                    self._is_pump_due = True
                    self._loop.call_soon_threadsafe(self._pump)
        return place

    # --- on the loop ---

    async def know(self, topic: str) -> TopicInfo:
        """Return a topic, asked for if need be, within max.block.ms; or raise `NoTopicError`."""
        if self.is_closed:
            raise ClientClosedError(_CLOSED)
        found = await self.cluster.topic(topic, self.max_block_s)
        self._take_topic(found)
        return found

    async def room(self) -> None:
        """Return when there is room in buffer.memory again; the caller has a deadline."""
        waiter = self._loop.create_future()
        self._room_waiters.append(waiter)
        self.pump_soon()
        await waiter

    async def flush(self) -> None:
        """Return when every record that was sent before has its outcome."""
        with self.lock:
            before = list(self.accumulator.live)
        self._flushes += 1
        self.sender.is_flushing = True
        self.pump_soon()
        try:
            for batch in before:
                await self._end_of(batch)
        finally:
            self._flushes -= 1
            self.sender.is_flushing = self._flushes > 0

    async def settle(self) -> None:
        """Return when no request with records is unanswered."""
        while self._requests:
            await asyncio.wait(self._requests)

    def has_live(self) -> bool:
        """Whether a record has no outcome yet."""
        return bool(self.accumulator.live)

    async def close(self, timeout_s: float | None) -> None:
        """Flush for so long, give the rest up, and end every connection.

        A transaction that is open is aborted; one that is prepared is kept, and so is one that the
        coordinator was asked to commit.
        """
        if self.is_closed:
            return
        with suppress(TimeoutError, TransactionError, NotSentError):
            async with asyncio.timeout(timeout_s):
                if self._transactions is not None and self._transactions.has_open:
                    await self._abort()
                else:
                    await self.flush()
        with self.lock:
            self.is_closed = True
            self.sender.give_up_all("the producer was closed before it was acknowledged")
        self._tell_ended()
        if self._timer is not None:
            self._timer.cancel()
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self.cluster.close()

    async def _abort(self) -> None:
        if self.transacting is not None:
            await self.transacting.end(None, commit=False)

    def pump_soon(self) -> None:
        with self.lock:
            if self._is_pump_due:
                return
            self._is_pump_due = True
        self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        """Send what may be sent now, and set the alarm for what may be sent later."""
        moment = now_ms()
        requests = list[Dispatch]()
        with self.lock:
            self._is_pump_due = False
            if self.is_closed:
                return
            while found := self.sender.collect(moment, self._connected_leader):
                requests += found
            next_ms = self.sender.next_ms(moment, self._connected_leader)
            waiting = self.accumulator.waiting_topics
            needs_identity = self.sender.needs_identity
            to_add = self._transactions is not None and bool(self._transactions.to_add)
        for request in requests:
            self._run(self._send(request), self._requests)
        for topic in waiting:
            self._once(("topic", topic), partial(self._wait_for_topic, topic))
        if needs_identity:
            self._once("identity", self._ask_identity)
        if to_add and self.transacting is not None:
            self._once("partitions", self.transacting.add_partitions)
        self._set_alarm(next_ms, moment)
        self._tell_ended()

    def _set_alarm(self, next_ms: float | None, moment: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if next_ms is not None:
            wait_s = max(0.0, next_ms - moment) / 1000
            self._timer = self._loop.call_later(wait_s, self._pump)

    def _connected_leader(self, topic: str, partition: int) -> int | None:
        """Return the leader if it is connected; else see to it that it will be (E1)."""
        found = self.cluster.metadata.leader_of(topic, partition)
        if found is None:
            self.cluster.refresh_soon()
            self.sender.hindrance = "the partition has no leader, as far as is known"
            return None
        broker = self.cluster.metadata.brokers[found.leader]
        if self.cluster.peers.existing(broker) is not None:
            return found.leader
        self._once(("connect", found.leader), partial(self._connect, found.leader))
        return None

    # --- tasks ---

    def _run(self, work: Coroutine[Any, Any, None], *also: set[asyncio.Task[None]]) -> None:
        task = self._loop.create_task(work)
        for among in (self._tasks, *also):
            among.add(task)
            task.add_done_callback(among.discard)

    def _once(self, key: object, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run something unless it runs already, and look again when it has ended."""
        if key in self._under_way or self.is_closed:
            return
        self._under_way.add(key)

        async def run() -> None:
            try:
                await work()
            finally:
                self._under_way.discard(key)
            self.pump_soon()

        self._run(run())

    async def _connect(self, node_id: int) -> None:
        try:
            await self.cluster.connection(node_id)
        except OttlaError as error:
            self.sender.hindrance = str(error)
        else:
            self.sender.hindrance = ""

    async def _wait_for_topic(self, topic: str) -> None:
        try:
            await self.know(topic)
        except OttlaError as error:
            code = self.cluster.metadata.errors.get(topic)
            with self.lock:
                self.accumulator.give_up(topic, str(error), code)
            self._tell_ended()

    async def _ask_identity(self) -> None:
        value_of = self.options.value_of
        backoff = Backoff(value_of(rows.RETRY_BACKOFF_MS), value_of(rows.RETRY_BACKOFF_MAX_MS))
        fields = {
            "transactional_id": None,
            "transaction_timeout": INT_NO_TIMEOUT,
            "producer_id": -1,
            "producer_epoch": -1,
        }
        while True:
            try:
                answer = await self.cluster.ask(INIT_PRODUCER_ID, fields)
            except OttlaError as error:
                self.sender.hindrance = f"no producer id could be had: {error}"
            else:
                code = error_code_of(answer.error_code)
                if code is ErrorCode.NONE:
                    with self.lock:
                        self.sender.identity = (answer.producer_id, answer.producer_epoch)
                    self.sender.hindrance = ""
                    return
                self.sender.hindrance = f"no producer id: {code.sentence} ({code.name})"
            await asyncio.sleep(backoff.failed() / 1000)

    async def _send(self, request: Dispatch) -> None:
        began_ms = now_ms()
        try:
            await self._exchange(request)
        except NotSentError as error:
            self._lost(request, str(error), sent=False)
        except OttlaError as error:
            self._lost(request, str(error), sent=True)
        except Exception as error:  # the root of a task: the records must end all the same
            self._lost(request, f"a bug: {error!r}", sent=True)
            raise
        self.metrics.observe("request.ms", now_ms() - began_ms)
        self._tell_ended()
        self.pump_soon()

    async def _exchange(self, request: Dispatch) -> None:
        batches = request.batches
        broker = self.cluster.metadata.broker(request.node_id)
        connection = None if broker is None else self.cluster.peers.existing(broker)
        if connection is None:
            raise NotSentError(f"the connection to broker {request.node_id} broke.")
        ids = self._topic_ids(batches)
        core = self._transactions
        version = wire.version_for(
            connection.version_of(PRODUCE),
            ids,
            is_first_dialect=core is not None and not core.is_second_dialect,
        )
        contents = [(batch, self._encode(batch)) for batch in batches]
        body = wire.encode_produce(
            version,
            contents,
            ids,
            acks=self._acks,
            timeout_ms=self._timeout_ms,
            transactional_id=None if core is None else core.transactional_id,
        )
        self._note_request(batches, len(body))
        if self._acks == 0:
            await connection.post(PRODUCE, version, body)
            with self.lock:
                self.sender.sent_unasked(request.node_id, batches)
            return
        await self._take_answer(request, connection, version, body, ids)

    async def _take_answer(
        self,
        request: Dispatch,
        connection: Connection,
        version: int,
        body: bytes,
        ids: dict[str, UUID],
    ) -> None:
        raw = await connection.exchange(PRODUCE, version, body)
        try:
            response = decode_response(PRODUCE, version, raw)
        except RemoteProtocolError:
            connection.abort()
            raise
        answers, hints, endpoints = wire.answers_of(response, request.batches, ids)
        with self.lock:
            self.sender.answered(request.node_id, answers, now_ms())
            for hint in hints:
                if self.cluster.metadata.hint(*hint, endpoints):
                    self.metrics.count("metadata.hints")
                    self.sender.retry_at_once(hint.topic, hint.partition)
        if any(answer.code in STALE_METADATA for _, answer in answers):
            self.cluster.refresh_soon()

    def _encode(self, batch: Batch) -> bytes:
        producer_id, epoch, sequence = self.sender.identity_of(batch)
        return encode_batch(
            batch.records,
            codec=self._codec,
            level=self._level,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=self._transactions is not None,
        )

    def _lost(self, request: Dispatch, sentence: str, *, sent: bool) -> None:
        with self.lock:
            self.sender.lost(request.node_id, request.batches, sentence, now_ms(), sent=sent)
        self.cluster.refresh_soon()

    # --- metadata ---

    def _topic_ids(self, batches: list[Batch]) -> dict[str, UUID]:
        ids = dict[str, UUID]()
        for batch in batches:
            found = self.cluster.metadata.topic(batch.topic)
            ids[batch.topic] = ZERO_UUID if found is None else found.topic_id
        return ids

    def _take_metadata(self) -> None:
        for name in self.accumulator.topics:
            found = self.cluster.metadata.topic(name)
            if found is not None:
                self._take_topic(found)
        self.pump_soon()

    def _take_topic(self, found: TopicInfo) -> None:
        usable = [one.partition for one in found.partitions if one.leader != NO_LEADER]
        with self.lock:
            self.accumulator.know(found.name, len(found.partitions), usable, now_ms())

    # --- telling ---

    def _tell_ended(self) -> None:
        """Call what waits for the batches that ended (E3), and count them."""
        with self.lock:
            ended = self.accumulator.take_ended()
        for batch in ended:
            self._count(batch)
            for index, callback in batch.callbacks or ():
                self._call(callback, batch.report(index))
        if ended and self._room_waiters:
            for waiter in self._room_waiters:
                if not waiter.done():
                    waiter.set_result(None)
            self._room_waiters.clear()

    def _call(self, callback: Callable[[Report], object], report: Report) -> None:
        try:
            callback(report)
        except Exception as error:  # noqa: BLE001 - it is anybody's code
            told = {"message": "on_delivery of a producer raised", "exception": error}
            self._loop.call_exception_handler(told)

    def _count(self, batch: Batch) -> None:
        outcome = batch.outcome
        state = State.UNKNOWN if outcome is None else outcome.state
        self.metrics.count(f"records.{state}", len(batch.records))
        if batch.attempts > 1:
            self.metrics.count("batches.retried")
        self.metrics.observe("batch.ms", now_ms() - batch.created_ms)

    def _note_request(self, batches: list[Batch], size: int) -> None:
        self.metrics.count("requests")
        self.metrics.count("request.bytes", size)
        for batch in batches:
            self.metrics.count("batches")
            self.metrics.observe("batch.records", len(batch.records))

    async def _end_of(self, batch: Batch) -> None:
        """Return when the batch has an outcome, or every batch that its records went to."""
        if not batch.has_ended:
            told = self._loop.create_future()
            # It ends under the lock on this thread, so there is no race.
            batch.waiters.append(lambda: None if told.done() else told.set_result(None))
            await told
        for moved in {place for place, _ in batch.moved_to or ()}:
            await self._end_of(moved)


INT_NO_TIMEOUT: Final = (1 << 31) - 1


def _codec_of(name: str) -> Codec:
    return Codec[name.upper()]


def _accumulator_settings(options: ClientOptions) -> AccumulatorSettings:
    value_of = options.value_of
    return AccumulatorSettings(
        batch_size=value_of(rows.BATCH_SIZE),
        batch_num_messages=value_of(rows.BATCH_NUM_MESSAGES),
        linger_ms=value_of(rows.LINGER_MS),
        buffer_memory=value_of(rows.BUFFER_MEMORY),
        max_request_size=value_of(rows.MAX_REQUEST_SIZE),
        partitioner=value_of(rows.PARTITIONER),
    )


def _sender_settings(options: ClientOptions) -> SenderSettings:
    value_of = options.value_of
    return SenderSettings(
        acks=value_of(rows.ACKS),
        is_idempotent=rows.is_idempotent(options),
        max_in_flight=value_of(rows.MAX_IN_FLIGHT),
        retries=value_of(rows.RETRIES),
        delivery_timeout_ms=value_of(rows.DELIVERY_TIMEOUT_MS),
        retry_backoff_ms=value_of(rows.RETRY_BACKOFF_MS),
        retry_backoff_max_ms=value_of(rows.RETRY_BACKOFF_MAX_MS),
        max_request_size=value_of(rows.MAX_REQUEST_SIZE),
    )
