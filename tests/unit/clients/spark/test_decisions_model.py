"""The sink's protocol: a crash at every step, twins of the driver, and tasks back from the dead.

However it goes, every row of every batch is committed once, and nothing is left open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.clients.producer.prepared import PreparedTransaction
from ottla.clients.spark.decisions import (
    Book,
    Claim,
    Decision,
    Effect,
    End,
    ListOpen,
    PeekBook,
    PrefixTakenError,
    Program,
    ReadBook,
    Settle,
    StaleRoundError,
    TakeOver,
    Terminate,
    WriteBook,
    abort_batch,
    begin_round,
    commit_batch,
    round_of,
    task_id,
)
from ottla.clients.spark.errors import WriteFailedError
from ottla.proto.errors import ConfigError

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
                if self.driver is not driver:
                    raise FencedError("fenced")
                self.book = book.to_bytes()
            case End(prepared, commit):
                self._end(prepared.transactional_id, commit=commit)
            case Settle():
                pass
            case ListOpen():
                going_on = ("taken", "open")
                return [name for name, (state, _) in self.transactions.items() if state in going_on]
            case Terminate(name):
                self._end(name, commit=False)
        return None

    def _end(self, name: str, *, commit: bool) -> None:
        state, rows = self.transactions[name]
        wanted = "committed" if commit else "aborted"
        if state in ("taken", "open"):
            self.transactions[name] = (wanted, rows)
        elif commit and state != wanted:
            raise AssertionError(f"{name} is decided, and was {state}")

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

    def step(self) -> None:
        try:
            next(self.steps)
        except StopIteration:
            self.is_over = True
        except (WriteFailedError, CrashError):
            # A query that fails ends; Spark starts it again.
            self.is_over = True

    def _live(self) -> Iterator[None]:
        while (batch := len(self.world.commit_log)) < BATCHES:
            round_number = yield from self._run(begin_round(PREFIX, CLAIM))
            prepared = list(self.world.run_tasks(round_number, batch))
            yield
            try:
                yield from self._run(commit_batch(PREFIX, round_number, CLAIM, batch, prepared))
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
        driver = Driver(self)
        while not driver.is_over:
            driver.step()
        assert len(self.commit_log) == BATCHES
        _play(self, driver, begin_round(PREFIX, CLAIM))

    def check(self) -> None:
        wanted = {f"{b}.{p}" for b in range(BATCHES) for p in range(PARTITIONS)}
        assert self.cluster.committed() == Counter(wanted)
        left = [name for name, (state, _) in self.cluster.transactions.items() if state == "open"]
        assert not left


def _crash_at(steps: Sequence[int]) -> World:
    """Return a world in which the first lives end at these steps, one after another."""
    left = 0

    def moment(when: str, driver: Driver) -> None:
        nonlocal left
        left -= 1
        if not left:
            raise CrashError

    world = World(Random(1), moment)
    for step in steps:
        left = step
        driver = Driver(world)
        while not driver.is_over:
            driver.step()
    world.finish()
    return world


def _steps_of_a_life() -> int:
    count = 0

    def moment(when: str, driver: Driver) -> None:
        nonlocal count
        count += 1

    world = World(Random(1), moment)
    driver = Driver(world)
    while not driver.is_over:
        driver.step()
    world.check()
    return count


def test_a_crash_at_every_step_leaves_every_row_once() -> None:
    steps = _steps_of_a_life()
    assert steps > 40
    for step in range(1, steps + 1):
        _crash_at([step]).check()


def test_two_crashes_at_any_two_steps_leave_every_row_once() -> None:
    steps = _steps_of_a_life()
    for first in range(1, steps + 1):
        for second in range(1, steps + 1, 3):
            _crash_at([first, second]).check()


def test_an_error_in_any_step_whether_it_was_done_or_not_leaves_every_row_once() -> None:
    for step in range(1, _steps_of_a_life() + 1):
        count = 0

        def moment(when: str, driver: Driver, step: int = step) -> None:
            nonlocal count
            count += 1
            if count == step:
                raise FencedError("no answer")

        world = World(Random(1), moment)
        driver = Driver(world)
        while not driver.is_over:
            driver.step()
        world.finish()
        world.check()


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_twins_and_the_dead_spoil_nothing(seed: int) -> None:
    dice = Random(seed)

    def moment(when: str, driver: Driver) -> None:
        if dice.random() < 0.02:
            raise CrashError
        if dice.random() < 0.02:
            raise FencedError("no answer")

    world = World(dice, moment)
    drivers = [Driver(world)]
    for _ in range(300):
        if dice.random() < 0.03:
            # Somebody thinks that the query is dead, and starts it again.
            drivers.append(Driver(world))
        if dice.random() < 0.05:
            world.wake_zombie()
        dice.choice(drivers).step()
    # All that is still alive comes to its end, in any order, while the last life goes on.
    while alive := [one for one in drivers if not one.is_over]:
        dice.choice(alive).step()
    while world.zombies:
        world.wake_zombie()
    world.finish()
    world.check()


def test_a_round_that_is_not_the_newest_is_told_so() -> None:
    world = World(Random(1))
    first, second = Driver(world), Driver(world)
    for _ in range(10):
        first.step()
    while not second.is_over:
        second.step()
    with pytest.raises(StaleRoundError, match="this is round 1"):
        _play(world, first, commit_batch(PREFIX, 1, CLAIM, 9, ()))


def test_a_commit_that_is_repeated_in_its_round_goes_on_where_it_was() -> None:
    world = World(Random(1))
    driver = Driver(world)
    number = _play(world, driver, begin_round(PREFIX, CLAIM))
    prepared = list(world.run_tasks(number, 0))
    program = commit_batch(PREFIX, number, CLAIM, 0, prepared)
    effect = next(program)
    while not isinstance(effect, End):
        effect = program.send(world.cluster.do(driver, effect))
    assert not world.cluster.committed(), "it is decided, and nothing is done yet"
    assert _play(world, driver, commit_batch(PREFIX, number, CLAIM, 0, prepared)) is False
    assert world.cluster.committed() == Counter({"0.0": 1, "0.1": 1})


def test_one_that_cannot_be_committed_does_not_keep_the_others_open() -> None:
    world = World(Random(1))
    driver = Driver(world)
    number = _play(world, driver, begin_round(PREFIX, CLAIM))
    prepared = list(world.run_tasks(number, 0))
    program = commit_batch(PREFIX, number, CLAIM, 0, prepared)
    effect = next(program)
    while not isinstance(effect, End):
        effect = program.send(world.cluster.do(driver, effect))
    effect = program.throw(WriteFailedError("it was aborted by somebody"))
    assert effect == End(prepared[1], commit=True)
    with pytest.raises(WriteFailedError, match="by somebody"):
        program.send(world.cluster.do(driver, effect))
    book = world.cluster.do(driver, ReadBook())
    assert not book.decision.is_done, "and the next driver is told of it, too"


def test_a_checkpoint_that_was_set_back_is_told_instead_of_rows_being_dropped() -> None:
    world = World(Random(1))
    driver = Driver(world)
    for batch in (4, 5):
        number = _play(world, driver, begin_round(PREFIX, CLAIM))
        prepared = list(world.run_tasks(number, batch))
        _play(world, driver, commit_batch(PREFIX, number, CLAIM, batch, prepared))
    number = _play(world, driver, begin_round(PREFIX, CLAIM))
    prepared = list(world.run_tasks(number, 4))
    with pytest.raises(WriteFailedError, match=r"batch 4 of query q.*set back"):
        _play(world, driver, commit_batch(PREFIX, number, CLAIM, 4, prepared))
    _play(world, driver, abort_batch(PREFIX, number, prepared))
    assert world.cluster.committed() == Counter({f"{b}.{p}": 1 for b in (4, 5) for p in (0, 1)})


def _write(world: World, driver: Driver, claim: Claim, batch: int) -> bool:
    number = _play(world, driver, begin_round(PREFIX, claim))
    prepared = list(world.run_tasks(number, batch))
    is_new: bool = _play(world, driver, commit_batch(PREFIX, number, claim, batch, prepared))
    return is_new


@pytest.mark.parametrize("other", [Claim("r", is_stream=True), Claim("b", is_stream=False)])
def test_another_query_is_refused_before_it_disturbs_the_stream_that_has_the_prefix(
    other: Claim,
) -> None:
    world = World(Random(1))
    owner, stranger = Driver(world), Driver(world)
    number = _play(world, owner, begin_round(PREFIX, CLAIM))
    prepared = list(world.run_tasks(number, 0))
    with pytest.raises(PrefixTakenError, match=r"sink belongs to the stream q, and this is"):
        _play(world, stranger, begin_round(PREFIX, other))
    assert _play(world, owner, commit_batch(PREFIX, number, CLAIM, 0, prepared)) is True
    with pytest.raises(PrefixTakenError, match=r"q, which has written up to batch 0 under it"):
        _play(world, stranger, begin_round(PREFIX, other))


def test_a_stream_that_is_known_late_is_refused_before_it_decides_anything() -> None:
    world = World(Random(1))
    driver = Driver(world)
    _write(world, driver, CLAIM, 0)
    before = world.cluster.committed()
    number = _play(world, driver, begin_round(PREFIX, Claim("", is_stream=True)))
    prepared = list(world.run_tasks(number, 1))
    with pytest.raises(PrefixTakenError):
        _play(world, driver, commit_batch(PREFIX, number, Claim("r", is_stream=True), 1, prepared))
    _play(world, driver, abort_batch(PREFIX, number, prepared))
    assert world.cluster.committed() == before
    assert _write(world, driver, CLAIM, 1), "and its owner goes on"


def test_a_prefix_is_taken_over_when_somebody_says_so_and_what_was_left_is_ended() -> None:
    world = World(Random(1))
    driver = Driver(world)
    number = _play(world, driver, begin_round(PREFIX, CLAIM))
    list(world.run_tasks(number, 0))
    for query in ("", "r"):
        heir = Claim(query, is_stream=True, takes_over=True)
        number = _play(world, driver, begin_round(PREFIX, heir))
    prepared = list(world.run_tasks(number, 0))
    heir = Claim("r", is_stream=True)
    assert _play(world, driver, commit_batch(PREFIX, number, heir, 0, prepared)) is True
    assert world.cluster.committed() == Counter({"0.0": 1, "0.1": 1})
    with pytest.raises(PrefixTakenError, match="belongs to the stream r"):
        _play(world, driver, begin_round(PREFIX, CLAIM))


def test_batch_queries_follow_one_another_under_a_prefix_and_leave_it_to_a_stream() -> None:
    world = World(Random(1))
    driver = Driver(world)
    for claim in (Claim("b", is_stream=False), Claim("c", is_stream=False), CLAIM):
        assert _write(world, driver, claim, 0) is True


@pytest.mark.parametrize(
    ("name", "number"),
    [("sink/3/7", 3), ("sink/driver", None), ("sink/3", None), ("sinks/3/7", None), ("", None)],
)
def test_names_tell_their_round(name: str, number: int | None) -> None:
    assert round_of(PREFIX, name) == number


def test_the_book_survives_being_written_down() -> None:
    prepared = (PreparedTransaction("sink/1/0", 4, 2), PreparedTransaction("a:b/1/0", 5, 0))
    for book in (
        Book(),
        Book(3),
        Book(3, Decision("q", 7, prepared)),
        Book(9, Decision("", 0, ())),
        Book(9, Decision("q", 0, ()), "q"),
    ):
        assert Book.from_bytes(book.to_bytes()) == book
    assert Book.from_bytes(b'{"format": 1, "round_number": 3, "decision": null}') == Book(3)
    for bad in (b"", b"{}", b'{"format": 2}', b"[]", b"\xff"):
        with pytest.raises(ConfigError):
            Book.from_bytes(bad)


def _play(world: World, driver: Driver, program: Program) -> Any:
    """Return what the program returns, without trouble."""
    answer: Any = None
    while True:
        try:
            answer = world.cluster.do(driver, program.send(answer))
        except StopIteration as end:
            return end.value
