"""How bad the weather is: every seed draws a mixture of its own.

Most bugs need few kinds of trouble at a time, and many of those. So a seed leaves out about half of
the faults, and makes the others as frequent as it likes (swarm testing). A family decides what a
seed is mostly about.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from ottla.controller.quorum.seam import Timing


@dataclass(frozen=True, slots=True)
class Climate:
    """One seed's mixture."""

    family: str
    members: int
    brokers: int
    timing: Timing
    tick_ms: int
    # Whether a member ticks after every message, as the real thread does.
    is_eager: bool
    latency_ms: int
    # Of each message: how likely it is lost, comes twice, is overtaken by later ones.
    drop: float
    repeat: float
    overtake: float
    # Small, so that a few commands fill several batches, and a snapshot several parts.
    batch_bytes: int
    part_bytes: int
    compaction_entries: int
    # Whether the members begin as voters. Else they are blank, and have to find one another.
    is_formed: bool
    quiet_ms: int
    storm_ms: int
    fault_ms: int
    # Names of `Faults`, and how often each of them comes.
    faults: tuple[tuple[str, int], ...]
    # How likely a voter is started anew right after its vote, a leader right after its word.
    hurt_votes: float
    hurt_acks: float
    # Between two wishes of clients.
    wish_ms: int
    # Whether what one member made of a command is believed of the others: quicker, and blind to
    # members that disagree.
    is_shared: bool


QUORUM_FAULTS = {
    "kill_member": 4,
    "kill_leader": 4,
    "start_members": 3,
    "cut_power": 4,
    "black_out": 1,
    "fail_disk": 2,
    "cut_way": 4,
    "cut_off": 3,
    "split": 2,
    "heal": 6,
    "break_streams": 4,
    "pause": 2,
}
BROKER_FAULTS = {
    "kill_broker": 6,
    "start_brokers": 4,
    "wipe_broker": 2,
    "fail_broker_disk": 2,
    "damage_copy": 3,
    "cut_broker": 3,
    "stop_broker": 2,
    "break_heartbeats": 2,
    "slow_down": 6,
    "kill_leader": 1,
    "cut_off": 1,
    "heal": 6,
}
FAMILIES = ("elections", "appends", "brokers", "everything", "wipes")
ANY = "cluster"


def scenario_of(family: str) -> str:
    """Return what `make sim SCENARIO=…` calls a family. The log has scenarios of its own."""
    return ANY if family == ANY else f"{ANY}-{family}"


def draw_climate(dice: Random, family: str) -> Climate:
    if family == ANY:
        family = dice.choice(FAMILIES)
    return {
        "elections": _elections,
        "appends": _appends,
        "brokers": _brokers,
        "everything": _everything,
        "wipes": _wipes,
    }[family](dice)


def _some(dice: Random, faults: dict[str, int]) -> tuple[tuple[str, int], ...]:
    """Leave out about half, and let some come much more often than others."""
    chosen = {name: weight * dice.choice([1, 1, 3]) for name, weight in faults.items()}
    kept = tuple((name, chosen[name]) for name in sorted(chosen) if dice.random() < 0.55)
    return kept or (("kill_leader", 1),)


def _timing(dice: Random, *, is_tight: bool) -> Timing:
    # With little patience to choose from, several stand at the same time.
    spread = dice.choice([2, 20]) if is_tight else dice.choice([20, 200, 300])
    # Few at once: a member may have a backlog while anything happens to it.
    applied_at_once = dice.choice([8, 200])
    return Timing(80, 300, 300 + spread, apply_entries=applied_at_once)


def _climate(dice: Random, family: str, **fixed: object) -> Climate:
    drawn: dict[str, object] = {
        "members": dice.choice([3, 3, 3, 5]),
        "brokers": 0,
        "timing": _timing(dice, is_tight=dice.random() < 0.3),
        "tick_ms": dice.choice([20, 40, 60]),
        "is_eager": dice.random() < 0.2,
        "latency_ms": dice.choice([4, 15, 60]),
        "drop": dice.choice([0, 0, 0.01, 0.1]),
        "repeat": dice.choice([0, 0.05, 0.3]),
        "overtake": dice.choice([0, 0, 0.05]),
        "batch_bytes": dice.choice([700, 2_000, 64 * 1024]),
        "part_bytes": dice.choice([200, 64 * 1024]),
        "compaction_entries": dice.choice([6, 25, 10_000]),
        "is_formed": True,
        "quiet_ms": 500,
        "storm_ms": 2_200,
        "fault_ms": dice.choice([60, 150, 400]),
        "faults": _some(dice, QUORUM_FAULTS),
        "hurt_votes": 0.0,
        "hurt_acks": dice.choice([0, 0.05]),
        "wish_ms": dice.choice([20, 60]),
        "is_shared": dice.random() < 0.85,
    }
    return Climate(family=family, **{**drawn, **fixed})  # type: ignore[arg-type]


def _elections(dice: Random) -> Climate:
    """Leaders are hated, voters die right after they have voted."""
    return _climate(
        dice,
        "elections",
        members=dice.choice([3, 5]),
        timing=_timing(dice, is_tight=True),
        tick_ms=dice.choice([20, 30]),
        latency_ms=dice.choice([15, 60, 120]),
        hurt_votes=dice.choice([0.1, 0.4]),
        faults=(("kill_leader", 5), ("cut_way", 1), ("heal", 2), ("start_members", 1)),
        fault_ms=dice.choice([150, 300]),
        storm_ms=2_200,
        wish_ms=200,
    )


def _appends(dice: Random) -> Climate:
    """Many commands, small batches, leaders that die right after they gave their word."""
    return _climate(
        dice,
        "appends",
        is_eager=dice.random() < 0.6,
        latency_ms=dice.choice([15, 40, 80]),
        batch_bytes=dice.choice([350, 700]),
        drop=dice.choice([0, 0.02, 0.1]),
        faults=(*_some(dice, QUORUM_FAULTS), ("leave_few", 4), ("break_streams", 4)),
        hurt_acks=dice.choice([0, 0.01]),
        wish_ms=dice.choice([8, 15, 30]),
        storm_ms=1_600,
    )


def _brokers(dice: Random) -> Climate:
    """The quorum is mostly well; brokers come and go."""
    return _climate(
        dice,
        "brokers",
        members=3,
        brokers=dice.choice([3, 4]),
        timing=Timing(heartbeat_ms=80, election_min_ms=300, election_max_ms=500),
        tick_ms=40,
        latency_ms=dice.choice([4, 15, 60]),
        overtake=dice.choice([0, 0.1, 0.3]),
        faults=(*_some(dice, BROKER_FAULTS), ("slow_down", 8), ("heal", 4)),
        # Between two faults something must be committed, or nothing can be lost.
        fault_ms=dice.choice([120, 250]),
        quiet_ms=800,
        storm_ms=3_000,
        wish_ms=dice.choice([50, 120]),
    )


def _everything(dice: Random) -> Climate:
    return _climate(
        dice,
        "everything",
        brokers=dice.choice([3, 4]),
        faults=_some(dice, {**BROKER_FAULTS, **QUORUM_FAULTS}),
        quiet_ms=700,
        wish_ms=dice.choice([50, 120]),
    )


def _wipes(dice: Random) -> Climate:
    """Members lose their disks, one at a time, and come back under their old ids."""
    faults = {name: QUORUM_FAULTS[name] for name in ("kill_leader", "cut_way", "cut_off", "split")}
    return _climate(
        dice,
        "wipes",
        is_formed=dice.random() < 0.7,
        # Sometimes the storm begins before there is a quorum.
        quiet_ms=dice.choice([50, 500]),
        faults=(
            *_some(dice, faults),
            ("wipe_member", 4),
            ("find_disk", dice.choice([0, 2])),
            ("heal", 6),
            ("start_members", 4),
        ),
        fault_ms=dice.choice([100, 200]),
    )
