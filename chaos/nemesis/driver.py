"""Breaks things as the steps of a scenario say, one after the other or several at a time.

Not here: how long a run is and what comes before and after (`conductor.py`).

D1  what was injected is healed, also when something goes wrong in between
D2  the next step begins when all copies are in sync again, or when that was waited for in vain
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import permutations
from typing import Final

from ottla.chaos.clock import now_s
from ottla.chaos.nemesis.plan import Round, Step, Target
from ottla.chaos.nemesis.scene import HEAL, INJECT, NOTE, Scene
from ottla.chaos.nemesis.table import KINDS
from ottla.chaos.ports import WHOLE, HarnessError, Means

# How long a cluster may take to be whole again before the next step begins all the same.
WHOLE_DEADLINE_S: Final = 60.0


class Driver:
    """Runs the steps of one scenario."""

    def __init__(self, scene: Scene) -> None:
        self._scene: Final = scene

    def run(self, steps: Sequence[Step]) -> None:
        for step in steps:
            for _ in range(step.times):
                if step.target is Target.EACH:
                    for node in self._scene.choose(step.target):
                        self._do(step, (node,))
                else:
                    self._do(step, self._scene.choose(step.target))

    def run_rounds(self, rounds: Iterable[Round], end_s: float) -> None:
        """Do rounds of several faults each, as many as begin before a moment."""
        for one in rounds:
            if now_s() >= end_s:
                return
            # Whom all of them hit is found out first: when all nodes hang nobody can be asked.
            chosen = [
                (step, targets) for step in one.steps if (targets := self._chosen(step)) is not None
            ]
            with ExitStack() as stack:
                for step, targets in chosen:
                    stack.enter_context(self._broken(step, targets))
                self._scene.last(one.for_s)
            self._raise()
            self._scene.wait_whole(WHOLE_DEADLINE_S)

    def _raise(self) -> None:
        """Start whoever is down, and tell that it had ended: an operator would."""
        for node in self._scene.everybody:
            if not self._scene.backend.is_running(node):
                code = self._scene.backend.exit_code(node)
                self._scene.tell("ended", NOTE, (node,), exit_code=code)
                self._scene.backend.begin(node)

    def _chosen(self, step: Step) -> tuple[int, ...] | None:
        """Return whom a fault of a mix hits; None: nobody is what it should hit, which is told."""
        try:
            return self._scene.choose(step.target)
        except HarnessError as error:
            self._scene.tell("left out", NOTE, what=step.fault, why=str(error))
            return None

    def _do(self, step: Step, targets: tuple[int, ...]) -> None:
        if KINDS[step.fault].needs_whole and not self._scene.is_whole():
            # The cluster has not mended itself, which is told; to take more away proves nothing.
            self._scene.tell("left out", NOTE, targets, what=step.fault)
            return
        if KINDS[step.fault].is_script:
            # Its parts are told one by one.
            for _ in KINDS[step.fault].act(self._scene, targets, step):
                self._scene.last(step.for_s)
        else:
            with ExitStack() as stack:
                stack.enter_context(self._broken(step, targets))
                for more in step.also:
                    chosen = self._scene.choose(more.target)
                    stack.enter_context(self._broken(more, chosen))
                self._scene.last(step.for_s)
        self._scene.wait_whole(WHOLE_DEADLINE_S)
        self._scene.last(step.calm_s)

    @contextmanager
    def _broken(self, step: Step, targets: tuple[int, ...]) -> Iterator[None]:
        doing = KINDS[step.fault].act(self._scene, targets, step)
        self._scene.tell(step.fault, INJECT, targets, role=step.target.value, **step.facts)
        try:
            next(doing)
            yield
        finally:
            next(doing, None)
            self._scene.tell(step.fault, HEAL, targets)

    def heal_all(self) -> None:
        """Leave nothing broken, whatever happened before."""
        scene, backend = self._scene, self._scene.backend
        self._heal_ways()
        for node in tuple(scene.paused):
            backend.resume(node)
            scene.paused.discard(node)
        self._raise()

    def _heal_ways(self) -> None:
        backend, nodes = self._scene.backend, self._scene.everybody
        if Means.UNPLUG in backend.means:
            for node in nodes:
                backend.plug_in(node)
        if Means.LINKS in backend.means:
            for source, target in permutations(nodes, 2):
                backend.set_link(source, target, WHOLE)
        if Means.CLIENT_LINKS in backend.means:
            for node in backend.nodes:
                backend.set_client_link(node, WHOLE, WHOLE)
