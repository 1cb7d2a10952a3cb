"""Asking before a transaction begins, while a coordinator is behind, or was replaced."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from ottla.node.kafka.admission import refusals_of
from ottla.node.transactions import admitting
from ottla.node.transactions.admitting import admit
from ottla.node.transactions.peers import Admission
from ottla.node.transactions.words import Place as TransactionPlace
from ottla.proto.errors import ErrorCode
from tests.unit.node.kafka.asking_for_transactions import FLAGS, ID, add, end, find, producer, until
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
