"""Options of the format `ottla`: the connector's names, and one clear sentence for each mistake."""

from __future__ import annotations

import json
import re

import pytest

from ottla.clients.spark.decisions import BatchName
from ottla.clients.spark.options import read_sink_options, read_source_options
from ottla.clients.spark.places import EARLIEST, LATEST, Rule
from ottla.clients.spark.ranges import StreamOffsets
from ottla.proto.errors import ConfigError
from ottla.proto.ids import TopicPartition
from ottla.proto.kafka.uuids import UUID

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
ORDERS = {**SERVERS, "subscribe": "orders"}


def test_a_batch_reads_all_and_a_stream_what_is_new() -> None:
    batch = read_source_options(ORDERS, is_stream=False)
    stream = read_source_options(ORDERS, is_stream=True)
    assert (batch.start, batch.end) == (EARLIEST, LATEST)
    assert stream.start == LATEST
    assert batch.fail_on_data_loss


def test_capitals_of_names_do_not_matter_because_spark_takes_them_away() -> None:
    got = read_source_options(
        {**ORDERS, "minpartitions": "7", "INCLUDEHEADERS": "true"}, is_stream=False
    )
    assert got.min_partitions == 7
    assert got.include_headers


def test_offsets_are_read_by_partition() -> None:
    given = {**ORDERS, "startingOffsets": '{"orders":{"0":23,"1":-2}}'}
    start = read_source_options(given, is_stream=False).start
    assert start.rule is Rule.OFFSETS
    assert start.numbers == {TopicPartition("orders", 0): 23, TopicPartition("orders", 1): -2}


def test_offsets_that_a_stream_told_of_itself_are_read_with_the_ids_of_their_topics() -> None:
    topic_id = UUID(int=5)
    told = StreamOffsets({TopicPartition("orders", 0): 23}, {"orders": topic_id}).stored()
    given = {**ORDERS, "startingOffsets": json.dumps(told)}
    start = read_source_options(given, is_stream=True).start
    assert start.numbers == {TopicPartition("orders", 0): 23}
    assert start.topic_ids == {"orders": topic_id}


def test_what_begins_with_kafka_goes_to_the_client() -> None:
    got = read_source_options({**ORDERS, "kafka.client.id": "job"}, is_stream=False)
    assert got.client["client.id"] == "job"
    assert got.admin_config() == {"bootstrap.servers": "localhost:9092", "client.id": "job"}


@pytest.mark.parametrize(
    ("given", "is_stream", "sentence"),
    [
        ({"subscribe": "a"}, False, "kafka.bootstrap.servers is needed"),
        (SERVERS, False, "One of subscribe, subscribePattern and assign is needed, and none was"),
        ({**ORDERS, "assign": '{"a":[0]}'}, False, "subscribe and assign were given"),
        ({**ORDERS, "subscrbe": "a"}, False, "subscrbe is no option of format ottla; is subscribe"),
        (
            {**ORDERS, "kafka.client.idd": "a"},
            False,
            'kafka.*: "client.idd" is no option of the consumer; is client.id',
        ),
        ({**ORDERS, "kafka.key.deserializer": "x"}, False, "kafka.key.deserializer cannot be set"),
        (
            {**ORDERS, "startingOffsets": "newest"},
            False,
            "startingOffsets must be earliest, latest",
        ),
        ({**ORDERS, "startingOffsets": "{"}, False, "startingOffsets is no JSON"),
        (
            {**ORDERS, "startingOffsets": '{"a":{"0":-3}}'},
            False,
            "a-0 must have a whole number from -2",
        ),
        (
            {**ORDERS, "startingOffsets": '{"a":{"0":3},"@topic-ids":{"a":7}}'},
            False,
            "startingOffsets: @topic-ids must have an id for each topic.",
        ),
        ({**ORDERS, "startingOffsets": '{"a":{"x":3}}'}, False, "'x' is no partition of a"),
        ({**ORDERS, "startingOffsets": "latest"}, False, "leaves a batch query nothing to read"),
        ({**ORDERS, "endingOffsets": "earliest"}, False, "endingOffsets cannot be earliest"),
        ({**ORDERS, "endingOffsets": "latest"}, True, "endingOffsets is for spark.read"),
        ({**ORDERS, "startingOffsets": "committed"}, True, "needs kafka.group.id"),
        ({**ORDERS, "startingTimestamp": "1", "startingOffsets": "latest"}, True, "contradict"),
        ({**ORDERS, "startingTimestamp": "noon"}, True, "must be milliseconds since 1970"),
        ({**ORDERS, "minPartitions": "0"}, False, "minPartitions must be a whole number from 1 on"),
        ({**ORDERS, "failOnDataLoss": "maybe"}, False, "failOnDataLoss must be true or false"),
        ({**ORDERS, "maxOffsetsPerTrigger": "5"}, False, "maxOffsetsPerTrigger is for spark.readS"),
        ({**SERVERS, "subscribePattern": "("}, False, "subscribePattern is no regular expression"),
        ({**SERVERS, "subscribe": "a,,b"}, False, "subscribe must be names with commas"),
        ({**SERVERS, "assign": '{"a":[]}'}, False, "topic a must have a list of partitions"),
    ],
)
def test_a_mistake_gets_one_sentence(given: dict[str, str], is_stream: bool, sentence: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(sentence)) as caught:
        read_source_options(given, is_stream=is_stream)
    assert len(caught.value.problems) == 1


def test_the_sink_takes_a_topic_and_producer_options() -> None:
    got = read_sink_options({**SERVERS, "topic": "out", "kafka.compression.type": "zstd"})
    assert got.topic == "out"
    assert got.client["compression.type"] == "zstd"
    with pytest.raises(ConfigError, match=r"kafka\.\*: compression\.type must be"):
        read_sink_options({**SERVERS, "kafka.compression.type": "rar"})


def test_exactly_once_needs_a_name_and_takes_no_transactional_id() -> None:
    once = {**SERVERS, "topic": "out", "exactlyOnce": "true"}
    got = read_sink_options({**once, "transactionalIdPrefix": "copies"})
    assert (got.prefix, got.decisions_topic) == ("copies", "ottla-spark-decisions")
    assert read_sink_options({**SERVERS, "topic": "out"}).prefix is None
    with pytest.raises(ConfigError, match="needs a transactionalIdPrefix"):
        read_sink_options(once)
    with pytest.raises(ConfigError, match="with exactlyOnce=true only"):
        read_sink_options({**SERVERS, "transactionalIdPrefix": "copies"})
    with pytest.raises(ConfigError, match="must not have a /"):
        read_sink_options({**once, "transactionalIdPrefix": "copies/1"})
    named = {**once, "transactionalIdPrefix": "copies"}
    with pytest.raises(ConfigError, match="cannot be set"):
        read_sink_options({**named, "kafka.transactional.id": "mine"})
    with pytest.raises(ConfigError, match=r"needs kafka\.acks=all"):
        read_sink_options({**named, "kafka.acks": "1"})


def test_the_loss_of_a_batch_is_accepted_by_its_whole_name_only() -> None:
    named = {**SERVERS, "exactlyOnce": "true", "transactionalIdPrefix": "copies"}
    assert read_sink_options(named).accepts is None
    got = read_sink_options({**named, "acceptlostbatch": "6ccd0ff6-f1ec:7"})
    assert got.accepts == BatchName("6ccd0ff6-f1ec", 7)
    assert str(got.accepts) == "6ccd0ff6-f1ec:7"
    for bad in ("7", ":7", "q:", "q:-1", "q:seven", "q:7 ", "true", ""):
        with pytest.raises(ConfigError, match="acceptLostBatch must be QUERY:BATCH") as caught:
            read_sink_options({**named, "acceptLostBatch": bad})
        assert len(caught.value.problems) == 1
    with pytest.raises(ConfigError, match="acceptLostBatch has a meaning with exactlyOnce=true"):
        read_sink_options({**SERVERS, "acceptLostBatch": "q:7"})
