"""Rows 13 and 14: a log has no holes, and its leader epochs never fall.

Not here: what stands in it (`contents.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from ottla.chaos.checkers.case import Case, Reading
from ottla.chaos.checkers.findings import Findings, not_judged, ruled
from ottla.chaos.evidence import Verdict


def judge_shape(case: Case) -> Iterator[Verdict]:
    if not case.finals:
        why = "nothing was read at the end"
        yield from (not_judged(13, why), not_judged(14, why))
        return
    gaps, falls = Findings(), Findings()
    for reading in case.finals:
        _add_gaps(case, reading, gaps)
    for reading in (*case.finals, *case.replica_reads):
        rows = [(one.offset, one.leader_epoch) for one in reading.read.records]
        _add_falls(f"{reading.read.place}, {reading}", rows, falls)
    for replica in case.evidence.replicas or ():
        rows = [(one.base_offset, one.leader_epoch) for one in replica.batches]
        _add_falls(f"{replica.place} on node {replica.node}", rows, falls)
    yield ruled(13, gaps)
    yield ruled(14, falls)


def _add_gaps(case: Case, reading: Reading, found: Findings) -> None:
    read = reading.read
    offsets = [one.offset for one in read.records if one.offset < read.high_watermark]
    # Compaction leaves no first record, and what it leaves is asked for hole by hole.
    may_start = case.may_start_later(read.place) or case.is_compacted(read.place)
    start = read.start_offset if may_start else 0
    edges = [start - 1, *offsets, max(read.high_watermark, read.start_offset)]
    for before, after in pairwise(edges):
        if after <= before:
            found.add(f"{read.place} {after} follows {before} in {reading}")
        elif after > before + 1 and not _may_lack(case, reading, before + 1, after):
            found.add(f"{read.place} {before + 1} to {after - 1} are missing in {reading}")


def _may_lack(case: Case, reading: Reading, begin: int, end: int) -> bool:
    """Whether compaction may have made this hole."""
    read, place = reading.read, reading.read.place
    if not case.is_compacted(place):
        return False
    # Nothing is newer than the last record, so only a tombstone can be gone from there.
    has_tombstones = any(one.is_tombstone for one in case.sends.get(place, ()))
    if end == read.high_watermark and not has_tombstones:
        return False
    known = case.known_records(place)
    return all(
        case.may_be_gone(place, offset, known[offset], reading)
        for offset in range(begin, end)
        if offset in known
    )


def _add_falls(where: str, rows: Iterable[tuple[int, int]], found: Findings) -> None:
    known = [row for row in rows if row[1] >= 0]
    for (at, before), (then, after) in pairwise(known):
        if after < before:
            found.add(f"epoch {after} at {then} follows epoch {before} at {at} in {where}")
