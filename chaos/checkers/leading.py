"""Rows 12 and 17 to 20: who led, who was in sync, and what the metadata said, by the trace.

Row 17 is judged without a trace too, by what clients were told and by who answered them.

Not here: what became of the records.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

from ottla.chaos.checkers.case import Case
from ottla.chaos.checkers.findings import Findings, not_judged, ruled
from ottla.chaos.checkers.sends import Send
from ottla.chaos.checkers.traced import LATE_NS, Line, Traced
from ottla.chaos.evidence import FaultEvent, RunFacts, Verdict
from ottla.chaos.history import Kind, Place
from ottla.chaos.payload import LIFE_MARK

_UNTRACED: Final = "the system gives no trace"
_NO_STATES: Final = "the trace tells the state of no partition"
# What all nodes must tell alike of a partition at one partition epoch.
_STATE: Final = ("leader", "leader_epoch", "replicas", "isr", "elr")
# How a second process of a node ends, by whether it has the files of the first: these are in use,
# which is for whoever looks after the disk; or its id is, and that is an option.
_REFUSED: Final = {True: 1, False: 2}


def judge_leading(case: Case, traced: Traced | None) -> Iterator[Verdict]:
    yield _two_leaders(case, traced)
    if traced is None:
        yield from (not_judged(row, _UNTRACED) for row in (12, 18, 19, 20))
        return
    yield _stale_acknowledgements(case, traced)
    yield _too_few_in_sync(case, traced)
    states = _States(traced)
    yield _elections(states, case.evidence.facts)
    yield _steps_back(case, traced, states)


def _acknowledged(case: Case, traced: Traced) -> Iterator[Send]:
    """Return the sends with acks=all of which the trace can tell."""
    for place in case.sends:
        if LIFE_MARK in place.topic or place.topic in traced.deleted:
            continue
        for send in case.promised(place):
            if send.kind is Kind.OK:
                yield send


# ── Acknowledgements ──────────────────────────────────────────────────────────────────────────


def _stale_acknowledgements(case: Case, traced: Traced) -> Verdict:
    found, judged = Findings(), 0
    for send in _acknowledged(case, traced):
        by_ns = send.ended_ns + LATE_NS
        is_committed = None
        if send.offset >= 0:
            is_committed = traced.is_committed(send.node, send.place, send.offset, by_ns)
        has_enough = _had_enough(send, traced, by_metadata=False)
        judged += is_committed is not None or has_enough is not None
        whom = "a leader" if send.node is None else f"node {send.node}"
        if is_committed is False:
            told = f"{whom} acknowledged {send.value} at {send.place} {send.offset}"
            found.add(f"{told}, which was not below its high watermark", send.index)
        elif has_enough is False:
            told = f"{whom} acknowledged {send.value} of {send.place}"
            found.add(f"{told} while it knew that too few were in sync", send.index)
    if not judged:
        return not_judged(12, "the trace tells nothing of what was acknowledged")
    return ruled(12, found, said=f"{judged} acknowledgements compared")


def _too_few_in_sync(case: Case, traced: Traced) -> Verdict:
    found, judged = Findings(), 0
    for send in _acknowledged(case, traced):
        has_enough = _had_enough(send, traced, by_metadata=True)
        judged += has_enough is not None
        if has_enough is False:
            told = f"node {send.node} acknowledged {send.value} of {send.place}"
            found.add(f"{told}; by its metadata too few were in sync all the while", send.index)
    if not judged:
        return not_judged(19, "the trace tells nothing of what was acknowledged")
    return ruled(19, found, said=f"{judged} acknowledgements compared")


def _had_enough(send: Send, traced: Traced, *, by_metadata: bool) -> bool | None:
    if send.node is None:
        return None
    begun_ns = send.begun_ns
    if not by_metadata and send.offset >= 0:
        # What was in sync when it was committed, not when it was sent.
        committed_ns = traced.committed_ns(send.node, send.place, send.offset)
        begun_ns = max(begun_ns, committed_ns if committed_ns <= send.ended_ns else 0)
    return traced.had_enough(
        send.node, send.place, begun_ns, send.ended_ns, by_metadata=by_metadata
    )


# ── Leaders ───────────────────────────────────────────────────────────────────────────────────


def _two_leaders(case: Case, traced: Traced | None) -> Verdict:
    told = defaultdict[tuple[str, int], set[int]](set)
    seen = case.evidence.leaders_seen
    for _, place, epoch, node in (*seen, *(() if traced is None else traced.leaders)):
        if epoch >= 0 and node >= 0:
            told[str(place), epoch].add(node)
    for line in () if traced is None else traced.lines:
        if line["event"] == "partition" and line["leader"] is not None:
            name = f"{line['topic']}-{line['partition']} ({line['topic_id']})"
            told[name, line["leader_epoch"]].add(line["leader"])
    _add_answers(case, told)
    found = Findings()
    for note in case.evidence.faults:
        if note.step == "note" and note.fault == "twin":
            _judge_twin(note, found)
    if not told and not found.count:
        return not_judged(17, "nobody has told who led")
    for (name, epoch), nodes in sorted(told.items()):
        if len(nodes) > 1:
            found.add(f"{name} was led in epoch {epoch} by {sorted(nodes)}")
    return ruled(17, found)


def _judge_twin(note: FaultEvent, found: Findings) -> None:
    """A second process with the id of one that lives is refused, and says so by its exit code."""
    code, is_same = note.facts.get("exit_code"), bool(note.facts.get("on_same_files"))
    if code is None:
        found.add(f"two processes are node {list(note.targets)} at the same time")
    elif code != _REFUSED[is_same]:
        told = f"a second process of node {list(note.targets)} ended with {code}"
        found.add(f"{told}: that is not how one is refused, which is {_REFUSED[is_same]}")


def _add_answers(case: Case, told: dict[tuple[str, int], set[int]]) -> None:
    """Whoever acknowledged a record has appended it, in the epoch that stands in its batch."""
    for reading in case.finals:
        place = reading.read.place
        epochs = {(one.offset, one.value): one.leader_epoch for one in reading.read.records}
        for send in case.sends.get(place, ()):
            epoch = epochs.get((send.offset, send.value), -1)
            if send.kind is Kind.OK and send.node is not None and epoch >= 0:
                told[str(place), epoch].add(send.node)


# ── Metadata ──────────────────────────────────────────────────────────────────────────────────


class _States:
    """The states of every partition by partition epoch, each as it was told first."""

    def __init__(self, traced: Traced) -> None:
        self.by_partition: Final = defaultdict[tuple[str, Place], dict[int, Line]](dict)
        self.disagreements: Final = Findings()
        for line in traced.lines:
            if line["event"] != "partition":
                continue
            key = (line["topic_id"], Place(line["topic"], line["partition"]))
            known = self.by_partition[key].setdefault(line["partition_epoch"], line)
            if any(known[name] != line[name] for name in _STATE):
                nodes = f"nodes {known['node']} and {line['node']}"
                told = f"{nodes} disagree on {key[1]} at partition epoch"
                self.disagreements.add(f"{told} {line['partition_epoch']}")

    def said(self) -> str:
        count = sum(map(len, self.by_partition.values()))
        return f"{count} states of {len(self.by_partition)} partitions compared"


def _elections(states: _States, facts: RunFacts) -> Verdict:
    broken, allowed = Findings(), Findings()
    for (_, place), by_epoch in states.by_partition.items():
        options = facts.topics.get(place.topic, {})
        is_allowed = facts.is_unclean_allowed or (
            options.get("unclean.leader.election.enable", "false").lower() == "true"
        )
        for (at, before), (then, after) in pairwise(sorted(by_epoch.items())):
            if _is_unclean(before, after, is_next=then == at + 1):
                told = f"{place} got leader {after['leader']} at partition epoch {then}"
                known = f"in sync had been {before['isr']}, eligible {before['elr']}"
                (allowed if is_allowed else broken).add(f"{told}; {known}")
    if not states.by_partition:
        return not_judged(18, _NO_STATES)
    return ruled(18, broken, allowed, states.said())


def _is_unclean(before: Line, after: Line, *, is_next: bool) -> bool:
    # Whoever elects knowingly says so; that counts even if states in between were not told.
    if after.get("last_unclean_epoch", -1) > before.get("last_unclean_epoch", -1):
        return True
    leader = after["leader"]
    if not is_next or leader in (None, before["leader"]):
        return False
    return leader not in (*before["isr"], *before["elr"])


def _steps_back(case: Case, traced: Traced, states: _States) -> Verdict:
    found = states.disagreements
    if any(one.turn > 1 and one.high_watermark >= 0 for one in case.evidence.finals):
        _find_forgotten(traced, found)
    highest = dict[tuple[Any, ...], int]()
    for line in traced.lines:
        if line["event"] == "started":
            # A new process may have to catch up.
            highest = {key: value for key, value in highest.items() if key[0] != line["node"]}
        for key, value in _growing(line).items():
            if value < highest.get(key, value):
                what = " ".join(str(one) for one in key[1:])
                told = f"node {line['node']}: {what} went from {highest[key]} to {value}"
                found.add(told)
            highest[key] = value
    for (_, place), by_epoch in states.by_partition.items():
        for (_, before), (then, after) in pairwise(sorted(by_epoch.items())):
            if after["leader_epoch"] < before["leader_epoch"]:
                found.add(f"the leader epoch of {place} fell at partition epoch {then}")
    if not states.by_partition and not found.count:
        return not_judged(20, _NO_STATES)
    return ruled(20, found, said=states.said())


def _find_forgotten(traced: Traced, found: Findings) -> None:
    """Whoever was started again has caught up in the end, and so has the whole cluster.

    To be asked of a run that came to its last final read: before that some may be behind.
    """
    started = {one["node"]: int(one["t_ns"]) for one in traced.lines if one["event"] == "started"}
    # The newest that anybody had told before all that live now were started.
    first_ns = min(started.values(), default=0)
    highest, last = dict[tuple[Any, ...], int](), dict[tuple[Any, ...], int]()
    for line in traced.lines:
        if line.get("topic") in traced.deleted:
            # What is told of it last may be long before its end.
            continue
        for key, value in _growing(line).items():
            if line["t_ns"] < first_ns:
                highest[key[1:]] = max(value, highest.get(key[1:], value))
            elif line["t_ns"] >= started.get(line["node"], 0):
                last[key] = value
    for key, value in sorted(last.items(), key=str):
        if value < highest.get(key[1:], value):
            what = " ".join(str(one) for one in key[1:])
            told = f"node {key[0]} was started again and has {what} {value} in the end"
            found.add(f"{told}, where {highest[key[1:]]} had been told")


def _growing(line: Line) -> dict[tuple[Any, ...], int]:
    """Return what a line tells that never falls."""
    node = line["node"]
    match line["event"]:
        case "metadata":
            names = ("version", "controller_epoch")
            return {(node, one): line[one] for one in names if line.get(one) is not None}
        case "partition":
            name = (node, line["topic_id"], f"{line['topic']}-{line['partition']}")
            return {(*name, one): line[one] for one in ("leader_epoch", "partition_epoch")}
        case "registered":
            return {(node, "epoch of broker", line["broker"]): line["broker_epoch"]}
        case _:
            return {}
