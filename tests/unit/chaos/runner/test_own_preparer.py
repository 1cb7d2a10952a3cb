"""What is prepared is decided by somebody else, once and as it was drawn, whatever gets lost."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterator
from random import Random
from typing import Any, Final, cast

import pytest

from ottla.chaos.checkers.judge import judge
from ottla.chaos.evidence import Evidence, Ruling
from ottla.chaos.history import Event, Kind, Operation, Place, from_lines, operations
from ottla.chaos.runner import own_preparer, own_transactor
from ottla.chaos.runner.own_preparer import OwnPreparer
from ottla.chaos.runner.recorder import (
    ABORT_TXN,
    COMMIT_TXN,
    KEEP_TXN,
    PREPARE_TXN,
    Recorder,
)
from ottla.chaos.transactions import Decision, Fate, TransactionDraw
from ottla.chaos.workload import Client, ProcessPlan
from ottla.clients.errors import TransactionUnknownError
from ottla.clients.producer.prepared import PreparedTransaction
from ottla.proto.errors import RequestError
from tests.chaos.mutations import BY_NAME
from tests.unit.chaos.runner.fake_coordinator import (
    FakeAdmin,
    FakeCoordinator,
    FakeProducer,
    Trouble,
    no_answer,
)
from tests.unit.chaos.story import FACTS

PLACES: Final = (Place("a", 0), Place("a", 1))
PLAN: Final = ProcessPlan(
    name="tp", client=Client.OWN_PREPARER, seed="1", places=PLACES, per_s=1e6, lanes=2
)
OPERATOR: Final = "tp.operator"
DEADLINE_S: Final = 60.0
ENDS: Final = (COMMIT_TXN, ABORT_TXN)


class Preparer(OwnPreparer):
    """One that talks to a coordinator which is no process."""

    def __init__(self, coordinator: FakeCoordinator, pen: io.StringIO, enough: int) -> None:
        super().__init__(PLAN, {}, Recorder(pen), self.has_done_enough)
        self.coordinator = coordinator
        self.pen = pen
        self.enough = enough
        self.instances = list[FakeProducer]()

    def has_done_enough(self) -> bool:
        return self.pen.getvalue().count(PREPARE_TXN) >= 2 * self.enough

    def _new(self) -> Any:
        self.instances.append(FakeProducer(self.coordinator))
        return self.instances[-1]

    def _new_admin(self) -> Any:
        return FakeAdmin(self.coordinator)

    async def _end_again(self, producer_id: int, epoch: int) -> None:
        """Nothing comes late here."""

    def told(self) -> list[Operation]:
        return operations(self.events())

    def events(self) -> list[Event]:
        return list(from_lines(self.pen.getvalue().splitlines()))

    def live_and_settle(self) -> None:
        async def work() -> None:
            async with asyncio.timeout(DEADLINE_S):
                await self.live()
                await self.settle(1.0)

        asyncio.run(work())

    def rulings(self) -> dict[int, Ruling]:
        evidence = Evidence(facts=FACTS, events=self.events())
        return {one.row: one.ruling for one in judge(evidence)}


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody wait, and draw what is far apart in a plan one after the other."""

    def decisions(plan: ProcessPlan) -> Iterator[Decision]:
        dice = Random(plan.seed)
        while True:
            waits = (0.0,) * dice.choice((1, 1, 2, 3))
            yield Decision(dice.random() < 0.6, dice.random() < 0.5, waits)

    monkeypatch.setattr(own_preparer, "decisions", decisions)
    for module in (own_preparer, own_transactor):
        monkeypatch.setattr(module, "_PAUSE_S", 0.0)


@pytest.fixture
def coordinator() -> FakeCoordinator:
    return FakeCoordinator("tp")


def preparer(coordinator: FakeCoordinator, *, enough: int = 25) -> Preparer:
    return Preparer(coordinator, io.StringIO(), enough)


def prepared_in(told: list[Operation]) -> dict[str, str]:
    """Return what was prepared: the name in the history, and the one that was given out."""
    return {
        one.end.transaction or "": one.end.value or ""
        for one in told
        if one.begin.function == PREPARE_TXN and one.end is not None and one.kind is Kind.OK
    }


def test_each_that_is_prepared_is_decided_by_somebody_else_as_it_was_drawn(
    coordinator: FakeCoordinator,
) -> None:
    one = preparer(coordinator)
    one.live_and_settle()
    told = one.told()
    prepared = prepared_in(told)
    assert len(prepared) >= 25
    wishes = {
        op.begin.transaction: op.begin.function == COMMIT_TXN
        for op in told
        if op.begin.function in ENDS and op.kind is Kind.OK
    }
    assert {name: wishes[name] for name in prepared} == {
        name: coordinator.ended[given] for name, given in prepared.items()
    }
    assert {True, False} == {wishes[name] for name in prepared}
    by = {op.begin.process for op in told if op.begin.transaction in prepared}
    assert {"tp", OPERATOR} <= by
    for instance in one.instances:
        assert instance.calls[-1:] == ["prepare"] or "prepare" not in instance.calls
    assert one.rulings()[34] is Ruling.HELD
    assert coordinator.open_name is None


@pytest.mark.parametrize("seed", range(6))
def test_whatever_gets_lost_a_transaction_is_asked_for_one_end_only_and_nothing_is_left(
    coordinator: FakeCoordinator, seed: int
) -> None:
    dice = Random(seed)
    coordinator.troubles.extend(
        dice.choice((*Trouble, None, None, None, None, None)) for _ in range(2_000)
    )
    one = preparer(coordinator)
    one.live_and_settle()
    told = one.told()
    prepared = prepared_in(told)
    for name, given in prepared.items():
        asked = {op.begin.function for op in told if op.begin.transaction == name}
        assert len(asked.intersection(ENDS)) == 1, name
        assert coordinator.ended[given] is (COMMIT_TXN in asked)
    kinds = {op.kind for op in told if op.begin.function in ENDS}
    assert kinds >= {Kind.OK, Kind.UNKNOWN}
    assert coordinator.open_name is None
    assert Ruling.BROKEN not in {one.rulings()[row] for row in (28, 30, 34)}


def test_an_operator_takes_over_from_a_successor_that_has_kept_it(
    coordinator: FakeCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept_twice = Decision(is_commit=True, is_by_operator=True, waits_s=(0.0, 0.0, 0.0))
    monkeypatch.setattr(own_preparer, "decisions", lambda plan: iter([kept_twice] * 9))
    one = preparer(coordinator, enough=3)
    one.live_and_settle()
    told = [op for op in one.told() if op.begin.transaction == "tp-1"]
    names = [op.begin.function for op in told if op.begin.function in (KEEP_TXN, *ENDS)]
    assert names == [KEEP_TXN, KEEP_TXN, COMMIT_TXN]
    assert [op.begin.process for op in told if op.begin.function == COMMIT_TXN] == [OPERATOR]
    (given,) = {op.end.value for op in told if op.begin.function == KEEP_TXN and op.end}
    assert coordinator.ended[given or ""] is True


def test_what_was_left_unprepared_is_aborted_by_who_comes_next(
    coordinator: FakeCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    draws = [
        TransactionDraw(PLACES, fate, has_late_end=False) for fate in (Fate.LEAVE, Fate.COMMIT)
    ]
    monkeypatch.setattr(own_transactor, "transactions", lambda plan: iter(draws))
    one = preparer(coordinator, enough=1)
    one.live_and_settle()
    left = [op for op in one.told() if op.begin.transaction == "tp-1"]
    assert [op.begin.function for op in left if op.begin.function in ENDS] == [ABORT_TXN]
    assert one.instances[0].calls == ["hang up"]


@pytest.mark.parametrize("is_commit", [True, False])
def test_what_is_left_at_the_end_is_decided_as_it_was_drawn_and_only_once(
    coordinator: FakeCoordinator, monkeypatch: pytest.MonkeyPatch, *, is_commit: bool
) -> None:
    slow = Decision(is_commit=is_commit, is_by_operator=False, waits_s=(3600.0,))
    monkeypatch.setattr(own_preparer, "decisions", lambda plan: iter([slow]))
    one = preparer(coordinator, enough=1)
    one.live_and_settle()
    asyncio.run(one.settle(1.0))
    last = [op for op in one.told() if op.begin.phase == "final"]
    wanted = COMMIT_TXN if is_commit else ABORT_TXN
    assert [(op.begin.function, op.kind) for op in last] == [(KEEP_TXN, Kind.OK), (wanted, Kind.OK)]
    assert {op.begin.process for op in last} == {"tp.final"}
    assert [*coordinator.ended.values()] == [is_commit]


def test_what_nobody_can_decide_at_the_end_leaves_an_operation_that_did_not_succeed(
    coordinator: FakeCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Decision(is_commit=True, is_by_operator=False, waits_s=(3600.0,))
    monkeypatch.setattr(own_preparer, "decisions", lambda plan: iter([slow]))
    one = preparer(coordinator, enough=1)
    asyncio.run(one.live())
    monkeypatch.setattr(FakeProducer, "commit", no_answer)
    asyncio.run(one.settle(0.05))
    last = one.told()[-1]
    assert (last.begin.function, last.begin.phase, last.kind) == (COMMIT_TXN, "final", Kind.UNKNOWN)


@pytest.mark.parametrize("name", ["prepared-times-out", "prepared-not-kept"])
def test_a_node_that_does_not_keep_what_is_prepared_is_found_by_row_34(
    coordinator: FakeCoordinator, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    mutation = BY_NAME[name]
    mutation.undo(monkeypatch)
    one = preparer(coordinator)
    one.live_and_settle()
    broken = [row for row, ruling in one.rulings().items() if ruling is Ruling.BROKEN]
    assert mutation.found_by(broken) == [34]


# ── The fake itself ───────────────────────────────────────────────────────────────────────────


def _prepared(coordinator: FakeCoordinator) -> PreparedTransaction:
    async def work() -> PreparedTransaction:
        producer = FakeProducer(coordinator)
        await producer.init_transactions(1.0, keep_prepared=True)
        producer.begin()
        producer.send("a", b"", partition=0, on_delivery=lambda report: None)
        return await producer.prepare(1.0)

    return asyncio.run(work())


def test_the_fake_keeps_what_is_prepared_for_whoever_comes_and_decides_once(
    coordinator: FakeCoordinator,
) -> None:
    prepared = _prepared(coordinator)
    successor, admin = FakeProducer(coordinator), FakeAdmin(coordinator)
    assert asyncio.run(successor.init_transactions(1.0, keep_prepared=True)) == prepared
    asyncio.run(admin.complete_transaction(prepared, commit=True, take_over=True))
    assert coordinator.ended == {str(prepared): True}
    with pytest.raises(RequestError):
        asyncio.run(successor.commit(1.0))
    assert asyncio.run(FakeProducer(coordinator).init_transactions(1.0)) is None


def test_the_fake_loses_questions_and_answers(coordinator: FakeCoordinator) -> None:
    prepared = _prepared(coordinator)
    deciding = cast("Any", FakeAdmin(coordinator)).complete_transaction
    for trouble, is_done in ((Trouble.LOST_QUESTION, False), (Trouble.LOST_ANSWER, True)):
        coordinator.troubles.append(trouble)
        with pytest.raises(TransactionUnknownError):
            asyncio.run(deciding(prepared, commit=False))
        assert (str(prepared) in coordinator.ended) is is_done
