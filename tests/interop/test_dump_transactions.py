"""Our markers and our index of aborted transactions before Kafka's own DumpLogSegments."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.replication.storage.disk import DiskFiles
from tests.builders import OneLog, committed, small_settings
from tests.interop.kafka import dump_log_segments
from tests.unit.replication.log.transactions import COORDINATOR, aborted, end, write

pytestmark = pytest.mark.interop

ANN, BOB = 7, 8


def test_kafka_reads_our_markers_and_our_index_of_aborted_transactions(
    kafka: None, tmp_path: Path
) -> None:
    one = OneLog(small_settings(segment_bytes=100_000), files=DiskFiles(), root=str(tmp_path))
    log = one.create()
    write(log, ANN, b"committed")
    write(log, BOB, b"aborted")
    end(log, ANN, is_commit=True)
    end(log, BOB, is_commit=False)
    write(log, BOB, b"aborted again")
    end(log, BOB, is_commit=False)
    committed(log)
    log.close()
    index = tmp_path / "t-0" / "00000000000000000000.txnindex"
    told = dump_log_segments([index])
    for entry in aborted(log):
        expected = (
            f"version: 0 producerId: {BOB} firstOffset: {entry.first_offset} "
            f"lastOffset: {entry.last_offset} lastStableOffset: {entry.last_stable_offset}"
        )
        assert expected in told
    batches = dump_log_segments([index.with_suffix(".log")], "--deep-iteration")
    for kind, count in (("COMMIT", 1), ("ABORT", 2)):
        assert batches.count(f"endTxnMarker: {kind} coordinatorEpoch: {COORDINATOR}") == count
