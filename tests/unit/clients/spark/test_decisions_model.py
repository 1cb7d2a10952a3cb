"""The sink's protocol: a crash at every step, twins of the driver, and tasks back from the dead.

However it goes, every row of every batch is committed once, and nothing is left open. With an
operator who ends transactions by hand rows may be missing or come twice: none is missing silently.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.clients.producer.prepared import PreparedTransaction
from ottla.clients.spark.decisions import (
    BatchName,
    Book,
    Claim,
    Decision,
    End,
    LostBatchError,
    PrefixTakenError,
    ReadBook,
    StaleRoundError,
    abort_batch,
    begin_round,
    commit_batch,
    round_of,
)
from ottla.clients.spark.errors import WriteFailedError
from ottla.proto.errors import ConfigError
from tests.unit.clients.spark.sink_world import (
    BATCHES,
    CLAIM,
    PARTITIONS,
    PREFIX,
    CrashError,
    Driver,
    FencedError,
    World,
    play,
)


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
        play(world, first, commit_batch(PREFIX, 1, CLAIM, 9, ()))


def test_a_commit_that_is_repeated_in_its_round_goes_on_where_it_was() -> None:
    world = World(Random(1))
    driver = Driver(world)
    number = play(world, driver, begin_round(PREFIX, CLAIM))
    prepared = list(world.run_tasks(number, 0))
    program = commit_batch(PREFIX, number, CLAIM, 0, prepared)
    effect = next(program)
    while not isinstance(effect, End):
        effect = program.send(world.cluster.do(driver, effect))
    assert not world.cluster.committed(), "it is decided, and nothing is done yet"
    assert play(world, driver, commit_batch(PREFIX, number, CLAIM, 0, prepared)) is False
    assert world.cluster.committed() == Counter({"0.0": 1, "0.1": 1})


def test_one_that_cannot_be_committed_does_not_keep_the_others_open() -> None:
    world = World(Random(1))
    driver = Driver(world)
    number = play(world, driver, begin_round(PREFIX, CLAIM))
    prepared = list(world.run_tasks(number, 0))
    program = commit_batch(PREFIX, number, CLAIM, 0, prepared)
    effect = next(program)
    while not isinstance(effect, End):
        effect = program.send(world.cluster.do(driver, effect))
    effect = program.throw(WriteFailedError("no answer"))
    assert effect == End(prepared[1], commit=True)
    effect = program.send(world.cluster.do(driver, effect))
    with pytest.raises(WriteFailedError, match="no answer"):
        program.send(world.cluster.do(driver, effect))
    book = world.cluster.do(driver, ReadBook())
    assert not book.decision.is_done, "and the next driver is told of it, too"
    assert (book.decision.committed, book.decision.lost) == ((prepared[1],), ())


def test_a_checkpoint_that_was_set_back_is_told_instead_of_rows_being_dropped() -> None:
    world = World(Random(1))
    driver = Driver(world)
    for batch in (4, 5):
        number = play(world, driver, begin_round(PREFIX, CLAIM))
        prepared = list(world.run_tasks(number, batch))
        play(world, driver, commit_batch(PREFIX, number, CLAIM, batch, prepared))
    number = play(world, driver, begin_round(PREFIX, CLAIM))
    prepared = list(world.run_tasks(number, 4))
    with pytest.raises(WriteFailedError, match=r"batch 4 of query q.*set back"):
        play(world, driver, commit_batch(PREFIX, number, CLAIM, 4, prepared))
    play(world, driver, abort_batch(PREFIX, number, prepared))
    assert world.cluster.committed() == Counter({f"{b}.{p}": 1 for b in (4, 5) for p in (0, 1)})


def _operated(step: int, pick: int, *, commit: bool) -> tuple[World, list[str]]:
    """Return a world in which somebody ends a prepared transaction, and the driver dies.

    And the rows of that transaction; none if nothing was prepared at that step.
    """
    count = 0
    rows = list[str]()

    def moment(when: str, driver: Driver) -> None:
        nonlocal count
        count += 1
        if count == step:
            found = world.cluster.prepared()
            if found:
                rows.extend(world.cluster.end_by_hand(found[pick % len(found)], commit=commit))
            raise CrashError

    world = World(Random(1), moment)
    world.live()
    return world, rows


@pytest.mark.parametrize("pick", [0, 1, 2])
def test_what_an_operator_aborts_at_any_step_is_never_missing_silently(pick: int) -> None:
    stood = 0
    for step in range(1, _steps_of_a_life() + 1):
        world, rows = _operated(step, pick, commit=False)
        wanted = Counter({f"{b}.{p}": 1 for b in range(BATCHES) for p in range(PARTITIONS)})
        while (failure := world.live().failure) is not None:
            assert isinstance(failure, LostBatchError)
            # The coordinator forgets, and the next life is told all the same.
            world.cluster.forget()
            again = world.live().failure
            assert str(again) == str(failure)
            decision = Book.from_bytes(world.cluster.book).decision
            assert decision is not None
            assert world.claim.accepts != decision.name, "once is enough"
            world.claim = Claim("q", is_stream=True, accepts=decision.name)
            wanted.subtract(rows)
            stood += 1
        assert len(world.commit_log) == BATCHES
        assert world.cluster.committed() == +wanted
        assert not world.cluster.prepared()
    assert stood > 2


@pytest.mark.parametrize("pick", [0, 1, 2])
def test_what_an_operator_commits_at_any_step_may_come_twice_and_spoils_nothing_else(
    pick: int,
) -> None:
    twice = 0
    for step in range(1, _steps_of_a_life() + 1):
        world, rows = _operated(step, pick, commit=True)
        world.finish()
        wanted = Counter({f"{b}.{p}": 1 for b in range(BATCHES) for p in range(PARTITIONS)})
        more = world.cluster.committed() - wanted
        assert more <= Counter(rows)
        assert not wanted - world.cluster.committed()
        twice += bool(more)
    assert twice, "which is why the runbooks say not to"


def _lose_one() -> tuple[World, Driver, list[PreparedTransaction]]:
    """Return a world in which one of two transactions was aborted after batch 0 was decided."""
    world = World(Random(1))
    driver = Driver(world)
    number = play(world, driver, begin_round(PREFIX, CLAIM))
    prepared = list(world.run_tasks(number, 0))
    program = commit_batch(PREFIX, number, CLAIM, 0, prepared)
    effect = next(program)
    while not isinstance(effect, End):
        effect = program.send(world.cluster.do(driver, effect))
    world.cluster.end_by_hand(prepared[0].transactional_id, commit=False)
    return world, driver, prepared


def test_a_lost_batch_is_told_with_its_transactions_and_the_way_out() -> None:
    world, driver, prepared = _lose_one()
    name = prepared[0].transactional_id
    sentence = (
        rf"batch 0 of query q was decided.*ended 1 of its 2 transactions \({name}\).*rows are "
        r"missing.*transactionalIdPrefix=sink.*acceptLostBatch=q:0, once"
    )
    for _ in range(2):
        with pytest.raises(LostBatchError, match=sentence):
            play(world, driver, begin_round(PREFIX, CLAIM))
        book = world.cluster.do(driver, ReadBook())
        assert (book.decision.lost, book.decision.committed) == ((prepared[0],), (prepared[1],))
        assert not book.decision.is_done
        world.cluster.forget()
    assert not world.cluster.prepared(), "what was never decided does not wait for the operator"


@pytest.mark.parametrize("other", [BatchName("q", 1), BatchName("r", 0), None])
def test_a_loss_is_accepted_by_the_name_of_its_batch_and_no_other(other: BatchName | None) -> None:
    world, driver, _ = _lose_one()
    with pytest.raises(LostBatchError):
        play(world, driver, begin_round(PREFIX, Claim("q", is_stream=True, accepts=other)))
    assert not world.cluster.warnings
    accepting = Claim("q", is_stream=True, accepts=BatchName("q", 0))
    assert _write(world, driver, accepting, 0) is False, "it is done again, and was decided"
    (warning,) = world.cluster.warnings
    assert "the loss is accepted: batch 0 of query q" in warning
    assert world.cluster.committed() == Counter({"0.1": 1})
    assert _write(world, driver, CLAIM, 1) is True
    assert len(world.cluster.warnings) == 1


def _write(world: World, driver: Driver, claim: Claim, batch: int) -> bool:
    number = play(world, driver, begin_round(PREFIX, claim))
    prepared = list(world.run_tasks(number, batch))
    is_new: bool = play(world, driver, commit_batch(PREFIX, number, claim, batch, prepared))
    return is_new


@pytest.mark.parametrize("other", [Claim("r", is_stream=True), Claim("b", is_stream=False)])
def test_another_query_is_refused_before_it_disturbs_the_stream_that_has_the_prefix(
    other: Claim,
) -> None:
    world = World(Random(1))
    owner, stranger = Driver(world), Driver(world)
    number = play(world, owner, begin_round(PREFIX, CLAIM))
    prepared = list(world.run_tasks(number, 0))
    with pytest.raises(PrefixTakenError, match=r"sink belongs to the stream q, and this is"):
        play(world, stranger, begin_round(PREFIX, other))
    assert play(world, owner, commit_batch(PREFIX, number, CLAIM, 0, prepared)) is True
    with pytest.raises(PrefixTakenError, match=r"q, which has written up to batch 0 under it"):
        play(world, stranger, begin_round(PREFIX, other))


def test_a_stream_that_is_known_late_is_refused_before_it_decides_anything() -> None:
    world = World(Random(1))
    driver = Driver(world)
    _write(world, driver, CLAIM, 0)
    before = world.cluster.committed()
    number = play(world, driver, begin_round(PREFIX, Claim("", is_stream=True)))
    prepared = list(world.run_tasks(number, 1))
    with pytest.raises(PrefixTakenError):
        play(world, driver, commit_batch(PREFIX, number, Claim("r", is_stream=True), 1, prepared))
    play(world, driver, abort_batch(PREFIX, number, prepared))
    assert world.cluster.committed() == before
    assert _write(world, driver, CLAIM, 1), "and its owner goes on"


def test_a_prefix_is_taken_over_when_somebody_says_so_and_what_was_left_is_ended() -> None:
    world = World(Random(1))
    driver = Driver(world)
    number = play(world, driver, begin_round(PREFIX, CLAIM))
    list(world.run_tasks(number, 0))
    for query in ("", "r"):
        heir = Claim(query, is_stream=True, takes_over=True)
        number = play(world, driver, begin_round(PREFIX, heir))
    prepared = list(world.run_tasks(number, 0))
    heir = Claim("r", is_stream=True)
    assert play(world, driver, commit_batch(PREFIX, number, heir, 0, prepared)) is True
    assert world.cluster.committed() == Counter({"0.0": 1, "0.1": 1})
    with pytest.raises(PrefixTakenError, match="belongs to the stream r"):
        play(world, driver, begin_round(PREFIX, CLAIM))


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
        Book(9, Decision("q", 0, prepared, lost=prepared[:1], committed=prepared[1:]), "q"),
    ):
        assert Book.from_bytes(book.to_bytes()) == book
    assert Book.from_bytes(b'{"format": 1, "round_number": 3, "decision": null}') == Book(3)
    before = (
        b'{"format": 1, "round_number": 3, "decision": {"query": "q", "batch": 7, "prepared": '
        b'["4:2:sink/1/0"], "done": false}, "owner": "q"}'
    )
    assert Book.from_bytes(before) == Book(3, Decision("q", 7, prepared[:1]), "q")
    for bad in (b"", b"{}", b'{"format": 2}', b"[]", b"\xff"):
        with pytest.raises(ConfigError):
            Book.from_bytes(bad)
