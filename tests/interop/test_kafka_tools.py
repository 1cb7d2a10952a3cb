"""Kafka's own command-line programs, unchanged, against three of our nodes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.interop.broker import wait_until
from tests.interop.judge import judge
from tests.interop.kafka import run_tool
from tests.interop.target import Target, start_target
from tests.interop.tools import (
    API_VERSIONS,
    CLUSTER,
    CONFIGS,
    CONSOLE_CONSUMER,
    CONSOLE_PRODUCER,
    DELETE_RECORDS,
    FEATURES,
    GET_OFFSETS,
    LOG_DIRS,
    PRODUCER_PERFORMANCE,
    TOPICS,
    VERIFIABLE_PRODUCER,
    Ran,
    Tools,
    start_tools,
)

pytestmark = pytest.mark.interop

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
DEADLINE_S = 20.0
NewTopic = Callable[..., str]


@pytest.fixture(scope="module")
def target(kafka: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with start_target(tmp_path_factory.mktemp("tools")) as running:
        yield running


@pytest.fixture(scope="module")
def tools(target: Target) -> Iterator[Tools]:
    with start_tools(target.bootstrap) as running:
        yield running


@pytest.fixture(scope="module")
def names() -> Iterator[str]:
    return (f"tools-{number}" for number in count())


@pytest.fixture
def new_topic(tools: Tools, names: Iterator[str]) -> NewTopic:
    """Return a function that creates a topic with TopicCommand and returns its name."""

    def create(partitions: int = 1, **settings: str) -> str:
        name = next(names)
        told = [f"{key.replace('_', '.')}={value}" for key, value in settings.items()]
        options = [part for one in told for part in ("--config", one)]
        create = ("--create", "--topic", name, "--partitions", str(partitions))
        ran = tools.ask(TOPICS, *create, *options)
        assert ran.out == f"Created topic {name}.\n"
        wait_until(
            lambda: ends_now(tools, name) == dict.fromkeys(range(partitions), 0), DEADLINE_S, name
        )
        return name

    return create


def describe(tools: Tools, topic: str) -> list[dict[str, str]]:
    """Return what TopicCommand says about a topic, a dictionary for each line."""
    ran = tools.ask(TOPICS, "--describe", "--topic", topic)
    fields = [line.strip().split("\t") for line in ran.lines]
    return [dict(field.split(": ", 1) for field in line if ": " in field) for line in fields]


def ends_of(tools: Tools, topic: str, time: str = "-1") -> dict[int, int]:
    return _offsets(tools.ask(GET_OFFSETS, "--topic", topic, "--time", time))


def ends_now(tools: Tools, topic: str) -> dict[int, int] | None:
    """Return the ends as far as whoever is asked knows of the topic already, or None."""
    ran = tools.try_(GET_OFFSETS, "--topic", topic)
    return _offsets(ran) if ran.code == 0 else None


def _offsets(ran: Ran) -> dict[int, int]:
    told = [line.rsplit(":", 2) for line in ran.lines]
    return {int(partition): int(offset) for _, partition, offset in told}


def configs_of(tools: Tools, *entity: str) -> dict[str, str]:
    """Return the options that are set, as ConfigCommand shows them."""
    ran = tools.ask(CONFIGS, "--describe", *entity)
    options = [line.strip().split(" ")[0] for line in ran.lines if line.startswith("  ")]
    return dict(option.split("=", 1) for option in options)


def write(tools: Tools, topic: str, lines: list[str], *options: str) -> None:
    keyed = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    stdin = "".join(f"{line}\n" for line in lines).encode()
    tools.ask(CONSOLE_PRODUCER, "--topic", topic, *keyed, *options, stdin=stdin)


def read(tools: Tools, topic: str, count_: int, *, offset: str = "earliest") -> list[str]:
    printing = ("--formatter-property", "print.key=true", "--formatter-property", "key.separator=:")
    place = ("--topic", topic, "--partition", "0", "--offset", offset)
    ran = tools.ask(CONSOLE_CONSUMER, *place, "--max-messages", str(count_), *printing)
    return ran.lines


# TopicCommand


def test_a_topic_is_created_and_described(
    tools: Tools, target: Target, new_topic: NewTopic
) -> None:
    name = new_topic(3, retention_ms="3600000")
    topic, *partitions = describe(tools, name)
    assert (topic["Topic"], topic["PartitionCount"], topic["ReplicationFactor"]) == (name, "3", "1")
    assert "retention.ms=3600000" in topic["Configs"].split(",")
    assert len(topic["TopicId"]) == 22
    assert [one["Partition"] for one in partitions] == ["0", "1", "2"]
    for one in partitions:
        assert one["Leader"] == one["Replicas"] == one["Isr"]
    # Each broker has its share.
    assert {one["Leader"] for one in partitions} == set(target.ids)


def test_topics_are_listed(tools: Tools, new_topic: NewTopic) -> None:
    wanted = {new_topic(), new_topic()}
    assert wanted <= set(tools.ask(TOPICS, "--list").lines)
    everything = tools.ask(TOPICS, "--describe").lines
    told = {line.split("\t")[0].removeprefix("Topic: ") for line in everything}
    assert wanted <= told


@pytest.mark.parametrize("kind", ["under-replicated", "unavailable", "under-min-isr"])
def test_no_partition_is_in_trouble(kind: str, tools: Tools, new_topic: NewTopic) -> None:
    name = new_topic(3, min_insync_replicas="1")
    ran = tools.ask(TOPICS, "--describe", "--topic", name, f"--{kind}-partitions")
    assert ran.out.strip() == ""


def test_a_topic_is_placed_by_hand(tools: Tools, target: Target, names: Iterator[str]) -> None:
    name, places = next(names), [target.ids[-1], target.ids[0]]
    tools.ask(TOPICS, "--create", "--topic", name, "--replica-assignment", ",".join(places))
    wait_until(lambda: ends_now(tools, name) == {0: 0, 1: 0}, DEADLINE_S, "two partitions")
    assert [one["Leader"] for one in describe(tools, name)[1:]] == places


def test_partitions_are_added(tools: Tools, new_topic: NewTopic) -> None:
    name = new_topic(2)
    assert tools.ask(TOPICS, "--alter", "--topic", name, "--partitions", "5").out == ""
    wait_until(
        lambda: ends_now(tools, name) == dict.fromkeys(range(5), 0), DEADLINE_S, "five partitions"
    )


def test_a_topic_is_deleted(tools: Tools, new_topic: NewTopic) -> None:
    name = new_topic()
    tools.ask(TOPICS, "--delete", "--topic", name)
    wait_until(
        lambda: name not in tools.ask(TOPICS, "--list").lines, DEADLINE_S, "the topic is gone"
    )
    assert tools.try_(TOPICS, "--describe", "--topic", name).code == 1


def test_a_topic_that_exists_is_refused(tools: Tools, new_topic: NewTopic) -> None:
    name = new_topic()
    ran = tools.try_(TOPICS, "--create", "--topic", name)
    assert ran.code == 1
    assert name in ran.said
    assert "already" in ran.said
    assert tools.ask(TOPICS, "--create", "--topic", name, "--if-not-exists").code == 0


@pytest.mark.parametrize("partitions", ["1", "2"])
def test_fewer_partitions_or_as_many_are_refused(
    partitions: str, tools: Tools, new_topic: NewTopic
) -> None:
    name = new_topic(2)
    ran = tools.try_(TOPICS, "--alter", "--topic", name, "--partitions", partitions)
    assert ran.code == 1
    assert "Error while executing topic command" in ran.said
    assert ends_of(tools, name) == {0: 0, 1: 0}


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--topic", "too-many-replicas", "--replication-factor", "4"], "replica"),
        (["--topic", "a/b"], "'.', '_' and '-'"),
        (["--topic", "x" * 250], "249"),
        (["--topic", "bad-option", "--config", "no.such.option=1"], "no.such.option"),
        (["--topic", "bad-value", "--config", "retention.ms=soon"], "retention.ms"),
        (["--topic", "unknown-broker", "--replica-assignment", "7"], "7"),
    ],
    ids=["replicas", "slash", "length", "option", "value", "broker"],
)
def test_a_topic_that_cannot_be_is_refused(options: list[str], word: str, tools: Tools) -> None:
    ran = tools.try_(TOPICS, "--create", *options)
    assert ran.code == 1
    assert "Error while executing topic command" in ran.said
    assert word in ran.said
    assert options[1] not in tools.ask(TOPICS, "--list").lines


@pytest.mark.parametrize("action", ["--describe", "--delete", "--alter"])
def test_a_topic_that_is_not_there_is_refused(action: str, tools: Tools) -> None:
    more = ["--partitions", "3"] if action == "--alter" else []
    ran = tools.try_(TOPICS, action, "--topic", "no-such-topic", *more)
    assert ran.code == 1
    assert "Topic 'no-such-topic' does not exist as expected" in ran.said


# ConfigCommand


def test_options_of_a_topic_are_set_shown_and_deleted(tools: Tools, new_topic: NewTopic) -> None:
    entity = ("--entity-type", "topics", "--entity-name", new_topic(retention_ms="3600000"))
    assert configs_of(tools, *entity) == {"retention.ms": "3600000"}
    change = ("--alter", *entity, "--add-config", "segment.ms=7000,cleanup.policy=[compact,delete]")
    tools.ask(CONFIGS, *change)
    expected = {"retention.ms": "3600000", "segment.ms": "7000", "cleanup.policy": "compact,delete"}
    wait_until(lambda: configs_of(tools, *entity) == expected, DEADLINE_S, "three options")
    tools.ask(CONFIGS, "--alter", *entity, "--delete-config", "segment.ms,cleanup.policy")
    wait_until(lambda: len(configs_of(tools, *entity)) == 1, DEADLINE_S, "one option")


def test_all_options_of_a_topic_are_shown(tools: Tools, new_topic: NewTopic) -> None:
    told = configs_of(tools, "--entity-type", "topics", "--entity-name", new_topic(), "--all")
    assert told["max.message.bytes"] == "1048588"
    assert told["compression.type"] == "producer"


def test_a_bad_option_of_a_topic_is_refused(tools: Tools, new_topic: NewTopic) -> None:
    entity = ("--entity-type", "topics", "--entity-name", new_topic())
    ran = tools.try_(CONFIGS, "--alter", *entity, "--add-config", "retention.ms=soon")
    assert ran.code == 1
    assert "InvalidConfigurationException" in ran.said
    assert configs_of(tools, *entity) == {}


@pytest.mark.parametrize("entity", [("--entity-name", "1"), ("--entity-default",)])
def test_an_option_of_brokers_is_set_shown_and_deleted(
    entity: tuple[str, ...], tools: Tools
) -> None:
    brokers = ("--entity-type", "brokers", *entity)
    option = "message.max.bytes"

    def value() -> str | None:
        return configs_of(tools, *brokers).get(option)

    tools.ask(CONFIGS, "--alter", *brokers, "--add-config", f"{option}=1048000")
    wait_until(lambda: value() == "1048000", DEADLINE_S, "the option is set")
    tools.ask(CONFIGS, "--alter", *brokers, "--delete-config", option)
    wait_until(lambda: value() is None, DEADLINE_S, "the option is not set")


def test_all_options_of_a_broker_are_shown(tools: Tools) -> None:
    told = configs_of(tools, "--entity-type", "brokers", "--entity-name", "1", "--all")
    assert told["node.id"] == "1"
    assert told["message.max.bytes"] == "1048588"


def test_an_option_that_is_read_at_the_start_is_refused(tools: Tools) -> None:
    brokers = ("--entity-type", "brokers", "--entity-name", "1")
    ran = tools.try_(CONFIGS, "--alter", *brokers, "--add-config", "log.dirs=elsewhere")
    assert ran.code == 1
    assert "InvalidRequestException" in ran.said


# Records


@pytest.mark.parametrize("codec", CODECS)
def test_records_are_produced_and_consumed(codec: str, tools: Tools, new_topic: NewTopic) -> None:
    name = new_topic()
    lines = [f"key-{number}:value-{number}-of-{codec}" for number in range(200)]
    write(tools, name, lines, "--compression-codec", codec)
    assert read(tools, name, len(lines)) == lines
    assert read(tools, name, 3, offset="42") == lines[42:45]
    assert ends_of(tools, name) == {0: len(lines)}


def test_records_are_produced_with_acks_of_every_kind(tools: Tools, new_topic: NewTopic) -> None:
    name = new_topic()
    for acks in ("0", "1", "all"):
        plain = ("--request-required-acks", acks, "--command-property", "enable.idempotence=false")
        write(tools, name, [f"acks:{acks}"], *plain)
    assert read(tools, name, 3) == ["acks:0", "acks:1", "acks:all"]


def test_a_record_of_a_megabyte_is_produced_and_consumed(tools: Tools, new_topic: NewTopic) -> None:
    name = new_topic()
    large = "k:" + "x" * 1_000_000
    write(tools, name, [large], "--max-block-ms", "20000")
    assert read(tools, name, 1) == [large]


def test_a_consumer_that_wants_committed_records_gets_them(
    tools: Tools, new_topic: NewTopic
) -> None:
    name = new_topic()
    write(tools, name, ["a:1", "b:2"])
    place = ("--topic", name, "--partition", "0", "--offset", "earliest", "--max-messages", "2")
    ran = tools.ask(CONSOLE_CONSUMER, *place, "--isolation-level", "read_committed")
    assert ran.lines == ["1", "2"]


def test_a_consumer_waits_for_what_comes(tools: Tools, new_topic: NewTopic) -> None:
    name = new_topic()
    place = ("--topic", name, "--partition", "0", "--offset", "earliest", "--timeout-ms", "1000")
    ran = tools.ask(CONSOLE_CONSUMER, *place)
    assert (ran.out, "Processed a total of 0 messages" in ran.err) == ("", True)


def test_records_are_spread_over_partitions(tools: Tools, new_topic: NewTopic) -> None:
    name = new_topic(4)
    write(tools, name, [f"key-{number}:v" for number in range(100)])
    ends = ends_of(tools, name)
    assert sum(ends.values()) == 100
    assert all(ends.values())


def test_offsets_are_found_by_time(tools: Tools, new_topic: NewTopic) -> None:
    name = new_topic()
    write(tools, name, [f"k:{number}" for number in range(10)])
    assert ends_of(tools, name, "-1") == {0: 10}
    assert ends_of(tools, name, "latest") == {0: 10}
    assert ends_of(tools, name, "earliest") == {0: 0}
    assert ends_of(tools, name, "earliest-local") == {0: 0}
    assert set(ends_of(tools, name, "max-timestamp")) == {0}
    assert ends_of(tools, name, "0") == {0: 0}
    # A time behind every record: nothing is printed.
    assert ends_of(tools, name, "9000000000000") == {}


def test_records_are_deleted(tools: Tools, new_topic: NewTopic, tmp_path: Path) -> None:
    name = new_topic(2)
    write(tools, name, [f"key-{number}:v" for number in range(50)])
    ends = ends_of(tools, name)
    wanted = [
        {"topic": name, "partition": 0, "offset": 3},
        {"topic": name, "partition": 1, "offset": ends[1] + 1},
    ]
    file = tmp_path / "offsets.json"
    file.write_text(json.dumps({"partitions": wanted, "version": 1}))
    ran = tools.ask(DELETE_RECORDS, "--offset-json-file", str(file))
    assert f"partition: {name}-0\tlow_watermark: 3" in ran.lines
    assert "OffsetOutOfRangeException" in ran.out
    assert ends_of(tools, name, "earliest") == {0: 3, 1: 0}


def test_the_performance_of_a_producer_is_measured(tools: Tools, new_topic: NewTopic) -> None:
    name = new_topic(3)
    size = ("--num-records", "20000", "--record-size", "100", "--throughput", "-1")
    ran = tools.ask(PRODUCER_PERFORMANCE, "--topic", name, *size)
    assert "20000 records sent" in ran.out
    assert sum(ends_of(tools, name).values()) == 20_000


def test_a_verifiable_producer_sees_every_record_acknowledged(
    tools: Tools, target: Target, new_topic: NewTopic
) -> None:
    name = new_topic()
    # In a JVM of its own: it closes its producer when the JVM ends.
    ran = run_tool(
        VERIFIABLE_PRODUCER,
        *("--bootstrap-server", target.bootstrap, "--topic", name),
        *("--max-messages", "200", "--acks", "-1"),
    )
    assert ran.returncode == 0, ran.stderr
    told = [json.loads(line) for line in ran.stdout.splitlines()]
    acknowledged = [one for one in told if one["name"] == "producer_send_success"]
    assert [int(one["value"]) for one in acknowledged] == list(range(200))
    assert sorted(one["offset"] for one in acknowledged) == list(range(200))
    assert read(tools, name, 200) == [f"null:{number}" for number in range(200)]


# The node itself


def test_the_versions_of_a_broker_are_shown(tools: Tools, target: Target) -> None:
    ran = tools.ask(API_VERSIONS)
    for number, address in target.addresses.items():
        assert (
            sum(line.startswith(f"{address} (id: {number} rack: null") for line in ran.lines) == 1
        )
    for line in ("Produce(0): 0 to 13", "Fetch(1): 4 to 18", "ApiVersions(18): 0 to 4"):
        assert ran.out.count(line) == len(target.addresses)


def test_the_directories_of_all_brokers_are_shown(
    tools: Tools, target: Target, new_topic: NewTopic
) -> None:
    name = new_topic(2)
    write(tools, name, ["k:v"])
    for asked in (["--topic-list", name], []):
        ran = tools.ask(LOG_DIRS, "--describe", *asked)
        told = {one["broker"]: one["logDirs"] for one in json.loads(ran.lines[-1])["brokers"]}
        directories = {number: Path(one["logDir"]) for number, (one,) in told.items()}
        assert directories == target.data_dirs
        assert {one["error"] for (one,) in told.values()} == {None}
        sizes = {
            one["partition"]: one["size"]
            for (directory,) in told.values()
            for one in directory["partitions"]
            if one["partition"].startswith(f"{name}-")
        }
        assert set(sizes) == {f"{name}-0", f"{name}-1"}
        assert sorted(size > 0 for size in sizes.values()) == [False, True]


def test_the_features_of_a_broker_are_described(tools: Tools) -> None:
    ran = tools.ask(FEATURES, "describe")
    assert any(line.startswith("Feature: metadata.version") for line in ran.lines)


def test_the_cluster_is_described(tools: Tools, target: Target) -> None:
    address = ("--bootstrap-server", target.bootstrap)
    identity = tools.run(CLUSTER, "cluster-id", *address)
    assert identity.code == 0
    assert identity.out.startswith("Cluster ID: ")
    endpoints = tools.run(CLUSTER, "list-endpoints", *address)
    assert endpoints.code == 0
    listed = {line.split()[0]: line.split()[1:3] for line in endpoints.lines[1:]}
    assert listed == {str(key): one.split(":") for key, one in target.addresses.items()}


def test_kafka_finds_nothing_wrong_with_the_files_of_the_node(kafka: None, tmp_path: Path) -> None:
    lines = [f"key-{number}:value-{number}" for number in range(300)]
    # One node is enough, and a cluster too.
    with start_target(tmp_path, nodes=1) as target, start_tools(target.bootstrap) as tools:
        for codec in CODECS:
            tools.ask(TOPICS, "--create", "--topic", codec, "--partitions", "1")
            write(tools, codec, lines, "--compression-codec", codec, "--batch-size", "1000")
    directories = [target.data_dirs[1] / f"{codec}-0" for codec in CODECS]
    verdict = judge(directories)
    assert verdict.complaints == []
    for directory in directories:
        records = [
            f"{one.key}:{one.value}"
            for file in sorted(directory.glob("*.log"))
            for one in verdict.files[file].records
        ]
        assert records == lines
