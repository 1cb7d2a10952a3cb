"""Tells a run in a few lines, for tests of those who judge it.

    Story().sent("w-1", 0).sent("w-2", 1).polled({0: "w-1", 1: "w-2"}).read({0: "w-1", 1: "w-2"})

Every line is a millisecond after the one before. A value names its process: `w-1` is the first
value of the process `w`. Offsets with their values are dictionaries, all of partition 0 of topic
`t`. An operation that overlaps others is begun and ended by itself (`begin`, `end`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, Self

from ottla.chaos.checkers.judge import judge
from ottla.chaos.evidence import (
    BatchPrint,
    Damage,
    Evidence,
    FaultEvent,
    FinalRead,
    Load,
    Record,
    ReplicaPrint,
    Ruling,
    RunFacts,
    Verdict,
)
from ottla.chaos.history import Event, Kind, Place, Shown

HERE: Final = Place("t", 0)
MS: Final = 1_000_000
SECOND: Final = 1_000 * MS

FACTS: Final = RunFacts(
    scenario="a test",
    seed=1,
    backend="paper",
    system="none",
    command="pytest",
    nodes=(1, 2, 3),
    topics={"t": {}},
    ok_min=1,
)
Log = Mapping[int, str | None]


class Story:
    """A run that is being told."""

    def __init__(self, **facts: Any) -> None:
        self.now_ns = SECOND
        self.evidence = Evidence(facts=replace(FACTS, **facts), events=[])
        self._begun = dict[str, dict[str, Any]]()

    # -- clients -----------------------------------------------------------------------------------

    def begin(self, value: str, *, place: Place = HERE, acks: int = -1, **more: Any) -> Self:
        process = value.rpartition("-")[0]
        self._begun[value] = {"process": process, "function": "send", "place": place}
        return self._event(Kind.INVOKE, **self._begun[value], value=value, acks=acks, **more)

    def end(self, value: str, kind: Kind, **more: Any) -> Self:
        return self._event(kind, **self._begun[value], **more)

    def sent(self, value: str, offset: int, *, node: int | None = None, **more: Any) -> Self:
        """Acknowledged, at an offset."""
        return self.begin(value, **more).end(value, Kind.OK, offset=offset, node=node)

    def tried(self, value: str, **more: Any) -> Self:
        """Nobody can tell what became of it."""
        return self.begin(value, **more).end(value, Kind.UNKNOWN, error="REQUEST_TIMED_OUT")

    def refused(self, value: str, **more: Any) -> Self:
        return self.begin(value, **more).end(value, Kind.FAIL, error="NOT_ENOUGH_REPLICAS")

    def polled(
        self,
        log: Log,
        *,
        by: str = "r",
        place: Place = HERE,
        kind: Kind = Kind.OK,
        order: list[int] | None = None,
        **more: Any,
    ) -> Self:
        shown = tuple(Shown(place, at, log[at], 0) for at in order or log)
        self._event(Kind.INVOKE, process=by, function="poll")
        return self._event(kind, process=by, function="poll", shown=shown, **more)

    def did(self, function: str, *, by: str = "r", **more: Any) -> Self:
        """Say that something else succeeded: assign, subscribe, seek, commit."""
        self._event(Kind.INVOKE, process=by, function=function, **more)
        return self._event(Kind.OK, process=by, function=function, **more)

    def passed(self, seconds: float) -> Self:
        self.now_ns += int(seconds * SECOND)
        return self

    def _event(self, kind: Kind, **fields: Any) -> Self:
        self.now_ns += MS
        index = len(self.evidence.events)
        event = Event(index=index, t_ns=self.now_ns, kind=kind, **fields)
        return self._add(events=event)

    # -- the end -----------------------------------------------------------------------------------

    def read(
        self,
        log: Log,
        *,
        place: Place = HERE,
        source: str = "leader",
        turn: int = 1,
        start: int | None = None,
        end: int | None = None,
        epochs: Mapping[int, int] | None = None,
        began_ns: int | None = None,
    ) -> Self:
        """Say what a partition held in the end; it is led in epoch 0 unless told otherwise."""
        told = epochs or {}
        final = FinalRead(
            place=place,
            source=source,
            turn=turn,
            start_offset=min(log, default=0) if start is None else start,
            high_watermark=max(log, default=-1) + 1 if end is None else end,
            records=tuple(Record(at, value, told.get(at, 0)) for at, value in log.items()),
            began_ns=began_ns,
        )
        return self.ended(final)

    def ended(self, final: FinalRead) -> Self:
        return self._add(finals=final)

    def with_control_records(self, *offsets: int) -> Self:
        """Say that the last final read has control records at these offsets."""
        *before, last = self.evidence.finals
        records = tuple(one._replace(is_control=one.offset in offsets) for one in last.records)
        self.evidence = replace(self.evidence, finals=[*before, replace(last, records=records)])
        return self

    def holds(
        self,
        node: int,
        batches: Mapping[int, int],
        *,
        end: int,
        turn: int = 1,
        epoch: int = 0,
        damage: Damage | None = None,
    ) -> Self:
        """Say which checksum the batch at each offset has on a node; each holds one record."""
        prints = tuple(BatchPrint(at, at, epoch, 100, crc) for at, crc in batches.items())
        replica = ReplicaPrint(
            place=HERE,
            node=node,
            turn=turn,
            start_offset=0,
            high_watermark=end,
            batches=prints,
            damage=damage,
        )
        return self._add(replicas=replica)

    # -- faults, and what nodes tell ---------------------------------------------------------------

    def fault(self, name: str, step: str, /, *targets: int, **facts: Any) -> Self:
        self.now_ns += MS
        event = FaultEvent(t_ns=self.now_ns, fault=name, step=step, targets=targets, facts=facts)
        return self._add(faults=event)

    def traced(self, node: int, event: str, *, place: Place | None = HERE, **more: Any) -> Self:
        self.now_ns += MS
        where = {} if place is None else {"topic": place.topic, "partition": place.partition}
        return self._add(trace={"t_ns": self.now_ns, "node": node, "event": event, **where, **more})

    def led(self, node: int, epoch: int, isr: list[int], *, minimum: int = 2) -> Self:
        facts: dict[str, Any] = {"leader_epoch": epoch, "isr": isr, "min_isr": minimum}
        return self.traced(node, "led", high_watermark=0, **facts)

    def obeyed(
        self,
        node: int,
        epoch: int,
        *,
        leader: int | None,
        isr: list[int],
        elr: list[int] | None = None,
        leader_epoch: int | None = None,
        **more: Any,
    ) -> Self:
        """Say that a node obeys the state of a partition at a partition epoch."""
        facts = {
            "topic_id": "id",
            "leader": leader,
            "leader_epoch": epoch if leader_epoch is None else leader_epoch,
            "partition_epoch": epoch,
            "replicas": [1, 2, 3],
            "isr": isr,
            "elr": elr or [],
            "min_isr": 2,
            "last_unclean_epoch": -1,
        }
        return self.traced(node, "partition", **facts | more)

    def said(self, node: int, *lines: str) -> Self:
        logs = {**(self.evidence.logs or {}), node: list(enumerate(lines, 1))}
        self.evidence = replace(self.evidence, logs=logs)
        return self

    def unsound(self, node: int, *problems: str) -> Self:
        """Say what offline verifying found wrong with the files of a node."""
        offline = {**(self.evidence.offline or {}), node: problems}
        self.evidence = replace(self.evidence, offline=offline)
        return self

    def busy(self, seconds: float) -> Self:
        """Say that others had the processors around this moment."""
        begin_ns, end_ns = self.now_ns - int(seconds * SECOND), self.now_ns + int(seconds * SECOND)
        return self._add(loads=Load(begin_ns, end_ns, idle=0.0, others=0.9, late_s=0.0))

    def verdicts(self) -> list[Verdict]:
        return judge(self.evidence)

    def saw(self, place: Place, epoch: int, node: int) -> Self:
        """Say that a client was told who leads."""
        self.now_ns += MS
        return self._add(leaders_seen=(self.now_ns, place, epoch, node))

    def _add(self, **more: Any) -> Self:
        for name, one in more.items():
            before = getattr(self.evidence, name)
            if isinstance(before, list):
                before.append(one)
            else:
                added: dict[str, Any] = {name: [*(before or ()), one]}
                self.evidence = replace(self.evidence, **added)
        return self


def rows(story: Story | Evidence, ruling: Ruling) -> set[int]:
    """Return the rows that are ruled so."""
    evidence = story.evidence if isinstance(story, Story) else story
    return {one.row for one in judge(evidence) if one.ruling is ruling}


def broken(story: Story | Evidence) -> set[int]:
    return rows(story, Ruling.BROKEN)


def counted(story: Story | Evidence) -> set[int]:
    return rows(story, Ruling.COUNTED)
