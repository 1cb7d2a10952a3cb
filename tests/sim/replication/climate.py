"""How bad the weather is: every seed draws a mixture of its own, and a family what it is about.

A seed leaves out about half of the faults and makes the others as frequent as it likes (swarm
testing): most bugs need few kinds of trouble at a time, and many of those.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

ANY = "replication"


@dataclass(frozen=True, slots=True)
class Climate:
    """One seed's mixture."""

    family: str
    brokers: int
    partitions: int
    min_isr: int
    is_fsync: bool
    is_unclean: bool
    # Between processes, one way.
    latency_ms: int
    # Of messages to and from the controller and clients: lost, twice, and overtaken by later ones.
    drop: float
    repeat: float
    late: float
    # How long metadata is under way at most.
    metadata_ms: int
    # How long the controller takes to commit, at most.
    commit_ms: int
    sync_ms: int
    # Between two writes of one producer, and which acks the producers want: -1 is all.
    write_ms: int
    producers: tuple[int, ...]
    checkpoint_ms: int
    segment_bytes: int
    # So many bytes a follower gets at once: few, so that it needs several rounds.
    answer_bytes: int
    storm_ms: int
    fault_ms: int
    # Names of `Faults`, and how often each of them comes.
    faults: tuple[tuple[str, int], ...]
    # How likely somebody is hurt right after acks=all was acknowledged, or right after a leader has
    # proposed a new member.
    hurt_acks: float
    hurt_joins: float
    # How likely a proposal takes much longer than its sender waits.
    late_proposals: float
    # replica.lag.time.max.ms
    lag_ms: int
    # How likely an answer on a stream comes again, which no real stream does.
    repeat_frames: float


DEATHS = {
    "kill": 3,
    "kill_leader": 4,
    "kill_all": 1,
    "start_all": 3,
    "shut_down": 2,
}
POWER = {"lose_power": 3, "lose_power_soon": 4, "black_out": 1, "leader_loses_power": 3}
WAYS = {
    "cut_way": 4,
    "cut_pair": 3,
    "cut_off": 2,
    "cut_from_controller": 3,
    "break_lines": 2,
    "heal": 8,
    "pause": 3,
    "slow_metadata": 2,
    "slow_controller": 2,
}
DISKS = {"slow_disk": 3, "fail_disk": 2}
WISHES = {"prefer_leaders": 3, "change_min_isr": 2, "fence_falsely": 2, "delete_records": 1}
LOSSES = {"wipe": 3, "damage": 4}
EVERYTHING = {**DEATHS, **POWER, **WAYS, **DISKS, **WISHES}


def _some(dice: Random, faults: dict[str, int]) -> tuple[tuple[str, int], ...]:
    """Leave out about half, and let some come much more often than others."""
    chosen = {name: weight * dice.choice([1, 1, 3]) for name, weight in faults.items()}
    kept = tuple((name, chosen[name]) for name in sorted(chosen) if dice.random() < 0.55)
    return kept or (("kill_leader", 1),)


def _climate(dice: Random, family: str, **fixed: object) -> Climate:
    drawn: dict[str, object] = {
        "brokers": dice.choice([3, 3, 3, 4]),
        "partitions": dice.choice([1, 1, 2]),
        "min_isr": dice.choice([1, 2, 2, 2, 3]),
        "is_fsync": True,
        "is_unclean": False,
        "latency_ms": dice.choice([2, 6, 25]),
        "drop": dice.choice([0, 0, 0.03, 0.15]),
        "repeat": dice.choice([0, 0.05, 0.3]),
        "late": dice.choice([0, 0.05, 0.2]),
        "metadata_ms": dice.choice([4, 30, 150]),
        "commit_ms": dice.choice([2, 10, 60]),
        "sync_ms": dice.choice([1, 5, 20]),
        "write_ms": dice.choice([15, 40, 80]),
        "producers": dice.choice([(-1,), (-1, 1), (-1, -1, 0), (1, -1)]),
        "checkpoint_ms": dice.choice([150, 600, 10_000]),
        "segment_bytes": dice.choice([300, 1_000, 20_000]),
        "answer_bytes": dice.choice([100, 100_000]),
        "storm_ms": 900,
        "fault_ms": dice.choice([50, 110, 220]),
        "faults": _some(dice, EVERYTHING),
        "hurt_acks": dice.choice([0, 0.05]),
        "hurt_joins": dice.choice([0, 0.2]),
        "late_proposals": dice.choice([0, 0.1]),
        "lag_ms": dice.choice([100, 250]),
        "repeat_frames": 0,
    }
    return Climate(family=family, **{**drawn, **fixed})  # type: ignore[arg-type]


def _everything(dice: Random) -> Climate:
    return _climate(dice, "everything")


def _deaths(dice: Random) -> Climate:
    """Processes and machines die and come back, soon or all at once."""
    faults = (*_some(dice, {**DEATHS, **POWER, **DISKS}), ("kill_leader", 3), ("start_all", 2))
    return _climate(dice, "deaths", faults=faults, fault_ms=dice.choice([40, 90, 160]))


def _cuts(dice: Random) -> Climate:
    """Leaders, followers and the controller do not hear each other."""
    heals = dice.choice([1, 6])
    faults = (
        *_some(dice, {**WAYS, **WISHES, "heal": heals}),
        ("cut_off_leader", 2),
        ("heal", heals),
        ("kill_leader", 1),
    )
    # Long enough for a leader to be given up by the others, and to give up itself.
    return _climate(dice, "cuts", faults=faults, storm_ms=1_300)


def _proposals(dice: Random) -> Climate:
    """In-sync sets change all the time, and nobody knows what became of a proposal."""
    faults = (
        ("fence_falsely", 8),
        ("kill", dice.choice([0, 2])),
        ("kill_leader", dice.choice([0, 1])),
        ("slow_disk", dice.choice([0, 2])),
        ("heal", 4),
        ("start_all", 2),
    )
    return _climate(
        dice,
        "proposals",
        min_isr=dice.choice([1, 2]),
        latency_ms=dice.choice([2, 6]),
        drop=0,
        late=0,
        commit_ms=dice.choice([2, 10]),
        metadata_ms=dice.choice([4, 30]),
        write_ms=dice.choice([15, 30]),
        fault_ms=dice.choice([50, 100]),
        faults=faults,
        hurt_acks=0,
        hurt_joins=dice.choice([0.5, 0.9]),
        storm_ms=800,
        late_proposals=dice.choice([0.4, 0.8]),
        lag_ms=dice.choice([60, 100]),
    )


def _handovers(dice: Random) -> Climate:
    """Leaders go right after they have committed something, while others are catching up."""
    faults = (
        ("fence_falsely", 6),
        ("slow_disk", 6),
        ("kill_leader", 2),
        ("prefer_leaders", dice.choice([0, 3])),
        ("cut_pair", dice.choice([0, 2])),
        ("heal", 4),
        ("start_all", 2),
    )
    return _climate(
        dice,
        "handovers",
        min_isr=dice.choice([1, 2]),
        latency_ms=dice.choice([2, 6]),
        drop=0,
        metadata_ms=4,
        commit_ms=2,
        sync_ms=dice.choice([1, 5]),
        write_ms=dice.choice([5, 15]),
        answer_bytes=dice.choice([100, 200]),
        fault_ms=dice.choice([30, 60]),
        faults=faults,
        hurt_acks=dice.choice([0.1, 0.3]),
        lag_ms=dice.choice([30, 60]),
        storm_ms=700,
    )


def _frames(dice: Random) -> Climate:
    """Worse than any network: what a leader has said comes again, sooner or later."""
    faults = _some(dice, {**DEATHS, **WAYS, **WISHES, **DISKS})
    return _climate(dice, "frames", faults=faults, repeat_frames=dice.choice([0.05, 0.3]))


def _pagecache(dice: Random) -> Climate:
    """Nothing is synced for anybody: who loses power loses its claim (rule 8)."""
    faults = (
        *_some(dice, {**DEATHS, **POWER, **WAYS, **WISHES}),
        ("change_durability", dice.choice([0, 5])),
    )
    return _climate(dice, "pagecache", is_fsync=dice.random() < 0.3, faults=faults)


def _losses(dice: Random) -> Climate:
    """One disk at a time is lost or damaged."""
    losses = (*LOSSES.items(), ("wipe_with_words_under_way", dice.choice([0, 6, 12])))
    faults = (
        *_some(dice, {**DEATHS, **POWER, **WAYS}),
        *losses,
        ("start_all", 3),
        ("delete_records", 1),
    )
    return _climate(
        dice,
        "losses",
        min_isr=dice.choice([2, 2, 3]),
        write_ms=dice.choice([10, 25, 50]),
        checkpoint_ms=dice.choice([100, 300]),
        faults=faults,
        fault_ms=dice.choice([60, 120]),
    )


def _unclean(dice: Random) -> Climate:
    """The topic allows leaders that lack records: they may vanish, but nothing may part."""
    faults = _some(dice, {**DEATHS, **POWER, **WAYS, **WISHES, **LOSSES})
    return _climate(dice, "unclean", is_unclean=True, faults=faults)


MAKERS: dict[str, Callable[[Random], Climate]] = {
    "everything": _everything,
    "deaths": _deaths,
    "cuts": _cuts,
    "proposals": _proposals,
    "handovers": _handovers,
    "frames": _frames,
    "pagecache": _pagecache,
    "losses": _losses,
    "unclean": _unclean,
}
FAMILIES = tuple(MAKERS)


def scenario_of(family: str) -> str:
    """Return what `make sim SCENARIO=…` calls a family."""
    return ANY if family == ANY else f"{ANY}-{family}"


def draw_climate(dice: Random, family: str) -> Climate:
    return MAKERS[dice.choice(FAMILIES) if family == ANY else family](dice)
