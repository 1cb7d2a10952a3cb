"""Decisions that outlive whoever made them: a coordinator dies before all markers are written.

Not here: coordinators that just die (`nodes.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ottla.chaos.nemesis.kind import Kind
from ottla.chaos.nemesis.nodes import go_on, hang
from ottla.chaos.nemesis.plan import Step
from ottla.chaos.nemesis.scene import HEAL, INJECT, Scene
from ottla.chaos.ports import HarnessError, Means


def orphaned(scene: Scene, targets: tuple[int, ...], step: Step) -> Iterator[None]:
    """C46O: the next coordinator finds transactions that are decided, and not yet marked.

    1. A leader hangs, and nobody has noticed yet: markers for its partitions wait.
    2. Transactions are decided, and their clients are told so.
    3. Their coordinator dies. If the next one does not send the markers, nobody does.
    """
    coordinator = targets[0]
    others = sorted({one.leader for one in scene.led().values()} - {coordinator})
    if not others:
        raise HarnessError("nobody else leads a partition")
    leader = scene.dice.choice(others)
    scene.tell("pause", INJECT, [leader])
    hang(scene, [leader])
    scene.last(float(step.facts.get("wait_s", 1.0)))
    scene.tell("kill", INJECT, [coordinator])
    scene.backend.kill([coordinator])
    yield
    go_on(scene, [leader])
    scene.tell("pause", HEAL, [leader])
    scene.begin([coordinator])
    scene.tell("kill", HEAL, [coordinator])


KINDS: Final = (
    Kind(
        name="orphaned-decisions",
        sentence="a leader hangs, and a coordinator of transactions dies while markers wait for it",
        means=frozenset({Means.KILL, Means.PAUSE}),
        act=orphaned,
        facts=(("wait_s", 1.0),),
        is_script=True,
    ),
)
