"""Runs a handler over topics, its retry topics included, until it is told to stop.

E1  at least once: the offsets of a batch are committed when each of its records was handled, or is
    acknowledged by the topic it was passed on to. That goes on while the next ones are handled, and
    is over before partitions go to others. What was not committed comes again after a crash: at
    most three times `max.poll.records`
E2  at most once: offsets are committed before the handler sees the records. One that fails is
    passed on all the same
E3  a record that is not due yet stops its own partition only: that one is put back to the record
    and paused, and resumed when the time has come
E4  the handler is called for one record at a time, in order of offsets in each partition
E5  a record that cannot be passed on stops the runner, and its offset is not committed
    A runner that was stopped by an error is not run again: it would commit past what it dropped
E6  retry topics and the dead-letter topic that are missing are made before anything is read, with
    as many partitions as the cluster gives by default
E7  a commit that is refused because the group has gone on without us stops nothing: the records
    come again, to whoever has the partition then. At most once, they are put back unhandled
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Self

from ottla.clients import options as rows
from ottla.clients.admin.client import AsyncAdmin
from ottla.clients.clock import wall_ms
from ottla.clients.consumer.async_consumer import AsyncConsumer
from ottla.clients.consumer.errors import CommitError, ConsumerError
from ottla.clients.consumer.listener import RebalanceListener
from ottla.clients.consumer.record import OffsetAndMetadata, Record
from ottla.clients.errors import DeserializationError
from ottla.clients.loop_thread import LoopThread
from ottla.clients.metrics import Metrics
from ottla.clients.options import Role, read_options
from ottla.clients.producer.client import AsyncProducer
from ottla.clients.reprocessing.plan import Plan
from ottla.clients.serdes import SERDES, Deserializer, deserialize
from ottla.proto.errors import ConfigError, ErrorCode, RequestError
from ottla.proto.ids import TopicPartition

LOG: Final = logging.getLogger("ottla.clients.reprocessing")
Handler = Callable[[Record], Awaitable[object] | object]
_IDLE_S: Final = 0.5
_GONE_ON: Final = frozenset(
    {
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
    }
)
_SHARED: Final = frozenset({"bootstrap.servers", "client.id", "request.timeout.ms"})


class AsyncRunner(RebalanceListener):
    """A handler at work; as a context manager it closes itself."""

    def __init__(
        self,
        config: Mapping[str, object],
        topics: str | Iterable[str],
        handler: Handler,
        *,
        plan: Plan | None = None,
        at_most_once: bool = False,
        hopeless: tuple[type[Exception], ...] = (),
        producer_config: Mapping[str, object] | None = None,
    ) -> None:
        """Take options of a consumer; `hopeless` names errors that no retry can heal."""
        options = read_options(Role.CONSUMER, config)
        group_id = options.value_of(rows.GROUP_ID)
        if not group_id:
            raise ConfigError("group.id is needed: it remembers what was handled.")
        self.plan: Final = Plan.of(group_id) if plan is None else plan
        names = [topics] if isinstance(topics, str) else list(topics)
        self._topics: Final = [*names, *self.plan.topics]
        self._handler: Final = handler
        self._at_most_once: Final = at_most_once
        self._hopeless: Final[tuple[type[Exception], ...]] = (DeserializationError, *hopeless)
        self._key: Final = _serde(options.value_of(rows.KEY_DESERIALIZER))
        self._value: Final = _serde(options.value_of(rows.VALUE_DESERIALIZER))
        # Bytes go on as they came, so deserializing is done here, record by record.
        raw = {
            name: value
            for name, value in config.items()
            if name not in (rows.KEY_DESERIALIZER.name, rows.VALUE_DESERIALIZER.name)
        }
        shared = {name: value for name, value in config.items() if name in _SHARED}
        self._consumer: Final = AsyncConsumer({**raw, "enable.auto.commit": False})
        self._producer: Final = AsyncProducer({**shared, **(producer_config or {})})
        self._shared: Final = shared
        self._waiting: Final = dict[TopicPartition, int]()
        self._stop: Final = asyncio.Event()
        # What was handled and is to be committed, and what is under way to other topics (E1).
        self._handled = list[Record]()
        self._passed_on = list[Awaitable[object]]()
        self._settling: asyncio.Task[None] | None = None
        # What ended `run`: records it had taken may be neither handled nor committed (E5).
        self._failure: BaseException | None = None
        self.counts: Final = Metrics()

    async def __aenter__(self) -> Self:
        await self._make_topics()
        await self._consumer.subscribe(self._topics, self)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        if self._settling is not None:
            await asyncio.wait([self._settling])
        await self._producer.close()
        await self._consumer.close()

    def stop(self) -> None:
        """End `run` after the batch at hand."""
        self._stop.set()

    async def run(self) -> None:
        """Handle records until `stop`; raises what stops it (E5), and then it is over for good."""
        if self._failure is not None:
            raise ConsumerError(
                f"this runner was stopped by {self._failure!r}; make a new one, which begins with "
                "what was not committed."
            ) from self._failure
        try:
            while not self._stop.is_set():
                await self._step()
            await self._settled()
        except BaseException as error:
            self._failure = error
            raise

    async def _step(self) -> None:
        await self._resume_due()
        records = await self._consumer.consume(timeout=self._patience_s())
        if self._settling is not None and self._settling.done():
            await self._settled()
        if not records:
            return
        ready = await self._put_back_early(records)
        if self._at_most_once and not await self._commit(ready):
            await self._put_back(ready)
            return
        passed_on = await self._handle_all(ready)
        # Not `+=` around the await: what settles meanwhile puts a new list there.
        self._passed_on += passed_on
        if not self._at_most_once:
            self._handled += ready
        is_much = len(self._handled) + len(self._passed_on) >= self._consumer.max_poll_records
        if self._settling is not None and (is_much or self._settling.done()):
            await self._settled()
        if self._settling is None:
            self._settling = asyncio.create_task(self._settle())

    async def _settle(self) -> None:
        """Commit what was handled, once all that was passed on is acknowledged."""
        while self._handled or self._passed_on:
            handled, self._handled = self._handled, []
            passed_on, self._passed_on = self._passed_on, []
            for delivery in passed_on:
                await delivery
            await self._commit(handled)

    async def _settled(self) -> None:
        """Wait until all is committed that was handled; raises what went wrong (E5)."""
        settling, self._settling = self._settling, None
        if settling is not None:
            await settling

    async def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        for one in partitions:
            self._waiting.pop(one, None)
        if self._settling is not None:
            # What it raises is told by the next step.
            await asyncio.wait([self._settling])

    async def _make_topics(self) -> None:
        """Make the topics of the plan that are missing (E6), or say which one to make by hand."""
        async with AsyncAdmin(self._shared) as admin:
            there = set(await admin.list_topics())
            missing = [
                name for name in (*self.plan.topics, self.plan.dead_letters) if name not in there
            ]
            made = await admin.create_topics(missing) if missing else {}
        for name, outcome in made.items():
            if not isinstance(outcome, RequestError):
                LOG.info("made the topic %s", name)
            elif outcome.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise ConfigError(
                    f"the topic {name} is missing and could not be made ({outcome}); create it, "
                    "or give a plan with topics that exist."
                ) from outcome

    # --- waiting ------------------------------------------------------------------------------

    def _patience_s(self) -> float:
        soonest_ms = min(self._waiting.values(), default=None)
        if soonest_ms is None:
            return _IDLE_S
        return min(_IDLE_S, max(0, soonest_ms - wall_ms()) / 1000)

    async def _resume_due(self) -> None:
        now_ms = wall_ms()
        due = [one for one, due_ms in self._waiting.items() if due_ms <= now_ms]
        for one in due:
            del self._waiting[one]
        ours = self._consumer.assignment()
        await self._consumer.resume([one for one in due if one in ours])

    async def _put_back_early(self, records: list[Record]) -> list[Record]:
        """Return those that are due, and stop the partitions of the others there (E3)."""
        now_ms = wall_ms()
        ready = []
        stopped = set[TopicPartition]()
        for record in records:
            where = TopicPartition(record.topic, record.partition)
            if where in stopped:
                continue
            due_ms = self.plan.due_ms(record)
            if due_ms <= now_ms:
                ready.append(record)
                continue
            stopped.add(where)
            await self._consumer.pause([where])
            await self._consumer.seek(where, record.offset)
            self._waiting[where] = due_ms
        return ready

    # --- handling -----------------------------------------------------------------------------

    async def _handle_all(self, records: list[Record]) -> list[Awaitable[object]]:
        """Call the handler for each; return what is under way to other topics.

        Nothing waits behind a bad record: only the commit waits for all of them.
        """
        passed_on = []
        for record in records:
            try:
                result = self._handler(self._read(record))
                if inspect.isawaitable(result):
                    await result
            except Exception as error:  # noqa: BLE001 - whatever a handler raises is a failure
                passed_on.append(await self._pass_on(record, error))
            else:
                self.counts.count("handled")
        return passed_on

    def _read(self, record: Record) -> Record:
        if self._key is None and self._value is None:
            return record
        key, value = (
            raw
            if serde is None
            else deserialize(
                serde,
                raw,
                topic=record.topic,
                partition=record.partition,
                offset=record.offset,
                part=part,
            )
            for serde, raw, part in (
                (self._key, record.key, "key"),
                (self._value, record.value, "value"),
            )
        )
        return record._replace(key=key, value=value)

    async def _pass_on(self, record: Record, error: Exception) -> Awaitable[object]:
        is_final = isinstance(error, self._hopeless)
        passed = self.plan.after_failure(record, error, wall_ms(), is_final=is_final)
        self.counts.count("dead" if passed.is_dead else "retried")
        LOG.info("%s-%d at offset %d goes to %s: %s", *record[:3], passed.topic, error)
        await self._producer.room()
        return self._producer.send(
            passed.topic, record.value, key=record.key, headers=passed.headers
        )

    async def _commit(self, records: list[Record]) -> bool:
        """Commit these; False if the group has gone on without us (E7)."""
        offsets = {
            TopicPartition(record.topic, record.partition): OffsetAndMetadata(
                record.offset + 1, "", record.leader_epoch
            )
            for record in records
        }
        try:
            if offsets:
                await self._consumer.commit(offsets)
        except CommitError as error:
            if error.code not in _GONE_ON:
                raise
            LOG.warning("%d records are not committed and come again: %s", len(records), error)
            return False
        return True

    async def _put_back(self, records: list[Record]) -> None:
        """Go back to the first of these in each partition that is still ours."""
        first = dict[TopicPartition, int]()
        for record in records:
            first.setdefault(TopicPartition(record.topic, record.partition), record.offset)
        for where in first.keys() & self._consumer.assignment():
            await self._consumer.seek(where, first[where])


class Runner:
    """The same for plain Python: `run` on the program's thread, `stop` from any other.

    The handler is called on the runner's own thread, one record at a time.
    """

    def __init__(
        self,
        config: Mapping[str, object],
        topics: str | Iterable[str],
        handler: Callable[[Record], object],
        *,
        plan: Plan | None = None,
        at_most_once: bool = False,
        hopeless: tuple[type[Exception], ...] = (),
        producer_config: Mapping[str, object] | None = None,
    ) -> None:
        self._thread: Final = LoopThread("ottla-runner")

        async def off_the_loop(record: Record) -> None:
            # A handler may take long, and heartbeats must not wait for it.
            await asyncio.to_thread(handler, record)

        async def make() -> AsyncRunner:
            return AsyncRunner(
                config,
                topics,
                off_the_loop,
                plan=plan,
                at_most_once=at_most_once,
                hopeless=hopeless,
                producer_config=producer_config,
            )

        try:
            self._runner: Final = self._thread.run(make())
        except BaseException:
            self._thread.stop()
            raise

    def __enter__(self) -> Self:
        self._thread.run(self._runner.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._thread.run(self._runner.close())
        finally:
            self._thread.stop()

    def run(self) -> None:
        """Handle records until `stop`; raises what stops it."""
        self._thread.run(self._runner.run())

    def stop(self) -> None:
        """End `run` after the batch at hand."""
        self._thread.call_soon(self._runner.stop)

    @property
    def counts(self) -> dict[str, float]:
        """How many records were handled, retried and given up as dead."""
        return self._runner.counts.snapshot()


def _serde(named: Any) -> Deserializer | None:
    """Return a deserializer; None for bytes, which need none."""
    if isinstance(named, str):
        return None if named == "bytes" else SERDES[named]
    found: Deserializer = named
    return found
