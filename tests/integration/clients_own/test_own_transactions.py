"""Transactions of our clients, on our nodes and on Apache Kafka, in both dialects.

The same tests for all three clusters.
"""

from __future__ import annotations

import asyncio

import pytest

from ottla.clients.admin.blocking import Admin
from ottla.clients.consumer.sync_consumer import Consumer
from ottla.clients.errors import (
    DeliveryFailedError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionFailedError,
    TransactionStateError,
)
from ottla.clients.producer.client import AsyncProducer, Producer
from ottla.clients.producer.prepared import PreparedTransaction
from ottla.proto.errors import RequestError
from ottla.proto.ids import TopicPartition
from tests.integration.clients_own.transacting import (
    DEADLINE_S,
    Cluster,
    MakeProducer,
    make_topic,
    new_name,
    prepare,
    read_all,
    require_read,
)
from tests.integration.nodes import wait_until

pytestmark = pytest.mark.integration


def test_what_is_committed_is_read_and_what_is_aborted_is_not(
    transactional: Cluster, topic: str, producer_of: MakeProducer
) -> None:
    producer = producer_of()
    producer.init_transactions()
    for number in range(6):
        producer.begin()
        deliveries = [
            producer.send(topic, b"%d.%d" % (number, partition), partition=partition)
            for partition in (0, 1)
        ]
        assert all(one.result().is_ok for one in deliveries)
        if number % 2:
            producer.abort()
        else:
            producer.commit()
    require_read(transactional, topic, [b"0.0", b"2.0", b"4.0", b"0.1", b"2.1", b"4.1"])
    assert len(read_all(transactional, topic, "read_uncommitted")) == 12


def test_a_commit_sends_what_still_waits_and_an_abort_does_not(
    transactional: Cluster, topic: str, producer_of: MakeProducer
) -> None:
    producer = producer_of(linger_ms=10_000)
    with producer.transaction():
        sent = [producer.send(topic, b"%d" % one, partition=0) for one in range(5)]
        assert not any(one.done() for one in sent)
    assert all(one.done() for one in sent)
    producer.begin()
    late = producer.send(topic, b"never", partition=0)
    producer.abort()
    with pytest.raises(DeliveryFailedError, match="aborted"):
        late.result(0)
    with producer.transaction():
        producer.send(topic, b"after", partition=0)
    wanted = [b"0", b"1", b"2", b"3", b"4", b"after"]
    require_read(transactional, topic, wanted)
    assert read_all(transactional, topic, "read_uncommitted") == wanted


def test_an_open_transaction_hides_what_comes_after_it(
    transactional: Cluster, topic: str, producer_of: MakeProducer
) -> None:
    producer = producer_of()
    producer.init_transactions()
    producer.begin()
    producer.send(topic, b"open", partition=0).result()
    with Producer({"bootstrap.servers": transactional.bootstrap, "linger.ms": 0}) as plain:
        plain.send(topic, b"plain", partition=0).result()
    assert read_all(transactional, topic) == []
    assert read_all(transactional, topic, "read_uncommitted") == [b"open", b"plain"]
    producer.commit()
    require_read(transactional, topic, [b"open", b"plain"])


def test_an_exception_aborts_and_goes_on(
    transactional: Cluster, topic: str, producer_of: MakeProducer
) -> None:
    producer = producer_of()

    def fail() -> None:
        with producer.transaction():
            producer.send(topic, b"lost", partition=1).result()
            raise KeyError("the program's own")

    with pytest.raises(KeyError):
        fail()
    with producer.transaction():
        producer.send(topic, b"kept", partition=1)
    with producer.transaction():
        pass
    require_read(transactional, topic, [b"kept"])


def test_a_record_that_is_refused_spoils_the_transaction_and_not_the_producer(
    transactional: Cluster, txn_admin: Admin, producer_of: MakeProducer
) -> None:
    narrow = make_topic(txn_admin, 1, max_message_bytes="1000")
    producer = producer_of()
    producer.init_transactions()
    for number in range(2):
        producer.begin()
        producer.send(narrow, b"small").result()
        too_large = producer.send(narrow, b"x" * 2000)
        with pytest.raises(TransactionAbortableError, match="must be aborted"):
            producer.commit()
        with pytest.raises(DeliveryFailedError):
            too_large.result(0)
        with pytest.raises(TransactionAbortableError):
            producer.send(narrow, b"more")
        producer.abort()
        with producer.transaction():
            producer.send(narrow, b"good %d" % number)
    require_read(transactional, narrow, [b"good 0", b"good 1"])


def test_of_two_producers_with_one_name_the_later_works_on(
    transactional: Cluster, topic: str, producer_of: MakeProducer
) -> None:
    name = new_name()
    first, second = producer_of(name), producer_of(name)
    first.init_transactions()
    first.begin()
    first.send(topic, b"zombie", partition=0).result()
    second.init_transactions()
    with pytest.raises(ProducerFencedError, match=f"transactional.id={name}"):
        first.commit()
    with pytest.raises(ProducerFencedError):
        first.begin()
    with second.transaction():
        second.send(topic, b"second", partition=0)
    require_read(transactional, topic, [b"second"])


def test_records_are_read_changed_and_written_exactly_once(
    transactional: Cluster, txn_admin: Admin, topic: str, producer_of: MakeProducer
) -> None:
    source, group = topic, new_name()
    target = make_topic(txn_admin, 1)
    with Producer({"bootstrap.servers": transactional.bootstrap}) as plain:
        for number in range(40):
            plain.send(source, b"%02d" % number, partition=number % 2)
    producer = producer_of()
    producer.init_transactions()
    config = {
        "bootstrap.servers": transactional.bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "session.timeout.ms": 6000,
    }
    done = 0
    for life in range(20):
        with Consumer(config) as consumer:
            consumer.subscribe(source)
            records = consumer.consume(7, DEADLINE_S) if done < 40 else []
            if not records:
                break
            producer.begin()
            for record in records:
                producer.send(target, record.value)
            producer.send_offsets(consumer.positions(), consumer.group_metadata())
            if life % 3 == 1:
                producer.abort()
            else:
                producer.commit()
                done += len(records)
    wait_until(lambda: len(read_all(transactional, target)) >= 40, DEADLINE_S, "all is read")
    assert sorted(read_all(transactional, target)) == [b"%02d" % number for number in range(40)]
    offsets = txn_admin.list_group_offsets(group)
    assert sum(one.offset for one in offsets.values()) == 40


def test_offsets_of_a_member_that_is_out_are_refused_and_only_the_transaction_is_lost(
    transactional: Cluster, topic: str, producer_of: MakeProducer
) -> None:
    group = new_name()
    config = {"bootstrap.servers": transactional.bootstrap, "group.id": group}
    with Consumer({**config, "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe(topic)
        wait_until(
            lambda: consumer.consume(1, 0.1) == [] and bool(consumer.assignment()),
            DEADLINE_S,
            "the consumer is a member",
        )
        member = consumer.group_metadata()
    producer = producer_of()
    producer.init_transactions()
    producer.begin()
    with pytest.raises(TransactionAbortableError, match=group):
        producer.send_offsets({TopicPartition(topic, 0): 1}, member)
    producer.abort()
    with producer.transaction():
        producer.send_offsets({TopicPartition(topic, 0): 1}, group)


def test_what_was_prepared_is_decided_by_another_process(
    transactional: Cluster, txn_admin: Admin, topic: str, producer_of: MakeProducer
) -> None:
    names = [new_name() for _ in range(2)]
    prepared = [prepare(transactional, topic, name) for name in names]
    assert [one.transactional_id for one in prepared] == names
    assert read_all(transactional, topic) == []
    for _ in range(2):
        # Twice is the same as once.
        txn_admin.complete_transaction(prepared[0], commit=True)
        txn_admin.complete_transaction(prepared[1], commit=False)
    with pytest.raises(RequestError, match="decided the other way"):
        txn_admin.complete_transaction(prepared[0], commit=False)
    require_read(transactional, topic, [f"of {names[0]}".encode()])


def test_a_prepared_transaction_is_kept_when_its_producer_is_closed(
    transactional: Cluster, topic: str, producer_of: MakeProducer, txn_admin: Admin
) -> None:
    producer = producer_of(transaction_two_phase_commit_enable=True)
    producer.init_transactions()
    producer.begin()
    assert producer.prepare() is None, "nothing was written, so nothing is to be decided"
    producer.begin()
    producer.send(topic, b"one", partition=0)
    prepared = producer.prepare()
    assert prepared is not None
    with pytest.raises(TransactionStateError, match="waits for commit or abort"):
        producer.send(topic, b"two", partition=0)
    producer.close()
    assert read_all(transactional, topic) == []
    txn_admin.complete_transaction(prepared, commit=True)
    require_read(transactional, topic, [b"one"])


def test_a_producer_completes_what_it_prepared_itself(
    transactional: Cluster, topic: str, producer_of: MakeProducer
) -> None:
    producer = producer_of(transaction_two_phase_commit_enable=True)
    producer.init_transactions()
    for number in range(4):
        producer.begin()
        producer.send(topic, b"%d" % number, partition=0)
        prepared = producer.prepare()
        assert prepared is not None
        other = PreparedTransaction(prepared.transactional_id, prepared.producer_id, 999)
        assert producer.complete(other if number % 2 else prepared) is (number % 2 == 0)
    require_read(transactional, topic, [b"0", b"2"])


def test_the_next_producer_of_the_name_finds_what_was_prepared(
    transactional: Cluster, topic: str, producer_of: MakeProducer
) -> None:
    name = new_name()
    prepared = prepare(transactional, topic, name)
    producer = producer_of(name, transaction_two_phase_commit_enable=True)
    if not transactional.is_ours:
        # Kafka 4.3 knows the question, and has no answer yet.
        with pytest.raises(TransactionFailedError, match="UNSUPPORTED_VERSION"):
            producer.init_transactions(keep_prepared=True)
        return
    assert producer.init_transactions(keep_prepared=True) == prepared
    assert producer.complete(prepared) is True
    with producer.transaction():
        producer.send(topic, b"next", partition=0)
    require_read(transactional, topic, [f"of {name}".encode(), b"next"])


def test_the_same_on_an_event_loop(transactional: Cluster, topic: str) -> None:
    config = {
        "bootstrap.servers": transactional.bootstrap,
        "transactional.id": new_name(),
    }

    async def fail(producer: AsyncProducer) -> None:
        async with producer.transaction():
            await producer.send(topic, b"two", partition=0)
            raise KeyError

    async def write() -> None:
        async with AsyncProducer(config) as producer:
            async with producer.transaction():
                producer.send(topic, b"one", partition=0)
                await producer.send_offsets({TopicPartition(topic, 0): 7}, "txn-async")
            with pytest.raises(KeyError):
                await fail(producer)
            producer.begin()
            await producer.send(topic, b"three", partition=0)
            # Closing aborts what is open.

    asyncio.run(write())
    require_read(transactional, topic, [b"one"])


def test_what_is_not_the_moment_is_told(transactional: Cluster, topic: str) -> None:
    config = {"bootstrap.servers": transactional.bootstrap}
    with (
        Producer(config) as plain,
        pytest.raises(TransactionStateError, match="without transactional"),
    ):
        plain.begin()
    with Producer({**config, "transactional.id": new_name()}) as producer:
        with pytest.raises(TransactionStateError, match="init_transactions first"):
            producer.begin()
        producer.init_transactions()
        with pytest.raises(TransactionStateError, match="call begin first"):
            producer.send(topic, b"one", partition=0)
        with pytest.raises(TransactionStateError, match="call begin first"):
            producer.commit()
        with pytest.raises(TransactionStateError, match="once"):
            producer.init_transactions()
        producer.begin()
        with pytest.raises(TransactionStateError, match=r"two\.phase"):
            producer.prepare()
        producer.abort()
