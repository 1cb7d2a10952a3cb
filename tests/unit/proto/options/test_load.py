"""Where a value comes from, which source and which name wins, and what is only a warning."""

from __future__ import annotations

import pytest

from ottla.proto.options import node, topic
from ottla.proto.options.endpoints import Address
from ottla.proto.options.load import (
    advertised_of,
    client_listeners_of,
    listeners_of,
    load,
    load_topic,
    opened_by,
)
from ottla.proto.options.sources import ConfigFile, Options, Source

HOUR_MS = 60 * 60 * 1000


def in_file(*lines: str) -> ConfigFile:
    return ConfigFile("server.properties", "\n".join(lines).encode())


def retention_of(options: Options) -> int:
    return load_topic({}, options).value_of(topic.RETENTION_MS)


def test_nothing_given_is_a_node_that_can_start() -> None:
    options = load()
    assert options.given() == ()
    assert options.warnings == ()
    assert all(one.value == one.option.default for one in options.settings.values())


def test_a_flag_wins_over_the_environment_and_that_over_the_file() -> None:
    file = in_file("num.partitions=2", "node.id=2", "log.dirs=from-file")
    environment = {"OTTLA_NUM_PARTITIONS": "3", "OTTLA_NODE_ID": "3", "PATH": "/bin"}
    options = load(file=file, environment=environment, flags={"num.partitions": "4"})
    found = {one.option.name: (one.text, one.source) for one in options.given()}
    assert found == {
        "num.partitions": ("4", Source.FLAG),
        "node.id": ("3", Source.ENVIRONMENT),
        "log.dirs": ("from-file", Source.FILE),
    }


def test_a_setting_knows_where_it_was_given() -> None:
    setting = load(file=in_file("", "log.dir=d")).settings["log.dirs"]
    assert setting.given is not None
    assert (setting.given.name, setting.given.where) == ("log.dir", "server.properties, line 2")


@pytest.mark.parametrize(
    ("variable", "option"),
    [
        ("OTTLA_REPLICA_LAG_TIME_MAX_MS", node.REPLICA_LAG_MAX_MS),
        ("OTTLA_TRACE_FILE", node.TRACE_FILE),
        ("OTTLA_STRICT_DATA_DIR", node.STRICT_DATA_DIR),
        ("OTTLA_LOG_DIR", node.LOG_DIRS),
    ],
)
def test_an_option_has_its_environment_variable(variable: str, option: object) -> None:
    texts = {"OTTLA_REPLICA_LAG_TIME_MAX_MS": "20000", "OTTLA_STRICT_DATA_DIR": "true"}
    options = load(environment={variable: texts.get(variable, "somewhere")})
    assert [one.option for one in options.given()] == [option]


def test_variables_of_the_tests_are_not_taken_for_options() -> None:
    assert load(environment={"OTTLA_FAILPOINTS": "x=stop"}).given() == ()


@pytest.mark.parametrize(
    ("lines", "expected_ms"),
    [
        ([], 7 * 24 * HOUR_MS),
        (["log.retention.hours=2"], 2 * HOUR_MS),
        (["log.retention.minutes=3"], 3 * 60 * 1000),
        (["log.retention.ms=4"], 4),
        (["log.retention.hours=2", "log.retention.minutes=3"], 3 * 60 * 1000),
        (["log.retention.hours=2", "log.retention.minutes=3", "log.retention.ms=4"], 4),
        (["log.retention.hours=-1"], -1),
        (["log.retention.minutes=-1"], -1),
        (["log.retention.hours=2147483647"], 2147483647 * HOUR_MS),
    ],
)
def test_retention_may_be_given_in_three_units_of_which_the_finest_wins(
    lines: list[str], expected_ms: int
) -> None:
    assert retention_of(load(file=in_file(*lines))) == expected_ms


def test_a_later_source_wins_whatever_unit_it_uses() -> None:
    options = load(
        file=in_file("log.retention.ms=4"), environment={"OTTLA_LOG_RETENTION_HOURS": "1"}
    )
    assert retention_of(options) == HOUR_MS
    assert options.warnings == ()


def test_a_name_that_loses_to_another_in_the_same_source_is_told() -> None:
    options = load(file=in_file("log.retention.hours=1", "log.retention.ms=4"))
    assert options.warnings == (
        "log.retention.hours has no effect beside log.retention.ms (server.properties, line 1).",
    )


@pytest.mark.parametrize(
    ("line", "option", "value"),
    [
        ("log.roll.hours=1", topic.SEGMENT_MS, HOUR_MS),
        ("log.roll.jitter.hours=1", topic.SEGMENT_JITTER_MS, HOUR_MS),
        ("log.segment.bytes=2000000", topic.SEGMENT_BYTES, 2_000_000),
        ("message.max.bytes=5", topic.MAX_MESSAGE_BYTES, 5),
        ("log.cleanup.policy=compact", topic.CLEANUP_POLICY, ("compact",)),
        ("log.cleaner.min.cleanable.ratio=0.1", topic.MIN_CLEANABLE_DIRTY_RATIO, 0.1),
        ("log.segment.delete.delay.ms=1", topic.FILE_DELETE_DELAY_MS, 1),
        ("log.index.size.max.bytes=8", topic.SEGMENT_INDEX_BYTES, 8),
        ("log.message.timestamp.type=LogAppendTime", topic.TIMESTAMP_TYPE, "LogAppendTime"),
        ("min.insync.replicas=1", topic.MIN_INSYNC_REPLICAS, 1),
        ("ottla.durability=pagecache", topic.DURABILITY, "pagecache"),
    ],
)
def test_a_topic_takes_what_its_node_gives(line: str, option: object, value: object) -> None:
    settings = load_topic({}, load(file=in_file(line))).settings
    assert {one.option: one.value for one in settings.values()}[option] == value  # type: ignore[index]


def test_a_topics_own_value_wins_over_its_nodes() -> None:
    options = load_topic({"retention.ms": "9"}, load(flags={"log.retention.ms": "4"}))
    assert options.value_of(topic.RETENTION_MS) == 9
    assert options.settings["retention.ms"].source is Source.TOPIC


def test_a_topics_option_without_effect_is_a_warning() -> None:
    options = load_topic({"flush.ms": "1", "remote.storage.enable": "true"}, load())
    assert options.warnings == (
        "flush.ms has no effect: ottla.durability decides when bytes are synced.",
        "remote.storage.enable has no effect: there is no remote storage.",
    )


def test_a_file_as_kafka_ships_it_starts_a_node() -> None:
    options = load(
        file=in_file(
            "process.roles=broker,controller",
            "node.id=1",
            "controller.quorum.bootstrap.servers=localhost:9093",
            "listeners=PLAINTEXT://:9092,CONTROLLER://:9093",
            "inter.broker.listener.name=PLAINTEXT",
            "advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
            "controller.listener.names=CONTROLLER",
            "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "num.network.threads=3",
            "num.io.threads=8",
            "socket.send.buffer.bytes=102400",
            "socket.receive.buffer.bytes=102400",
            "socket.request.max.bytes=104857600",
            "log.dirs=/tmp/kraft-combined-logs",
            "num.partitions=1",
            "num.recovery.threads.per.data.dir=2",
            "offsets.topic.replication.factor=1",
            "share.coordinator.state.topic.replication.factor=1",
            "transaction.state.log.replication.factor=1",
            "transaction.state.log.min.isr=1",
            "log.retention.hours=168",
            "log.segment.bytes=1073741824",
            "log.retention.check.interval.ms=300000",
        )
    )
    told = [one for one in options.warnings if "has no effect" in one]
    assert len(told) == 9
    assert listeners_of(options)["CLIENT"] == Address("", 9092)
    assert advertised_of(options)["INTERNAL"] == Address("localhost", 9093)


def test_a_listener_left_out_keeps_its_default() -> None:
    options = load(flags={"listeners": "CLIENT://[::1]:1"})
    assert listeners_of(options) == {
        "CLIENT": Address("::1", 1),
        "INTERNAL": Address("127.0.0.1", 9093),
        "HTTP": Address("127.0.0.1", 9100),
        "REPLICATION": Address("127.0.0.1", 0),
    }


def test_who_names_listeners_for_clients_himself_gets_those_and_no_other() -> None:
    listeners = "INTERNAL://a:1,INSIDE://a:2,outside://a:3"
    options = load(flags={"listeners": listeners, "advertised.listeners": "OUTSIDE://b:4"})
    assert client_listeners_of(options) == {"INSIDE": Address("a", 2), "OUTSIDE": Address("a", 3)}
    assert list(client_listeners_of(options)) == ["INSIDE", "OUTSIDE"]
    assert "CLIENT" not in listeners_of(options)
    told = advertised_of(options)
    assert (told["INSIDE"], told["OUTSIDE"]) == (Address("a", 2), Address("b", 4))


def test_clients_may_have_a_listener_beside_the_usual_one() -> None:
    options = load(flags={"listeners": "OUTSIDE://127.0.0.1:3,CLIENT://127.0.0.1:2"})
    assert list(client_listeners_of(options)) == ["OUTSIDE", "CLIENT"]


@pytest.mark.parametrize(
    ("listeners", "advertised", "wanted", "told"),
    [
        ("INTERNAL://a:1", "", Address("a", 0), Address("a", 0)),
        ("INTERNAL://:1", "INTERNAL://b:2", Address("", 0), Address("b", 0)),
        ("INTERNAL://a:1", "INTERNAL://b:2", Address("a", 0), Address("b", 0)),
        ("REPLICATION://:3", "", Address("", 3), Address("127.0.0.1", 3)),
        ("INTERNAL://:1,REPLICATION://:3", "INTERNAL://b:2", Address("", 3), Address("b", 3)),
        ("INTERNAL://:1,REPLICATION://c:3", "INTERNAL://b:2", Address("c", 3), Address("c", 3)),
        ("INTERNAL://:1,REPLICATION://c:0", "INTERNAL://b:2", Address("c", 0), Address("c", 0)),
        (
            "INTERNAL://:1,REPLICATION://:3",
            "INTERNAL://b:2,REPLICATION://d:4",
            Address("", 3),
            Address("d", 4),
        ),
    ],
)
def test_followers_come_where_other_nodes_do_unless_told_otherwise(
    listeners: str, advertised: str, wanted: Address, told: Address
) -> None:
    options = load(flags={"listeners": listeners, "advertised.listeners": advertised})
    assert listeners_of(options)["REPLICATION"] == wanted
    assert advertised_of(options)["REPLICATION"] == told


def test_followers_are_no_clients() -> None:
    options = load(flags={"listeners": "INSIDE://a:1,replication://a:2"})
    assert list(client_listeners_of(options)) == ["INSIDE"]


def test_nobody_follows_a_node_that_only_votes() -> None:
    flags = {
        "process.roles": "controller",
        "listeners": "REPLICATION://:0",
        "advertised.listeners": "REPLICATION://0.0.0.0:3",
    }
    options = load(flags=flags)
    assert set(opened_by(options)) == {"CLIENT", "INTERNAL", "HTTP"}
    assert options.warnings == ()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "[::1]", "localhost"])
def test_a_listener_that_only_this_machine_reaches_is_no_reason_to_warn(host: str) -> None:
    assert load(flags={"listeners": f"CLIENT://{host}:9092"}).warnings == ()


def test_a_listener_that_others_reach_is_told_loudly() -> None:
    assert load(flags={"listeners": "CLIENT://node-1:9092"}).warnings == (
        "listeners opens CLIENT in plain text on node-1:9092: whoever can reach it can use it.",
    )


def test_keys_of_a_node_protect_what_is_between_nodes() -> None:
    flags = {"listeners": "INTERNAL://a:1,REPLICATION://a:2"}
    told = "in plain text on a:{}: whoever can reach it can use it."
    assert load(flags=flags).warnings == (
        f"listeners opens INTERNAL {told.format(1)}",
        f"listeners opens REPLICATION {told.format(2)}",
    )
    for store in ("keystore", "truststore"):
        flags[f"listener.name.internal.ssl.{store}.location"] = "k"
    assert load(flags=flags).warnings == ()


def test_a_batch_limit_above_the_segment_size_is_told() -> None:
    flags = {"message.max.bytes": "3000000", "log.segment.bytes": "2000000"}
    assert load(flags=flags).warnings == (
        "message.max.bytes (3000000) is more than log.segment.bytes (2000000): "
        "a batch that does not fit into a segment is refused.",
    )
