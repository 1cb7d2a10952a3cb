"""Each client reads from the beginning, from the end, from an offset and from a point in time."""

from __future__ import annotations

import pytest

from tests.integration.clients.cases import MOMENT_MS, assert_same, numbered
from tests.integration.clients.confluent import ConfluentAdmin, ConfluentKafka
from tests.integration.clients.port import (
    AtBeginning,
    AtOffset,
    AtTime,
    Client,
    NewTopic,
    Record,
    Sending,
    Start,
    produce,
)

pytestmark = pytest.mark.integration

RECORDS = numbered(10)


@pytest.fixture
def writer(bootstrap: str) -> ConfluentKafka:
    """Return one that can set timestamps, which kcat cannot."""
    return ConfluentKafka(bootstrap)


@pytest.mark.parametrize(
    ("start", "first"),
    [
        pytest.param(AtBeginning(), 0, id="beginning"),
        pytest.param(AtOffset(0), 0, id="offset 0"),
        pytest.param(AtOffset(7), 7, id="an offset"),
        pytest.param(AtOffset(10), 10, id="the end offset"),
        pytest.param(AtTime(MOMENT_MS + 3000), 3, id="the time of a record"),
        pytest.param(AtTime(MOMENT_MS + 3001), 4, id="a time between two records"),
        pytest.param(AtTime(MOMENT_MS - 1), 0, id="a time before all records"),
    ],
)
def test_reading_starts_where_it_was_asked_to(
    client: Client, writer: ConfluentKafka, start: Start, first: int, new_topic: NewTopic
) -> None:
    topic = new_topic()
    produce(writer, topic, RECORDS[:6])
    produce(writer, topic, RECORDS[6:], Sending(codec="gzip"))

    read = client.consume(topic, start)

    assert [each.offset for each in read] == list(range(first, 10))
    assert [each.value for each in read] == [each.value for each in RECORDS[first:]]


def test_one_that_follows_the_end_gets_what_comes_later(
    client: Client, writer: ConfluentKafka, new_topic: NewTopic
) -> None:
    topic = new_topic()
    produce(writer, topic, RECORDS[:4])

    with client.follow(topic) as following:
        produce(writer, topic, RECORDS[4:6])
        first = following(2)
        produce(writer, topic, RECORDS[6:])
        second = following(4)

    assert_same([*first, *second], RECORDS[4:], first_offset=4)


def test_many_partitions_are_read_at_once(
    client: Client, writer: ConfluentKafka, new_topic: NewTopic
) -> None:
    # Small and large answers side by side, and one that is empty.
    topic = new_topic(partitions=5)
    sent = {
        (partition, offset): bytes([partition]) * (1 + 200_000 * (partition % 2))
        for partition in range(4)
        for offset in range(3)
    }
    for (partition, _), value in sent.items():
        produce(writer, topic, [Record(value)], partition=partition)

    read = client.consume(topic, AtBeginning(), partitions=range(5))

    assert len(read) == len(sent)
    assert {(each.partition, each.offset): each.value for each in read} == sent


def test_an_empty_partition_has_nothing_to_read(client: Client, new_topic: NewTopic) -> None:
    assert client.consume(new_topic(), AtBeginning()) == []


def test_an_offset_that_is_gone_starts_at_the_first_record(
    client: Client,
    writer: ConfluentKafka,
    setup_admin: ConfluentAdmin,
    new_topic: NewTopic,
) -> None:
    topic = new_topic()
    produce(writer, topic, RECORDS)
    setup_admin.delete_records(topic, 4)

    assert_same(client.consume(topic, AtOffset(1)), RECORDS[4:], first_offset=4)
    assert_same(client.consume(topic, AtBeginning()), RECORDS[4:], first_offset=4)


def test_many_segments_are_read_as_one_log(
    client: Client, writer: ConfluentKafka, new_topic: NewTopic
) -> None:
    # The smallest segment that Kafka allows: each of these records nearly fills one.
    topic = new_topic(segment_bytes=str(1024**2))
    records = tuple(Record(bytes([i]) * 700_000) for i in range(5))
    produce(writer, topic, records)

    assert_same(client.consume(topic, AtBeginning()), records)
    assert_same(client.consume(topic, AtOffset(3)), records[3:], first_offset=3)
