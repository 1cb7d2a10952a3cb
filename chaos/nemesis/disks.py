"""Faults of the machine below a node that runs: its disk, its clock, and named places in its code.

Not here: files of nodes that are down (`files.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ottla.chaos.clock import NeverHappenedError, now_s, wait_until
from ottla.chaos.nemesis.kind import Kind
from ottla.chaos.nemesis.nodes import mend
from ottla.chaos.nemesis.plan import Step
from ottla.chaos.nemesis.scene import NOTE, Scene
from ottla.chaos.ports import Means

# Places that a broker passes while it works (docs/generated/FAILPOINTS.md).
PLACES: Final = (
    "log.append.before", "log.append.after", "log.sync.before", "log.sync.after",
    "log.roll.before", "log.roll.after", "log.epoch.before", "log.epoch.after",
    "log.truncate.begin", "log.truncate.state", "log.truncate.files", "log.truncate.end",
    "log.checkpoint.before", "log.checkpoint.after", "log.snapshot.before", "log.snapshot.after",
    "log.delete.before", "log.delete.after", "state.commit.before", "state.commit.after",
    "leader.lead.before", "leader.lead.after", "leader.feed", "replica.commit",
    "isr.propose.before", "isr.propose.after", "isr.commit.before", "isr.commit.after",
    "follower.append.before", "follower.append.after", "follower.claim",
)  # fmt: skip
# Places of a start, which are armed before it.
START_PLACES: Final = ("log.recovery.before", "log.recovery.truncate", "log.recovery.after")


def _suffer(scene: Scene, targets: Sequence[int], clauses: Sequence[str]) -> None:
    for node in targets:
        if scene.backend.is_running(node) and node not in scene.paused:
            scene.backend.set_faults(node, clauses)


def _disk(scene: Scene, targets: Sequence[int], clauses: Sequence[str]) -> Iterator[None]:
    _suffer(scene, targets, clauses)
    yield
    _suffer(scene, targets, ())
    mend(scene, targets)


def full(scene: Scene, targets: tuple[int, ...], step: Step) -> Iterator[None]:
    return _disk(scene, targets, [f"enospc_after={int(step.facts.get('room_bytes', 4000))}"])


def failing(scene: Scene, targets: tuple[int, ...], step: Step) -> Iterator[None]:
    operation = str(step.facts.get("operation", "sync"))
    return _disk(scene, targets, [f"eio={operation}:{step.facts.get('pattern', '*.log')}:1"])


def slow(scene: Scene, targets: tuple[int, ...], step: Step) -> Iterator[None]:
    return _disk(scene, targets, [f"slow_sync_ms={int(step.facts.get('sync_ms', 500))}"])


def clock(scene: Scene, targets: tuple[int, ...], step: Step) -> Iterator[None]:
    """Jump ahead, back, and then to and fro."""
    jump_ms = int(step.facts.get("jump_ms", 60_000))
    for shift_ms in (jump_ms, -jump_ms):
        _suffer(scene, targets, [f"clock_ms={shift_ms}"])
        scene.last(step.for_s / 3)
    end_s = now_s() + step.for_s / 3
    while now_s() < end_s:
        _suffer(scene, targets, [f"clock_ms={scene.dice.randint(-jump_ms, jump_ms)}"])
        scene.last(0.1)
    yield
    _suffer(scene, targets, ())


def failpoint(scene: Scene, targets: tuple[int, ...], step: Step) -> Iterator[None]:
    """Kill a node when it comes to a named place; if it never does, nothing has happened."""
    place = str(step.facts.get("place", "any"))
    if place == "any":
        place = scene.dice.choice(PLACES)
    nth = scene.dice.randint(1, int(step.facts.get("nth_max", 5)))
    action = str(step.facts.get("action", "kill"))
    yield from _at_place(scene, targets, place, f"{action}@{nth}", step.for_s)


def each_failpoint(scene: Scene, targets: tuple[int, ...], step: Step) -> Iterator[None]:
    """Come to every place in turn, on a node that is chosen anew each time."""
    for place in PLACES:
        target = scene.choose(step.target)
        for _ in _at_place(scene, target, place, "kill@1", step.for_s):
            pass
        scene.wait_whole(60.0)
    yield


def _at_place(
    scene: Scene, targets: Sequence[int], place: str, action: str, for_s: float
) -> Iterator[None]:
    if place in START_PLACES:
        scene.backend.kill(targets)
        for node in targets:
            scene.backend.begin(node, {"OTTLA_FAILPOINTS": f"{place}={action}"})
    else:
        _suffer(scene, targets, [f"failpoint={place}:{action}"])
    is_reached = True
    try:
        wait_until(
            lambda: not all(map(scene.backend.is_running, targets)), for_s, f"{place} is reached"
        )
    except NeverHappenedError:
        is_reached = False
        _suffer(scene, targets, ())
    scene.tell("failpoint", NOTE, targets, place=place, action=action, is_reached=is_reached)
    yield
    scene.begin(targets)


_DISK: Final = frozenset({Means.DISK})
_PLACES: Final = frozenset({Means.FAILPOINTS})
KINDS: Final = (
    Kind(
        "disk-full",
        "the disk takes no more bytes; then it does",
        _DISK,
        full,
        (("room_bytes", 4000),),
    ),
    Kind(
        "disk-error",
        "an operation on files fails with EIO",
        _DISK,
        failing,
        (("operation", "sync"), ("pattern", "*.log")),
    ),
    Kind("disk-slow", "every sync takes longer", _DISK, slow, (("sync_ms", 500),)),
    Kind(
        "clock",
        "the wall clock jumps ahead, back, and to and fro",
        frozenset({Means.CLOCK}),
        clock,
        (("jump_ms", 60_000),),
    ),
    Kind(
        "failpoint",
        "killed when it comes to a named place of its code",
        _PLACES,
        failpoint,
        (("place", "any"), ("nth_max", 5), ("action", "kill")),
    ),
    Kind("each-failpoint", "the same at every place in turn", _PLACES, each_failpoint),
)
