"""Prepared transactions (two phases) outlive their producer, time, and kill -9 of every node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla.proto.errors import ErrorCode
from ottla.proto.kafka import apis
from ottla.proto.kafka.apis import ApiRow
from ottla.proto.kafka.message import Message
from tests.builders import produced
from tests.hostile.stage import produce_fields
from tests.integration.clusters import RunningCluster
from tests.integration.nodes import wait_until
from tests.integration.transactions.ledger_clients import (
    DEADLINE_S,
    ask,
    coordinator_of,
    leader_of,
    new_id,
    producer_of,
    read,
    words,
    write,
)

pytestmark = [pytest.mark.integration, pytest.mark.transactions]

NewTopic = Callable[[int], str]


@pytest.fixture
def healed(cluster: RunningCluster) -> Iterator[RunningCluster]:
    yield cluster
    for node in cluster.nodes.values():
        if not node.is_running:
            node.restart()


def asked(cluster: RunningCluster, name: str, row: ApiRow, version: int, **fields: Any) -> Message:
    """Ask the coordinator of an id, again while it is being replaced, and expect a yes."""
    told: list[Message] = []

    def is_answered() -> bool:
        node = cluster[coordinator_of(cluster, name)]
        told[:] = [ask(node.bootstrap, row, version, **fields)]
        code = ErrorCode(told[0].error_code)
        assert code is ErrorCode.NONE or code.retriable, code
        return code is ErrorCode.NONE

    wait_until(is_answered, DEADLINE_S, f"{row.name} is answered")
    return told[0]


def held(cluster: RunningCluster, name: str, *, is_kept: bool) -> Message:
    return asked(
        cluster,
        name,
        apis.INIT_PRODUCER_ID,
        6,
        transactional_id=name,
        transaction_timeout=1_000,
        producer_id=-1,
        producer_epoch=-1,
        enable2_pc=True,
        keep_prepared_txn=is_kept,
    )


@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
def test_an_operator_decides_what_a_dead_producer_has_prepared(
    healed: RunningCluster, new_topic: NewTopic, is_commit: bool
) -> None:
    topic, name = new_topic(3), new_id()
    first = held(healed, name, is_kept=False)
    for index in range(3):
        batch = produced(
            b"prepared/0",
            producer_id=first.producer_id,
            producer_epoch=first.producer_epoch,
            transactional=True,
        )
        fields = produce_fields(topic, [(index, batch)], transactional_id=name)
        node = healed[leader_of(healed, topic, index)]
        answer = ask(node.bootstrap, apis.PRODUCE, 12, **fields)
        assert answer.responses[0].partition_responses[0].error_code == 0
    # Its producer is gone; another one's transaction has its time-out while this one waits.
    other = producer_of(healed.bootstrap, new_id(), transaction_timeout_ms=1_000)
    other.begin_transaction()
    write(other, new_topic(1), 1, "slow")
    for node in healed.nodes.values():
        node.kill()
    for node in healed.nodes.values():
        node.start()
    healed.wait_until_ready()
    taken = held(healed, name, is_kept=True)
    ongoing = taken.ongoing_txn_producer_id, taken.ongoing_txn_producer_epoch
    assert ongoing == (first.producer_id, first.producer_epoch)
    assert words(read(healed.bootstrap, topic)) == [set()] * 3
    asked(
        healed,
        name,
        apis.END_TXN,
        5,
        transactional_id=name,
        producer_id=taken.producer_id,
        producer_epoch=taken.producer_epoch,
        committed=is_commit,
    )
    expected = {"prepared"} if is_commit else set[str]()

    def is_decided() -> bool:
        admin = healed[coordinator_of(healed, name)]
        told = ask(admin.bootstrap, apis.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[name])
        state = told.transaction_states[0].transaction_state
        return bool(state == ("CompleteCommit" if is_commit else "CompleteAbort"))

    wait_until(is_decided, DEADLINE_S, "the transaction is complete")
    assert words(read(healed.bootstrap, topic)) == [expected] * 3
