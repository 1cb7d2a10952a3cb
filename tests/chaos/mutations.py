"""Rules that are undone on purpose in a real node, and the scenario that must notice each of them.

The simulator undoes the same rules (`tests/sim/…/breaks.py`); here real processes, real disks and a
judge that only sees what clients saw have to find them.

Not here: running them (`broken_node.py`, `test_mutations.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from ottla.node.kafka import leading
from tests.scripts.replication.breaks import (
    CountsUnsynced,
    CutsAtHighWatermark,
    NoEpochStart,
    NoMinimum,
    ShrinksEarly,
)
from tests.sim.cluster.breaks import elect_outside_isr_and_elr
from tests.sim.replication.breaks import (
    HighWatermarkInclusive,
    acknowledge_before_replication,
    append_below_the_minimum,
    follow_with,
    forget_sequences,
    keep_claims_of_other_lives,
    lead_with,
    never_sync,
    obey_whom_one_should_not,
)


@dataclass(frozen=True, slots=True)
class Mutation:
    """One rule undone: its name, the scenario that must go red, and what is undone."""

    name: str
    scenario: str
    undo: Callable[[Any], None]


def serve_when_cut_off(patch: Any) -> None:
    """Rule 13: a leader that hears from nobody goes on."""
    patch.setattr(leading, "_require_unreplaced", lambda broker, replica: None)


def ignore_the_minimum(patch: Any) -> None:
    """Rules 25 and 29: what is acknowledged to all is on however few there are.

    Either rule alone is enough that nothing is acknowledged.
    """
    append_below_the_minimum(patch)
    lead_with(NoMinimum)(patch)


MUTATIONS: Final = (
    Mutation("ack-before-replication", "C02", acknowledge_before_replication),
    Mutation("isr-shrunk-locally", "C05", lead_with(ShrinksEarly)),
    Mutation("truncate-to-high-watermark", "C02B", follow_with(CutsAtHighWatermark)),
    Mutation("no-epoch-start", "C27", lead_with(NoEpochStart)),
    Mutation("high-watermark-inclusive", "C02", lead_with(HighWatermarkInclusive)),
    Mutation("no-fsync", "C12", never_sync),
    Mutation("follower-counts-unsynced", "C12", follow_with(CountsUnsynced)),
    Mutation("no-dedup", "C23", forget_sequences),
    Mutation("leader-outside-isr", "C16B", elect_outside_isr_and_elr),
    Mutation("minimum-ignored", "C07B", ignore_the_minimum),
    Mutation("serve-when-cut-off", "C05", serve_when_cut_off),
    Mutation("claims-of-other-lives", "C17", keep_claims_of_other_lives),
    Mutation("empty-disk-leads", "C17", obey_whom_one_should_not),
)
BY_NAME: Final = {one.name: one for one in MUTATIONS}
