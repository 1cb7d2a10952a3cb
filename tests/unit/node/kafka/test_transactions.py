"""Transactions, asked over a desk: one broker, all versions, and the exact codes of Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, cast

import pytest

from ottla.node import metric_table as table
from ottla.node.transactions.places import TRANSACTIONS_TOPIC
from ottla.proto.errors import ErrorCode
from ottla.proto.ids import Offset
from ottla.proto.kafka import apis
from ottla.proto.kafka.apis import ApiRow
from tests.builders import produced
from tests.replicas import all_synced
from tests.unit.node.kafka.desk import Desk, Place, StillClock, open_desk

ID = "x"
GROUP = "g"
DEADLINE_S = 20.0
FLAGS = {
    "transaction_state_log_num_partitions": "2",
    "offsets_topic_num_partitions": "2",
    "transaction_two_phase_commit_enable": "true",
}


@pytest.fixture
def desk() -> Iterator[Desk]:
    with open_desk(Place(), **FLAGS) as opened:
        opened.create("t", 2)
        find(opened)
        yield opened


def find(desk: Desk) -> None:
    fields = {"key_type": 1, "coordinator_keys": [ID]}
    (told,) = ask(desk, apis.FIND_COORDINATOR, 6, **fields)["coordinators"]
    assert told["error_code"] == 0
    ask(desk, apis.FIND_COORDINATOR, 6, key_type=0, coordinator_keys=[GROUP])


def ask(desk: Desk, row: ApiRow, version: int, **fields: Any) -> dict[str, Any]:
    """Ask, again while a coordinator is loading."""

    async def asked() -> dict[str, Any]:
        async with asyncio.timeout(DEADLINE_S):
            while True:
                told = await desk.asked(row, version, **fields)
                if ErrorCode.COORDINATOR_LOAD_IN_PROGRESS not in codes_of(told):
                    return told
                await asyncio.sleep(0)

    return desk.run(asked())


def codes_of(value: Any) -> Iterator[int]:
    if isinstance(value, dict):
        for name, one in value.items():
            if name in ("error_code", "partition_error_code"):
                yield one
            yield from codes_of(one)
    elif isinstance(value, list):
        for one in value:
            yield from codes_of(one)


def versions(row: ApiRow) -> range:
    return range(row.low, row.high + 1)


def held(desk: Desk, version: int = 5, **changes: Any) -> tuple[int, int, int]:
    """Return error, producer id and epoch."""
    asked = {"transactional_id": ID, "transaction_timeout": 60_000, **changes}
    told = ask(desk, apis.INIT_PRODUCER_ID, version, **asked)
    return told["error_code"], told["producer_id"], told["producer_epoch"]


def producer(desk: Desk) -> dict[str, Any]:
    code, producer_id, epoch = held(desk)
    assert code == 0
    return {"producer_id": producer_id, "producer_epoch": epoch}


def add(desk: Desk, by: dict[str, Any], *indexes: int, topic: str = "t", **changes: Any) -> Any:
    topics = [{"name": topic, "partitions": list(indexes)}]
    asked = {
        "v3_and_below_transactional_id": ID,
        "v3_and_below_producer_id": by["producer_id"],
        "v3_and_below_producer_epoch": by["producer_epoch"],
        "v3_and_below_topics": topics,
        **changes,
    }
    told = ask(desk, apis.ADD_PARTITIONS_TO_TXN, 3, **asked)
    (results,) = told["results_by_topic_v3_and_below"]
    return [one["partition_error_code"] for one in results["results_by_partition"]]


def end(desk: Desk, by: dict[str, Any], version: int = 5, **changes: Any) -> dict[str, Any]:
    asked = {"transactional_id": ID, "committed": True, **by, **changes}
    return ask(desk, apis.END_TXN, version, **asked)


def state(desk: Desk) -> dict[str, Any]:
    told = ask(desk, apis.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[ID])
    (found,) = told["transaction_states"]
    return cast("dict[str, Any]", found)


def until(desk: Desk, word: str) -> dict[str, Any]:
    async def looked() -> None:
        async with asyncio.timeout(DEADLINE_S):
            while True:
                told = await desk.asked(apis.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[ID])
                if told["transaction_states"][0]["transaction_state"] == word:
                    return
                await asyncio.sleep(0)

    desk.run(looked())
    return state(desk)


def write(desk: Desk, by: dict[str, Any], sequence: int = 0) -> int:
    """Append a batch of a transaction, as Produce does when the coordinator has said yes."""
    replica = desk.replica("t")
    transactions = replica.log.producers.transactions
    guard = transactions.guard(by["producer_id"], by["producer_epoch"])
    assert transactions.admit(guard)
    desk.write(
        "t",
        produced(
            b"v",
            producer_id=by["producer_id"],
            producer_epoch=by["producer_epoch"],
            sequence=sequence,
            transactional=True,
        ),
    )
    return replica.log.last_stable_offset


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
    desk.run(_timed_out(desk))
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


async def _timed_out(desk: Desk) -> None:
    desk.broker.transactions.time_out()


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


def test_a_marker_that_would_deafen_the_log_is_refused(desk: Desk) -> None:
    by = producer(desk)
    fenced = ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert marked(desk, by, coordinator_epoch=2**31 - 1) == fenced
    assert marked(desk, {"producer_id": -1, "producer_epoch": 0}) != 0
    unknown = [{"name": "nowhere", "partition_indexes": [0]}]
    assert marked(desk, by, topics=unknown) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    ours = [{"name": TRANSACTIONS_TOPIC, "partition_indexes": [0]}]
    assert marked(desk, by, topics=ours) == ErrorCode.INVALID_TOPIC_EXCEPTION


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
    asked = {"state_filters": ["Silly"], "producer_id_filters": []}
    told = ask(desk, apis.LIST_TRANSACTIONS, version, **asked)
    assert (told["unknown_state_filters"], told["transaction_states"]) == (["Silly"], [])


def test_who_asks_for_what_is_not_there_is_told_so(desk: Desk) -> None:
    assert state(desk)["error_code"] == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    told = ask(desk, apis.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[""])
    assert told["transaction_states"][0]["error_code"] == ErrorCode.INVALID_REQUEST


# ── Offsets ───────────────────────────────────────────────────────────────────────────────────


def commit(desk: Desk, by: dict[str, Any], offset: int, version: int = 5, **changes: Any) -> int:
    partition = {
        "partition_index": 0,
        "committed_offset": offset,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }
    asked = {
        "transactional_id": ID,
        "group_id": GROUP,
        **by,
        "topics": [{"name": "t", "partitions": [partition]}],
        **changes,
    }
    told = ask(desk, apis.TXN_OFFSET_COMMIT, version, **asked)
    return int(told["topics"][0]["partitions"][0]["error_code"])


def fetched(desk: Desk, *, is_stable: bool = False) -> tuple[int, int]:
    """Return error and offset."""
    group = {"group_id": GROUP, "topics": [{"name": "t", "partition_indexes": [0]}]}
    told = ask(desk, apis.OFFSET_FETCH, 8, groups=[group], require_stable=is_stable)
    (one,) = told["groups"][0]["topics"][0]["partitions"]
    return one["error_code"], one["committed_offset"]


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
    desk.run(_timed_out(desk))
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
