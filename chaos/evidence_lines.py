"""Evidence as JSON and back: facts, faults, final reads, replicas.

Not here: events (`history.py`), files (`run_folder.py`).

L1  what is read back is what was written
L2  what is no such thing is refused with `BadHistoryError`
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, fields
from typing import Any, TypeVar

from ottla.chaos.evidence import (
    BatchPrint,
    Damage,
    FaultEvent,
    FinalRead,
    Record,
    ReplicaPrint,
    RunFacts,
)
from ottla.chaos.history import BadHistoryError, Place
from ottla.chaos.limits import limits_from

T = TypeVar("T")


def line_of(told: object) -> str:
    """Return an object as one line, without its end."""
    return json.dumps(told, separators=(",", ":"))


def read_line(line: str, read: Callable[[Any], T]) -> T:
    """Return what a line tells; raise `BadHistoryError` if it does not."""
    try:
        return read(json.loads(line))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadHistoryError(f"this is not as it was written: {line[:80]!r} ({error})") from error


# ── Facts ─────────────────────────────────────────────────────────────────────────────────────


def facts_to(facts: RunFacts) -> dict[str, Any]:
    return asdict(facts)


def facts_from(told: Any) -> RunFacts:
    known = {one.name for one in fields(RunFacts)}
    values = {name: value for name, value in told.items() if name in known}
    lists = (
        "nodes", "expected", "tolerated", "allowed_log", "tells", "transactional_groups",
    )  # fmt: skip
    values |= {name: tuple(values[name]) for name in lists if values.get(name) is not None}
    return RunFacts(**{**values, "limits": limits_from(values.get("limits", {}))})


# ── Faults ────────────────────────────────────────────────────────────────────────────────────


def fault_to(event: FaultEvent) -> dict[str, Any]:
    return {
        "t": event.t_ns,
        "fault": event.fault,
        "step": event.step,
        "targets": list(event.targets),
        "facts": dict(event.facts),
    }


def fault_from(told: Any) -> FaultEvent:
    return FaultEvent(
        t_ns=int(told["t"]),
        fault=str(told["fault"]),
        step=str(told["step"]),
        targets=tuple(told.get("targets", ())),
        facts=dict(told.get("facts", {})),
    )


# ── What was there at the end ─────────────────────────────────────────────────────────────────


def final_to(read: FinalRead) -> dict[str, Any]:
    return {
        "k": list(read.place),
        "source": read.source,
        "turn": read.turn,
        "start": read.start_offset,
        "end": read.high_watermark,
        "t": read.began_ns,
        # Whether it is a control record stands only where it is one.
        "recs": [list(one) if one.is_control else list(one[:3]) for one in read.records],
    }


def final_from(told: Any) -> FinalRead:
    topic, partition = told["k"]
    return FinalRead(
        place=Place(topic, partition),
        source=told["source"],
        turn=told["turn"],
        start_offset=told["start"],
        high_watermark=told["end"],
        began_ns=told["t"],
        records=tuple(Record(*one) for one in told["recs"]),
    )


def replica_to(replica: ReplicaPrint) -> dict[str, Any]:
    return {
        "k": list(replica.place),
        "node": replica.node,
        "turn": replica.turn,
        "start": replica.start_offset,
        "end": replica.high_watermark,
        "batches": [list(one) for one in replica.batches],
        "damage": None if replica.damage is None else list(replica.damage),
    }


def replica_from(told: Any) -> ReplicaPrint:
    topic, partition = told["k"]
    damage = told.get("damage")
    return ReplicaPrint(
        place=Place(topic, partition),
        node=told["node"],
        turn=told["turn"],
        start_offset=told["start"],
        high_watermark=told["end"],
        batches=tuple(BatchPrint(*one) for one in told["batches"]),
        damage=None if damage is None else Damage(*damage),
    )


def leader_from(told: Any) -> tuple[int, Place, int, int]:
    moment_ns, (topic, partition), epoch, node = told
    return int(moment_ns), Place(topic, partition), int(epoch), int(node)
