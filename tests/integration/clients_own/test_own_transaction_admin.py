"""Transactions from outside: `Admin` and `ottla transactions`, on our nodes and on Apache Kafka."""

from __future__ import annotations

import asyncio
import json

import pytest
from click.testing import CliRunner, Result

from ottla.__main__ import main
from ottla.clients.admin.answers import TransactionInfo
from ottla.clients.admin.blocking import Admin
from ottla.clients.connection import Connection
from ottla.clients.errors import ProducerFencedError, TransactionUnknownError
from ottla.clients.producer.client import Producer
from ottla.clients.producer.encoding import encode_batch
from ottla.proto.errors import ErrorCode, RequestError
from ottla.proto.ids import TopicPartition
from ottla.proto.kafka.apis import INIT_PRODUCER_ID, PRODUCE
from tests.integration.clients_own.transacting import (
    DEADLINE_S,
    FIRST_DIALECT,
    Cluster,
    MakeProducer,
    new_name,
    prepare,
    read_all,
    require_read,
)

pytestmark = [pytest.mark.integration, pytest.mark.transactions]


def _run(cluster: Cluster, *arguments: str) -> Result:
    told = ["transactions", *arguments, "--bootstrap-server", cluster.bootstrap]
    return CliRunner().invoke(main, told)


def test_transactions_are_listed_described_and_terminated(
    transactional: Cluster, txn_admin: Admin, topic: str, producer_of: MakeProducer
) -> None:
    name = new_name()
    producer = producer_of(name)
    producer.init_transactions()
    producer.begin()
    producer.send(topic, b"one", partition=1).result()
    (listed,) = [one for one in txn_admin.list_transactions() if one.transactional_id == name]
    assert listed.state == "Ongoing"
    assert name in [one.transactional_id for one in txn_admin.list_transactions(states=["Ongoing"])]
    assert name not in [
        one.transactional_id for one in txn_admin.list_transactions(states=["Empty"])
    ]
    described = txn_admin.describe_transactions([name, "nobody's"])
    found, none = described[name], described["nobody's"]
    assert isinstance(found, TransactionInfo)
    assert found.is_open
    assert found.partitions == (TopicPartition(topic, 1),)
    assert isinstance(none, RequestError)
    assert none.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    where = TopicPartition(topic, 1)
    told = txn_admin.describe_producers([where])[where]
    assert isinstance(told, list)
    (here,) = told
    assert (here.producer_id, here.epoch) == (found.producer_id, found.epoch)
    assert here.open_since_offset == 0
    assert txn_admin.hanging_transactions([where], older_than_ms=0) == []
    txn_admin.terminate_transaction(name)
    with pytest.raises(ProducerFencedError):
        producer.commit()
    with pytest.raises(RequestError):
        txn_admin.terminate_transaction("nobody's")
    assert read_all(transactional, topic) == []


def test_a_transaction_that_hangs_is_found_and_aborted(
    transactional: Cluster, txn_admin: Admin, topic: str
) -> None:
    if transactional.kind != FIRST_DIALECT:
        pytest.skip("brokers that ask the coordinator let no transaction hang (KIP-890)")
    where = TopicPartition(topic, 0)
    asyncio.run(_hang(transactional, topic))
    with Producer({"bootstrap.servers": transactional.bootstrap}) as plain:
        plain.send(topic, b"behind it", partition=0)
    assert read_all(transactional, topic) == []
    (found,) = txn_admin.hanging_transactions([where, TopicPartition(topic, 1)], older_than_ms=0)
    assert (found.partition, found.producer.open_since_offset) == (where, 0)
    txn_admin.abort_transaction(where, found.producer)
    assert txn_admin.hanging_transactions([where], older_than_ms=0) == []
    require_read(transactional, topic, [b"behind it"])


async def _hang(transactional: Cluster, topic: str) -> None:
    """Write a record of a transaction that no coordinator has heard of."""
    host, _, port = transactional.bootstrap.rpartition(":")
    async with await Connection.open(host, int(port)) as connection:
        given = await connection.call(
            INIT_PRODUCER_ID,
            {
                "transactional_id": None,
                "transaction_timeout": 60_000,
                "producer_id": -1,
                "producer_epoch": -1,
            },
        )
        batch = encode_batch(
            [(1, None, b"hangs", ())],
            producer_id=given.producer_id,
            producer_epoch=given.producer_epoch,
            base_sequence=0,
            is_transactional=True,
        )
        parts = [{"index": 0, "records": batch}]
        fields = {
            "transactional_id": "nobody's",
            "acks": -1,
            "timeout": 10_000,
            "topic_data": [{"name": topic, "partition_data": parts}],
        }
        refused = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER}
        async with asyncio.timeout(DEADLINE_S):
            while True:
                answer = await connection.call(PRODUCE, fields, 11)
                code = answer.responses[0].partition_responses[0].error_code
                if code not in refused:
                    break
        assert code == ErrorCode.NONE


def test_commands_list_describe_commit_and_abort(
    transactional: Cluster, topic: str, producer_of: MakeProducer
) -> None:
    names = [new_name() for _ in range(3)]
    prepared = [prepare(transactional, topic, name) for name in names]
    listed = json.loads(_run(transactional, "list", "--state", "Ongoing", "--json").stdout)
    assert {*names} <= {one["transactional_id"] for one in listed}
    assert names[0] in _run(transactional, "list").stdout
    described = _run(transactional, "describe", names[0])
    assert described.exit_code == 0, described.stderr
    assert f"transactional id {names[0]}, Ongoing" in described.stdout
    assert topic in described.stdout
    committed = _run(transactional, "commit", str(prepared[0]))
    assert (committed.exit_code, committed.stdout) == (0, f"{prepared[0]}: committed\n")
    aborted = _run(transactional, "abort", str(prepared[1]), names[2])
    assert aborted.exit_code == 0, aborted.stderr
    require_read(transactional, topic, [f"of {names[0]}".encode()])
    again = _run(transactional, "abort", str(prepared[0]), "--json")
    assert again.exit_code == 1
    (told,) = json.loads(again.stdout)
    assert (told["aborted"], told["error"]["name"]) == (False, "INVALID_TXN_STATE")


def test_a_command_decides_what_a_successor_has_kept_and_not_decided(
    transactional: Cluster, topic: str, producer_of: MakeProducer
) -> None:
    if not transactional.is_ours:
        pytest.skip("Kafka 4.3 keeps nothing for a successor yet")
    names = [new_name() for _ in range(2)]
    prepared = [prepare(transactional, topic, name) for name in names]
    successors = [producer_of(name, transaction_two_phase_commit_enable=True) for name in names]
    for one, kept in zip(successors, prepared, strict=True):
        assert one.init_transactions(keep_prepared=True) == kept
    for verb, kept in zip(("commit", "abort"), prepared, strict=True):
        done = _run(transactional, verb, str(kept))
        assert done.exit_code == 0, done.stderr
    require_read(transactional, topic, [f"of {names[0]}".encode()])
    # It was somebody else who decided, and which way is not the successor's to guess.
    with pytest.raises(TransactionUnknownError, match="cannot be ended any more"):
        successors[1].complete(prepared[1])


def test_consume_shows_what_is_committed(
    transactional: Cluster, topic: str, producer_of: MakeProducer
) -> None:
    producer = producer_of()
    producer.init_transactions()
    for value in (b"kept", b"dropped"):
        producer.begin()
        producer.send(topic, value, partition=0).result()
        if value == b"kept":
            producer.commit()
    everything = ["consume", topic, "--from-beginning", "--until-end"]
    where = ["--bootstrap-server", transactional.bootstrap]
    require_read(transactional, topic, [b"kept"])
    told = CliRunner().invoke(main, [*everything, *where])
    assert told.stdout.split() == ["kept", "dropped"]
    told = CliRunner().invoke(main, [*everything, *where, "--isolation-level", "read_committed"])
    assert (told.exit_code, told.stdout.split()) == (0, ["kept"])


def test_commands_say_what_is_wrong(transactional: Cluster) -> None:
    nobody = _run(transactional, "describe", "nobody's")
    assert nobody.exit_code == 1
    assert "`ottla transactions list` tells" in nobody.stderr
    assert "PRODUCER_ID:EPOCH:TRANSACTIONAL_ID" in _run(transactional, "commit", "mine").stderr
    assert "needed together" in _run(transactional, "abort", "--topic", "t").stderr
    assert "Name transactions" in _run(transactional, "abort").stderr
    unhappy = _run(transactional, "hanging", "--topic", "never-made")
    assert unhappy.exit_code == 1


def test_commands_find_and_abort_what_hangs(transactional: Cluster, topic: str) -> None:
    fine = _run(transactional, "hanging", "--topic", topic)
    assert (fine.exit_code, fine.stderr) == (0, "No transaction hangs.\n")
    if transactional.kind != FIRST_DIALECT:
        pytest.skip("brokers that ask the coordinator let no transaction hang (KIP-890)")
    asyncio.run(_hang(transactional, topic))
    found = _run(transactional, "hanging", "--topic", topic, "--older-than", "0", "--json")
    assert found.exit_code == 1
    (told,) = json.loads(found.stdout)
    assert (told["topic"], told["partition"], told["start_offset"]) == (topic, 0, 0)
    place = ["--topic", topic, "--partition", "0"]
    wrong = _run(transactional, "abort", *place, "--start-offset", "5")
    assert wrong.exit_code == 1
    assert "others at 0" in wrong.stderr
    done = _run(transactional, "abort", *place, "--start-offset", "0")
    assert done.exit_code == 0, done.stderr
    assert _run(transactional, "hanging", "--topic", topic, "--older-than", "0").exit_code == 0
