"""What may be given to the encoder, and what is our own mistake."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.proto.errors import ErrorCode, LocalProtocolError
from ottla.proto.kafka.apis import (
    CREATE_TOPICS,
    DESCRIBE_TOPIC_PARTITIONS,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
)
from ottla.proto.kafka.decode import decode_request, decode_response
from ottla.proto.kafka.encode import encode_request, encode_response
from ottla.proto.kafka.message import Message
from ottla.proto.kafka.uuids import UUID, ZERO_UUID

PARTITION = {
    "error_code": ErrorCode.NONE,
    "partition_index": 0,
    "leader_id": 1,
    "leader_epoch": 4,
    "replica_nodes": (1, 2),
    "isr_nodes": [1],
    "offline_replicas": [],
}
TOPIC = {
    "error_code": 0,
    "name": "orders",
    "topic_id": UUID(int=9),
    "is_internal": False,
    "partitions": [PARTITION],
}
ANSWER = {
    "throttle_time": 0,
    "error_code": 0,
    "brokers": [{"node_id": 1, "host": "localhost", "port": 9092, "rack": None}],
    "cluster_id": "c",
    "controller_id": 1,
    "topics": [TOPIC],
}


@pytest.mark.parametrize("version", range(14))
def test_one_answer_serves_every_version(version: int) -> None:
    read = decode_response(METADATA, version, encode_response(METADATA, version, ANSWER))
    (topic,) = read.topics
    assert topic.name == "orders"
    assert topic.get("topic_id", UUID(int=9)) == UUID(int=9)
    assert topic.partitions[0].replica_nodes == [1, 2]
    assert topic.partitions[0].get("leader_epoch", 4) == 4
    # A key that was not given has the schema's default.
    assert read.get("cluster_authorized_operations", -(2**31)) == -(2**31)


def test_a_message_may_stand_where_a_mapping_may() -> None:
    inner = {**ANSWER, "topics": [Message(dict(TOPIC, partitions=[Message(dict(PARTITION))]))]}
    assert encode_response(METADATA, 12, inner) == encode_response(METADATA, 12, ANSWER)
    assert encode_response(METADATA, 12, Message(inner)) == encode_response(METADATA, 12, ANSWER)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"topics": None}, "topics: null, where the protocol allows no null"),
        ({"controller_id": 2**31}, "controller_id: cannot be written"),
        ({"controller_id": "1"}, "controller_id: cannot be written"),
        ({"controller_id": None}, "controller_id: cannot be written"),
        ({"cluster_id": 5}, "cluster_id: cannot be written"),
        ({"cluster_id": "\ud800"}, "cluster_id: cannot be written"),
        ({"cluster_id": "x" * 0x8000}, "32768 bytes; 32767 are allowed"),
        ({"topics": 5}, "topics: cannot be written"),
        ({"topics": [5]}, "topics: 5 is no mapping and no message"),
        ({"topics": [{**TOPIC, "topic_id": None}]}, "topic_id: cannot be written"),
        ({"topics": [{**TOPIC, "partitions": [{**PARTITION, "isr_nodes": [None]}]}]}, "isr_nodes"),
        ({"topics": [{"name": "orders"}]}, "topics, error_code: is missing and has no default"),
    ],
)
def test_what_cannot_be_written_is_our_mistake(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(LocalProtocolError, match=sentence):
        encode_response(METADATA, 12, {**ANSWER, **change})


def test_a_missing_field_without_a_default_is_our_mistake() -> None:
    with pytest.raises(LocalProtocolError, match="throttle_time: is missing and has no default"):
        encode_response(METADATA, 12, {"topics": []})


def test_a_version_that_the_api_has_not_is_our_mistake() -> None:
    with pytest.raises(LocalProtocolError, match="has no version 14"):
        encode_response(METADATA, 14, ANSWER)
    with pytest.raises(LocalProtocolError, match="has no version 2"):
        decode_request(PRODUCE, 2, b"")


def test_tagged_fields_that_are_their_default_are_not_written() -> None:
    request = {"max_wait": 0, "min_bytes": 1, "topics": [], "forgotten_topics_data": []}
    bare = encode_request(FETCH, 18, request)
    defaults: tuple[dict[str, Any], ...] = (
        {"replica_state": {"replica_id": -1, "replica_epoch": -1}},
        {"replica_state": {}},
        {"cluster_id": None},
    )
    for same in defaults:
        assert encode_request(FETCH, 18, {**request, **same}) == bare
    other = encode_request(FETCH, 18, {**request, "replica_state": {"replica_id": 1}})
    assert other == bare[:-1] + bytes.fromhex("01010d00000001ffffffffffffffff00")


def test_defaults_of_tagged_fields_are_not_shared() -> None:
    request = {"max_wait": 0, "min_bytes": 1, "topics": [], "forgotten_topics_data": []}
    body = encode_request(FETCH, 18, request)
    decode_request(FETCH, 18, body).replica_state.replica_id = 7
    assert decode_request(FETCH, 18, body).replica_state.replica_id == -1


def test_a_struct_that_may_be_null_is_written_with_its_sign() -> None:
    request = {"topics": [{"name": "a"}], "response_partition_limit": 2}
    null = encode_request(DESCRIBE_TOPIC_PARTITIONS, 0, {**request, "cursor": None})
    assert null == bytes.fromhex("02 0261 00 00000002 ff 00")
    given = encode_request(
        DESCRIBE_TOPIC_PARTITIONS,
        0,
        {**request, "cursor": {"topic_name": "a", "partition_index": 3}},
    )
    assert given == bytes.fromhex("02 0261 00 00000002 01 0261 00000003 00 00")


def test_times_and_durations_are_plain_milliseconds() -> None:
    partition = {"index": 0, "error_code": 0, "base_offset": 5}
    topic = {"name": "a", "partition_responses": [partition]}
    body = encode_response(PRODUCE, 5, {"responses": [topic]})
    (read,) = decode_response(PRODUCE, 5, body).responses[0].partition_responses
    assert read.log_append_time == -1
    wanted = {"replica_id": -1, "isolation_level": 0, "timeout": 1500, "topics": []}
    assert (
        decode_request(LIST_OFFSETS, 11, encode_request(LIST_OFFSETS, 11, wanted)).timeout == 1500
    )


def test_ids_of_no_topic_are_zero() -> None:
    topic = {"name": "a", "topic_id": ZERO_UUID, "error_code": 36, "error_message": None}
    topic["configs"] = None
    body = encode_response(CREATE_TOPICS, 7, {"throttle_time": 0, "topics": [topic]})
    assert decode_response(CREATE_TOPICS, 7, body).topics[0].topic_id == ZERO_UUID
