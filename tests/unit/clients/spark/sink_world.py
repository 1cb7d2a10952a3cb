"""A model of the sink around its programs: a cluster, drivers that crash, tasks, and an operator.

Not here: what has to hold (`test_decisions_model.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator
from random import Random
from typing import Any

from ottla.clients.producer.prepared import PreparedTransaction
from ottla.clients.spark.decisions import (
    AbortedElsewhereError,
    Book,
    Claim,
    Effect,
    End,
    ListOpen,
    PeekBook,
    Program,
    ReadBook,
    Settle,
    TakeOver,
    Terminate,
    Warn,
    WriteBook,
    abort_batch,
    begin_round,
    commit_batch,
    task_id,
)
from ottla.clients.spark.errors import WriteFailedError

PREFIX = "sink"
CLAIM = Claim("q", is_stream=True)
BATCHES = 3
PARTITIONS = 2


class FencedError(WriteFailedError):
    """Another driver has taken over."""


class CrashError(Exception):
    """The process is gone."""


class Cluster:
    """Transactions by id, rows in them, and the book: with the rules of Kafka, and no time."""

    def __init__(self, dice: Random) -> None:
        # Id → "taken" (no row yet), "open", "committed" or "aborted", and the rows.
        self.transactions = dict[str, tuple[str, list[str]]]()
        self.book = Book().to_bytes()
        # Who took over last may write.
        self.driver: object = None
        # A write without an answer: it is done, or dropped, by the time that somebody takes over.
        self.under_way: Book | None = None
        # Ids that ended long ago: the coordinator does not know them any more.
        self.forgotten = set[str]()
        self.warnings = list[str]()
        self.dice = dice

    def take(self, name: str) -> None:
        assert name not in self.transactions, "no two attempts share an id"
        self.transactions[name] = ("taken", [])

    def prepare(self, name: str, rows: list[str]) -> PreparedTransaction:
        if name not in self.transactions:
            self.take(name)
        if self.transactions[name][0] == "taken":
            # Else it was fenced meanwhile.
            self.transactions[name] = ("open", rows)
        return PreparedTransaction(name, 1, 0)

    def do(self, driver: object, effect: Effect) -> Any:
        match effect:
            case TakeOver():
                if self.under_way is not None and self.dice.random() < 0.5:
                    self.book = self.under_way.to_bytes()
                self.under_way = None
                self.driver = driver
            case ReadBook() | PeekBook():
                return Book.from_bytes(self.book)
            case WriteBook(book):
                self._write(driver, book)
            case End(prepared, commit):
                self._end(prepared.transactional_id, commit=commit)
            case Settle():
                pass
            case ListOpen():
                return self._going_on()
            case Terminate(name):
                self._end(name, commit=False)
            case Warn(sentence):
                self.warnings.append(sentence)
        return None

    def _write(self, driver: object, book: Book) -> None:
        if self.driver is not driver:
            raise FencedError("fenced")
        self.book = book.to_bytes()

    def _going_on(self) -> list[str]:
        going_on = ("taken", "open")
        return [name for name, (state, _) in self.transactions.items() if state in going_on]

    def _end(self, name: str, *, commit: bool) -> None:
        state, rows = self.transactions[name]
        wanted = "committed" if commit else "aborted"
        if state in ("taken", "open"):
            self.transactions[name] = (wanted, rows)
        elif commit and state != wanted and name not in self.forgotten:
            raise AbortedElsewhereError(f"{name} is decided, and was {state}")

    def forget(self) -> None:
        """Let more time go by than a coordinator remembers what has ended."""
        self.forgotten |= {
            name
            for name, (state, _) in self.transactions.items()
            if state in ("committed", "aborted")
        }

    def prepared(self) -> list[str]:
        return [name for name, (state, _) in self.transactions.items() if state == "open"]

    def end_by_hand(self, name: str, *, commit: bool) -> list[str]:
        """Do what an operator does; return which rows that is about."""
        self._end(name, commit=commit)
        return self.transactions[name][1]

    def committed(self) -> Counter[str]:
        return Counter(
            row
            for state, rows in self.transactions.values()
            if state == "committed"
            for row in rows
        )


class Driver:
    """One life of a query: it is asked for its next step until it has none."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.steps = self._live()
        self.is_over = False
        # Why it ended before its time.
        self.failure: Exception | None = None

    def step(self) -> None:
        try:
            next(self.steps)
        except StopIteration:
            self.is_over = True
        except (WriteFailedError, CrashError) as error:
            # A query that fails ends; Spark starts it again.
            self.is_over = True
            self.failure = error

    def _live(self) -> Iterator[None]:
        while (batch := len(self.world.commit_log)) < BATCHES:
            claim = self.world.claim
            round_number = yield from self._run(begin_round(PREFIX, claim))
            prepared = list(self.world.run_tasks(round_number, batch))
            yield
            try:
                yield from self._run(commit_batch(PREFIX, round_number, claim, batch, prepared))
            except WriteFailedError:
                yield from self._run(abort_batch(PREFIX, round_number, prepared))
                raise
            if len(self.world.commit_log) == batch:
                # Spark's own log in the checkpoint, which a twin may have written meanwhile.
                self.world.commit_log.append(batch)

    def _run(self, program: Program) -> Generator[None, None, Any]:
        """Do what the program yields, with a moment for a crash around each step."""
        answer: Any = None
        error: WriteFailedError | None = None
        while True:
            try:
                effect = program.send(answer) if error is None else program.throw(error)
            except StopIteration as end:
                return end.value
            error = None
            yield
            try:
                self._before(effect)
                answer = self.world.cluster.do(self, effect)
                self.world.moment("after", self)
            except WriteFailedError as failure:
                answer, error = None, failure

    def _before(self, effect: Effect) -> None:
        cluster = self.world.cluster
        try:
            self.world.moment("before", self)
        except (WriteFailedError, CrashError):
            if isinstance(effect, WriteBook) and cluster.driver is self:
                cluster.under_way = effect.book
            raise


class World:
    """A cluster, a checkpoint, and drivers that follow one another, or overlap."""

    def __init__(self, dice: Random, moment: Callable[[str, Driver], None] | None = None) -> None:
        self.dice = dice
        self.cluster = Cluster(dice)
        self.commit_log = list[int]()
        self.attempts = 0
        self.zombies = list[str]()
        self.claim = CLAIM
        self._moment = moment

    def moment(self, when: str, driver: Driver) -> None:
        if self._moment is not None:
            self._moment(when, driver)

    def run_tasks(self, round_number: int, batch: int) -> Iterator[PreparedTransaction]:
        """Prepare a transaction for each partition, some of them in the second attempt."""
        for partition in range(PARTITIONS):
            rows = [f"{batch}.{partition}"]
            while self.dice.random() < 0.3:
                # It failed after all was written, or was not the first of two that raced.
                self.cluster.prepare(self._name(round_number), rows)
            yield self.cluster.prepare(self._name(round_number), rows)
            if self.dice.random() < 0.2:
                self.zombies.append(self._name(round_number))
                if self.dice.random() < 0.5:
                    self.cluster.take(self.zombies[-1])

    def wake_zombie(self) -> None:
        """Let an attempt that everybody forgot write its rows, and prepare."""
        if self.zombies:
            self.cluster.prepare(self.zombies.pop(), ["written by the dead"])

    def _name(self, round_number: int) -> str:
        self.attempts += 1
        return task_id(PREFIX, round_number, str(self.attempts))

    def finish(self) -> None:
        """Let lives follow one another without trouble, until one has come to the end."""
        self._moment = None
        driver = self.live()
        assert len(self.commit_log) == BATCHES
        play(self, driver, begin_round(PREFIX, CLAIM))

    def live(self) -> Driver:
        """Let one life come to its end."""
        driver = Driver(self)
        while not driver.is_over:
            driver.step()
        return driver

    def check(self) -> None:
        wanted = {f"{b}.{p}" for b in range(BATCHES) for p in range(PARTITIONS)}
        assert self.cluster.committed() == Counter(wanted)
        assert not self.cluster.prepared()


def play(world: World, driver: Driver, program: Program) -> Any:
    """Return what the program returns, without trouble."""
    answer: Any = None
    error: WriteFailedError | None = None
    while True:
        try:
            effect = program.send(answer) if error is None else program.throw(error)
        except StopIteration as end:
            return end.value
        answer = error = None
        try:
            answer = world.cluster.do(driver, effect)
        except WriteFailedError as failure:
            error = failure
