"""10,000 transactions that are open at once: memory and time stay bounded, and all of them end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

import pytest

from ottla.clients.connection import Connection
from ottla.proto.errors import ErrorCode
from ottla.proto.kafka import apis
from ottla.proto.kafka.apis import ApiRow
from ottla.proto.kafka.message import Message
from tests.builders import produced
from tests.hostile.stage import EMPTY, Bystander, Target, produce_fields, target
from tests.integration.nodes import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.transactions]

COUNT: Final = 10_000
CONNECTIONS: Final = 40
DEADLINE_S: Final = 300.0
# What a transactional id and a producer in a log take, with room for the allocator.
BYTES_EACH: Final = 6_000
# The first to look for its coordinator makes the topic.
NOT_YET: Final = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)

Work = Callable[[Connection, int], Awaitable[None]]


@pytest.fixture
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with target(tmp_path_factory.mktemp("crowded")) as found:
        yield found


async def asked(connection: Connection, row: ApiRow, version: int, **fields: Any) -> Message:
    """Ask, again while a coordinator is not there yet."""
    while True:
        answer = await connection.call(row, fields, version, timeout_s=DEADLINE_S)
        code = getattr(answer, "error_code", 0)
        if code not in NOT_YET:
            assert code == ErrorCode.NONE, ErrorCode(code)
            return answer
        await asyncio.sleep(0.05)


def for_all(crowded: Target, work: Work) -> float:
    """Do something for every transactional id, many at a time; return how long it took."""
    host, _, port = crowded.node.bootstrap.rpartition(":")

    async def worker(first: int) -> None:
        async with await Connection.open(host, int(port)) as connection:
            for number in range(first, COUNT, CONNECTIONS):
                await work(connection, number)

    async def everything() -> None:
        async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
            for first in range(CONNECTIONS):
                group.create_task(worker(first))

    began_s = time.monotonic()
    asyncio.run(everything())
    return time.monotonic() - began_s


def listed(crowded: Target, state: str) -> int:
    fields = {"state_filters": [state], "producer_id_filters": [], "duration_filter": -1}
    answer = crowded.answer(apis.LIST_TRANSACTIONS, 1, fields)
    assert answer.error_code == 0
    return len(answer.transaction_states)


def test_ten_thousand_open_transactions_are_held_ended_and_cost_a_bounded_amount(
    crowded: Target,
) -> None:
    crowded.answer(apis.FIND_COORDINATOR, 4, {"key_type": 1, "coordinator_keys": ["many-0"]})
    holders: dict[int, tuple[int, int]] = {}
    before = crowded.memory

    async def hold(connection: Connection, number: int) -> None:
        told = await asked(
            connection,
            apis.INIT_PRODUCER_ID,
            5,
            transactional_id=f"many-{number}",
            transaction_timeout=600_000,
            producer_id=-1,
            producer_epoch=-1,
        )
        holders[number] = told.producer_id, told.producer_epoch

    async def begin(connection: Connection, number: int) -> None:
        producer_id, epoch = holders[number]
        data = produced(
            b"v", producer_id=producer_id, producer_epoch=epoch, sequence=0, transactional=True
        )
        fields = produce_fields(EMPTY, [(0, data)], transactional_id=f"many-{number}")
        answer = await asked(connection, apis.PRODUCE, 12, **fields)
        assert answer.responses[0].partition_responses[0].error_code == 0

    async def end(connection: Connection, number: int) -> None:
        producer_id, epoch = holders[number]
        await asked(
            connection,
            apis.END_TXN,
            5,
            transactional_id=f"many-{number}",
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=number % 2 == 0,
        )

    bystander = Bystander(crowded.node.bootstrap)
    took = {"held": for_all(crowded, hold), "begun": for_all(crowded, begin)}
    assert listed(crowded, "Ongoing") == COUNT
    grown = crowded.memory - before
    assert grown < COUNT * BYTES_EACH, f"{grown >> 20} MiB for {COUNT} open transactions"
    bystander.is_served()
    # All of them are written again at once: this is what a restart of the node makes of them, too.
    took["ended"] = for_all(crowded, end)
    bystander.is_served()
    wait_until(lambda: listed(crowded, "Ongoing") == 0, DEADLINE_S, "none is open")
    wait_until(
        lambda: listed(crowded, "CompleteCommit") == listed(crowded, "CompleteAbort") == COUNT // 2,
        DEADLINE_S,
        "all have their markers",
    )
    bystander.is_served()
    bystander.close()
    grown = crowded.memory - before
    print({name: round(s, 1) for name, s in took.items()}, f"{grown >> 10} KiB in all")
    assert grown < COUNT * BYTES_EACH
