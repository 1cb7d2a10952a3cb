"""Whether that was done which a scenario is there for: a fault that never came proves nothing.

A nemesis notes what it could not do. In a random mix that is part of the dice; everywhere else a
step that did not take place leaves the run inconclusive.

Not here: verdicts on the system.

W1  a named place that was not reached counts, unless the scenario says how many of them it takes
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.chaos.evidence import Evidence, FaultEvent

# Fewer faults than this are no random mix.
MIX_FAULTS_MIN: Final = 3


class Places(NamedTuple):
    """How many named places of the code were reached, of those that a node was to die at."""

    reached: int
    asked: int


def places_of(evidence: Evidence) -> Places:
    told = [bool(one.facts.get("is_reached")) for one in _notes(evidence, "failpoint")]
    return Places(sum(told), len(told))


def left_undone(evidence: Evidence) -> list[str]:
    """Return in sentences which steps did not take place; of a random mix, if hardly any did."""
    if evidence.facts.is_mix:
        count = sum(1 for one in evidence.faults if one.step == "inject")
        return [] if count >= MIX_FAULTS_MIN else [f"{count} faults of a random mix took place"]
    told = (_undone(one) for one in evidence.faults if one.step == "note")
    return [*_not_reached(evidence), *(one for one in told if one is not None)]


def _not_reached(evidence: Evidence) -> Iterator[str]:
    least, places = evidence.facts.reached_min, places_of(evidence)
    if least is None:
        for one in _notes(evidence, "failpoint"):
            if not one.facts.get("is_reached"):
                yield f"{_whom(one)} never came to {one.facts.get('place')}"
    elif places.reached < least:
        yield f"{places.reached} of {places.asked} named places were reached, not {least}"


def _undone(note: FaultEvent) -> str | None:
    """Return what a note says was not done; None: it says nothing of that."""
    facts = note.facts
    match note.fault:
        case "never" if facts.get("is_needed", True):
            return f"it was waited for in vain that {facts.get('what')}"
        case "nothing to damage":
            return f"{_whom(note)} had no file of the sort {facts.get('sort')} to damage"
        case "met" if not facts.get("times"):
            return f"{_whom(note)} never met {facts.get('what')}"
        case "left out":
            return f"{facts.get('what')} was left out"
        case "option" if not facts.get("is_set"):
            return f"{facts.get('name')} could not be set to {facts.get('value')}"
        case _:
            return None


def _notes(evidence: Evidence, name: str) -> Iterator[FaultEvent]:
    return (one for one in evidence.faults if one.step == "note" and one.fault == name)


def _whom(note: FaultEvent) -> str:
    return f"nodes {', '.join(map(str, note.targets))}" if note.targets else "nobody"
