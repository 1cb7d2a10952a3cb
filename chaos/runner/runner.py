"""All clients of a run, from the making of its topics to the last read.

    Runner(addresses, plan, recorder)
      start         makes the topics; from then on everybody works
      stop_writers  no new write begins; those on the way end, or are given up
      final_reads   new clients read whole partitions; any number of times
      close         ends the rest

The raw clients share one event loop in one thread; each client of librdkafka has a thread.

Not here: what is broken meanwhile (`nemesis/`), and judging (`checkers/`).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

from ottla.chaos.clock import now_s
from ottla.chaos.evidence import FinalRead
from ottla.chaos.history import Place
from ottla.chaos.ports import HarnessError
from ottla.chaos.runner.book import LeaderBook
from ottla.chaos.runner.churn import AdminChurn
from ottla.chaos.runner.final_reader import read_partitions
from ottla.chaos.runner.foreign import ForeignClient, ForeignConsumer, ForeignProducer
from ottla.chaos.runner.foreign_member import ForeignMember
from ottla.chaos.runner.foreign_transactor import ForeignCommittedReader, ForeignTransactor
from ottla.chaos.runner.group_reader import read_groups
from ottla.chaos.runner.holding import hold_ids
from ottla.chaos.runner.lines import Lines
from ottla.chaos.runner.own_member import OwnMember
from ottla.chaos.runner.own_preparer import OwnPreparer
from ottla.chaos.runner.own_transactor import OwnCommittedReader, OwnTransactor
from ottla.chaos.runner.raw_consumer import RawConsumer
from ottla.chaos.runner.raw_member import RawMember
from ottla.chaos.runner.raw_producer import RawProducer
from ottla.chaos.runner.recorder import Recorder
from ottla.chaos.runner.requests import create_fields
from ottla.chaos.workload import TRANSACTORS, Client, ProcessPlan, TopicPlan, WorkloadPlan
from ottla.proto.errors import ErrorCode, OttlaError
from ottla.proto.kafka.apis import CREATE_TOPICS

TOPICS_S: Final = 40.0
FINAL_S: Final = 30.0
_CHANGE_S: Final = 10.0
_PAUSE_S: Final = 0.1
# As long as the most patient raw write, and then some.
_STOP_S: Final = 15.0
_DONE: Final = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.REQUEST_TIMED_OUT)
_WRITERS: Final = frozenset(
    {Client.RAW_PRODUCER, Client.LIBRDKAFKA_PRODUCER, Client.ADMIN, *TRANSACTORS}
)
_FOREIGN: Final[Mapping[Client, type[ForeignClient]]] = {
    Client.LIBRDKAFKA_PRODUCER: ForeignProducer,
    Client.LIBRDKAFKA_CONSUMER: ForeignConsumer,
    Client.LIBRDKAFKA_MEMBER: ForeignMember,
    Client.LIBRDKAFKA_TRANSACTOR: ForeignTransactor,
    Client.LIBRDKAFKA_COMMITTED_READER: ForeignCommittedReader,
}
T = TypeVar("T")


class Runner:
    """Started once, closed once."""

    def __init__(
        self,
        addresses: Mapping[int, str],
        plan: WorkloadPlan,
        recorder: Recorder,
        *,
        topics_s: float = TOPICS_S,
    ) -> None:
        self._addresses: Final = dict(addresses)
        self._plan: Final = plan
        self._recorder: Final = recorder
        self._topics_s: Final = topics_s
        self._loop: Final = asyncio.new_event_loop()
        self._thread: Final = threading.Thread(target=self._turn_loop, name="clients", daemon=True)
        self._writers_over: Final = threading.Event()
        self._readers_over: Final = threading.Event()
        self._writers: Final = list[asyncio.Task[None]]()
        self._readers: Final = list[asyncio.Task[None]]()
        self._watch: asyncio.Task[None] | None = None
        self._churns: Final = list[AdminChurn]()
        self._preparers: Final = list[OwnPreparer]()
        self._foreign: Final = list[ForeignClient]()
        self._failures: Final = list[str]()

    # -- its life --------------------------------------------------------------------------------

    def start(self) -> None:
        """Make the topics and begin; raise `HarnessError` if the topics cannot be made."""
        self._thread.start()
        self._run(self._make_topics(), self._topics_s + _CHANGE_S)
        self._run(self._begin(), _CHANGE_S)
        for client in self._foreign:
            client.start()

    def stop_writers(self) -> None:
        """Let every write that has begun come to its end; give up those that do not."""
        self._writers_over.set()
        foreign = [one for one in self._foreign if one.plan.client in _WRITERS]
        for client in foreign:
            client.ask_to_stop()
        self._run(self._gather(self._writers), 2 * _STOP_S)
        for client in foreign:
            client.stop()

    def close(self) -> None:
        if not self._thread.is_alive():
            self._loop.close()
            return
        if not self._writers_over.is_set():
            self.stop_writers()
        self._stop_readers()
        self._run(self._end_watch(), _STOP_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_STOP_S)
        if not self._thread.is_alive():
            self._loop.close()

    def _stop_readers(self) -> None:
        if self._readers_over.is_set():
            return
        self._readers_over.set()
        foreign = [one for one in self._foreign if one.plan.client not in _WRITERS]
        for client in foreign:
            client.ask_to_stop()
        self._run(self._gather(self._readers), 2 * _STOP_S)
        for client in foreign:
            client.stop()

    # -- how it goes -----------------------------------------------------------------------------

    def acknowledged(self) -> int:
        return self._recorder.acknowledged()

    def rate(self) -> float:
        return self._recorder.rate()

    def progress(self) -> Mapping[str, float]:
        return self._recorder.progress()

    def failures(self) -> list[str]:
        """Return what went wrong with the clients themselves: that is no news of the system."""
        foreign = [one.failure for one in self._foreign if one.failure is not None]
        return [*self._failures, *foreign]

    def final_topics(self) -> dict[str, dict[str, str]]:
        """Return the topics that are surely there when all writers have stopped."""
        found = self._plan.options()
        for churn in self._churns:
            found |= churn.kept
        return found

    def final_places(self) -> list[Place]:
        """Return their partitions, by what clients were told: nodes may have lost some since."""
        planned = [place for topic in self._plan.topics for place in topic.places]
        return [*planned, *(place for churn in self._churns for place in churn.places())]

    def final_reads(
        self, topics: Collection[str] | None, turn: int, deadline_s: float = FINAL_S
    ) -> list[FinalRead]:
        """Read whole partitions from their leaders; all topics that are there if none are named.

        What groups have committed is read too, and is written into the history.

        The readers of the run have stopped by then: what comes may be a restart of all nodes.
        """
        self._stop_readers()
        chosen = self.final_topics() if topics is None else topics

        async def read() -> list[FinalRead]:
            wanted = {
                place: self._recorder.highest(place) + 1
                for place in self.final_places()
                if place.topic in chosen
            }
            # What is left prepared would wait for ever.
            await asyncio.gather(*(one.settle(deadline_s) for one in self._preparers))
            # Then what is committed: it comes to an end when every transaction has.
            ledgers = self._plan.transactional_topics().intersection(chosen)
            decided = await read_partitions(
                self._addresses,
                {place: end for place, end in wanted.items() if place.topic in ledgers},
                turn,
                deadline_s,
                is_committed=True,
            )
            ids = tuple(self._plan.transactors())
            await hold_ids(self._addresses, ids, self._recorder, deadline_s)
            await read_groups(self._addresses, self._plan.groups(), self._recorder, deadline_s)
            return [*decided, *await read_partitions(self._addresses, wanted, turn, deadline_s)]

        return asyncio.run(read())

    # -- inside ----------------------------------------------------------------------------------

    def _turn_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _run(self, work: Coroutine[Any, Any, T], timeout_s: float) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(timeout_s)
        except TimeoutError:
            future.cancel()
            raise HarnessError(f"the clients did not get ready within {timeout_s:g} s") from None

    async def _begin(self) -> None:
        names = [topic.name for topic in self._plan.topics]
        book = LeaderBook(self._addresses, names, self._recorder)
        for process in self._plan.processes:
            self._add(process, book)
        self._watch = self._loop.create_task(book.watch())

    def _add(self, process: ProcessPlan, book: LeaderBook) -> None:
        is_writer = process.client in _WRITERS
        over = self._writers_over if is_writer else self._readers_over
        tasks = self._writers if is_writer else self._readers
        bootstrap = ",".join(self._addresses.values())
        match process.client:
            case Client.RAW_PRODUCER:
                made = RawProducer(process, self._addresses, book, self._recorder, over.is_set)
                tasks.append(self._loop.create_task(made.live(), name=process.name))
            case Client.RAW_CONSUMER:
                reader = RawConsumer(process, self._addresses, book, self._recorder, over.is_set)
                tasks.append(self._loop.create_task(reader.live(), name=process.name))
            case Client.ADMIN:
                churn = AdminChurn(process, self._addresses, self._recorder, over.is_set)
                self._churns.append(churn)
                tasks.append(self._loop.create_task(churn.live(), name=process.name))
            case Client.RAW_MEMBER:
                member = RawMember(process, self._addresses, book, self._recorder, over.is_set)
                tasks.append(self._loop.create_task(member.live(), name=process.name))
            case Client.OWN_MEMBER:
                own = OwnMember(process, bootstrap, self._recorder, over.is_set)
                tasks.append(self._loop.create_task(own.live(), name=process.name))
            case Client.OWN_TRANSACTOR:
                writer = OwnTransactor(process, self._addresses, self._recorder, over.is_set)
                tasks.append(self._loop.create_task(writer.live(), name=process.name))
            case Client.OWN_PREPARER:
                preparer = OwnPreparer(process, self._addresses, self._recorder, over.is_set)
                self._preparers.append(preparer)
                tasks.append(self._loop.create_task(preparer.live(), name=process.name))
            case Client.OWN_COMMITTED_READER:
                patient = OwnCommittedReader(process, bootstrap, self._recorder, over.is_set)
                tasks.append(self._loop.create_task(patient.live(), name=process.name))
            case _:
                made_foreign = _FOREIGN[process.client]
                self._foreign.append(made_foreign(process, bootstrap, self._recorder))

    async def _gather(self, tasks: list[asyncio.Task[None]]) -> None:
        """Wait until they have ended, cancel those that do not, and note what went wrong."""
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=_STOP_S)
        for task in late:
            task.cancel()
        for task in tasks:
            try:
                await task
            except asyncio.CancelledError:
                self._failures.append(f"{task.get_name()}: it did not end within {_STOP_S:g} s")
            except Exception as error:  # noqa: BLE001  (told by `failures`)
                self._failures.append(f"{task.get_name()}: {type(error).__name__}: {error}")
        tasks.clear()

    async def _end_watch(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            with suppress(asyncio.CancelledError):
                await self._watch

    # -- topics ----------------------------------------------------------------------------------

    async def _make_topics(self) -> None:
        lines = Lines(self._addresses, "topics")
        end_s = now_s() + self._topics_s
        try:
            for topic in self._plan.topics:
                while not await self._make(lines, topic):
                    _require_time(end_s, f"{topic.name} could not be made")
                    await asyncio.sleep(_PAUSE_S)
            for node in self._addresses:
                while not await self._is_known(lines, node):
                    _require_time(end_s, f"node {node} does not know a leader of each partition")
                    await asyncio.sleep(_PAUSE_S)
        finally:
            await lines.close()

    async def _make(self, lines: Lines, topic: TopicPlan) -> bool:
        """Ask any node; return whether one of them did it."""
        fields = create_fields(topic.name, topic.assignments, topic.options)
        for node in self._addresses:
            try:
                line = await lines.to(node)
                answer = await line.call(CREATE_TOPICS, fields, timeout_s=_CHANGE_S)
            except OttlaError:
                lines.cut(node)
                continue
            (result,) = answer.topics
            if result.error_code in _DONE:
                return True
            if result.error_code == ErrorCode.INVALID_CONFIG:
                raise HarnessError(f"{topic.name}: {result.get('error_message')}")
        return False

    async def _is_known(self, lines: Lines, node: int) -> bool:
        view = await lines.leaders(node, [topic.name for topic in self._plan.topics]) or {}
        places = (place for topic in self._plan.topics for place in topic.places)
        return all(_is_led(view.get(place)) for place in places)


def _is_led(seen: Any) -> bool:
    return seen is not None and seen.leader >= 0


def _require_time(end_s: float, what: str) -> None:
    if now_s() > end_s:
        raise HarnessError(what)
