"""Kafka's own programs for consumer groups, and Kafka Streams, against three of our nodes."""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from ottla.clients.producer.client import Producer
from tests.integration.clients_own.consuming import write
from tests.integration.clients_own.members import MEMBERS, Member
from tests.interop.broker import wait_until
from tests.interop.java_programs import JavaMember, word_count
from tests.interop.target import Target, start_target
from tests.interop.tools import (
    CONSOLE_CONSUMER,
    CONSUMER_GROUPS,
    CONSUMER_PERFORMANCE,
    TOPICS,
    Ran,
    Tools,
    start_tools,
)

pytestmark = pytest.mark.interop

# Several JVMs start at once, on a machine that may be busy.
DEADLINE_S = 180.0
PARTITIONS = 4
NewTopic = Callable[[], str]


@pytest.fixture(scope="module")
def target(kafka: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with start_target(tmp_path_factory.mktemp("group-tools")) as running:
        yield running


@pytest.fixture(scope="module")
def tools(target: Target) -> Iterator[Tools]:
    with start_tools(target.bootstrap) as running:
        yield running


@pytest.fixture(scope="module")
def producer(target: Target) -> Iterator[Producer]:
    with Producer({"bootstrap.servers": target.bootstrap, "linger.ms": 0}) as made:
        yield made


@pytest.fixture(scope="module")
def names() -> Iterator[str]:
    return (f"group-tools-{number}" for number in count())


@pytest.fixture
def topic(tools: Tools, names: Iterator[str]) -> str:
    """Return a topic; a group may have the same name."""
    name = next(names)
    tools.ask(TOPICS, "--create", "--topic", name, "--partitions", str(PARTITIONS))
    return name


def table(ran: Ran) -> list[dict[str, str]]:
    """Return the rows of a table that ConsumerGroupCommand prints, by the names of the columns."""
    # The id of the coordinator stands behind its address; elsewhere cells have no blanks.
    rows = [re.sub(r" +\((ID|\d+)\)", "", line).split() for line in ran.lines if line.strip()]
    start = next((i for i, row in enumerate(rows) if row[0] in ("GROUP", "TOPIC")), None)
    assert start is not None, ran.said
    return [dict(zip(rows[start], row, strict=False)) for row in rows[start + 1 :]]


def describe(tools: Tools, group: str, *options: str) -> list[dict[str, str]]:
    return table(tools.ask(CONSUMER_GROUPS, "--describe", "--group", group, *options))


def read_with_group(tools: Tools, topic: str, group: str, records: int) -> list[int]:
    """Read so many records with ConsoleConsumer, which commits what it has read."""
    options = ("--topic", topic, "--group", group, "--from-beginning")
    ran = tools.ask(CONSOLE_CONSUMER, *options, "--max-messages", str(records))
    assert f"Processed a total of {records} messages" in ran.err
    return [int(line) for line in ran.lines]


def offsets_of(rows: Sequence[dict[str, str]], column: str = "CURRENT-OFFSET") -> dict[int, int]:
    return {int(one["PARTITION"]): int(one[column]) for one in rows if one[column] != "-"}


# ConsoleConsumer and ConsumerPerformance


def test_a_consumer_joins_reads_commits_and_a_second_one_goes_on(
    tools: Tools, producer: Producer, topic: str
) -> None:
    write(producer, topic, 100, partitions=PARTITIONS)
    first = read_with_group(tools, topic, topic, 60)
    write(producer, topic, 20, partitions=PARTITIONS, start=100)
    second = read_with_group(tools, topic, topic, 60)
    assert sorted(first + second) == list(range(120))
    assert sum(offsets_of(describe(tools, topic)).values()) == 120
    assert {one["LAG"] for one in describe(tools, topic)} == {"0"}


def test_the_performance_of_a_consumer_is_measured(
    tools: Tools, producer: Producer, topic: str
) -> None:
    write(producer, topic, 5000, partitions=PARTITIONS)
    size = ("--num-records", "5000", "--timeout", "60000")
    ran = tools.ask(CONSUMER_PERFORMANCE, "--topic", topic, "--group", topic, *size)
    head, row = ([cell.strip() for cell in line.split(",")] for line in ran.lines[-2:])
    told = dict(zip(head, row, strict=True))
    consumed = next(value for name, value in told.items() if name.endswith("in.nMsg"))
    assert consumed == "5000", ran.said


# ConsumerGroupCommand


@pytest.fixture
def group(tools: Tools, producer: Producer, topic: str) -> str:
    """Return a group without members that has read 40 of 100 records of the topic of its name."""
    write(producer, topic, 40, partitions=PARTITIONS)
    read_with_group(tools, topic, topic, 40)
    write(producer, topic, 60, partitions=PARTITIONS, start=40)
    return topic


def test_groups_are_listed_with_their_states_and_types(tools: Tools, group: str) -> None:
    assert group in tools.ask(CONSUMER_GROUPS, "--list").lines
    rows = {one["GROUP"]: one for one in table(tools.ask(CONSUMER_GROUPS, "--list", "--state"))}
    assert rows[group]["STATE"] == "Empty"
    empty = tools.ask(CONSUMER_GROUPS, "--list", "--state", "Stable")
    assert group not in empty.out
    classic = table(tools.ask(CONSUMER_GROUPS, "--list", "--type", "Classic"))
    assert {one["TYPE"] for one in classic if one["GROUP"] == group} == {"Classic"}


def test_a_group_without_members_is_described_with_its_lag(
    tools: Tools, target: Target, group: str
) -> None:
    ran = tools.ask(CONSUMER_GROUPS, "--describe", "--group", group)
    assert f"Consumer group '{group}' has no active members." in ran.said
    rows = table(ran)
    assert offsets_of(rows) == dict.fromkeys(range(PARTITIONS), 10)
    assert offsets_of(rows, "LOG-END-OFFSET") == dict.fromkeys(range(PARTITIONS), 25)
    assert offsets_of(rows, "LAG") == dict.fromkeys(range(PARTITIONS), 15)
    assert {one["CONSUMER-ID"] for one in rows} == {"-"}
    (state,) = describe(tools, group, "--state")
    assert state["COORDINATOR"] in target.addresses.values()
    assert (state["ASSIGNMENT-STRATEGY"], state["STATE"], state["#MEMBERS"]) == ("-", "Empty", "0")


def test_an_unknown_group_is_told(tools: Tools) -> None:
    ran = tools.try_(CONSUMER_GROUPS, "--describe", "--group", "never-made")
    assert "never-made" in ran.said
    assert re.search("does not exist|not found", ran.said), ran.said


def test_offsets_are_reset_first_on_paper_and_then_in_earnest(tools: Tools, group: str) -> None:
    reset = ("--reset-offsets", "--group", group, "--topic", group)
    planned = table(tools.ask(CONSUMER_GROUPS, *reset, "--to-earliest", "--dry-run"))
    assert offsets_of(planned, "NEW-OFFSET") == dict.fromkeys(range(PARTITIONS), 0)
    assert offsets_of(describe(tools, group)) == dict.fromkeys(range(PARTITIONS), 10)
    done = table(tools.ask(CONSUMER_GROUPS, *reset, "--shift-by", "-3", "--execute"))
    assert offsets_of(done, "NEW-OFFSET") == dict.fromkeys(range(PARTITIONS), 7)
    assert offsets_of(describe(tools, group)) == dict.fromkeys(range(PARTITIONS), 7)
    left = read_with_group(tools, group, group, 100 - PARTITIONS * 7)
    assert sorted(left) == list(range(PARTITIONS * 7, 100))


def test_offsets_of_a_topic_are_deleted_and_the_rest_stays(
    tools: Tools, producer: Producer, group: str, names: Iterator[str]
) -> None:
    other = next(names)
    tools.ask(TOPICS, "--create", "--topic", other, "--partitions", "1")
    write(producer, other, 5)
    read_with_group(tools, other, group, 5)
    ran = tools.ask(CONSUMER_GROUPS, "--delete-offsets", "--group", group, "--topic", group)
    assert {one["STATUS"] for one in table(ran)} == {"Successful"}
    assert {one["TOPIC"] for one in describe(tools, group)} == {other}


def test_a_group_is_deleted(tools: Tools, group: str) -> None:
    ran = tools.ask(CONSUMER_GROUPS, "--delete", "--group", group)
    assert "was successful" in ran.out
    assert group not in tools.ask(CONSUMER_GROUPS, "--list").lines
    again = tools.try_(CONSUMER_GROUPS, "--delete", "--group", group)
    assert "GroupIdNotFoundException" in again.said


# VerifiableConsumer


def is_shared(members: Sequence[Member]) -> bool:
    held = [place for one in members for place in one.held]
    return len(held) == len(set(held)) == PARTITIONS and all(one.held for one in members)


def has_seen(members: Sequence[Member], records: int) -> bool:
    return set[int]().union(*(one.seen for one in members)) == set(range(records))


def test_of_two_members_one_is_killed_and_every_record_is_seen(
    tools: Tools, target: Target, producer: Producer, topic: str
) -> None:
    with ExitStack() as stack:
        members = [JavaMember(target.bootstrap, topic, topic, "range") for _ in range(2)]
        for one in members:
            one.start()
            stack.callback(one.kill)
        wait_until(lambda: is_shared(members), DEADLINE_S, "every partition has one reader")
        rows = describe(tools, topic, "--members", "--verbose")
        assert [one["#PARTITIONS"] for one in rows] == ["2", "2"]
        (state,) = describe(tools, topic, "--state")
        assert (state["STATE"], state["#MEMBERS"]) == ("Stable", "2")
        refused = tools.try_(CONSUMER_GROUPS, "--delete", "--group", topic)
        assert "GroupNotEmptyException" in refused.said
        write(producer, topic, 200, partitions=PARTITIONS)
        wait_until(lambda: has_seen(members, 200), DEADLINE_S, "every record was seen")
        members[0].kill()
        write(producer, topic, 200, partitions=PARTITIONS, start=200)
        wait_until(lambda: has_seen(members, 400), DEADLINE_S, "without one, all the same")
        wait_until(lambda: is_shared(members[1:]), DEADLINE_S, "the other one has them all")
        members[1].stop()
    assert {one["LAG"] for one in describe(tools, topic)} == {"0"}


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_members_in_java_and_python_share_a_group(
    target: Target, producer: Producer, topic: str, strategy: str
) -> None:
    # Java leads; it shares out for the others, and then they do for themselves.
    with ExitStack() as stack:
        members: list[Member] = []
        for kind in (JavaMember, MEMBERS["ottla"], MEMBERS["confluent-kafka"]):
            member = kind(target.bootstrap, topic, topic, strategy)
            member.start()
            stack.callback(member.stop)
            members.append(member)
            wait_until(partial(is_shared, members), DEADLINE_S, "every partition has one reader")
        write(producer, topic, 200, partitions=PARTITIONS)
        wait_until(lambda: has_seen(members, 200), DEADLINE_S, "every record was seen")
        members[0].stop()
        write(producer, topic, 200, partitions=PARTITIONS, start=200)
        wait_until(lambda: has_seen(members, 400), DEADLINE_S, "without Java, all the same")
        wait_until(lambda: is_shared(members[1:]), DEADLINE_S, "the others have them all")


# Kafka Streams

INPUT = "streams-plaintext-input"
OUTPUT = "streams-wordcount-output"
LINES = ("all streams lead to kafka", "hello kafka streams", "join kafka summit")


@contextmanager
def counts(target: Target) -> Iterator[Callable[[], dict[str, int]]]:
    """Yield a function that reads on, and returns the last count of every word until now."""
    settings = {"bootstrap.servers": target.bootstrap, "group.id": "not-a-member"}
    consumer = Consumer(settings)
    found: dict[str, int] = {}

    def read_on() -> dict[str, int]:
        for message in consumer.consume(100, 0.5):
            if message.error() is None:
                word, number = message.key() or b"", message.value() or b""
                (found[word.decode()],) = struct.unpack(">q", number)
        return found

    consumer.assign([TopicPartition(OUTPUT, 0, 0)])
    try:
        yield read_on
    finally:
        consumer.close()


def test_streams_counts_words_and_goes_on_counting_after_a_restart(
    tools: Tools, target: Target, producer: Producer, tmp_path: Path
) -> None:
    for name in (INPUT, OUTPUT):
        tools.ask(TOPICS, "--create", "--topic", name, "--partitions", "1")
    expected: Counter[str] = Counter()
    with counts(target) as read_on:
        for _ in range(2):
            for line in LINES:
                producer.send(INPUT, line.encode())
                expected.update(line.split())
            producer.flush(DEADLINE_S)
            with word_count(target.bootstrap, tmp_path):
                wait_until(lambda: read_on() == expected, DEADLINE_S, "all words are counted")
    # Where Streams keeps what it has counted, and on the way there.
    made = tools.ask(TOPICS, "--list").lines
    for kind in ("changelog", "repartition"):
        assert f"streams-wordcount-KSTREAM-AGGREGATE-STATE-STORE-0000000003-{kind}" in made
    (row,) = (one for one in describe(tools, "streams-wordcount") if one["TOPIC"] == INPUT)
    assert (row["CURRENT-OFFSET"], row["LAG"]) == (str(2 * len(LINES)), "0")
