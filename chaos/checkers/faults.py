"""When something was broken, from the events of a nemesis.

Not here: what is broken, and how (`nemesis/`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ottla.chaos.evidence import FaultEvent

NEVER_NS: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class Span:
    """One fault, from when it was injected until it was healed."""

    fault: str
    targets: tuple[int, ...]
    begin_ns: int
    # `NEVER_NS` if nobody healed it.
    end_ns: int


def spans_of(events: Sequence[FaultEvent]) -> list[Span]:
    """Pair what was injected with what healed it; a heal without targets heals all of its name."""
    spans = list[Span]()
    still = list[FaultEvent]()
    for event in sorted(events, key=lambda one: one.t_ns):
        if event.step == "inject":
            still.append(event)
        elif event.step == "heal":
            healed = [one for one in still if _heals(event, one)]
            still = [one for one in still if one not in healed]
            spans += [Span(one.fault, one.targets, one.t_ns, event.t_ns) for one in healed]
    spans += [Span(one.fault, one.targets, one.t_ns, NEVER_NS) for one in still]
    return sorted(spans, key=lambda one: one.begin_ns)


def _heals(heal: FaultEvent, one: FaultEvent) -> bool:
    return heal.fault == one.fault and (not heal.targets or heal.targets == one.targets)


def troubled(spans: Sequence[Span]) -> list[tuple[int, int]]:
    """Return the times during which anything was broken, without overlaps, in order."""
    found = list[tuple[int, int]]()
    for span in sorted(spans, key=lambda one: one.begin_ns):
        if found and span.begin_ns <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], span.end_ns))
        else:
            found.append((span.begin_ns, span.end_ns))
    return found
