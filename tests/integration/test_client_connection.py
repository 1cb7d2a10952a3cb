"""The raw client against a real node: what it sends is stored, and what it cannot know it says."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.clients.connection import Connection
from ottla.clients.errors import AnswerTimeoutError, ClosedByPeerError, NotSentError
from ottla.proto.kafka.apis import (
    API_TABLE,
    CREATE_TOPICS,
    DESCRIBE_CLUSTER,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
)
from ottla.proto.records.build import build_batch
from ottla.proto.records.record import Record
from tests.integration.nodes import RunningNode, running_node

pytestmark = pytest.mark.integration

DEADLINE_S = 30.0
ASK = {"topics": [], "include_topic_authorized_operations": False}
BATCH = build_batch([Record(0, 1000, b"k", b"v"), Record(1, 1001, None, b"w")], base_offset=0)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningNode]:
    with running_node(tmp_path) as running:
        yield running


async def _open(node: RunningNode) -> Connection:
    host, _, port = node.bootstrap.rpartition(":")
    return await Connection.open(host, int(port), request_timeout_s=10.0)


def _run(work: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await work

    asyncio.run(bounded(), debug=True)


def _produce(topic: str, acks: int) -> dict[str, Any]:
    partition = {"index": 0, "records": BATCH}
    return {
        "acks": acks,
        "timeout": 5000,
        "topic_data": [{"name": topic, "partition_data": [partition]}],
    }


async def _create(connection: Connection, topic: str) -> None:
    wanted = {
        "name": topic,
        "num_partitions": 1,
        "replication_factor": 1,
        "assignments": [],
        "configs": [],
    }
    answer = await connection.call(CREATE_TOPICS, {"topics": [wanted], "timeout": 5000})
    assert answer.topics[0].error_code == 0


async def _end_offset(connection: Connection, topic: str) -> int:
    partition = {"partition_index": 0, "timestamp": -1}
    fields = {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": [{"name": topic, "partitions": [partition]}],
        "timeout": 5000,
    }
    answer = await connection.call(LIST_OFFSETS, fields)
    end: int = answer.topics[0].partitions[0].offset
    return end


def test_a_batch_goes_in_and_comes_back(node: RunningNode) -> None:
    async def story() -> None:
        async with await _open(node) as connection:
            await _create(connection, "t")
            # The last version that names topics by name.
            answer = await connection.call(PRODUCE, _produce("t", -1), 12)
            (told,) = answer.responses[0].partition_responses
            assert (told.error_code, told.base_offset) == (0, 0)
            await connection.send(PRODUCE, _produce("t", 0), 12)
            # Nobody has said when it is there: the end that is told is what is committed, and that
            # waits for a sync. The story has a deadline.
            while (end := await _end_offset(connection, "t")) < 4:
                assert end == 2

            partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
            fields = {
                "replica_id": -1,
                "max_wait": 0,
                "min_bytes": 0,
                "max_bytes": 1 << 20,
                "topics": [{"topic": "t", "partitions": [partition]}],
                "forgotten_topics_data": [],
                "rack_id": "",
            }
            fetched = await connection.call(FETCH, fields, 12)
            (read,) = fetched.responses[0].partitions
            assert read.high_watermark == 4
            assert len(bytes(read.records)) == 2 * len(BATCH)

    _run(story())


def test_the_node_serves_what_its_table_says(node: RunningNode) -> None:
    async def story() -> None:
        async with await _open(node) as connection:
            for row in API_TABLE:
                assert connection.version_of(row) == row.high
                low = row.low if row.advertised_low is None else row.advertised_low
                assert connection.versions[row.key] == (low, row.high)

    _run(story())


def test_hundreds_of_pipelined_requests_are_answered_in_order(node: RunningNode) -> None:
    async def story() -> None:
        fields = {"include_cluster_authorized_operations": False, "include_fenced_brokers": False}
        async with await _open(node) as connection:
            calls = [connection.call(DESCRIBE_CLUSTER, fields) for _ in range(500)]
            answers = await asyncio.gather(*calls)
            assert {one.controller_id for one in answers} == {1}

    _run(story())


def test_a_node_that_stands_still_leaves_the_outcome_unknown(node: RunningNode) -> None:
    async def story() -> None:
        async with await _open(node) as connection:
            await _create(connection, "still")
            os.kill(node.pid, signal.SIGSTOP)
            try:
                with pytest.raises(AnswerTimeoutError, match="it may or may not have happened"):
                    await connection.call(PRODUCE, _produce("still", -1), 12, timeout_s=0.3)
            finally:
                os.kill(node.pid, signal.SIGCONT)
            with pytest.raises(NotSentError):
                await connection.call(METADATA, ASK)

    _run(story())


def test_a_node_that_dies_leaves_the_outcome_unknown(node: RunningNode) -> None:
    async def story() -> None:
        async with await _open(node) as connection:
            await _create(connection, "dies")
            os.kill(node.pid, signal.SIGSTOP)
            waiting = asyncio.create_task(connection.call(PRODUCE, _produce("dies", -1), 12))
            await asyncio.sleep(0)
            node.kill()
            with pytest.raises(ClosedByPeerError, match="it may or may not have happened"):
                await waiting
            with pytest.raises(NotSentError, match="Metadata was not sent"):
                await connection.call(METADATA, ASK)

    _run(story())
