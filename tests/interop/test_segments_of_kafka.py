"""Segments that a Kafka broker wrote, read by our `ottla log dump` and `ottla log verify`."""

from __future__ import annotations

import pytest

from tests.interop.command import dump_lines, dump_records, verify
from tests.interop.dump import Dump
from tests.interop.written_by_kafka import CODECS, KafkaLog

pytestmark = pytest.mark.interop

PLAIN = ("java-none", "append-time", "idempotent", "rolled")
COMPRESSED = tuple(f"{writer}-{codec}" for writer in ("java", "rd") for codec in CODECS)
COMPACTED = ("compacted-uncompressed", "compacted-zstd")
TEXT_TOPICS = (*PLAIN, *COMPRESSED, *COMPACTED, "silent-producer", "transactional")


def test_the_judge_is_fair_and_finds_nothing_wrong_with_its_own_files(
    kafka_log: KafkaLog, kafka_dump: Dump
) -> None:
    assert kafka_dump.complaints == []
    compacted = {file for topic in COMPACTED for file in kafka_log.segments(topic)}
    assert kafka_dump.gaps.keys() <= compacted
    assert kafka_dump.gaps, "compaction has left holes in the offsets"


def test_kafka_wrote_every_kind_of_batch_that_these_tests_are_about(
    kafka_log: KafkaLog, kafka_dump: Dump
) -> None:
    def batches(topic: str) -> list[dict[str, object]]:
        return [one for file in kafka_log.segments(topic) for one in kafka_dump.files[file].batches]

    for topic in COMPRESSED:
        assert {batch["codec"] for batch in batches(topic)} == {topic.partition("-")[2]}
    assert len(kafka_log.segments("rolled")) > 2
    assert all(batch["producer_id"] != -1 for batch in batches("idempotent"))
    assert [batch["control"] for batch in batches("transactional")].count(True) == 3
    assert {batch["timestamp_type"] for batch in batches("append-time")} == {"LogAppendTime"}
    assert [batch["count"] for batch in batches("silent-producer")] == [0, 10, 10]
    for topic in COMPACTED:
        assert any(batch["delete_horizon_ms"] is not None for batch in batches(topic))


@pytest.mark.parametrize("topic", TEXT_TOPICS)
def test_our_dump_tells_of_each_batch_what_kafkas_dump_tells(
    topic: str, kafka_log: KafkaLog, kafka_dump: Dump
) -> None:
    for file in kafka_log.segments(topic):
        expected = kafka_dump.files[file].batches
        ours = dump_lines([file])
        assert [line["type"] for line in ours] == ["batch"] * len(expected)
        assert [{name: line[name] for name in expected[0]} for line in ours] == expected


@pytest.mark.parametrize("topic", TEXT_TOPICS)
def test_our_dump_tells_of_each_record_what_kafkas_dump_tells(
    topic: str, kafka_log: KafkaLog, kafka_dump: Dump
) -> None:
    files = kafka_log.segments(topic)
    theirs = [record for file in files for record in kafka_dump.files[file].records]
    ours = dump_records(files)
    assert [(one.offset, one.timestamp, one.control) for one in ours] == [
        (one.offset, one.timestamp, one.control) for one in theirs
    ]
    for our, their in zip(ours, theirs, strict=True):
        assert tuple(key for key, _ in our.headers) == their.header_keys
        if not our.control:
            assert our.key == (None if their.key is None else their.key.encode())
            assert our.value == (None if their.value is None else their.value.encode())


@pytest.mark.parametrize("topic", [*PLAIN, *COMPRESSED, "transactional", "binary"])
def test_our_dump_gives_back_the_records_that_were_produced(
    topic: str, kafka_log: KafkaLog
) -> None:
    records = [one for one in dump_records(kafka_log.segments(topic)) if not one.control]
    produced = kafka_log.produced[topic]
    assert [(one.key, one.value, one.headers) for one in records] == [
        (one.key, one.value, one.headers) for one in produced
    ]
    if topic == "append-time":
        assert all(one.timestamp > produced[0].timestamp + 1000 for one in records)
    else:
        assert [one.timestamp for one in records] == [one.timestamp for one in produced]
    if topic != "transactional":
        assert [one.offset for one in records] == list(range(len(produced)))


@pytest.mark.parametrize("topic", COMPACTED)
def test_our_dump_finds_the_survivors_of_compaction_where_they_were_produced(
    topic: str, kafka_log: KafkaLog
) -> None:
    records = dump_records(kafka_log.segments(topic))
    produced = kafka_log.produced[topic]
    for one in records:
        source = produced[one.offset]
        assert (one.key, one.value, one.timestamp) == (source.key, source.value, source.timestamp)
    assert {one.key: one.value for one in records} == {one.key: one.value for one in produced}
    assert len(records) < len(produced)
    assert any(one.value is None for one in records), "a tombstone is within its retention"


@pytest.mark.parametrize("topic", TEXT_TOPICS)
def test_our_dump_reads_kafkas_indexes(topic: str, kafka_log: KafkaLog, kafka_dump: Dump) -> None:
    for file in kafka_log.segments(topic, "index"):
        entries = [(line["offset"], line["position"]) for line in dump_lines([file])]
        assert entries == kafka_dump.files[file].index_entries
    for file in kafka_log.segments(topic, "timeindex"):
        entries = [(line["timestamp"], line["offset"]) for line in dump_lines([file])]
        assert entries == kafka_dump.files[file].time_entries


def test_verify_finds_a_data_directory_of_kafka_sound(kafka_log: KafkaLog) -> None:
    code, told = verify(kafka_log.log_dir)
    assert (code, told["ok"]) == (0, True), told
    by_name = {one["partition"]: one for one in told["partitions"]}
    for topic, produced in kafka_log.produced.items():
        partition = by_name[f"{topic}-0"]
        assert (partition["ok"], partition["problems"]) == (True, [])
        markers = 3 if topic == "transactional" else 0
        assert partition["end_offset"] == len(produced) + markers
