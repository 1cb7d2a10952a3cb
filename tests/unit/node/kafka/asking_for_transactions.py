"""Transactions, asked for over a desk."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, cast

from ottla.proto.errors import ErrorCode
from ottla.proto.kafka import apis
from ottla.proto.kafka.apis import ApiRow
from tests.builders import produced
from tests.unit.node.kafka.desk import Desk

ID = "x"
GROUP = "g"
DEADLINE_S = 20.0
FLAGS = {
    "transaction_state_log_num_partitions": "2",
    "offsets_topic_num_partitions": "2",
    "transaction_two_phase_commit_enable": "true",
}


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


async def timed_out(desk: Desk) -> None:
    desk.broker.transactions.time_out()


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
