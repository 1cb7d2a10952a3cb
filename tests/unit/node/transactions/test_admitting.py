"""Asking before a transaction begins, while a coordinator is behind, or was replaced."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from ottla.node.broker import Broker
from ottla.node.kafka.admission import refusals_of
from ottla.node.transactions import admitting, coordinator
from ottla.node.transactions.admitting import admit
from ottla.node.transactions.marking import write_markers
from ottla.node.transactions.peers import Admission, Admitted, Outcomes, WantedMarker
from ottla.node.transactions.words import Place as TransactionPlace
from ottla.proto.errors import ErrorCode
from tests.unit.node.kafka.asking_for_transactions import (
    DEADLINE_S,
    FLAGS,
    ID,
    add,
    end,
    find,
    producer,
    until,
    write,
)
from tests.unit.node.kafka.desk import Desk, Place, open_desk

P: TransactionPlace = ("t", 0)


@pytest.fixture
def desk() -> Iterator[Desk]:
    with open_desk(Place(), **FLAGS) as opened:
        opened.create("t", 1)
        find(opened)
        yield opened


def test_a_coordinator_that_has_not_heard_of_a_topic_is_asked_again(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    by = producer(desk)
    heard: list[list[TransactionPlace]] = [[P]]

    def unknown_of(_: Sequence[TransactionPlace]) -> list[TransactionPlace]:
        return heard.pop() if heard else []

    monkeypatch.setattr(desk.broker.transactions, "unknown_of", unknown_of)
    asked = Admission(transactional_id=ID, **by, places=(), adds=True)
    told = desk.run(admit(desk.broker, asked, {P: desk.replica("t")}))
    assert told == {P: ErrorCode.NONE}


@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.OPERATION_NOT_ATTEMPTED]
)
def test_rule_63_what_a_producer_cannot_mend_is_sent_again(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, code: ErrorCode
) -> None:
    async def admitted(*_: object) -> dict[TransactionPlace, ErrorCode]:
        return {P: code}

    monkeypatch.setattr("ottla.node.kafka.admission.admit", admitted)
    questions = {(7, 0): {P: desk.replica("t")}}
    refusals = desk.run(refusals_of(desk.broker, ID, 12, questions))
    assert refusals[P].code is ErrorCode.NOT_ENOUGH_REPLICAS


def test_a_coordinator_that_was_replaced_admits_nobody(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    by = producer(desk)
    add(desk, by, 0)
    told = end(desk, by)
    until(desk, "CompleteCommit")
    by = {name: told[name] for name in by}
    known = desk.replica("t").log.producers.get(by["producer_id"])
    assert known is not None
    known.coordinator_epoch += 1
    monkeypatch.setattr(admitting, "PATIENCE_S", 0.05)
    asked = Admission(transactional_id=ID, **by, places=(), adds=True)
    replicas = {P: desk.replica("t")}
    assert desk.run(admit(desk.broker, asked, replicas)) == {P: ErrorCode.NOT_COORDINATOR}
    assert not desk.replica("t").log.producers.may_write(by["producer_id"], by["producer_epoch"])
    known.coordinator_epoch -= 1
    assert desk.run(admit(desk.broker, asked, replicas)) == {P: ErrorCode.NONE}


# ── The marker of the transaction before ──────────────────────────────────────────────────────


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("is_commit", [True, False])
def test_n3_the_next_transaction_begins_however_long_the_markers_of_the_last_one_take(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, version: int, is_commit: bool
) -> None:
    # 1. a transaction is decided, and its marker is on its way
    # 2. the next one asks, and the coordinator waits for the marker
    # 3. the marker comes after all patience has ended, and makes the question void
    # Once this was refused with INVALID_TXN_STATE, which ends a producer.
    by, came = producer(desk), asyncio.Event()

    async def late(broker: Broker, wanted: Sequence[WantedMarker]) -> list[Outcomes]:
        await came.wait()
        return await write_markers(broker, wanted)

    monkeypatch.setattr(coordinator, "write_markers", late)
    monkeypatch.setattr(admitting, "PATIENCE_S", 0.0)
    add(desk, by, 0)
    write(desk, by)
    told = end(desk, by, version, committed=is_commit)
    assert told["error_code"] == ErrorCode.NONE
    if version >= 5:
        by = {name: told[name] for name in by}
    producers = desk.replica("t").log.producers

    async def begun() -> dict[TransactionPlace, ErrorCode]:
        asked = Admission(transactional_id=ID, **by, places=(), adds=True)
        task = asyncio.create_task(admit(desk.broker, asked, {P: desk.replica("t")}))
        (ledger,) = [one for one in desk.broker.transactions.ledgers.values() if one.transactions]
        async with asyncio.timeout(DEADLINE_S):
            while True:
                await asyncio.sleep(0)
                if ledger.waiting:
                    break
        came.set()
        return await task

    if version < 5:
        # Whoever keeps its epoch may write until the marker has come.
        assert producers.may_write(**_of(by))
    assert desk.run(begun()) == {P: ErrorCode.NONE}
    assert producers.may_write(**_of(by))


def test_n3_a_marker_before_each_answer_makes_the_producer_try_again(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    by, replica = producer(desk), desk.replica("t")
    add(desk, by, 0)
    answer, count = desk.broker.transactions.admit, 0

    async def overtaken(asked: Admission) -> Admitted:
        nonlocal count
        count += 1
        told = await answer(asked)
        replica.log.producers.transactions.void(by["producer_id"])
        return told

    monkeypatch.setattr(desk.broker.transactions, "admit", overtaken)
    monkeypatch.setattr(admitting, "PATIENCE_S", 0.0)
    questions = {tuple(by.values()): {P: replica}}
    for version, code in [
        (12, ErrorCode.CONCURRENT_TRANSACTIONS),
        (11, ErrorCode.NOT_ENOUGH_REPLICAS),
    ]:
        count = 0
        refusals = desk.run(refusals_of(desk.broker, ID, version, questions))
        assert refusals[P].code is code
        assert count == 2, "once more than patience allows, and not for ever"


def test_n3_what_is_asked_for_together_is_admitted_in_the_same_moment(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.create("u", 1)
    q: TransactionPlace = ("u", 0)
    by, replicas = producer(desk), {P: desk.replica("t"), q: desk.replica("u")}
    answer = desk.broker.transactions.admit
    # Before the first answer a marker comes to one partition, before the second to the other.
    marked = ["u", "t"]

    async def overtaken(asked: Admission) -> Admitted:
        told = await answer(asked)
        if marked:
            desk.replica(marked.pop()).log.producers.transactions.void(by["producer_id"])
        return told

    monkeypatch.setattr(desk.broker.transactions, "admit", overtaken)
    asked = Admission(transactional_id=ID, **by, places=(), adds=True)
    assert desk.run(admit(desk.broker, asked, replicas)) == dict.fromkeys(replicas, ErrorCode.NONE)
    assert all(one.log.producers.may_write(**_of(by)) for one in replicas.values())


def _of(by: dict[str, Any]) -> dict[str, int]:
    return {"producer_id": by["producer_id"], "epoch": by["producer_epoch"]}
