"""The same rows for people, for the page, and for DescribeConfigs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.proto.errors import ConfigError
from ottla.proto.options import ignored, node, topic
from ottla.proto.options.load import load, load_topic
from ottla.proto.options.option import STRING, Option, WireType
from ottla.proto.options.render import (
    ConfigEntry,
    ConfigSource,
    ConfigSynonym,
    config_markdown,
    describe_all_brokers,
    describe_node,
    describe_topic,
    help_text,
    readable,
)
from ottla.proto.options.sources import Options, Setting, Source, overlay

ONE = Source.THIS_BROKER


def entry_of(entries: tuple[ConfigEntry, ...], name: str) -> ConfigEntry:
    return {entry.name: entry for entry in entries}[name]


def test_a_default_is_described_as_a_default() -> None:
    node_options = load()
    entry = entry_of(describe_topic(load_topic({}, node_options), node_options), "retention.ms")
    assert entry == ConfigEntry(
        name="retention.ms",
        value="604800000",
        source=ConfigSource.DEFAULT_CONFIG,
        read_only=False,
        sensitive=False,
        synonyms=(ConfigSynonym("log.retention.ms", "604800000", ConfigSource.DEFAULT_CONFIG),),
        wire_type=WireType.LONG,
        documentation=topic.RETENTION_MS.doc,
    )
    assert entry.is_default


def test_a_topics_own_value_is_described_with_those_it_hides() -> None:
    node_options = load(flags={"log.retention.hours": "1"})
    options = load_topic({"retention.ms": "5"}, node_options)
    entry = entry_of(describe_topic(options, node_options), "retention.ms")
    assert (entry.value, entry.source) == ("5", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert entry.synonyms == (
        ConfigSynonym("retention.ms", "5", ConfigSource.DYNAMIC_TOPIC_CONFIG),
        ConfigSynonym("log.retention.hours", "1", ConfigSource.STATIC_BROKER_CONFIG),
        ConfigSynonym("log.retention.ms", "604800000", ConfigSource.DEFAULT_CONFIG),
    )


def test_a_nodes_value_is_described_as_read_only() -> None:
    entry = entry_of(describe_node(load(flags={"num.partitions": "3"})), "num.partitions")
    assert (entry.value, entry.source) == ("3", ConfigSource.STATIC_BROKER_CONFIG)
    assert entry.read_only
    assert not entry.is_default


def test_every_row_is_described() -> None:
    options = load()
    assert [entry.name for entry in describe_node(options)] == list(node.BY_NAME)
    described = describe_topic(load_topic({}, options), options)
    assert [entry.name for entry in described] == list(topic.BY_NAME)


def test_a_secret_is_not_described() -> None:
    secret: Option[str] = Option(
        name="secret", kind=STRING, default="hush", doc="Kept.", sensitive=True
    )
    (entry,) = describe_node(Options({"secret": Setting(secret, "hush")}))
    assert entry.value is None
    assert [synonym.value for synonym in entry.synonyms] == [None]


def test_a_wrong_secret_is_not_told() -> None:
    secret = replace(topic.RETENTION_MS, sensitive=True)
    with pytest.raises(ConfigError) as caught:
        secret.parse("hush")
    assert str(caught.value) == "retention.ms must be a whole number; it is not."


def test_the_page_names_every_option() -> None:
    page = config_markdown()
    for row in (*topic.TABLE, *node.OWN_TABLE):
        assert f"| `{row.name}` (" in page
        assert row.doc in page
    for without in (*ignored.TOPIC, *ignored.NODE, *ignored.REFUSED):
        assert without.reason in page


def test_the_page_says_what_takes_effect_at_once() -> None:
    rows = {line.split("`")[1]: line for line in config_markdown().splitlines() if "` (" in line}
    assert "at once" in rows["max.connections"]
    assert "at once" not in rows["node.id"]


def test_a_change_for_all_brokers_is_described_alone() -> None:
    (entry,) = describe_all_brokers({"log.retention.ms": "5", "gone.option": "1"})
    assert (entry.name, entry.value, entry.read_only) == ("log.retention.ms", "5", False)
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    assert entry.synonyms == (ConfigSynonym("log.retention.ms", "5", source),)


def test_a_change_is_described_with_what_it_hides() -> None:
    options = overlay(load(flags={"log.retention.hours": "1"}), {"log.retention.ms": "5"}, ONE)
    entry = entry_of(describe_node(options), "log.retention.ms")
    assert (entry.value, entry.source) == ("5", ConfigSource.DYNAMIC_BROKER_CONFIG)
    assert [(one.name, one.value, int(one.source)) for one in entry.synonyms] == [
        ("log.retention.ms", "5", 2),
        ("log.retention.hours", "1", 4),
        ("log.retention.ms", "604800000", 5),
    ]


def test_an_option_of_a_topic_that_has_no_effect_is_described_as_such() -> None:
    node_options = load()
    own = {"flush.ms": "1", "retention.ms": "5"}
    described = describe_topic(load_topic(own, node_options), node_options, own)
    assert described[-1].name == "flush.ms"
    assert described[-1].documentation == (
        "It has no effect here: ottla.durability decides when bytes are synced."
    )


def test_help_for_a_terminal_says_all_of_a_row() -> None:
    assert help_text(node.REPLICA_LAG_MAX_MS).splitlines() == [
        "replica.lag.time.max.ms",
        "  A follower that has not caught up with its leader for this long leaves the in-sync set.",
        "  type:        long, ms",
        "  default:     10000 (10 s)",
        "  in Kafka:    30000; ours differs because writes with acks=all wait for a stuck follower "
        "until it leaves.",
        "  allowed:     at least 100",
        "  environment: OTTLA_REPLICA_LAG_TIME_MAX_MS",
        "  a change:    needs a restart",
    ]


def test_large_numbers_are_readable() -> None:
    assert readable(topic.SEGMENT_BYTES, 1024**3) == "1073741824 (1 GiB)"
    assert readable(topic.RETENTION_MS, 7 * 86_400_000) == "604800000 (7 d)"
    assert readable(topic.RETENTION_MS, 1234) == "1234"
    assert readable(topic.RETENTION_MS, -1) == "-1"
    assert readable(topic.MAX_COMPACTION_LAG_MS, 2**63 - 1) == "9223372036854775807 (no limit)"
    assert readable(topic.CLEANUP_POLICY, ()) == "(empty)"
