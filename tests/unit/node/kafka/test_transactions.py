"""Transactions, asked over a desk: one broker, all versions, and the exact codes of Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from ottla.node import metric_table as table
from ottla.node.groups.own_topic import OwnTopic
from ottla.node.kafka import transaction_admin
from ottla.node.transactions import coordinator
from ottla.node.transactions.peers import Admission
from ottla.node.transactions.places import TRANSACTIONAL_ID_MAX, TRANSACTIONS_TOPIC
from ottla.proto.errors import ErrorCode
from ottla.proto.ids import LeaderEpoch, Offset
from ottla.proto.kafka import apis
from tests.replicas import all_synced
from tests.unit.node.kafka.asking_for_transactions import (
    FLAGS,
    ID,
    add,
    ask,
    end,
    find,
    held,
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


# ── A transaction ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", versions(apis.INIT_PRODUCER_ID))
def test_an_id_is_held_and_a_successor_has_a_later_epoch(desk: Desk, version: int) -> None:
    first, second = held(desk, version), held(desk, version)
    assert first[0] == second[0] == 0
    assert first[1] == second[1]
    assert (first[2], second[2]) == (0, 1)


@pytest.mark.parametrize("version", versions(apis.END_TXN))
def test_a_transaction_ends_in_every_version(desk: Desk, version: int) -> None:
    by = producer(desk)
    assert add(desk, by, 0, 1) == [0, 0]
    assert write(desk, by) == 0
    told = end(desk, by, version)
    assert told["error_code"] == 0
    if version >= 5:
        assert (told["producer_id"], told["producer_epoch"]) == (by["producer_id"], 1)
    found = until(desk, "CompleteCommit")
    assert found["topics"] == []
    assert desk.replica("t").log.last_stable_offset == 2
    # One that was sent twice is answered the same.
    again = end(desk, by, version)
    assert again == told


@pytest.mark.parametrize("version", versions(apis.ADD_PARTITIONS_TO_TXN))
def test_partitions_are_added_in_every_version(desk: Desk, version: int) -> None:
    by = producer(desk)
    if version < 4:
        code = add(desk, by, 0, 1)
        assert code == [0, 0]
    else:
        one = {"transactional_id": ID, **by, "topics": [{"name": "t", "partitions": [0, 1]}]}
        asked = {"transactions": [{**one, "verify_only": False}]}
        told = ask(desk, apis.ADD_PARTITIONS_TO_TXN, version, **asked)
        (result,) = told["results_by_transaction"]
        assert not any(map(_code, result["topic_results"][0]["results_by_partition"]))
        asked = {"transactions": [{**one, "verify_only": True}]}
        asked["transactions"][0]["topics"] = [{"name": "t", "partitions": [1]}]
        told = ask(desk, apis.ADD_PARTITIONS_TO_TXN, version, **asked)
        (result,) = told["results_by_transaction"]
        assert not any(map(_code, result["topic_results"][0]["results_by_partition"]))
    found = state(desk)
    assert (found["transaction_state"], found["topics"]) == (
        "Ongoing",
        [{"topic": "t", "partitions": [0, 1]}],
    )


def _code(result: dict[str, Any]) -> int:
    return int(result["partition_error_code"])


def test_a_partition_that_was_never_added_is_not_verified(desk: Desk) -> None:
    by = producer(desk)
    add(desk, by, 0)
    one = {"transactional_id": ID, **by, "topics": [{"name": "t", "partitions": [0, 1]}]}
    asked = {"transactions": [{**one, "verify_only": True}]}
    told = ask(desk, apis.ADD_PARTITIONS_TO_TXN, 5, **asked)
    results = told["results_by_transaction"][0]["topic_results"][0]["results_by_partition"]
    assert [_code(one) for one in results] == [0, ErrorCode.TRANSACTION_ABORTABLE]


def test_one_partition_that_is_not_there_stops_all(desk: Desk) -> None:
    by = producer(desk)
    unknown, not_tried = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
    assert add(desk, by, 0, 7) == [not_tried, unknown]
    assert add(desk, by, 0, topic="__consumer_offsets") == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert state(desk)["transaction_state"] == "Empty"


@pytest.mark.parametrize("version", [4, 5])
def test_internal_topics_are_in_no_transaction(desk: Desk, version: int) -> None:
    by = producer(desk)
    topics = [{"name": TRANSACTIONS_TOPIC, "partitions": [0]}]
    one = {"transactional_id": ID, **by, "topics": topics, "verify_only": False}
    told = ask(desk, apis.ADD_PARTITIONS_TO_TXN, version, transactions=[one])
    (result,) = told["results_by_transaction"][0]["topic_results"][0]["results_by_partition"]
    assert _code(result) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    place = (TRANSACTIONS_TOPIC, 0)
    asked = Admission(transactional_id=ID, **by, places=(place,), adds=True)
    admitted = desk.run(desk.broker.transactions.admit(asked))
    assert admitted.outcomes == {place: ErrorCode.INVALID_TOPIC_EXCEPTION}
    assert state(desk)["transaction_state"] == "Empty"


# ── Strangers ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", versions(apis.END_TXN))
def test_who_does_not_hold_the_id_ends_nothing(desk: Desk, version: int) -> None:
    by = producer(desk)
    add(desk, by, 0)
    fenced = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
    stranger = {**by, "producer_id": 77}
    assert end(desk, stranger, version)["error_code"] == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    for epoch in (by["producer_epoch"] + 1, by["producer_epoch"] - 1):
        told = end(desk, {**by, "producer_epoch": epoch}, version)
        assert told["error_code"] == fenced
    unknown = end(desk, by, version, transactional_id="nobody's")
    assert unknown["error_code"] in (
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.NOT_COORDINATOR,
    )
    assert end(desk, by, version, transactional_id="")["error_code"] == ErrorCode.INVALID_REQUEST
    assert state(desk)["transaction_state"] == "Ongoing"


def test_nothing_is_committed_that_was_not_begun(desk: Desk) -> None:
    by = producer(desk)
    assert end(desk, by)["error_code"] == ErrorCode.INVALID_TXN_STATE
    assert end(desk, by, 3)["error_code"] == ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_time_out_that_is_too_long_or_none_is_refused(desk: Desk, timeout_ms: int) -> None:
    told = held(desk, transaction_timeout=timeout_ms)
    assert told == (ErrorCode.INVALID_TRANSACTION_TIMEOUT, -1, -1)


def test_a_commit_after_the_time_out_is_refused_and_nothing_of_it_is_seen(desk: Desk) -> None:
    by = producer(desk)
    add(desk, by, 0)
    write(desk, by)
    clock = desk.broker.clock
    assert isinstance(clock, StillClock)
    clock.moved_ms = 60_000
    desk.run(timed_out(desk))
    until(desk, "CompleteAbort")
    assert end(desk, by)["error_code"] == ErrorCode.PRODUCER_FENCED
    assert end(desk, by, 1)["error_code"] == ErrorCode.INVALID_PRODUCER_EPOCH
    log = desk.replica("t").log
    assert log.last_stable_offset == log.end_offset
    (aborted,) = log.aborted.in_segment(log.segments[0])
    assert aborted.producer_id == by["producer_id"]
    readings = {(one.row, one.labels): one.value for one in desk.broker.transactions.readings()}
    assert readings[table.TRANSACTIONS_TIMED_OUT, ()] == 1
    assert readings[table.TRANSACTIONS, ("CompleteAbort",)] == 1
    assert readings[table.TRANSACTION_MARKERS, ()] == 0
    assert readings[table.TRANSACTIONS_LOADING, ()] == 0


def test_an_id_that_nobody_uses_is_forgotten(desk: Desk) -> None:
    producer(desk)
    clock = desk.broker.clock
    assert isinstance(clock, StillClock)
    clock.moved_ms = 7 * 24 * 60 * 60 * 1000

    async def expired() -> None:
        desk.broker.transactions.expire()
        for ledger in desk.broker.transactions.ledgers.values():
            await all_synced(ledger.replica)

    desk.run(expired())
    assert state(desk)["error_code"] == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


# ── Markers from outside ──────────────────────────────────────────────────────────────────────


def marked(desk: Desk, by: dict[str, Any], **changes: Any) -> int:
    marker = {
        **by,
        "transaction_result": False,
        "topics": [{"name": "t", "partition_indexes": [0]}],
        "coordinator_epoch": 0,
        "transaction_version": 0,
        **changes,
    }
    told = ask(desk, apis.WRITE_TXN_MARKERS, 2, markers=[marker])
    (result,) = told["markers"]
    return int(result["topics"][0]["partitions"][0]["error_code"])


def test_an_operator_ends_a_transaction_in_one_partition(desk: Desk) -> None:
    by = producer(desk)
    add(desk, by, 0)
    write(desk, by)
    assert marked(desk, by) == 0
    assert desk.replica("t").log.last_stable_offset == Offset(2)


def test_a_marker_of_an_operator_makes_no_coordinator_deposed(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    by = producer(desk)
    add(desk, by, 0)
    write(desk, by)
    topic = desk.broker.transactions.topic
    assert topic.known is not None
    later = [replace(one, leader_epoch=LeaderEpoch(9)) for one in topic.known.partitions]
    info = replace(topic.known, partitions=tuple(later))
    monkeypatch.setattr(OwnTopic, "known", property(lambda _: info))
    assert marked(desk, by, coordinator_epoch=9) == 0
    known = desk.replica("t").log.producers.get(by["producer_id"])
    assert known is not None
    assert known.coordinator_epoch == 0
    known.coordinator_epoch = 3
    assert marked(desk, by, coordinator_epoch=2) == ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_a_marker_that_would_deafen_the_log_is_refused(desk: Desk) -> None:
    by = producer(desk)
    fenced = ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert marked(desk, by, coordinator_epoch=2**31 - 1) == fenced
    assert marked(desk, {"producer_id": -1, "producer_epoch": 0}) != 0
    unknown = [{"name": "nowhere", "partition_indexes": [0]}]
    assert marked(desk, by, topics=unknown) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    ours = [{"name": TRANSACTIONS_TOPIC, "partition_indexes": [0]}]
    assert marked(desk, by, topics=ours) == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_of_many_that_take_too_long_some_are_aborted_at_once_and_then_the_others(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator, "AT_ONCE", 3)
    for number in range(8):
        code, producer_id, epoch = held(desk, transactional_id=f"many-{number}")
        assert code == ErrorCode.NONE
        changes = {"v3_and_below_transactional_id": f"many-{number}"}
        assert add(desk, {"producer_id": producer_id, "producer_epoch": epoch}, 0, **changes) == [0]
    clock, transactions = desk.broker.clock, desk.broker.transactions
    assert isinstance(clock, StillClock)
    clock.moved_ms = 60_001

    async def timed_out() -> tuple[bool, int]:
        return transactions.time_out(), transactions.timed_out

    told = [desk.run(timed_out()) for _ in range(4)]
    assert told == [(True, 3), (True, 6), (False, 8), (False, 8)]


# ── Looking from outside ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", versions(apis.LIST_TRANSACTIONS))
def test_transactions_are_listed_by_what_is_asked_for(desk: Desk, version: int) -> None:
    by = producer(desk)
    add(desk, by, 0)

    def listed(**changes: Any) -> list[str]:
        asked = {"state_filters": [], "producer_id_filters": [], **changes}
        told = ask(desk, apis.LIST_TRANSACTIONS, version, **asked)
        assert told["error_code"] == 0
        return [one["transactional_id"] for one in told["transaction_states"]]

    assert listed() == [ID]
    assert listed(state_filters=["Ongoing"]) == [ID]
    assert listed(state_filters=["Empty"]) == []
    assert listed(producer_id_filters=[by["producer_id"]]) == [ID]
    assert listed(producer_id_filters=[by["producer_id"] + 1]) == []
    if version >= 1:
        assert listed(duration_filter=0) == []
        clock = desk.broker.clock
        assert isinstance(clock, StillClock)
        clock.moved_ms = 5
        assert listed(duration_filter=4) == [ID]
    if version >= 2:
        for pattern, found in [(None, [ID]), ("", [ID]), ("x|y", [ID]), ("x+", [ID]), ("xx", [])]:
            assert listed(transactional_id_pattern=pattern) == found
    asked = {"state_filters": ["Silly"], "producer_id_filters": []}
    told = ask(desk, apis.LIST_TRANSACTIONS, version, **asked)
    assert (told["unknown_state_filters"], told["transaction_states"]) == (["Silly"], [])


@pytest.mark.parametrize("pattern", ["(x", "(?=x)", "x" * 1001, "x{100000}", "(x*){499}"])
def test_what_is_no_pattern_is_refused(desk: Desk, pattern: str) -> None:
    producer(desk)
    asked: dict[str, list[Any]] = {"state_filters": [], "producer_id_filters": []}
    told = ask(desk, apis.LIST_TRANSACTIONS, 2, **asked, transactional_id_pattern=pattern)
    code = ErrorCode.NONE if pattern == "x{100000}" else ErrorCode.INVALID_REGULAR_EXPRESSION
    # A brace that is no repetition is a brace.
    assert (told["error_code"], told["transaction_states"]) == (code, [])


def test_a_pattern_that_takes_too_long_is_refused_in_time(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_admin, "STEPS_MAX", 100_000)
    code, _, _ = held(desk, transactional_id="x" * TRANSACTIONAL_ID_MAX)
    assert code == ErrorCode.NONE
    asked: dict[str, list[Any]] = {"state_filters": [], "producer_id_filters": []}
    for pattern, wanted in [("x*y", ErrorCode.NONE), ("(x|y)*x(x|y){70}", 128)]:
        told = ask(desk, apis.LIST_TRANSACTIONS, 2, **asked, transactional_id_pattern=pattern)
        assert (told["error_code"], told["transaction_states"]) == (wanted, [])


def test_who_asks_for_what_is_not_there_is_told_so(desk: Desk) -> None:
    assert state(desk)["error_code"] == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    told = ask(desk, apis.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[""])
    assert told["transaction_states"][0]["error_code"] == ErrorCode.INVALID_REQUEST
