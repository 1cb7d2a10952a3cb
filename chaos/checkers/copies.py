"""Row 15: replicas hold the same batches, and files that are sound.

Below the high watermark two replicas may not differ in anything. What lies above it was never
promised, but when all is mended it has been cut off or has become the same: a difference there is
counted once and broken if it is still there in the last turn.

A replica whose bytes are damaged says so: that is a finding of its own, unless the scenario is
there to cause it, and everything else is compared as usual. Base offset and leader epoch of a batch
have no checksum: where a bit was flipped on purpose, one batch of that replica may differ.

Cleaners work alone on each replica, so of a compacted topic only the leader epochs of batches that
both have are compared. What such a copy has lost is seen in its records, which are read when all
nodes are down: row 16 looks into every one of them that was in sync.

Not here: what of it was acknowledged (`keeping.py`).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from itertools import combinations
from typing import Final

from ottla.chaos.checkers.case import Case, Reading
from ottla.chaos.checkers.findings import Findings, not_judged, ruled
from ottla.chaos.checkers.traced import Traced
from ottla.chaos.evidence import BatchPrint, Evidence, FinalRead, ReplicaPrint, Verdict
from ottla.chaos.history import Place
from ottla.chaos.payload import wire_name

# Of which final reads those are that were made when all nodes were down.
OFFLINE: Final = "offline"


def judge_copies(case: Case, traced: Traced | None) -> Iterator[Verdict]:
    evidence = case.evidence
    if not evidence.replicas and evidence.offline is None:
        yield not_judged(15, "replicas cannot be looked into")
        return
    broken, counted = Findings(), Findings()
    groups = defaultdict[tuple[Place, int], list[ReplicaPrint]](list)
    for one in evidence.replicas or ():
        groups[one.place, one.turn].append(one)
    last_turn = max((turn for _, turn in groups), default=0)
    flipped = _flipped(evidence)
    for (place, turn), replicas in sorted(groups.items()):
        replicas.sort(key=lambda one: one.node)
        if case.is_compacted(place):
            _compare_epochs(replicas, broken)
            continue
        _find_short(replicas, case, traced, broken, counted)
        _compare(replicas, flipped, broken, broken if turn == last_turn else counted, counted)
    allowed = [re.compile(one) for one in evidence.facts.allowed_log]
    for node, problem in _damages(evidence):
        is_meant = any(one.search(problem) for one in allowed)
        (counted if is_meant else broken).add(f"files of node {node}: {problem}")
    for _, told in silent_replicas(case, traced):
        broken.add(told)
    if not evidence.replicas and not broken.count:
        yield not_judged(15, "no replica was looked into; the files of the nodes are sound")
        return
    yield ruled(15, broken, counted)


def _damages(evidence: Evidence) -> Iterator[tuple[int, str]]:
    """Yield what replicas have told of their own bytes, and what was found when all were down."""
    for one in evidence.replicas or ():
        if one.damage is not None:
            yield one.node, f"{one.place}: {one.damage.told}"
    for node, problems in sorted((evidence.offline or {}).items()):
        for problem in problems:
            yield node, problem


def _flipped(evidence: Evidence) -> set[tuple[int, Place]]:
    """Return the nodes and partitions in whose segments a bit was flipped on purpose."""
    found = set[tuple[int, Place]]()
    for fault in evidence.faults:
        folder, _, file = str(fault.facts.get("file", "")).rpartition("/")
        topic, _, partition = folder.rpartition("-")
        if fault.fault == "flipped" and file.endswith(".log") and partition.isdigit():
            found.update((node, Place(topic, int(partition))) for node in fault.targets)
    return found


def silent_replicas(case: Case, traced: Traced | None) -> Iterator[tuple[Place, str]]:
    """Yield the partitions of which a replica in sync showed nothing, and who that was.

    In sync are those that were when the leader was read, just before. Where nobody shows anything
    nothing follows, and without a trace nobody knows who ought to.
    """
    prints = case.evidence.replicas
    if traced is None or not prints:
        return
    shown = {(one.place, one.node, one.turn) for one in prints}
    for reading in case.finals:
        read = reading.read
        # Nodes know a topic by its name, whatever life of it this is.
        there = Place(wire_name(read.place.topic), read.place.partition)
        for node in traced.in_sync_at(there, read.began_ns):
            if (there, node, read.turn) not in shown:
                told = f"node {node} is in sync and shows nothing of {read.place}"
                yield read.place, f"{told}, turn {read.turn}"


def must_hold_all(case: Case, traced: Traced | None, reading: Reading) -> bool:
    """Whether a replica that was read was in sync; nobody told: take it that it was.

    What was read while all were down goes by who was in sync when its leader was read, just before:
    those who stop leave the set one after the other.
    """
    read = reading.read
    name, node = read.source.rpartition("-")[::2]
    if traced is None or name != OFFLINE:
        read_ns = case.read_ns(read.place, read.turn)
        return traced is None or traced.is_in_sync(read.place, int(node), read_ns)
    members = _in_sync_before(case, traced, read)
    return not members or int(node) in members


def unread_copies(case: Case, traced: Traced | None) -> Iterator[tuple[Place, str]]:
    """Yield the compacted partitions of which a replica in sync had no files, and whose they are.

    Where no copy was read nothing follows, and without a trace nobody knows who has one.
    """
    reads = [one.read for one in case.replica_reads if one.read.source.startswith(OFFLINE)]
    found = {(one.place, one.source) for one in reads}
    for read in {one.place: one for one in reads}.values():
        for node in () if traced is None else _in_sync_before(case, traced, read):
            if (read.place, f"{OFFLINE}-{node}") not in found:
                yield read.place, f"node {node} was in sync and has no files of {read.place}"


def _in_sync_before(case: Case, traced: Traced, read: FinalRead) -> tuple[int, ...]:
    there = Place(wire_name(read.place.topic), read.place.partition)
    leader = (one.read for one in case.finals if one.read.place == read.place)
    moments = (one.began_ns for one in leader if one.turn == read.turn)
    return traced.in_sync_at(there, next(moments, read.began_ns))


def _high_watermark(replicas: Sequence[ReplicaPrint]) -> int:
    return max(one.high_watermark for one in replicas)


def _find_short(
    replicas: Sequence[ReplicaPrint],
    case: Case,
    traced: Traced | None,
    broken: Findings,
    counted: Findings,
) -> None:
    """A replica that ends below the high watermark is wrong if it counts as in sync."""
    committed = _high_watermark(replicas)
    for one in replicas:
        end = one.batches[-1].last_offset + 1 if one.batches else one.start_offset
        if end < committed and not one.lacks(committed - 1):
            read_ns = case.read_ns(one.place, one.turn)
            is_wrong = traced is None or traced.is_in_sync(one.place, one.node, read_ns)
            told = f"{one.place} ends at {end} on node {one.node}, below {committed}"
            (broken if is_wrong else counted).add(told)


def _compare(
    replicas: Sequence[ReplicaPrint],
    flipped: Collection[tuple[int, Place]],
    below: Findings,
    above: Findings,
    counted: Findings,
) -> None:
    """Compare each with the longest: of two that differ, one differs from that one."""
    committed = _high_watermark(replicas)
    start = max(one.start_offset for one in replicas)
    # One that was not tampered with, if there is one.
    longest = max(
        replicas,
        key=lambda one: ((one.node, one.place) not in flipped, _end(_by_offset(one, start))),
    )
    whole = _by_offset(longest, start)
    for one in replicas:
        mine = _by_offset(one, start)
        end = _end(mine)
        differing = [
            offset
            for offset in sorted(mine.keys() | whole.keys())
            if offset < end and mine.get(offset) != whole.get(offset) and not one.lacks(offset)
        ]
        if not differing:
            continue
        told = f"{one.place} differs at {differing[0]} on nodes {one.node} and {longest.node}"
        # One batch, and if its base offset is another one, that it lacks the right one.
        lost = sum(1 for offset in differing if offset in whole)
        is_one = lost <= 1 and len(differing) <= 2
        if is_one and (one.node, one.place) in flipped:
            counted.add(told)
        else:
            (below if differing[0] < committed else above).add(told)


def _by_offset(replica: ReplicaPrint, start: int) -> dict[int, BatchPrint]:
    return {one.base_offset: one for one in replica.batches if one.last_offset >= start}


def _end(batches: dict[int, BatchPrint]) -> int:
    return max((one.last_offset + 1 for one in batches.values()), default=0)


def _compare_epochs(replicas: Sequence[ReplicaPrint], broken: Findings) -> None:
    for first, second in combinations(replicas, 2):
        mine = {one[:2]: one.leader_epoch for one in first.batches}
        for one in second.batches:
            if mine.get(one[:2], one.leader_epoch) != one.leader_epoch:
                nodes = f"nodes {first.node} and {second.node}"
                broken.add(f"{first.place} {one.base_offset} has two leader epochs on {nodes}")
                break
