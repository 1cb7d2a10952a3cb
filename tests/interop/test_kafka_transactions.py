"""Kafka's own clients and programs in transactions, against three of our nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from tests.interop.broker import wait_until
from tests.interop.kafka import DUMP_LOG_SEGMENTS, run_tool
from tests.interop.target import Target, start_target
from tests.interop.tools import (
    CONSOLE_CONSUMER,
    GET_OFFSETS,
    PRODUCER_PERFORMANCE,
    TOPICS,
    TRANSACTIONS,
    Tools,
    start_tools,
)

pytestmark = pytest.mark.interop

DEADLINE_S = 30.0
ID = "a-java-producer"
_LOGS = "__transaction_state-*/*.log"


@pytest.fixture(scope="module")
def target(kafka: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with start_target(tmp_path_factory.mktemp("transactions")) as running:
        yield running


@pytest.fixture(scope="module")
def tools(target: Target) -> Iterator[Tools]:
    with start_tools(target.bootstrap) as running:
        yield running


@pytest.fixture(scope="module")
def written(tools: Tools) -> str:
    """Return a topic to which a Java producer has written in many transactions."""
    topic = "in-transactions"
    create = ("--create", "--topic", topic, "--partitions", "3", "--replication-factor", "3")
    tools.ask(TOPICS, *create)
    options = ("--num-records", "2000", "--record-size", "20", "--throughput", "1000")
    ran = tools.run(
        PRODUCER_PERFORMANCE,
        *("--topic", topic, *options),
        *("--transactional-id", ID, "--transaction-duration-ms", "50"),
        *("--bootstrap-server", tools.bootstrap),
    )
    assert ran.code == 0, ran.said
    assert "2000 records sent" in ran.out, ran.said
    return topic


def test_a_java_producer_commits_and_a_java_consumer_reads_it(tools: Tools, written: str) -> None:
    ran = tools.ask(
        CONSOLE_CONSUMER,
        *("--topic", written, "--from-beginning", "--max-messages", "2000"),
        *("--isolation-level", "read_committed", "--timeout-ms", "20000"),
    )
    assert len(ran.lines) == 2000


def test_transactions_are_listed_and_described(tools: Tools, written: str) -> None:
    def is_told() -> bool:
        return bool(
            re.search(rf"{ID}\s+\d+\s+\d+\s+CompleteCommit", tools.ask(TRANSACTIONS, "list").out)
        )

    wait_until(is_told, DEADLINE_S, "the last transaction is complete")
    for pattern, is_listed in [("a-java-.*", True), ("java", False)]:
        listed = tools.ask(TRANSACTIONS, "list", "--transactional-id-pattern", pattern).out
        assert (ID in listed) is is_listed, listed
    described = tools.ask(TRANSACTIONS, "describe", "--transactional-id", ID).out
    assert "CompleteCommit" in described
    # Transactions end with a new epoch each: the Java client goes by transaction.version 2.
    state = re.search(rf"{ID}\s+\d+\s+(\d+)\s+CompleteCommit", described)
    assert state is not None, described
    assert int(state[1]) > 5
    # The Java client stays with a partition for 16 KiB and then draws one: it may leave one out.
    ends = dict(
        line.split(":")[1:] for line in tools.ask(GET_OFFSETS, "--topic", written).out.split()
    )
    assert len(ends) == 3
    for partition, end in ends.items():
        producers = tools.ask(
            TRANSACTIONS, "describe-producers", "--topic", written, "--partition", partition
        ).out
        assert bool(re.search(r"\bNone\b", producers)) is (end != "0"), (ends, producers)
    assert any(end != "0" for end in ends.values())


def test_kafka_reads_what_our_coordinator_has_written(target: Target, written: str) -> None:
    logs = [one for folder in target.data_dirs.values() for one in folder.glob(_LOGS)]
    said = "".join(
        run_tool(DUMP_LOG_SEGMENTS, "--transaction-log-decoder", "--files", str(one)).stdout
        for one in logs
        if one.stat().st_size
    )
    assert f'"transactionalId":"{ID}"' in said
    # Empty, Ongoing, PrepareCommit, CompleteCommit.
    for number in (0, 1, 2, 4):
        assert f'"transactionStatus":{number},' in said


def test_what_is_open_is_no_hanging_one_and_can_be_aborted_by_its_offset(
    target: Target, tools: Tools
) -> None:
    topic, create = "left-open", ("--partitions", "1", "--replication-factor", "3")
    tools.ask(TOPICS, "--create", "--topic", topic, *create)
    producer = Producer({"bootstrap.servers": target.bootstrap, "transactional.id": "somebody"})
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    producer.produce(topic, b"never decided")
    assert producer.flush(DEADLINE_S) == 0
    other = Producer({"bootstrap.servers": target.bootstrap})
    other.produce(topic, b"behind it")
    assert other.flush(DEADLINE_S) == 0
    at = ("--topic", topic, "--partition", "0")
    described = tools.ask(TRANSACTIONS, "describe-producers", *at).out
    assert re.search(r"\b0\s*$", described.rstrip()), described
    # A coordinator knows of it, so it does not hang, however old it is.
    hanging = tools.ask(TRANSACTIONS, "find-hanging", *at, "--max-transaction-timeout", "0").out
    assert topic not in hanging, hanging
    tools.ask(TRANSACTIONS, "abort", *at, "--start-offset", "0")
    described = tools.ask(TRANSACTIONS, "describe-producers", *at).out
    assert re.search(r"\bNone\s*$", described.rstrip()), described
    ran = tools.ask(
        CONSOLE_CONSUMER,
        *("--topic", topic, "--from-beginning", "--max-messages", "1"),
        *("--isolation-level", "read_committed", "--timeout-ms", "20000"),
    )
    assert ran.lines == ["behind it"]
