"""Faults of the machine below a node that runs: its disk, and its clock.

Not here: files of nodes that are down (`files.py`), named places of the code (`places.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ottla.chaos.clock import now_s
from ottla.chaos.nemesis.kind import Kind
from ottla.chaos.nemesis.nodes import mend
from ottla.chaos.nemesis.plan import Step
from ottla.chaos.nemesis.scene import NOTE, Scene
from ottla.chaos.ports import Means


def suffer(scene: Scene, targets: Sequence[int], clauses: Sequence[str]) -> int:
    """Let nodes suffer something; return how often they met what they suffered before."""
    asked = (node for node in targets if node not in scene.paused)
    return sum(
        scene.backend.set_faults(node, clauses) for node in asked if scene.backend.is_running(node)
    )


def tell_met(scene: Scene, targets: Sequence[int], fault: str, times: int) -> None:
    """Tell how often a fault was met; whoever ended has met it too."""
    ended = sum(1 for node in targets if not scene.backend.is_running(node))
    scene.tell("met", NOTE, targets, what=fault, times=times + ended)


def _disk(
    scene: Scene, targets: Sequence[int], step: Step, clauses: Sequence[str]
) -> Iterator[None]:
    suffer(scene, targets, clauses)
    yield
    tell_met(scene, targets, step.fault, suffer(scene, targets, ()))
    mend(scene, targets)


def full(scene: Scene, targets: tuple[int, ...], step: Step) -> Iterator[None]:
    return _disk(scene, targets, step, [f"enospc_after={int(step.facts.get('room_bytes', 4000))}"])


def failing(scene: Scene, targets: tuple[int, ...], step: Step) -> Iterator[None]:
    operation = str(step.facts.get("operation", "sync"))
    pattern = step.facts.get("pattern", "*.log")
    return _disk(scene, targets, step, [f"eio={operation}:{pattern}:1"])


def slow(scene: Scene, targets: tuple[int, ...], step: Step) -> Iterator[None]:
    return _disk(scene, targets, step, [f"slow_sync_ms={int(step.facts.get('sync_ms', 500))}"])


def clock(scene: Scene, targets: tuple[int, ...], step: Step) -> Iterator[None]:
    """Jump ahead, back, and then to and fro."""
    jump_ms, met = int(step.facts.get("jump_ms", 60_000)), 0
    for shift_ms in (jump_ms, -jump_ms):
        met += suffer(scene, targets, [f"clock_ms={shift_ms}"])
        scene.last(step.for_s / 3)
    end_s = now_s() + step.for_s / 3
    while now_s() < end_s:
        met += suffer(scene, targets, [f"clock_ms={scene.dice.randint(-jump_ms, jump_ms)}"])
        scene.last(0.1)
    yield
    tell_met(scene, targets, step.fault, met + suffer(scene, targets, ()))


_DISK: Final = frozenset({Means.DISK})
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
)
