"""The rows themselves: their defaults, their names, and that nothing is said twice."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.proto.errors import ConfigError
from ottla.proto.options import ignored, node, topic
from ottla.proto.options.option import Option, environment_name

EVERY_ROW = [*topic.TABLE, *node.TABLE]
ROW = pytest.mark.parametrize("row", EVERY_ROW, ids=lambda row: row.name)


@ROW
def test_a_default_can_be_written_down_and_given_back(row: Option[Any]) -> None:
    assert row.parse(row.default_text) == row.default


@ROW
def test_a_row_explains_itself_in_full_sentences(row: Option[Any]) -> None:
    assert row.doc.endswith(".")
    assert row.differs is None or row.differs.because.endswith(".")


@ROW
def test_a_row_whose_default_is_kafkas_does_not_claim_to_differ(row: Option[Any]) -> None:
    assert row.differs is None or row.differs.kafka != row.default_text


@ROW
def test_a_name_ends_with_its_unit_where_kafka_has_it_there(row: Option[Any]) -> None:
    if row.name.endswith(".ms"):
        assert row.unit == "ms"
    if row.name.endswith(".bytes"):
        assert row.unit == "bytes"


def test_no_name_has_two_rows() -> None:
    assert len(topic.BY_NAME) == len(topic.TABLE)
    assert len(node.BY_ANY_NAME) == sum(len(row.names) for row in node.TABLE)


def test_no_two_options_share_an_environment_variable() -> None:
    assert len({environment_name(name) for name in node.BY_ANY_NAME}) == len(node.BY_ANY_NAME)


def test_no_option_is_both_obeyed_and_without_effect() -> None:
    for name in node.BY_ANY_NAME:
        assert ignored.reason_of((*ignored.NODE, *ignored.REFUSED), name) is None
    for name in topic.BY_NAME:
        assert ignored.reason_of(ignored.TOPIC, name) is None


def test_every_topic_option_can_be_given_at_the_node() -> None:
    assert set(node.OF_TOPIC_OPTION) == set(topic.BY_NAME)


# Kafka 4.3's, from its documentation, for the options that topics have there too.
KAFKA_TOPIC_DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.type": "producer",
    "compression.zstd.level": "3",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "index.interval.bytes": "4096",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}


def test_a_topics_defaults_are_kafkas_or_say_what_kafkas_is() -> None:
    theirs = {
        row.name: row.differs.kafka if row.differs else row.default_text
        for row in topic.TABLE
        if not row.name.startswith("ottla.")
    }
    assert theirs == KAFKA_TOPIC_DEFAULTS


# architecture.md §9.
SAFER_OR_FASTER: dict[Option[Any], object] = {
    node.DEFAULT_REPLICATION_FACTOR: 3,
    node.AUTO_CREATE_TOPICS: False,
    node.BROKER_SESSION_TIMEOUT_MS: 2000,
    node.BROKER_HEARTBEAT_INTERVAL_MS: 300,
    node.REPLICA_LAG_MAX_MS: 10_000,
    node.LEADER_IMBALANCE_CHECK_SECONDS: 30,
    node.GROUP_INITIAL_REBALANCE_DELAY_MS: 500,
    node.OFFSET_CHECKPOINT_INTERVAL_MS: 5000,
    topic.MIN_INSYNC_REPLICAS: 2,
    topic.DURABILITY: "fsync",
}


def test_where_kafkas_default_is_unsafe_or_slow_ours_differs_and_says_why() -> None:
    for row, default in SAFER_OR_FASTER.items():
        assert row.default == default
        assert row.differs is not None


@pytest.mark.parametrize(
    ("row", "text", "value"),
    [
        (topic.CLEANUP_POLICY, "", ()),
        (topic.CLEANUP_POLICY, "compact, delete", ("compact", "delete")),
        (topic.RETENTION_MS, " -1 ", -1),
        (topic.RETENTION_MS, "+5", 5),
        (topic.MIN_CLEANABLE_DIRTY_RATIO, "1e-1", 0.1),
        (topic.UNCLEAN_LEADER_ELECTION, "TRUE", True),
        (topic.COMPRESSION_GZIP_LEVEL, "-1", -1),
    ],
)
def test_values_are_read_as_kafka_reads_them(row: Option[Any], text: str, value: object) -> None:
    assert row.parse(text) == value


@pytest.mark.parametrize(
    ("row", "text", "sentence"),
    [
        (
            topic.SEGMENT_BYTES,
            "1048575",
            'segment.bytes must be at least 1048576; it is "1048575".',
        ),
        (
            topic.SEGMENT_BYTES,
            "2147483648",
            'segment.bytes must be a whole number of at most 2147483647; it is "2147483648".',
        ),
        (topic.RETENTION_MS, "1_000", 'retention.ms must be a whole number; it is "1_000".'),
        (topic.RETENTION_MS, "", 'retention.ms must be a whole number; it is "".'),
        (topic.RETENTION_MS, "٣", 'retention.ms must be a whole number; it is "٣".'),
        (
            topic.MIN_CLEANABLE_DIRTY_RATIO,
            "nan",
            'min.cleanable.dirty.ratio must be a number; it is "nan".',
        ),
        (
            topic.UNCLEAN_LEADER_ELECTION,
            "yes",
            'unclean.leader.election.enable must be "true" or "false"; it is "yes".',
        ),
        (
            topic.CLEANUP_POLICY,
            "delete,delete",
            "cleanup.policy must be a list of delete and compact, each at most once, or empty; "
            'it is "delete,delete".',
        ),
        (
            topic.CLEANUP_POLICY,
            "delete,,compact",
            "cleanup.policy must be a list with no empty item between its commas; "
            'it is "delete,,compact".',
        ),
        (
            topic.DURABILITY,
            "hope",
            'ottla.durability must be one of fsync, pagecache; it is "hope".',
        ),
        (
            topic.COMPRESSION_GZIP_LEVEL,
            "0",
            'compression.gzip.level must be -1 or between 1 and 9; it is "0".',
        ),
    ],
)
def test_a_wrong_value_is_refused_with_what_is_allowed(
    row: Option[Any], text: str, sentence: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        row.parse(text)
    assert str(caught.value) == sentence


def test_a_strangers_value_is_shown_safely_and_not_at_length() -> None:
    with pytest.raises(ConfigError) as caught:
        topic.RETENTION_MS.parse("\x1b[31m" + "9" * 100_000)
    assert len(str(caught.value)) < 300
    assert "\x1b" not in str(caught.value)


def test_a_topic_never_needs_more_replicas_in_sync_than_it_has() -> None:
    assert topic.effective_min_insync(2, replication_factor=1) == 1
    assert topic.effective_min_insync(2, replication_factor=3) == 2
