"""Each admin client creates, describes, alters, grows, empties and deletes topics."""

from __future__ import annotations

import pytest

from ottla.proto.errors import ErrorCode
from tests.integration.clients.cases import assert_same, numbered
from tests.integration.clients.confluent import ConfluentKafka
from tests.integration.clients.port import (
    DEADLINE_S,
    Admin,
    AtBeginning,
    ConfigView,
    IncrementalAdmin,
    NewTopic,
    RefusedError,
    produce,
)
from tests.integration.nodes import wait_until

pytestmark = pytest.mark.integration


def _wait_for(admin: Admin, topic: str, *, partitions: int) -> None:
    def is_there() -> bool:
        if topic not in admin.topics():
            return False
        found = admin.describe_topic(topic)
        return len(found) == partitions and all(each.leader >= 0 for each in found)

    wait_until(is_there, DEADLINE_S, f"{topic} has {partitions} partitions with leaders")


def _wait_until_gone(admin: Admin, topic: str) -> None:
    wait_until(lambda: topic not in admin.topics(), DEADLINE_S, f"{topic} is gone")


def test_a_cluster_is_described(admin: Admin, bootstrap: str) -> None:
    told = admin.describe_cluster()

    ((broker, address),) = told.brokers
    assert told.controller == broker
    assert address == bootstrap


def test_a_topic_is_created_and_described(admin: Admin, name: str) -> None:
    admin.create_topic(name, partitions=3, configs={"retention.ms": "1234567"})
    _wait_for(admin, name, partitions=3)

    found = sorted(admin.describe_topic(name), key=lambda each: each.index)
    assert [each.index for each in found] == [0, 1, 2]
    assert all(each.replicas == each.in_sync == (each.leader,) for each in found)
    assert admin.topic_configs(name)["retention.ms"] == ConfigView("1234567", is_override=True)


def test_a_topic_may_leave_the_numbers_to_the_node(
    incremental_admin: IncrementalAdmin, name: str
) -> None:
    # aiokafka asks in a version that has no word for it.
    incremental_admin.create_topic(name, partitions=-1, replication_factor=-1)

    _wait_for(incremental_admin, name, partitions=1)


def test_a_topic_that_is_only_validated_is_not_created(admin: Admin, name: str) -> None:
    admin.create_topic(name, validate_only=True)

    assert name not in admin.topics()


@pytest.mark.parametrize(
    ("change", "code"),
    [
        pytest.param({"partitions": 0}, ErrorCode.INVALID_PARTITIONS, id="no partitions"),
        pytest.param(
            {"replication_factor": 2}, ErrorCode.INVALID_REPLICATION_FACTOR, id="two replicas"
        ),
        pytest.param({"topic": "no/slash"}, ErrorCode.INVALID_TOPIC_EXCEPTION, id="a bad name"),
        pytest.param(
            {"configs": {"retention.ms": "soon"}}, ErrorCode.INVALID_CONFIG, id="a bad value"
        ),
        pytest.param(
            {"configs": {"no.such.option": "1"}}, ErrorCode.INVALID_CONFIG, id="a bad option"
        ),
    ],
)
def test_a_topic_that_cannot_be_is_refused(
    admin: Admin, name: str, change: dict[str, object], code: ErrorCode
) -> None:
    wanted: dict[str, object] = {"topic": name, **change}

    with pytest.raises(RefusedError) as refused:
        admin.create_topic(**wanted)  # type: ignore[arg-type]  # the table above knows the types

    assert refused.value.code == code.value


def test_a_topic_that_exists_is_refused(admin: Admin, new_topic: NewTopic) -> None:
    with pytest.raises(RefusedError) as refused:
        admin.create_topic(new_topic())

    assert refused.value.code == ErrorCode.TOPIC_ALREADY_EXISTS.value


def test_partitions_are_added(admin: Admin, bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    client = ConfluentKafka(bootstrap)
    produce(client, topic, numbered(2))

    admin.add_partitions(topic, 5)
    _wait_for(admin, topic, partitions=5)

    produce(client, topic, numbered(3), partition=4)
    assert_same(client.consume(topic, AtBeginning(), partitions=[4]), numbered(3))
    assert_same(client.consume(topic, AtBeginning(), partitions=[0]), numbered(2))


@pytest.mark.parametrize("total", [1, 2])
def test_partitions_are_never_taken_away(admin: Admin, total: int, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)

    with pytest.raises(RefusedError) as refused:
        admin.add_partitions(topic, total)

    assert refused.value.code == ErrorCode.INVALID_PARTITIONS.value


def test_records_are_deleted(admin: Admin, bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    client = ConfluentKafka(bootstrap)
    produce(client, topic, numbered(10))

    assert admin.delete_records(topic, 7) == 7
    assert_same(client.consume(topic, AtBeginning()), numbered(10)[7:], first_offset=7)
    # What is deleted already stays so, and the end of the log is a bound.
    assert admin.delete_records(topic, 3) == 7
    assert admin.delete_records(topic, -1) == 10
    assert client.consume(topic, AtBeginning()) == []
    assert produce(client, topic, numbered(1)) == [10]


def test_records_that_do_not_exist_cannot_be_deleted(admin: Admin, new_topic: NewTopic) -> None:
    with pytest.raises(RefusedError) as refused:
        admin.delete_records(new_topic(), 1)

    assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE.value


def test_a_deleted_topic_is_gone_and_its_name_can_be_used_again(
    admin: Admin, bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic(partitions=2)
    client = ConfluentKafka(bootstrap)
    produce(client, topic, numbered(5))

    admin.delete_topic(topic)
    _wait_until_gone(admin, topic)
    admin.create_topic(topic, partitions=1)
    _wait_for(admin, topic, partitions=1)

    assert client.consume(topic, AtBeginning()) == []
    assert produce(client, topic, numbered(2)) == [0, 1]


def test_a_topic_that_does_not_exist_cannot_be_deleted(admin: Admin, name: str) -> None:
    with pytest.raises(RefusedError) as refused:
        admin.delete_topic(name)

    assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.value


def test_the_options_of_a_topic_are_replaced(admin: Admin, new_topic: NewTopic) -> None:
    topic = new_topic()
    assert admin.topic_configs(topic)["max.message.bytes"] == ConfigView("1048588", False)

    admin.replace_topic_configs(topic, {"max.message.bytes": "2000000"})

    wanted = ConfigView("2000000", is_override=True)
    wait_until(
        lambda: admin.topic_configs(topic)["max.message.bytes"] == wanted,
        DEADLINE_S,
        "the new value is told",
    )


def test_a_bad_value_is_refused_and_changes_nothing(admin: Admin, new_topic: NewTopic) -> None:
    topic = new_topic()

    with pytest.raises(RefusedError) as refused:
        admin.replace_topic_configs(topic, {"retention.ms": "soon"})

    assert refused.value.code == ErrorCode.INVALID_CONFIG.value
    assert not admin.topic_configs(topic)["retention.ms"].is_override


def test_one_option_of_a_topic_is_changed_and_the_others_stay(
    incremental_admin: IncrementalAdmin, new_topic: NewTopic
) -> None:
    admin, topic = incremental_admin, new_topic(retention_bytes="1000000", segment_bytes="2000000")

    admin.change_topic_configs(topic, {"cleanup.policy": "compact", "retention.bytes": None})

    def told() -> dict[str, str | None]:
        found = admin.topic_configs(topic)
        return {option: view.value for option, view in found.items() if view.is_override}

    wanted = {"cleanup.policy": "compact", "segment.bytes": "2000000"}
    wait_until(lambda: told() == wanted, DEADLINE_S, "the new values are told")
    assert admin.topic_configs(topic)["retention.bytes"].value == "-1"


def test_an_option_that_does_not_exist_is_refused(
    incremental_admin: IncrementalAdmin, new_topic: NewTopic
) -> None:
    with pytest.raises(RefusedError) as refused:
        incremental_admin.change_topic_configs(new_topic(), {"no.such.option": "1"})

    assert refused.value.code == ErrorCode.INVALID_CONFIG.value


def test_a_changed_limit_is_obeyed(
    incremental_admin: IncrementalAdmin, bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    client = ConfluentKafka(bootstrap)
    produce(client, topic, numbered(1))

    incremental_admin.change_topic_configs(topic, {"max.message.bytes": "10"})

    def is_refused() -> bool:
        try:
            produce(client, topic, numbered(1))
        except RefusedError as error:
            return error.code == ErrorCode.MESSAGE_TOO_LARGE.value
        return False

    wait_until(is_refused, DEADLINE_S, "a record of more than 10 bytes is refused")


def test_the_options_of_a_broker_are_described(admin: Admin) -> None:
    ((broker, _),) = admin.describe_cluster().brokers

    told = admin.broker_configs(broker)

    assert told["log.retention.bytes"].value == "-1"
    assert told["node.id"] == ConfigView(str(broker), is_override=False)


def test_an_option_of_a_broker_is_changed_and_taken_back(
    incremental_admin: IncrementalAdmin,
) -> None:
    admin = incremental_admin
    ((broker, _),) = admin.describe_cluster().brokers
    option = "log.cleaner.delete.retention.ms"
    before = admin.broker_configs(broker)[option]

    admin.change_broker_configs(broker, {option: "4321"})
    wait_until(
        lambda: admin.broker_configs(broker)[option] == ConfigView("4321", is_override=True),
        DEADLINE_S,
        "the new value is told",
    )
    admin.change_broker_configs(broker, {option: None})
    wait_until(
        lambda: admin.broker_configs(broker)[option] == before,
        DEADLINE_S,
        "the old value is told again",
    )
