"""Our segments and indexes before Kafka's own DumpLogSegments, which must find nothing wrong.

The last tests damage files on purpose: a judge that never convicts proves nothing.
"""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest

from ottla.replication.settings import LogSettings
from ottla.replication.storage.disk import DiskFiles
from ottla.replication.storage.memory import MemoryStateStore
from tests.builders import OneLog, append
from tests.interop.dump import Dump
from tests.interop.judge import judge
from tests.interop.our_log import COMPACTED, NAMES, PRODUCER_EPOCH, PRODUCER_ID, OurLog

pytestmark = pytest.mark.interop

OurLogs = dict[str, OurLog]
MIB = 1024**2


@pytest.fixture(scope="module")
def verdict(kafka: None, our_logs: OurLogs) -> Dump:
    return judge([log.directory for log in our_logs.values()])


def batches_of(log: OurLog, verdict: Dump) -> list[dict[str, object]]:
    files = sorted(log.directory.glob("*.log"))
    return [batch for file in files for batch in verdict.files[file].batches]


def test_kafka_finds_nothing_wrong_with_our_files(our_logs: OurLogs, verdict: Dump) -> None:
    assert verdict.complaints == []
    assert {file.parent for file in verdict.gaps} == {
        our_logs[name].directory for name in COMPACTED
    }


@pytest.mark.parametrize("name", NAMES)
def test_kafka_reads_from_our_segments_what_we_wrote(
    name: str, our_logs: OurLogs, verdict: Dump
) -> None:
    log = our_logs[name]
    files = sorted(log.directory.glob("*.log"))
    assert len(files) > 1
    read = [record for file in files for record in verdict.files[file].records]
    assert [(one.offset, one.timestamp, one.key, one.value, one.header_keys) for one in read] == [
        (
            one.offset,
            one.timestamp,
            None if one.key is None else one.key.decode(),
            None if one.value is None else one.value.decode(),
            tuple(key for key, _ in one.headers),
        )
        for one in log.records
    ]


@pytest.mark.parametrize("name", NAMES)
def test_kafka_follows_our_indexes(name: str, our_logs: OurLogs, verdict: Dump) -> None:
    directory = our_logs[name].directory
    for file in sorted(directory.glob("*.log"))[:-1]:
        times = verdict.files[file.with_suffix(".timeindex")].time_entries
        batch_times = [batch["max_timestamp"] for batch in verdict.files[file].batches]
        # Compaction may leave nothing of a segment but its name.
        if name not in COMPACTED or batch_times:
            assert times[-1][0] == max(batch_times), "a sealed segment ends with its highest time"
        if name not in COMPACTED:
            assert len(verdict.files[file.with_suffix(".index")].index_entries) > 1


@pytest.mark.parametrize("name", NAMES)
def test_kafka_sees_codec_and_time_type_of_our_batches(
    name: str, our_logs: OurLogs, verdict: Dump
) -> None:
    log = our_logs[name]
    batches = batches_of(log, verdict)
    codecs = {batch["codec"] for batch in batches if batch["count"]}
    assert codecs == {log.variant.stored_codec.name.lower()}
    expected = "LogAppendTime" if name.startswith("append-time") else "CreateTime"
    assert {batch["timestamp_type"] for batch in batches} == {expected}


def test_kafka_sees_nothing_of_the_room_behind_an_open_segment(kafka: None, tmp_path: Path) -> None:
    one = OneLog(LogSettings(), DiskFiles(), MemoryStateStore(), str(tmp_path))
    log = one.create()
    for _ in range(200):
        append(log, b"word" * 2500)
    log.checkpoint()
    file = Path(log.active.path)
    found = file.stat()
    assert found.st_blocks * 512 > found.st_size + MIB, "no room was asked for"
    verdict = judge([file.parent])
    assert verdict.complaints == []
    assert len(verdict.files[file].batches) == 200


def test_kafka_sees_the_producer_and_its_sequences(our_logs: OurLogs, verdict: Dump) -> None:
    batches = batches_of(our_logs["idempotent"], verdict)
    told = {(batch["producer_id"], batch["producer_epoch"]) for batch in batches}
    assert told == {(PRODUCER_ID, PRODUCER_EPOCH)}
    assert [b["base_sequence"] for b in batches] == [b["base_offset"] for b in batches]


@pytest.mark.parametrize("name", COMPACTED)
def test_kafka_sees_delete_horizons_and_the_empty_batch_of_a_silent_producer(
    name: str, our_logs: OurLogs, verdict: Dump
) -> None:
    log = our_logs[name]
    batches = batches_of(log, verdict)
    horizons = {batch["delete_horizon_ms"] for batch in batches} - {None}
    assert horizons == {log.delete_horizon_ms}
    assert any(one.value is None for one in log.records), "tombstones are within their retention"
    assert [b["producer_id"] for b in batches if b["count"] == 0] == [PRODUCER_ID]


def test_kafka_sees_the_epoch_of_every_leader(our_logs: OurLogs, verdict: Dump) -> None:
    epochs = [batch["leader_epoch"] for batch in batches_of(our_logs["truncated"], verdict)]
    first_of_second = epochs.index(1)
    assert epochs == [0] * first_of_second + [1] * (len(epochs) - first_of_second)
    assert first_of_second > 0


@pytest.fixture
def copied(our_logs: OurLogs, tmp_path: Path) -> Path:
    """One sealed segment with its indexes, to be damaged."""
    source = our_logs["none"].directory
    base = min(source.glob("*.log")).stem
    for file in source.glob(f"{base}.*"):
        shutil.copy(file, tmp_path / file.name)
    return tmp_path


def damage(file: Path, position: int, replacement: bytes) -> None:
    content = bytearray(file.read_bytes())
    content[position : position + len(replacement)] = replacement
    file.write_bytes(content)


def test_the_judge_convicts_a_flipped_byte_in_a_record(kafka: None, copied: Path) -> None:
    log = next(copied.glob("*.log"))
    position = log.read_bytes().rindex(b"value-")
    damage(log, position, b"w")
    assert [line for line in judge([copied]).complaints if line.endswith("isvalid: false")]


def test_the_judge_convicts_a_cut_batch(kafka: None, copied: Path) -> None:
    log = next(copied.glob("*.log"))
    log.write_bytes(log.read_bytes()[:-1])
    complaints = judge([copied]).complaints
    assert [line for line in complaints if "invalid bytes at the end" in line]


def test_the_judge_convicts_an_index_that_points_to_another_batch(
    kafka: None, copied: Path
) -> None:
    index = next(copied.glob("*.index"))
    damage(index, 0, struct.pack(">i", 1))
    assert [line for line in judge([copied]).complaints if line.startswith("Mismatches in")]


def test_the_judge_convicts_a_wrong_time(kafka: None, copied: Path) -> None:
    index = next(copied.glob("*.timeindex"))
    damage(index, 7, bytes([index.read_bytes()[7] ^ 1]))
    assert [line for line in judge([copied]).complaints if "log timestamp" in line]


def test_the_judge_convicts_an_index_that_a_broker_would_rebuild(kafka: None, copied: Path) -> None:
    index = next(copied.glob("*.index"))
    index.write_bytes(index.read_bytes()[:-3])
    assert [line for line in judge([copied]).complaints if "CorruptIndexException" in line]
