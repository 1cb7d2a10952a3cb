"""All that is known about a run, and what checkers say of it.

Checkers are functions of `Evidence` and nothing else, so that a run can be judged again, years
later, from its folder. What a system under test does not tell is None, and the rows that need it
are `NOT_JUDGED`: that is no pass.

Not here: files (`run_folder.py`), judging (`checkers/`), pages (`report/`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, NamedTuple

from ottla.chaos.history import Event, Place
from ottla.chaos.limits import ScenarioLimits

# A note: the system has nothing for some clients of the workload, which were left out.
NOT_OFFERED: Final = "not offered"


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultEvent:
    """Something was broken, or mended."""

    t_ns: int
    # The name of the fault, as the table of scenarios has it.
    fault: str
    # inject, heal; or note, for what happened by itself.
    step: str
    targets: tuple[int, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


class Record(NamedTuple):
    """A record of a final read; `value` is None if its payload is not one of ours."""

    offset: int
    value: str | None
    leader_epoch: int
    is_control: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalRead:
    """A whole partition as it was read when everything was mended."""

    place: Place
    # leader, or node-N: what that replica has (digest and segments), or offline-N.
    source: str
    # 1: after healing; 2: after the restart of the whole cluster.
    turn: int
    start_offset: int
    # −1: it could not be read before the deadline.
    high_watermark: int
    records: tuple[Record, ...]
    # What ended later than this need not be in it; None: all had ended.
    began_ns: int | None = None


class BatchPrint(NamedTuple):
    """A batch by what must be the same on every replica."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    size: int
    crc: int


class Damage(NamedTuple):
    """Bytes of a replica that are no sound batch."""

    # What was there; what it is now, nobody knows.
    first_offset: int
    # Exclusive; None: nothing that lies behind could be read.
    end_offset: int | None
    told: str

    def has(self, offset: int) -> bool:
        is_before_end = self.end_offset is None or offset < self.end_offset
        return self.first_offset <= offset and is_before_end


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaPrint:
    """The batches of one replica when everything was mended."""

    place: Place
    node: int
    turn: int
    start_offset: int
    high_watermark: int
    batches: tuple[BatchPrint, ...]
    # The first that was found.
    damage: Damage | None = None

    def lacks(self, offset: int) -> bool:
        """Whether nobody can know what it holds there."""
        return self.damage is not None and self.damage.has(offset)


class Uses(NamedTuple):
    """What a node used at one moment."""

    t_ns: int
    node: int
    rss_bytes: int
    open_files: int
    disk_bytes: int
    # The most memory that this process has ever held; 0: nobody asked.
    rss_peak_bytes: int = 0


class Load(NamedTuple):
    """How busy the machine was from one moment to another, as shares of all its processors."""

    begin_ns: int
    end_ns: int
    idle: float
    # Not used by the harness, nor by what it started.
    others: float
    # How much later than it should have been the harness itself woke up.
    late_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What was agreed before the run began."""

    scenario: str
    seed: int
    backend: str
    # What was tested, with its version.
    system: str
    # The command that does all this again.
    command: str
    nodes: tuple[int, ...]
    # Topic: its options, as they were set (min.insync.replicas, cleanup.policy, …).
    topics: Mapping[str, Mapping[str, str]]
    # Limits of time, in seconds; see `scenarios.toml`.
    recovery_s: float = 8.0
    session_s: float = 2.0
    # Fewer acknowledged operations than this make a run inconclusive.
    ok_min: int = 100
    # Who was to write in transactions, and what kind of client each is.
    transactors: Mapping[str, str] = field(default_factory=dict)
    # Groups whose offsets are committed in transactions.
    transactional_groups: tuple[str, ...] = ()
    # Fewer committed transactions of a kind of client than this make a run inconclusive.
    committed_min: int = 10
    # Its faults are drawn by lot: what could not be done is part of the dice.
    is_mix: bool = False
    # So many named places must have been reached; None: all that a node was to die at.
    reached_min: int | None = None
    # Rows that this scenario expects to be broken: a test of the judge, never in earnest.
    expected: tuple[int, ...] = ()
    # Rows that may be broken in this mode, and are then counted: loss without syncing, say.
    tolerated: tuple[int, ...] = ()
    # What this scenario makes nodes log, and offline verifying find: regular expressions.
    allowed_log: tuple[str, ...] = ()
    is_unclean_allowed: bool = False
    # What this scenario must hold beside all rows.
    limits: ScenarioLimits = field(default_factory=ScenarioLimits)
    # The scenario in a few words.
    title: str = ""
    # On what it ran, and with which versions: what a page tells, and nobody judges.
    machine: Mapping[str, str] = field(default_factory=dict)
    # Names of the means by which nodes can be looked into (`ports.TELLING`): of these there must be
    # evidence. None: nobody has said.
    tells: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One run, whole."""

    facts: RunFacts
    events: Sequence[Event]
    faults: Sequence[FaultEvent] = ()
    # Lines as `docs/trace.md` has them, in the order of the clock; None: the system tells nothing.
    trace: Sequence[Mapping[str, Any]] | None = None
    finals: Sequence[FinalRead] = ()
    # None: replicas cannot be looked into.
    replicas: Sequence[ReplicaPrint] | None = None
    # What offline verifying found wrong, in sentences, by node; None: it was not done.
    offline: Mapping[int, Sequence[str]] | None = None
    # Node: the lines of its log, number and text; None: not at hand.
    logs: Mapping[int, Sequence[tuple[int, str]]] | None = None
    # Metadata as clients saw them: (t_ns, place, leader epoch, leader).
    leaders_seen: Sequence[tuple[int, Place, int, int]] = ()
    # What nodes used, now and then; nothing where the backend cannot tell.
    uses: Sequence[Uses] = ()
    # How busy the machine was; nothing where nobody could look.
    loads: Sequence[Load] = ()
    # The harness itself failed: a run that has any of these is never a pass.
    harness_failures: Sequence[str] = ()


class Ruling(Enum):
    """What a checker says."""

    HELD = "held"
    BROKEN = "broken"
    # It happened, and it is allowed in this mode.
    COUNTED = "counted"
    NOT_JUDGED = "not judged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One row of chaos.md B4, judged."""

    row: int
    # lost-write, duplicate, …
    name: str
    # The promise to people, in a sentence.
    promise: str
    ruling: Ruling
    # What was found, or why it was not judged.
    sentence: str = ""
    # How many times.
    count: int = 0
    # Events of the history that show it, the first few.
    evidence: tuple[int, ...] = ()


class Outcome(Enum):
    """What a whole run is."""

    PASSED = "passed"
    FAILED = "failed"
    # Too little was acknowledged, or too little could be judged, to say anything.
    INCONCLUSIVE = "inconclusive"
    # The harness broke: nothing is said about the system.
    HARNESS = "harness failure"
