from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.controller.commands import (
    ChangeConfigs,
    Command,
    CreatePartitions,
    DeleteTopic,
    TakeProducerIds,
)
from ottla.controller.image import ALL_BROKERS, MetadataImage
from ottla.controller.port import ConfigChange, NewPartitions, TopicDefaults
from ottla.controller.state import apply
from ottla.proto.errors import ErrorCode
from ottla.proto.ids import INT64_MAX, ProducerId
from ottla.proto.kafka.uuids import UUID
from tests.unit.controller.metadata import create, image_of, topic_id


def _after(image: MetadataImage, *commands: Command) -> MetadataImage:
    for command in commands:
        image, outcome = apply(image, command)
        assert outcome.refusal is None
    return image


def _refusal(image: MetadataImage, command: Command) -> ErrorCode:
    _, outcome = apply(image, command)
    assert outcome.refusal is not None
    assert outcome.refusal.sentence.endswith(".")
    return outcome.refusal.code


def test_a_new_topic_has_its_partitions_in_sync_and_led_by_the_first_replica() -> None:
    image = _after(image_of(3), create("a", 6, 3))
    topic = image.topics["a"]
    assert len(topic.partitions) == 6
    for partition in topic.partitions:
        assert partition.isr == partition.replicas
        assert partition.leader == partition.replicas[0]
        assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)
    assert image.topic_by_id(topic_id(1)) is topic


def test_defaults_come_with_the_command_and_bend_to_the_number_of_brokers() -> None:
    wish = create("a", None, None, defaults=TopicDefaults(partitions=4, replication_factor=3))
    assert _after(image_of(3), wish).topics["a"].replication_factor == 3
    topic = _after(image_of(1), wish).topics["a"]
    assert (len(topic.partitions), topic.replication_factor) == (4, 1)


def test_a_replication_factor_that_was_asked_for_does_not_bend() -> None:
    code = _refusal(image_of(1), create("a", 1, 2))
    assert code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_names_that_metrics_could_not_tell_apart_collide() -> None:
    image = _after(image_of(), create("a.b"))
    assert _refusal(image, create("a_b", number=2)) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert _refusal(image, create("a.b", number=2)) is ErrorCode.TOPIC_ALREADY_EXISTS
    _after(image, create("a-b", number=2))


@pytest.mark.parametrize("reserved", [UUID(int=0), UUID(int=1), UUID(int=62 << 122), topic_id(1)])
def test_an_id_that_is_taken_or_reserved_makes_no_topic(reserved: UUID) -> None:
    image = _after(image_of(), create("a"))
    command = replace(create("b"), topic_id=reserved)
    assert _refusal(image, command) is ErrorCode.INVALID_REQUEST


def test_a_topic_is_deleted_only_under_the_id_that_was_meant() -> None:
    image = _after(image_of(), create("a"))
    stale = DeleteTopic("a", topic_id(9))
    assert _refusal(image, stale) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    image = _after(image, DeleteTopic("a", topic_id(1)))
    assert not image.topics
    assert not image.topic_names


def test_partitions_are_added_behind_those_there_are() -> None:
    before = _after(image_of(3), create("a", 2, 2))
    command = CreatePartitions(NewPartitions("a", 5), topic_id(1), seed=7)
    topic = _after(before, command).topics["a"]
    assert topic.partitions[:2] == before.topics["a"].partitions
    assert len(topic.partitions) == 5
    assert all(len(partition.replicas) == 2 for partition in topic.partitions)


def test_partitions_of_a_topic_that_was_made_anew_are_not_added() -> None:
    image = _after(image_of(), create("a"))
    command = CreatePartitions(NewPartitions("a", 5), topic_id(8), seed=7)
    assert _refusal(image, command) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state"])
def test_topics_that_brokers_keep_get_no_more_partitions_and_stay(name: str) -> None:
    image = _after(image_of(), create(name))
    more = CreatePartitions(NewPartitions(name, 5), topic_id(1), seed=7)
    assert _refusal(image, more) is ErrorCode.INVALID_PARTITIONS
    assert _refusal(image, DeleteTopic(name, topic_id(1))) is ErrorCode.POLICY_VIOLATION


def test_options_are_set_unset_and_replaced() -> None:
    image = _after(image_of(), create("a"))

    def change(**fields: object) -> Command:
        return ChangeConfigs(ConfigChange("topic", "a", **fields))  # type: ignore[arg-type]

    image = _after(image, change(set={"x": "1", "y": "2"}))
    image = _after(image, change(set={"x": "3"}, unset=frozenset({"y"})))
    assert image.topics["a"].configs == {"x": "3"}
    image = _after(image, change(set={"z": "4"}, replace=True))
    assert image.topics["a"].configs == {"z": "4"}


def test_a_change_of_options_that_changes_nothing_makes_no_new_image() -> None:
    image = _after(image_of(), create("a"))
    command = ChangeConfigs(ConfigChange("topic", "a", unset=frozenset({"x"})))
    assert apply(image, command)[0] is image


def test_options_of_brokers_are_kept_by_name_and_gone_when_empty() -> None:
    changes = [ConfigChange("broker", name, {"x": "1"}) for name in (ALL_BROKERS, "2")]
    image = _after(image_of(), *map(ChangeConfigs, changes))
    assert image.broker_configs == {ALL_BROKERS: {"x": "1"}, "2": {"x": "1"}}
    image = _after(image, ChangeConfigs(ConfigChange("broker", "2", replace=True)))
    assert image.broker_configs == {ALL_BROKERS: {"x": "1"}}


def test_options_of_a_stranger_are_refused() -> None:
    topic = ChangeConfigs(ConfigChange("topic", "a", {"x": "1"}))
    assert _refusal(image_of(), topic) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    broker = ChangeConfigs(ConfigChange("broker", "9", {"x": "1"}))
    assert _refusal(image_of(), broker) is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_producer_ids_are_never_given_twice() -> None:
    image, first = apply(image_of(), TakeProducerIds(1000))
    image, second = apply(image, TakeProducerIds(1000))
    assert first.producer_ids == range(1000)
    assert second.producer_ids == range(1000, 2000)


def test_producer_ids_run_out_with_a_refusal() -> None:
    image = replace(image_of(), next_producer_id=ProducerId(INT64_MAX - 5))
    assert _refusal(image, TakeProducerIds(6)) is ErrorCode.UNKNOWN_SERVER_ERROR
    _after(image, TakeProducerIds(5))
