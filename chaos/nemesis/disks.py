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
from ottla.chaos.nemesis.scene import Scene
from ottla.chaos.ports import Means


def suffer(scene: Scene, targets: Sequence[int], clauses: Sequence[str]) -> None:
    for node in targets:
        if scene.backend.is_running(node) and node not in scene.paused:
            scene.backend.set_faults(node, clauses)


def _disk(scene: Scene, targets: Sequence[int], clauses: Sequence[str]) -> Iterator[None]:
    suffer(scene, targets, clauses)
    yield
    suffer(scene, targets, ())
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
        suffer(scene, targets, [f"clock_ms={shift_ms}"])
        scene.last(step.for_s / 3)
    end_s = now_s() + step.for_s / 3
    while now_s() < end_s:
        suffer(scene, targets, [f"clock_ms={scene.dice.randint(-jump_ms, jump_ms)}"])
        scene.last(0.1)
    yield
    suffer(scene, targets, ())


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
