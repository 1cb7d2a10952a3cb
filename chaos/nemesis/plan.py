"""What to break, for how long, and whom: steps of a scenario, as data.

Not here: what the faults do (the modules beside this one), the table (`scenarios.toml`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Target(Enum):
    """Whom a fault hits, found out at the moment when it does."""

    LEADER = "leader"
    FOLLOWER = "follower"
    # The leader of a partition, and one of its followers.
    PAIR = "leader and follower"
    CONTROLLER = "controller"
    OTHER_CONTROLLER = "other controller"
    CONTROLLERS = "controllers"
    # Who coordinates a group of the workload.
    COORDINATOR = "coordinator"
    # Who coordinates a transactional id of the workload.
    TRANSACTIONS = "transaction coordinator"
    ANY = "any"
    TWO = "two"
    ALL = "all"
    # Each in turn, one at a time.
    EACH = "each"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One fault: whom it hits, how long it lasts, and how often it is done."""

    fault: str
    target: Target = Target.ANY
    # How long it lasts. Faults that are over at once have 0.
    for_s: float = 5.0
    # How long to wait after the cluster is whole again.
    calm_s: float = 1.0
    times: int = 1
    # What else the fault has to know.
    facts: Mapping[str, Any] = field(default_factory=dict)
    # Faults that are there at the same time; how long they last is said above.
    also: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class Round:
    """Faults that are there at the same time; none of them is a round of calm."""

    steps: tuple[Step, ...]
    for_s: float
