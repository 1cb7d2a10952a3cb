"""The evidence of a run, sorted for those who judge it: who sent what, and what was shown where.

Made once for a run and only looked at afterwards. What is here holds for every checker:

K1  a send is *promised* if it was acknowledged with acks=all, or if an answer said that it is kept
K2  `polled` is all that any poll showed, whatever became of the poll: readers are shown only what
    is safe. `shown` is that and what the final reads of the leaders showed
K3  readers of committed records need not be shown what is part of a transaction that is not binding
K4  a record *may be gone* if it lies below the start of its log, of a topic whose options delete,
    and is old enough for that; or if compaction may have taken it: its key has a newer record, or
    was deleted long enough ago

Not here: verdicts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from ottla.chaos.checkers.keys import Keys, Left
from ottla.chaos.checkers.ledger import COMMITTED, Ledger
from ottla.chaos.checkers.seen import NO_EVENT, Seen
from ottla.chaos.checkers.sends import Send, client_of, sends_in
from ottla.chaos.evidence import Evidence, FinalRead
from ottla.chaos.history import Event, Kind, Operation, Place, operations
from ottla.chaos.payload import wire_name

LEADER: Final = "leader"
_CLOCK: Final = "clock"
# How long tombstones stay if a topic does not say.
_TOMBSTONES_MS: Final = 86_400_000
# What of a topic's options lets the beginning of its logs go. No run reaches the defaults.
_DELETING: Final = ("retention.ms", "retention.bytes")


class Reading:
    """A final read, with its records by offset and by value."""

    def __init__(self, read: FinalRead) -> None:
        self.read: Final = read
        self.at: Final = {one.offset: one.value for one in read.records if not one.is_control}
        self.where: Final = {value: at for at, value in self.at.items() if value is not None}
        # Of a compacted partition.
        self.left: Left | None = None

    def covers(self, moment_ns: int) -> bool:
        """Whether what ended at this moment has to be in it."""
        return self.read.began_ns is None or moment_ns <= self.read.began_ns

    def __str__(self) -> str:
        whom = "the leader" if self.read.source == LEADER else self.read.source
        return f"the final read of {whom}, turn {self.read.turn}"


@dataclass(slots=True)
class Case:
    """One run, sorted."""

    evidence: Evidence
    operations: list[Operation] = field(default_factory=list)
    # By partition, in the order in which they began.
    sends: dict[Place, list[Send]] = field(default_factory=dict)
    # By value; a value is sent once.
    writer: dict[str, Send] = field(default_factory=dict)
    # By client: when an idempotent producer gave up on a record.
    given_up: dict[str, list[int]] = field(default_factory=dict)
    polls: list[Event] = field(default_factory=list)
    polled: dict[Place, Seen] = field(default_factory=dict)
    shown: dict[Place, Seen] = field(default_factory=dict)
    # Final reads of the leader that came to something, and of single replicas.
    finals: list[Reading] = field(default_factory=list)
    replica_reads: list[Reading] = field(default_factory=list)
    # The highest start offset that a final read has told, and when that was.
    starts: dict[Place, tuple[int, int | None]] = field(default_factory=dict)
    # Nodes were told wrong times: how old they take a record for, nobody knows.
    has_wrong_clocks: bool = False
    ledger: Ledger = field(default_factory=lambda: Ledger((), (), (), ()))
    _keys: dict[Place, Keys] = field(default_factory=dict)
    # By partition, as nodes know it, and turn.
    _read_ns: dict[tuple[Place, int], int] = field(default_factory=dict)
    # What `known_records` has found already.
    _known: dict[Place, dict[int, str | None]] = field(default_factory=dict)

    def promised(self, place: Place) -> Iterator[Send]:
        return (one for one in self.sends.get(place, ()) if one.is_promised)

    def position(self, send: Send) -> int | None:
        """Return where a send is, by its acknowledgement or because it was shown."""
        if send.is_promised and send.offset >= 0:
            return send.offset
        seen = self.shown.get(send.place)
        return None if seen is None else seen.where.get(send.value)

    def may_be_gone(
        self, place: Place, offset: int, value: str | None, reading: Reading | None = None
    ) -> bool:
        """Whether a record need not be there (K3, K4): in a final read, or (None) for a reader.

        An offset of −1 is one that nobody was told.
        """
        if reading is None:
            start, moment_ns = self.starts.get(place, (0, None))
        else:
            start, moment_ns = reading.read.start_offset, reading.read.began_ns
        is_below = offset < start and (offset >= 0 or start > 0)
        if is_below and self._may_be_deleted(place, value, moment_ns):
            return True
        if reading is None and value is not None and not self.ledger.must_be_shown(value):
            return True
        keys = self._keys.get(place)
        send = None if value is None else self.writer.get(value)
        if keys is None or send is None:
            return False
        return keys.may_be_gone(send, offset, None if reading is None else reading.left)

    def may_start_later(self, place: Place) -> bool:
        """Whether the log need not begin at 0: its options delete, or nobody knows them."""
        options = self.evidence.facts.topics.get(place.topic)
        if options is None:
            # A topic that is not among the facts was deleted before the end.
            return True
        return any(int(options.get(name, -1)) >= 0 for name in _DELETING)

    def _may_be_deleted(self, place: Place, value: str | None, moment_ns: int | None) -> bool:
        """Whether what was sent may have been deleted by a moment, if that is known."""
        if not self.may_start_later(place):
            return False
        kept_ms = int(self.evidence.facts.topics.get(place.topic, {}).get("retention.ms", -1))
        send = None if value is None else self.writer.get(value)
        if kept_ms < 0 or send is None or moment_ns is None or self.has_wrong_clocks:
            return True
        return send.begun_ns + kept_ms * 1_000_000 <= moment_ns

    def is_compacted(self, place: Place) -> bool:
        return place in self._keys

    def read_ns(self, place: Place, turn: int) -> int | None:
        """Return when a partition was read from its leader, by the name that nodes know it by.

        Its other replicas were looked into right after that. None: nobody knows when.
        """
        return self._read_ns.get((place, turn))

    def last_finals(self) -> dict[Place, Reading]:
        """Return the last final read of every leader."""
        return {one.read.place: one for one in sorted(self.finals, key=lambda one: one.read.turn)}

    def known_records(self, place: Place) -> dict[int, str | None]:
        """Return, in order, what surely was at which offset: it was shown, or promised."""
        if place not in self._known:
            known: dict[int, str | None] = {
                one.offset: one.value for one in self.promised(place) if one.offset >= 0
            }
            seen = self.shown.get(place)
            if seen is not None:
                known |= seen.at
            self._known[place] = dict(sorted(known.items()))
        return self._known[place]


def case_of(evidence: Evidence) -> Case:
    case = Case(evidence, operations(evidence.events))
    case.has_wrong_clocks = any(one.fault == _CLOCK for one in evidence.faults)
    by_place = defaultdict[Place, list[Send]](list)
    for send in sends_in(case.operations):
        by_place[send.place].append(send)
        case.writer[send.value] = send
        if send.is_idempotent and send.kind is Kind.UNKNOWN and not send.is_promised:
            case.given_up.setdefault(client_of(send), []).append(send.ended_ns)
    case.sends = dict(by_place)
    case.polls = [one for one in evidence.events if one.function == "poll" and one.shown]
    case.polled = _seen_in(case.polls)
    readings = [Reading(one) for one in evidence.finals if one.high_watermark >= 0]
    case.finals = [one for one in readings if one.read.source == LEADER]
    case.replica_reads = [one for one in readings if one.read.source not in (LEADER, COMMITTED)]
    sends = (send for found in case.sends.values() for send in found)
    case.ledger = Ledger(case.operations, sends, evidence.events, evidence.finals)
    case.shown = {place: seen.copy() for place, seen in case.polled.items()}
    for reading in case.finals:
        place = reading.read.place
        known = case.starts.get(place, (0, None))
        if reading.read.start_offset >= known[0]:
            case.starts[place] = reading.read.start_offset, reading.read.began_ns
        if reading.read.began_ns is not None:
            there = Place(wire_name(place.topic), place.partition), reading.read.turn
            case._read_ns[there] = max(case._read_ns.get(there, 0), reading.read.began_ns)
        seen = case.shown.setdefault(place, Seen())
        for offset, value in reading.at.items():
            seen.add(offset, value, None, NO_EVENT)
    _sort_keys(case)
    return case


def _seen_in(polls: Iterable[Event]) -> dict[Place, Seen]:
    found = dict[Place, Seen]()
    for event in polls:
        moment_ns, index = event.t_ns, event.index
        for place, offset, value, _ in event.shown:
            seen = found.get(place)
            if seen is None:
                seen = found[place] = Seen()
            if seen.at.get(offset, ...) == value and value is not None:
                continue
            seen.add(offset, value, moment_ns, index)
    return found


def _sort_keys(case: Case) -> None:
    for place in {*case.sends, *case.shown}:
        options = case.evidence.facts.topics.get(place.topic, {})
        if "compact" in options.get("cleanup.policy", ""):
            sends = [(one, case.position(one)) for one in case.sends.get(place, ())]
            kept_ms = int(options.get("delete.retention.ms", _TOMBSTONES_MS))
            case._keys[place] = Keys(sends, tombstones_ns=kept_ms * 1_000_000)
    for reading in (*case.finals, *case.replica_reads):
        if reading.read.place in case._keys:
            oldest = dict[str, int]()
            for value, offset in reading.where.items():
                send = case.writer.get(value)
                if send is not None:
                    oldest[send.key] = min(oldest.get(send.key, offset), offset)
            reading.left = Left(reading.read.began_ns, oldest)
