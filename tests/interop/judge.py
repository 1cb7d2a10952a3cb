"""Kafka's verdict on segment files: everything DumpLogSegments can check, in three runs.

The first run makes the check by which a broker decides whether to rebuild an index. It comes first
because the tool, when it closes an index, cuts off what is not a whole entry, and so repairs it.
The second opens every batch and follows every index entry to its batch; the third is the tool's
verify mode.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.interop.dump import Dump, DumpedFile, parse_dump
from tests.interop.kafka import KafkaToolError, dump_log_segments


def judge(directories: Sequence[Path]) -> Dump:
    """Return what Kafka read, and in `complaints` all that it or its tool found wrong."""
    logs = _files(directories, "log")
    indexes = _files(directories, "index") + _files(directories, "timeindex")
    verdict = Dump()
    _take(verdict, indexes, "--index-sanity-check")
    verdict.files = _take(verdict, logs + indexes, "--deep-iteration", "--print-data-log")
    _take(verdict, indexes, "--verify-index-only")
    verdict.complaints += _unexplained(verdict)
    return verdict


def _unexplained(verdict: Dump) -> list[str]:
    """Return complaints about times, unless it is about a batch that compaction has emptied.

    The header of such a batch keeps its highest time, and the time index has it: Kafka's own
    segments are so. Its tool looks for the time among the records, finds none, and complains.
    """
    complaints = []
    for index, timestamp in verdict.timeless:
        dumped = verdict.files.get(index.with_suffix(".log"), DumpedFile())
        emptied = [batch["max_timestamp"] for batch in dumped.batches if batch["count"] == 0]
        if timestamp not in emptied:
            complaints.append(f"{index}: no record has the time {timestamp}")
    return complaints


def _take(verdict: Dump, files: Sequence[Path], *options: str) -> dict[Path, DumpedFile]:
    try:
        told = parse_dump(dump_log_segments(files, *options))
    except KafkaToolError as error:
        verdict.complaints.append(str(error))
        return {}
    verdict.gaps.update(told.gaps)
    verdict.timeless += told.timeless
    verdict.complaints += told.complaints
    return told.files


def _files(directories: Sequence[Path], suffix: str) -> list[Path]:
    return [file for directory in directories for file in sorted(directory.glob(f"*.{suffix}"))]
