"""What is in force: what the node was started with, and what was changed since."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from ottla.controller.image import ALL_BROKERS, BrokerInfo, MetadataImage
from ottla.node.config import log_settings
from ottla.node.options import NodeOptions
from ottla.proto.errors import ConfigError
from ottla.proto.ids import BrokerId
from ottla.proto.options import node, topic
from ottla.proto.options.load import load
from ottla.proto.options.sources import Options, Source

RETENTION_MS = node.OF_TOPIC_OPTION["retention.ms"]


def image_with(**broker_configs: Mapping[str, str]) -> MetadataImage:
    """An image with options for all brokers (`all`) and for broker 1 (`one`)."""
    names = {"all": ALL_BROKERS, "one": "1", "two": "2"}
    return MetadataImage(
        version=1,
        cluster_id="c",
        controller_id=BrokerId(1),
        brokers={BrokerId(1): BrokerInfo(BrokerId(1), "localhost", 9092)},
        broker_configs={names[key]: configs for key, configs in broker_configs.items()},
    )


def started_with(**flags: str) -> NodeOptions:
    return NodeOptions(load(flags={key.replace("_", "."): text for key, text in flags.items()}))


def adopted(options: NodeOptions, **broker_configs: Mapping[str, str]) -> Options:
    options.adopt(image_with(**broker_configs))
    return options.current


def test_without_changes_the_options_are_those_of_the_start() -> None:
    options = started_with(log_retention_ms="5")
    assert not options.adopt(image_with())
    assert options.current is options.static


def test_a_change_for_this_broker_wins_over_one_for_all_and_that_over_the_start() -> None:
    options = started_with(log_retention_ms="1")
    assert adopted(options, all={"log.retention.ms": "2"}).value_of(RETENTION_MS) == 2
    both = adopted(options, all={"log.retention.ms": "2"}, one={"log.retention.ms": "3"})
    assert both.value_of(RETENTION_MS) == 3
    assert adopted(options, one={"log.retention.ms": "3"}).value_of(RETENTION_MS) == 3
    assert adopted(options).value_of(RETENTION_MS) == 1


def test_what_a_change_hides_is_remembered() -> None:
    options = started_with(log_retention_hours="1")
    current = adopted(options, all={"log.retention.ms": "2"}, one={"log.retention.ms": "3"})
    setting = current.settings["log.retention.ms"]
    sources = []
    while setting.hides is not None:
        sources.append(setting.source)
        setting = setting.hides
    assert [*sources, setting.source] == [Source.THIS_BROKER, Source.ALL_BROKERS, Source.FLAG]


def test_another_brokers_change_is_not_ours() -> None:
    options = started_with()
    assert not options.adopt(image_with(two={"log.retention.ms": "3"}))


def test_adopting_says_whether_anything_changed() -> None:
    options = started_with()
    image = image_with(one={"log.retention.ms": "3"})
    assert options.adopt(image)
    assert not options.adopt(image)
    assert options.adopt(image_with())


def test_a_kept_value_that_cannot_be_obeyed_is_left_out_and_told() -> None:
    options = started_with()
    current = adopted(
        options,
        all={"log.retention.ms": "x", "message.max.bytes": "2000"},
        one={"gone.option": "1", "node.id": "7"},
    )
    assert current.value_of(RETENTION_MS) == topic.RETENTION_MS.default
    assert current.value_of(node.OF_TOPIC_OPTION["max.message.bytes"]) == 2000
    assert current.value_of(node.NODE_ID) == 1
    assert [warning.split(":")[0] for warning in options.warnings] == [
        "a change that was kept has no effect"
    ] * 3


def test_the_logs_of_a_topic_obey_its_own_options_and_the_changed_defaults() -> None:
    options = started_with()
    adopted(options, all={"log.retention.ms": "7", "log.segment.bytes": "2000000"})
    settings = options.log_settings({"segment.bytes": "1048576"})
    assert (settings.retention_ms, settings.segment_bytes) == (7, 1048576)
    adopted(options, one={"producer.id.expiration.ms": "9"})
    assert options.log_settings({}).producer_expiry_ms == 9


def test_the_settings_of_a_log_are_the_same_as_from_the_file() -> None:
    options = started_with(log_retention_ms="5")
    configs = {"cleanup.policy": "compact"}
    assert options.log_settings(configs) == log_settings(configs, options.static)


def test_a_topic_whose_options_no_longer_fit_the_defaults_still_has_settings() -> None:
    options = started_with()
    configs = {"min.compaction.lag.ms": "10", "retention.ms": "nonsense"}
    adopted(options, one={"log.cleaner.max.compaction.lag.ms": "5"})
    settings = options.log_settings(configs)
    assert (settings.min_compaction_lag_ms, settings.max_compaction_lag_ms) == (10, 5)
    assert settings.retention_ms == topic.RETENTION_MS.default


@pytest.mark.parametrize(
    ("kind", "name", "configs", "sentence"),
    [
        ("topic", "t", {"retention.ms": "x"}, 'retention.ms must be a whole number; it is "x".'),
        ("topic", "t", {"nope": "1"}, 'unknown option "nope"'),
        (
            "topic",
            "t",
            {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
            "min.compaction.lag.ms (10) must not be more than max.compaction.lag.ms (5).",
        ),
        ("broker", "1", {"node.id": "2"}, "node.id can only be changed in the file and by a rest"),
        (
            "broker",
            "",
            {"log.retention.hours": "2"},
            "log.retention.hours can only be changed in the file and by a restart, "
            "but log.retention.ms can be changed while the node runs.",
        ),
        ("broker", "1", {"broker.id": "2"}, "broker.id can only be changed in the file and by"),
        ("broker", "1", {"num.io.threads": "2"}, "num.io.threads has no effect here: a node is o"),
        ("broker", "1", {"ssl.keystore.location": "/x"}, "ssl.keystore.location is refused: TLS"),
        ("broker", "1", {"log.retention.msx": "2"}, "did you mean log.retention.ms?"),
        ("broker", "1", {"log.retention.ms": "-2"}, 'must be at least -1; it is "-2".'),
        (
            "broker",
            "",
            {"message.max.bytes": "2000000000"},
            "message.max.bytes (2000000000) must not be more than socket.request.max.bytes",
        ),
        ("topic", "t", {f"remote.x{n}": "1" for n in range(65)}, "65 options are too many"),
        ("topic", "t", {"flush.ms": "x" * 20_000}, "20008 bytes of options are too many"),
        ("topic", "t", {"remote.\x1b[31m": "x"}, "must be text without control characters."),
        ("topic", "t", {"flush.ms": "a\nb"}, "flush.ms must be text without control characters."),
        (
            "broker",
            "1",
            {"log.cleaner.min.compaction.lag.ms": "9", "log.cleaner.max.compaction.lag.ms": "5"},
            "log.cleaner.min.compaction.lag.ms (9) must not be more than",
        ),
    ],
)
def test_a_change_that_cannot_be_obeyed_is_refused_with_a_sentence(
    kind: str, name: str, configs: dict[str, str], sentence: str
) -> None:
    options = started_with()
    with pytest.raises(ConfigError) as caught:
        options.check(kind, name, configs)  # type: ignore[arg-type]  # a table of texts
    assert sentence in str(caught.value)


def test_a_change_for_all_is_checked_beside_what_this_broker_has() -> None:
    options = started_with()
    adopted(options, one={"log.cleaner.min.compaction.lag.ms": "9"})
    with pytest.raises(ConfigError):
        options.check("broker", ALL_BROKERS, {"log.cleaner.max.compaction.lag.ms": "5"})
    adopted(options, all={"log.cleaner.max.compaction.lag.ms": "5"})
    with pytest.raises(ConfigError):
        options.check("broker", "1", {"log.cleaner.min.compaction.lag.ms": "9"})


def test_a_good_change_passes() -> None:
    options = started_with()
    options.check("topic", "t", {"retention.ms": "5", "flush.ms": "1"})
    options.check("broker", ALL_BROKERS, {"log.retention.ms": "5"})
    options.check("broker", "1", {"max.connections": "100", "ottla.durability": "pagecache"})


def test_every_default_for_topics_may_be_changed_while_the_node_runs() -> None:
    assert all(row.dynamic for row in node.DEFAULTS_FOR_TOPICS)


def test_of_a_nodes_own_options_only_those_obeyed_at_once_may_be_changed() -> None:
    assert [row.name for row in node.OWN_TABLE if row.dynamic] == [
        "max.connections",
        "max.connections.per.ip",
        "log.cleaner.dedupe.buffer.size",
        "producer.id.expiration.ms",
    ]
