"""Offsets in transactions, restarts in the middle, and prepared transactions, over a desk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.node.groups.offsets import Offsets
from ottla.node.groups.places import OFFSETS_TOPIC
from ottla.node.groups.places import partition_of as group_partition_of
from ottla.node.transactions.markers import Duty
from ottla.node.transactions.marking import write_markers
from ottla.node.transactions.peers import WantedMarker
from ottla.proto.errors import ErrorCode
from ottla.proto.kafka import apis
from tests.unit.node.kafka.asking_for_transactions import (
    FLAGS,
    GROUP,
    ID,
    add,
    ask,
    commit,
    end,
    fetched,
    find,
    producer,
    state,
    timed_out,
    until,
    versions,
    write,
)
from tests.unit.node.kafka.desk import Desk, Place, StillClock, open_desk


@pytest.fixture
def desk() -> Iterator[Desk]:
    with open_desk(Place(), **FLAGS) as opened:
        opened.create("t", 2)
        find(opened)
        yield opened


@pytest.mark.parametrize("version", versions(apis.TXN_OFFSET_COMMIT))
@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
def test_offsets_of_a_transaction_are_shown_when_it_is_committed(
    desk: Desk, version: int, is_commit: bool
) -> None:
    by = producer(desk)
    if version < 5:
        asked = {"transactional_id": ID, **by, "group_id": GROUP}
        assert ask(desk, apis.ADD_OFFSETS_TO_TXN, min(version, 4), **asked)["error_code"] == 0
    assert commit(desk, by, 5, version) == 0
    assert fetched(desk) == (0, -1)
    assert fetched(desk, is_stable=True) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    assert commit(desk, by, 6, version) == 0
    assert end(desk, by, committed=is_commit)["error_code"] == 0
    until(desk, "CompleteCommit" if is_commit else "CompleteAbort")
    expected = 6 if is_commit else -1
    assert fetched(desk) == fetched(desk, is_stable=True) == (0, expected)


def test_a_marker_that_comes_again_shows_nothing_of_the_next_transaction(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    duties: list[Duty] = []
    markers = desk.broker.transactions.markers
    add_duty = markers.add

    def added(duty: Duty) -> None:
        duties.append(duty)
        add_duty(duty)

    monkeypatch.setattr(markers, "add", added)
    by = producer(desk)
    assert commit(desk, by, 5) == 0
    told = end(desk, by)
    until(desk, "CompleteCommit")
    by = {name: told[name] for name in by}
    assert commit(desk, by, 6) == 0
    (duty,) = duties
    place = (OFFSETS_TOPIC, group_partition_of(GROUP, 2))
    again = write_markers(desk.broker, [WantedMarker(duty.end, (place,))])
    assert desk.run(again) == [{place: ErrorCode.NONE}]
    assert fetched(desk) == (0, 5)
    assert fetched(desk, is_stable=True) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    assert end(desk, by, committed=False)["error_code"] == 0
    until(desk, "CompleteAbort")
    assert fetched(desk) == fetched(desk, is_stable=True) == (0, 5)


def test_offsets_of_a_group_that_was_never_added_are_refused(desk: Desk) -> None:
    by = producer(desk)
    add(desk, by, 0)
    assert commit(desk, by, 5, 4) == ErrorCode.TRANSACTION_ABORTABLE
    assert commit(desk, by, 5, 3) == ErrorCode.INVALID_TXN_STATE
    wrong = {**by, "producer_epoch": 7}
    assert commit(desk, wrong, 5) == ErrorCode.INVALID_PRODUCER_EPOCH
    stranger = {**by, "producer_id": 77}
    assert commit(desk, stranger, 5) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    told = commit(desk, by, 5, generation_id=3, member_id="somebody")
    assert told == ErrorCode.ILLEGAL_GENERATION
    assert fetched(desk, is_stable=True) == (0, -1)


def test_a_plain_commit_behind_one_of_a_transaction_stays(desk: Desk) -> None:
    by = producer(desk)
    assert commit(desk, by, 5) == 0
    partition = {"partition_index": 0, "committed_offset": 9, "committed_metadata": ""}
    topics = [{"name": "t", "partitions": [{**partition, "committed_leader_epoch": -1}]}]
    plain = {"group_id": GROUP, "generation_id_or_member_epoch": -1, "member_id": ""}
    ask(desk, apis.OFFSET_COMMIT, 8, **plain, topics=topics)
    assert end(desk, by)["error_code"] == 0
    until(desk, "CompleteCommit")
    # The record of the transaction comes first in the log, and compaction keeps the last one.
    assert fetched(desk) == (0, 9)


# ── Restarts ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
def test_a_restart_in_the_middle_loses_nothing(is_commit: bool) -> None:
    place = Place()
    with open_desk(place, **FLAGS) as desk:
        desk.create("t", 2)
        find(desk)
        by = producer(desk)
        add(desk, by, 0)
        write(desk, by)
        assert commit(desk, by, 5) == 0
    with open_desk(place, **FLAGS) as desk:
        assert end(desk, by, committed=is_commit)["error_code"] == 0
        until(desk, "CompleteCommit" if is_commit else "CompleteAbort")
        assert fetched(desk, is_stable=True) == (0, 5 if is_commit else -1)
    with open_desk(place, **FLAGS) as desk:
        assert fetched(desk, is_stable=True) == (0, 5 if is_commit else -1)
        # The answer was lost: the next coordinator knows it too.
        told = end(desk, by, committed=is_commit)
        assert (told["error_code"], told["producer_epoch"]) == (0, 1)


def test_a_marker_looks_at_the_groups_of_its_transaction_and_at_no_others(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    by = producer(desk)
    for number in range(20):
        assert commit(desk, by, number, group_id=f"{GROUP}{number}") == 0
    told, looked = end(desk, by), list[int]()
    assert told["error_code"] == 0
    until(desk, "CompleteCommit")
    by = {name: told[name] for name in by}
    assert commit(desk, by, 77) == 0

    def counted(self: Offsets, producer_id: int, *, is_commit: bool) -> None:
        looked.append(producer_id)
        real(self, producer_id, is_commit=is_commit)

    real = Offsets.end
    monkeypatch.setattr(Offsets, "end", counted)
    assert end(desk, by)["error_code"] == 0
    until(desk, "CompleteCommit")
    assert fetched(desk, is_stable=True) == (0, 77)
    assert looked == [by["producer_id"]]
    assert not any(one.undecided for one in desk.broker.groups.ledgers.values())


# ── Two phases ────────────────────────────────────────────────────────────────────────────────


def kept(desk: Desk, **changes: Any) -> dict[str, Any]:
    asked = {
        "transactional_id": ID,
        "transaction_timeout": 60_000,
        "enable2_pc": True,
        "keep_prepared_txn": True,
        **changes,
    }
    return ask(desk, apis.INIT_PRODUCER_ID, 6, **asked)


def test_a_prepared_transaction_waits_for_an_operator_to_decide(desk: Desk) -> None:
    told = kept(desk)
    assert (told["error_code"], told["ongoing_txn_producer_id"]) == (0, -1)
    by = {"producer_id": told["producer_id"], "producer_epoch": told["producer_epoch"]}
    add(desk, by, 0)
    write(desk, by)
    clock = desk.broker.clock
    assert isinstance(clock, StillClock)
    clock.moved_ms = 365 * 24 * 60 * 60 * 1000
    desk.run(timed_out(desk))
    assert state(desk)["transaction_state"] == "Ongoing"
    told = kept(desk)
    ongoing = told["ongoing_txn_producer_id"], told["ongoing_txn_producer_epoch"]
    assert ongoing == (by["producer_id"], by["producer_epoch"])
    assert end(desk, by)["error_code"] == ErrorCode.PRODUCER_FENCED
    operator = {"producer_id": told["producer_id"], "producer_epoch": told["producer_epoch"]}
    assert end(desk, operator)["error_code"] == 0
    until(desk, "CompleteCommit")
    assert desk.replica("t").log.last_stable_offset == 2


def test_two_phases_are_for_those_who_may(desk: Desk) -> None:
    assert kept(desk, enable2_pc=False)["error_code"] == ErrorCode.INVALID_REQUEST
    with open_desk(Place(), **{**FLAGS, "transaction_two_phase_commit_enable": "false"}) as other:
        find(other)
        refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert kept(other)["error_code"] == refused
        assert not any(one.transactions for one in other.broker.transactions.ledgers.values())
        # One that is open and has a time-out is not a prepared one.
        by = producer(other)
        other.create("t", 1)
        add(other, by, 0)
        assert kept(other)["error_code"] == refused
        assert end(other, by)["error_code"] == 0


@pytest.mark.parametrize("is_commit", [True, False])
def test_t5_what_is_prepared_can_be_decided_after_two_phases_were_turned_off(
    is_commit: bool,
) -> None:
    place = Place()
    with open_desk(place, **FLAGS) as desk:
        desk.create("t", 1)
        find(desk)
        told = kept(desk)
        by = {"producer_id": told["producer_id"], "producer_epoch": told["producer_epoch"]}
        add(desk, by, 0)
        write(desk, by)
        # A successor keeps it, and dies before it decides.
        kept(desk)
    off = {**FLAGS, "transaction_two_phase_commit_enable": "false"}
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    with open_desk(place, **off) as desk:
        find(desk)
        assert kept(desk, keep_prepared_txn=False)["error_code"] == refused, "it would be aborted"
        assert state(desk)["transaction_state"] == "Ongoing"
        told = kept(desk)
        assert (told["error_code"], told["ongoing_txn_producer_id"]) == (0, by["producer_id"])
        operator = {name: told[name] for name in by}
        assert end(desk, operator, committed=is_commit)["error_code"] == 0
        until(desk, "CompleteCommit" if is_commit else "CompleteAbort")
        assert kept(desk)["error_code"] == refused, "nothing waits any more"
        assert desk.replica("t").log.last_stable_offset == 2
