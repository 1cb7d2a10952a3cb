"""Our admin client: topics, options, offsets and groups, on our nodes and on Apache Kafka."""

from __future__ import annotations

import uuid

import pytest

from ottla import Admin, NewTopic, Producer, TopicPartition
from ottla.clients.admin.answers import CommittedOffset, CreatedTopic, GroupInfo, OffsetInfo
from ottla.clients.consumer.record import OffsetAndMetadata
from ottla.clients.consumer.sync_consumer import Consumer
from ottla.clients.metadata import TopicInfo
from ottla.proto.errors import ErrorCode, RequestError
from tests.integration.clients_own.conftest import MakeTopic
from tests.integration.clients_own.consuming import poll_until, settings
from tests.integration.nodes import wait_until

pytestmark = pytest.mark.integration
DEADLINE_S = 30.0


def test_a_topic_is_made_described_enlarged_and_deleted(admin: Admin) -> None:
    name = f"own-{uuid.uuid4().hex[:12]}"
    made = admin.create_topics([NewTopic(name, 2, 1), NewTopic("not allowed!", 1, 1)])
    created, refused = made[name], made["not allowed!"]
    assert isinstance(created, CreatedTopic)
    assert (created.partitions, created.replication_factor) == (2, 1)
    assert isinstance(refused, RequestError)
    assert refused.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    again = admin.create_topics([NewTopic(name, 2, 1)])[name]
    assert isinstance(again, RequestError)
    assert again.code is ErrorCode.TOPIC_ALREADY_EXISTS
    assert admin.create_partitions({name: 3}) == {name: None}

    def has_three() -> bool:
        found = admin.describe_topics([name])[name]
        return isinstance(found, TopicInfo) and len(found.partitions) == 3

    wait_until(has_three, DEADLINE_S, "the topic has three partitions")
    assert name in admin.list_topics()
    assert admin.delete_topics([name]) == {name: None}
    wait_until(lambda: name not in admin.list_topics(), DEADLINE_S, "the topic is gone")
    gone = admin.describe_topics([name])[name]
    assert isinstance(gone, RequestError)
    assert gone.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_what_is_only_validated_is_not_made(admin: Admin) -> None:
    name = f"own-{uuid.uuid4().hex[:12]}"
    told = admin.create_topics([NewTopic(name, 2, 1)], validate_only=True)[name]
    assert isinstance(told, CreatedTopic)
    assert name not in admin.list_topics()


def test_options_are_shown_set_and_taken_back(admin: Admin, make_topic: MakeTopic) -> None:
    topic = make_topic(retention_ms="60000")

    def value() -> str | None:
        return admin.describe_configs("topic", topic)["retention.ms"].value

    assert value() == "60000"
    admin.alter_configs("topic", topic, {"retention.ms": "90000"})
    wait_until(lambda: value() == "90000", DEADLINE_S, "the option is set")
    admin.alter_configs("topic", topic, {"retention.ms": None})
    wait_until(
        lambda: (
            admin.describe_configs("topic", topic)["retention.ms"].value not in ("90000", "60000")
        ),
        DEADLINE_S,
        "the option is back at its default",
    )
    with pytest.raises(RequestError) as refused:
        admin.alter_configs("topic", topic, {"retention.ms": "soon"})
    assert refused.value.code is ErrorCode.INVALID_CONFIG


def test_the_options_of_a_broker_are_asked_of_that_broker(admin: Admin) -> None:
    for broker in admin.describe_cluster().brokers:
        found = admin.describe_configs("broker", str(broker.node_id))
        assert found["node.id"].value == str(broker.node_id)


def test_the_cluster_tells_its_brokers_and_its_id(admin: Admin, bootstrap: str) -> None:
    found = admin.describe_cluster()
    assert found.cluster_id
    told = {f"{one.host}:{one.port}" for one in found.brokers}
    assert set(bootstrap.split(",")) <= told


def test_offsets_are_found_by_place_and_time_and_records_are_cut_off(
    admin: Admin, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(2)
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        for at in range(10):
            time_ms = 1_700_000_000_000 + 1000 * at
            producer.send(topic, b"v", partition=0, timestamp_ms=time_ms)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)

    def offset(place: int | str) -> int:
        found = admin.list_offsets({first: place})[first]
        assert isinstance(found, OffsetInfo)
        return found.offset

    assert (offset("earliest"), offset("latest")) == (0, 10)
    assert offset(1_700_000_003_500) == 4
    assert offset(1_800_000_000_000) == -1
    assert admin.delete_records({first: 6, second: 0}) == {first: 6, second: 0}
    assert offset("earliest") == 6
    beyond = admin.delete_records({first: 99})[first]
    assert isinstance(beyond, RequestError)
    assert beyond.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_partition_that_is_not_there_is_told(admin: Admin, make_topic: MakeTopic) -> None:
    nowhere = TopicPartition(make_topic(), 7)
    found = admin.list_offsets({nowhere: "latest"})[nowhere]
    assert isinstance(found, RequestError)
    assert found.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def states_of(admin: Admin, group: str) -> list[tuple[str, str]]:
    return [(one.protocol_type, one.state) for one in admin.list_groups() if one.group_id == group]


def test_a_group_is_listed_described_and_deleted_when_its_members_are_gone(
    admin: Admin, bootstrap: str, make_topic: MakeTopic, name: str
) -> None:
    topic = make_topic(2)
    with Consumer(
        settings(bootstrap, name, client_id="reader", enable_auto_commit=False)
    ) as consumer:
        consumer.subscribe(topic)
        poll_until([consumer], lambda: len(consumer.assignment()) == 2, "both are assigned")
        consumer.commit({TopicPartition(topic, 1): OffsetAndMetadata(7, "here")})
        assert states_of(admin, name) == [("consumer", "Stable")]
        group = admin.describe_groups([name])[name]
        assert isinstance(group, GroupInfo)
        (member,) = group.members
        assert (group.state, group.protocol_type, member.client_id) == (
            "Stable",
            "consumer",
            "reader",
        )
        assert member.member_id.startswith("reader-")
        assert topic.encode() in member.subscription
        assert topic.encode() in member.assignment
        refused = admin.delete_groups([name])[name]
        assert isinstance(refused, RequestError)
        assert refused.code is ErrorCode.NON_EMPTY_GROUP
    assert states_of(admin, name) == [("consumer", "Empty")]
    assert admin.list_group_offsets(name)[TopicPartition(topic, 1)] == CommittedOffset(
        7, -1, "here"
    )
    assert admin.delete_groups([name]) == {name: None}
    assert states_of(admin, name) == []
    assert admin.list_group_offsets(name) == {}
    again = admin.delete_groups([name])[name]
    assert isinstance(again, RequestError)
    assert again.code is ErrorCode.GROUP_ID_NOT_FOUND
    gone = admin.describe_groups([name])[name]
    assert isinstance(gone, RequestError)
    assert gone.code is ErrorCode.GROUP_ID_NOT_FOUND
