"""May a leader serve now, or may somebody else lead by this time (rule 13)?

A leader that is cut off does not hear that it was replaced. It serves only while it knows that it
was not, or that whoever would replace it has to hear of it first:

  (a) the active controller answered a heartbeat that was sent within the session, so no session of
      this broker has run out since; and what had happened before, this broker has followed
      (`broker_life.py`)
  (b) everybody who could be elected has fetched in this epoch within the session, and who fetches
      from this leader follows no other
  (c) nobody else could be elected

By (b) and (c) the data path outlives the loss of all controllers; by the session, what a cut-off
leader acknowledges alone (acks ≤ 1) is bounded.

Not here: what is refused then and how, and who fetched when (`ottla.replication`, `ottla.node`).

R1  nobody else to be elected is not the same as everybody else has fetched: (b) needs somebody
R2  what happened exactly one session ago does not count: the other side may have given up by now
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from ottla.controller.image import PartitionInfo
from ottla.proto.ids import BrokerId


class Ground(Enum):
    """Why a leader may serve: the clause of rule 13."""

    HEARD = "a"
    FETCHED = "b"
    ALONE = "c"


@dataclass(frozen=True, slots=True)
class Standing:
    """Whether a leader may serve, and why."""

    # None: it may not.
    ground: Ground | None
    sentence: str

    @property
    def may_serve(self) -> bool:
        return self.ground is not None


_HEARD: Final = Standing(
    Ground.HEARD, "The active controller has answered this broker within its session."
)
_FETCHED: Final = Standing(
    Ground.FETCHED, "Every other replica that could be elected has fetched within the session."
)
_ALONE: Final = Standing(Ground.ALONE, "No other replica could be elected.")


def electable_others(partition: PartitionInfo, broker_id: BrokerId) -> tuple[BrokerId, ...]:
    """Return who else can be elected without losing records: the rest of ISR ∪ ELR."""
    return tuple(one for one in (*partition.isr, *partition.elr) if one != broker_id)


def standing(
    *,
    is_heard: bool,
    fetched_ms: Mapping[BrokerId, int | None],
    is_unclean_allowed: bool,
    session_ms: int,
    now_ms: int,
) -> Standing:
    """Say whether a leader may serve at this moment.

    `fetched_ms` has everybody of `electable_others`, with the time of the last fetch in this leader
    epoch, or None. `is_unclean_allowed` is whether somebody outside of it could be elected: never,
    where there is only one replica.
    """
    if is_heard:
        return _HEARD
    if not fetched_ms:
        if not is_unclean_allowed:
            return _ALONE
        return Standing(
            None,
            "The active controller has not answered this broker for a session, and by now another "
            "replica may lead, even one that lacks records: the topic allows it.",
        )
    silent = [key for key, at in fetched_ms.items() if at is None or now_ms >= at + session_ms]
    if not silent:
        return _FETCHED
    names = ", ".join(map(str, sorted(silent)))
    return Standing(
        None,
        "The active controller has not answered this broker for a session, and by now broker "
        f"{names} may lead: it has not fetched from here for as long.",
    )
