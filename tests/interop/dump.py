"""Understands what DumpLogSegments prints.

Every line is either known to be harmless or it is a complaint: a sentence of Kafka's that this
module has never seen fails the test instead of passing unread.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

_BATCH: Final = re.compile(
    r"baseOffset: (?P<base_offset>\d+) lastOffset: (?P<last_offset>\d+) count: (?P<count>\d+)"
    r" baseSequence: (?P<base_sequence>-?\d+) lastSequence: -?\d+"
    r" producerId: (?P<producer_id>-?\d+) producerEpoch: (?P<producer_epoch>-?\d+)"
    r" partitionLeaderEpoch: (?P<leader_epoch>-?\d+) isTransactional: (?P<transactional>\w+)"
    r" isControl: (?P<control>\w+)"
    r" deleteHorizonMs: OptionalLong(?:\.empty|\[(?P<delete_horizon_ms>\d+)\])"
    r" position: (?P<position>\d+) (?P<timestamp_type>\w+): (?P<max_timestamp>-?\d+)"
    r" size: (?P<size>\d+) magic: 2 compresscodec: (?P<codec>\w+)"
    r" crc: (?P<crc>\d+) isvalid: (?P<crc_ok>\w+)"
)
_RECORD: Final = re.compile(
    r"\| offset: (?P<offset>\d+) \w+: (?P<timestamp>-?\d+)"
    r" keySize: (?P<key_size>-?\d+) valueSize: (?P<value_size>-?\d+)"
    r" sequence: -?\d+ headerKeys: \[(?P<header_keys>.*?)\]"
    r"(?P<control> (?:endTxnMarker|LeaderChange|KRaftVersion|KRaftVoters|Snapshot\w+)\b.*)?"
    r"(?: key: (?P<key>\S*))?(?: payload: (?P<value>.*))?"
)
_DUMPING: Final = "Dumping "
_GAPS: Final = "Non-consecutive offsets in "
_MISMATCH: Final = "Found timestamp mismatch in :"
_TIMELESS: Final = re.compile(r" +Index timestamp: (\d+), log timestamp: -1")
_INDEX_ENTRY: Final = re.compile(r"offset: (\d+) position: (\d+)")
_TIME_ENTRY: Final = re.compile(r"timestamp: (-?\d+) offset: (\d+)")
_GAP: Final = re.compile(r" +(\d+) is followed by (\d+)")
# Kafka 4.3.1 prints the last one for every segment whose first record is not at offset 0: it
# compares the first record with "none yet".
_HARMLESS: Final = re.compile(
    r"Log starting offset: \d+|.* is empty\.|.* passed sanity check\.| +-1 is followed by \d+|"
)


@dataclass(frozen=True, slots=True)
class DumpedRecord:
    """A record as DumpLogSegments prints it: of the headers, only the keys."""

    offset: int
    timestamp: int
    key: str | None
    value: str | None
    header_keys: tuple[str, ...]
    control: bool


@dataclass(slots=True)
class DumpedFile:
    """What was printed about one file. Batches carry the field names of `ottla log dump --json`."""

    batches: list[dict[str, Any]] = field(default_factory=list)
    records: list[DumpedRecord] = field(default_factory=list)
    index_entries: list[tuple[int, int]] = field(default_factory=list)
    time_entries: list[tuple[int, int]] = field(default_factory=list)


@dataclass(slots=True)
class Dump:
    """One run of DumpLogSegments."""

    files: dict[Path, DumpedFile] = field(default_factory=dict)
    # Pairs of offsets with nothing in between. Normal in a compacted log and nowhere else.
    gaps: dict[Path, list[tuple[int, int]]] = field(default_factory=dict)
    # Time index entries whose batch has no time to compare with.
    timeless: list[tuple[Path, int]] = field(default_factory=list)
    # Lines that say something is wrong, or that are not understood.
    complaints: list[str] = field(default_factory=list)


def parse_dump(text: str) -> Dump:
    """Return what was printed, sorted into content and complaints."""
    dump = Dump()
    current = DumpedFile()
    # What the indented lines that follow are about.
    about = Path()
    # Not splitlines(): payloads may hold other characters that Python takes for a line's end.
    for line in text.split("\n"):
        if line.startswith(_DUMPING):
            current = dump.files.setdefault(Path(line.removeprefix(_DUMPING)), DumpedFile())
        elif line.startswith((_GAPS, _MISMATCH)):
            about = Path(line.removeprefix(_GAPS).removeprefix(_MISMATCH))
        elif gap := _GAP.fullmatch(line):
            dump.gaps.setdefault(about, []).append((int(gap[1]), int(gap[2])))
        elif timeless := _TIMELESS.fullmatch(line):
            dump.timeless.append((about, int(timeless[1])))
        elif not _read_line(current, line):
            dump.complaints.append(line)
    return dump


def _read_line(into: DumpedFile, line: str) -> bool:
    """Return whether the line is good news."""
    if batch := _BATCH.fullmatch(line):
        into.batches.append({name: _value(text) for name, text in batch.groupdict().items()})
        return batch["crc_ok"] == "true"
    if record := _RECORD.fullmatch(line):
        into.records.append(_record(record))
        return True
    if entry := _INDEX_ENTRY.fullmatch(line):
        into.index_entries.append((int(entry[1]), int(entry[2])))
        return True
    if entry := _TIME_ENTRY.fullmatch(line):
        into.time_entries.append((int(entry[1]), int(entry[2])))
        return True
    return _HARMLESS.fullmatch(line) is not None


def _record(found: re.Match[str]) -> DumpedRecord:
    keys = found["header_keys"]
    return DumpedRecord(
        offset=int(found["offset"]),
        timestamp=int(found["timestamp"]),
        key=found["key"],
        value=found["value"],
        header_keys=tuple(keys.split(",")) if keys else (),
        control=found["control"] is not None,
    )


def _value(text: str | None) -> object:
    if text is None:
        return None
    if text.lstrip("-").isdigit():
        return int(text)
    return {"true": True, "false": False}.get(text, text)
