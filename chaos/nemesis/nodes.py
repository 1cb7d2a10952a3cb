"""Faults of whole nodes: killed, stopped, hanging, without power, doubled, short of memory.

Not here: their files (`files.py`), their disks (`disks.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ottla.chaos.clock import NeverHappenedError, wait_until
from ottla.chaos.nemesis.kind import Kind
from ottla.chaos.nemesis.plan import Step
from ottla.chaos.nemesis.scene import NOTE, Scene
from ottla.chaos.ports import Means

# A node that is not ready by then, though nothing is wrong any more, is started again, as whoever
# runs it would do.
_PATIENCE_S: Final = 15.0
_EXIT_WELL: Final = 0


def kill(scene: Scene, targets: tuple[int, ...], step: Step) -> Iterator[None]:
    scene.backend.kill(targets)
    yield
    scene.begin(targets)


def stop(scene: Scene, targets: tuple[int, ...], step: Step) -> Iterator[None]:
    codes = scene.backend.stop(targets)
    bad = {node: code for node, code in codes.items() if code != _EXIT_WELL}
    if bad:
        scene.tell("exit", NOTE, tuple(bad), codes=list(bad.values()))
    yield
    scene.begin(targets)


def power(scene: Scene, targets: tuple[int, ...], step: Step) -> Iterator[None]:
    scene.backend.cut_power(targets)
    yield
    scene.begin(targets)


def pause(scene: Scene, targets: tuple[int, ...], step: Step) -> Iterator[None]:
    hang(scene, targets)
    yield
    for node in targets:
        go_on(scene, (node,))
        scene.last(float(step.facts.get("apart_s", 0.0)))


def hang(scene: Scene, targets: Sequence[int]) -> None:
    for node in targets:
        if scene.backend.is_running(node):
            scene.paused.add(node)
            scene.backend.pause(node)


def go_on(scene: Scene, targets: Sequence[int]) -> None:
    for node in targets:
        scene.backend.resume(node)
        scene.paused.discard(node)


def roll(scene: Scene, targets: tuple[int, ...], step: Step) -> Iterator[None]:
    """Restart one after the other, each when all copies are in sync again."""
    for node in targets:
        if step.facts.get("clean", True):
            scene.backend.stop([node])
        else:
            scene.backend.kill([node])
        scene.begin([node])
        scene.wait_ready([node])
        scene.wait_whole(_PATIENCE_S * 2)
    yield


def wipe(scene: Scene, targets: tuple[int, ...], step: Step) -> Iterator[None]:
    scene.backend.kill(targets)
    for node in targets:
        scene.backend.wipe(node)
    yield
    scene.begin(targets)


def twin(scene: Scene, targets: tuple[int, ...], step: Step) -> Iterator[None]:
    for node in targets:
        for is_same in (True, False):
            code = scene.backend.start_twin(node, on_same_files=is_same)
            scene.tell("twin", NOTE, (node,), exit_code=code, on_same_files=is_same)
    yield


def memory(scene: Scene, targets: tuple[int, ...], step: Step) -> Iterator[None]:
    for node in targets:
        scene.backend.limit_memory(node, int(step.facts.get("more_bytes", 96 << 20)))
    yield
    for node in targets:
        if scene.backend.is_running(node):
            scene.backend.limit_memory(node, None)
    mend(scene, targets)


def mend(scene: Scene, targets: Sequence[int], *, may_wipe: bool = False) -> None:
    """Have nodes serve again: start those that ended, and again those that do not come back."""
    for node in targets:
        if not scene.backend.is_running(node):
            scene.tell("ended", NOTE, (node,), exit_code=scene.backend.exit_code(node))
            scene.backend.begin(node)
    for node in targets:
        if _comes_back(scene, node):
            continue
        is_wiped = may_wipe and not is_last(scene, node)
        scene.tell("restarted", NOTE, (node,), is_wiped=is_wiped)
        scene.backend.kill([node])
        if is_wiped:
            scene.backend.wipe(node)
        scene.backend.begin(node)


def is_last(scene: Scene, node: int) -> bool:
    """Return whether it alone has something: then its disk is not a fault to be mended."""
    return any(set(seen.isr) <= {node} for seen in scene.view().values())


def _comes_back(scene: Scene, node: int) -> bool:
    def holds() -> bool:
        return scene.backend.is_ready(node) or not scene.backend.is_running(node)

    try:
        wait_until(holds, _PATIENCE_S, f"node {node} is ready", poll_s=0.1)
    except NeverHappenedError:
        return False
    return scene.backend.is_running(node)


KINDS: Final = (
    Kind("kill", "SIGKILL; started again", frozenset({Means.KILL}), kill),
    Kind("stop", "SIGTERM, a proper end; started again", frozenset({Means.STOP}), stop),
    Kind("power", "what was not synced is lost; started again", frozenset({Means.POWER}), power),
    Kind("pause", "SIGSTOP, then SIGCONT", frozenset({Means.PAUSE}), pause, (("apart_s", 0.0),)),
    Kind(
        "roll",
        "restarted one after the other, each when all is in sync",
        frozenset({Means.KILL, Means.STOP}),
        roll,
        (("clean", True),),
    ),
    Kind(
        "wipe",
        "killed, its disk emptied, started again",
        frozenset({Means.WIPE}),
        wipe,
        needs_whole=True,
    ),
    Kind("twin", "the same node is started once more beside it", frozenset({Means.TWIN}), twin),
    Kind(
        "memory",
        "it may have only so much more memory",
        frozenset({Means.MEMORY}),
        memory,
        (("more_bytes", 96 << 20),),
    ),
)
