"""The cluster as whoever breaks it sees it, and what is told about each fault.

Not here: faults.

S1  whom a fault hits is found out when it hits, from what nodes say at that moment
S2  everything is told before it is done, and again when it has been mended
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from random import Random
from typing import Any, Final

from ottla.chaos.clock import NeverHappenedError, let_pass, now_ns, wait_until
from ottla.chaos.evidence import FaultEvent
from ottla.chaos.history import Place
from ottla.chaos.nemesis.plan import Target
from ottla.chaos.nemesis.view import (
    GROUP,
    TRANSACTIONAL_ID,
    Seen,
    View,
    coordinator_of,
    look,
    newest,
    term_of,
)
from ottla.chaos.ports import Backend, HarnessError

INJECT: Final = "inject"
HEAL: Final = "heal"
NOTE: Final = "note"
_COORDINATED: Final = {Target.COORDINATOR: GROUP, Target.TRANSACTIONS: TRANSACTIONAL_ID}
_CHOICE_DEADLINE_S: Final = 20.0
_READY_DEADLINE_S: Final = 60.0

Tell = Callable[[FaultEvent], None]


class Scene:
    """What is there to be broken."""

    def __init__(
        self,
        backend: Backend,
        topics: Collection[str],
        dice: Random,
        tell: Tell,
        groups: Collection[str] = (),
        transactional_ids: Collection[str] = (),
    ) -> None:
        self.backend: Final = backend
        self.dice: Final = dice
        self.topics = list(topics)
        self._keys: Final = {GROUP: sorted(groups), TRANSACTIONAL_ID: sorted(transactional_ids)}
        self._tell: Final = tell
        # Nodes that hang by intention: they are not asked.
        self.paused: Final = set[int]()

    # -- telling ---------------------------------------------------------------------------------

    def tell(self, fault: str, step: str, targets: Sequence[int] = (), **facts: Any) -> None:
        event = FaultEvent(
            t_ns=now_ns(), fault=fault, step=step, targets=tuple(targets), facts=facts
        )
        self._tell(event)

    def tell_term(self) -> None:
        """Tell the term of the quorum, the highest that anybody knows; nobody: nothing is told."""
        terms = (term_of(self.backend.inside(node)) for node in self._asked())
        known = [one for one in terms if one is not None]
        if known:
            self.tell("term", NOTE, term=max(known))

    # -- looking ---------------------------------------------------------------------------------

    @property
    def everybody(self) -> tuple[int, ...]:
        return tuple(sorted({*self.backend.nodes, *self.backend.controllers}))

    @property
    def running(self) -> list[int]:
        return [node for node in self.backend.nodes if self.backend.is_running(node)]

    def _asked(self) -> list[int]:
        return [node for node in self.running if node not in self.paused]

    def views(self) -> dict[int, View]:
        return look({node: self.backend.inside(node) for node in self._asked()}, self.topics)

    def view(self) -> View:
        return newest(self.views())

    def led(self) -> dict[Place, Seen]:
        """Wait until something is led by somebody who runs; return what is."""
        found = dict[Place, Seen]()

        def holds() -> bool:
            running = self.running
            found.update({k: v for k, v in self.view().items() if v.leader in running})
            return bool(found)

        self._wait(holds, "a partition has a leader")
        return found

    def controller(self) -> int:
        found = list[int]()

        def holds() -> bool:
            found[:] = [one for one in (self.backend.active_controller(),) if one is not None]
            return bool(found)

        self._wait(holds, "a controller is active")
        return found[0]

    def coordinator(self, kind: int) -> int:
        """Return who coordinates a group or an id, drawn by lot, by what nodes say now."""
        if not self._keys[kind]:
            raise HarnessError("nobody could be chosen: the workload has nothing to coordinate")
        key, found = self.dice.choice(self._keys[kind]), list[int]()

        def holds() -> bool:
            asked = self._asked()
            told = (coordinator_of(self.backend.inside(node), key, kind) for node in asked)
            found[:] = [one for one in told if one in asked]
            return bool(found)

        self._wait(holds, f"{key} has a coordinator")
        return found[0]

    def _wait(self, holds: Callable[[], bool], what: str) -> None:
        try:
            wait_until(holds, _CHOICE_DEADLINE_S, what)
        except NeverHappenedError as error:
            raise HarnessError(f"nobody could be chosen: {error}") from error

    def choose(self, target: Target) -> tuple[int, ...]:
        """Return whom a fault hits now."""
        match target:
            case Target.LEADER:
                return (self.dice.choice(sorted(self.led().items()))[1].leader,)
            case Target.FOLLOWER:
                return self._pair()[1:]
            case Target.PAIR | Target.TWO:
                return self._pair()
            case Target.CONTROLLER:
                return (self.controller(),)
            case Target.OTHER_CONTROLLER:
                active = self.controller()
                return (self.dice.choice([n for n in self.backend.controllers if n != active]),)
            case Target.COORDINATOR | Target.TRANSACTIONS:
                return (self.coordinator(_COORDINATED[target]),)
            case Target.CONTROLLERS:
                return self.backend.controllers
            case Target.ANY:
                return (self.dice.choice(self.backend.nodes),)
            case Target.ALL | Target.EACH:
                return self.backend.nodes

    def _pair(self) -> tuple[int, int]:
        whole = [one for one in self.led().values() if len(one.isr) > 1]
        if not whole:
            raise HarnessError("no partition has a follower in sync")
        seen = self.dice.choice(sorted(whole, key=lambda one: (one.replicas, one.epoch)))
        return seen.leader, self.dice.choice([n for n in seen.isr if n != seen.leader])

    # -- waiting ---------------------------------------------------------------------------------

    def last(self, seconds: float) -> None:
        """Let a fault last."""
        let_pass(seconds)

    def is_whole(self) -> bool:
        """Return whether all nodes say that every partition is led and all its copies in sync."""
        views = self.views()
        return (
            set(views) == set(self.backend.nodes)
            and all(view for view in views.values())
            and all(seen.is_whole for view in views.values() for seen in view.values())
        )

    def wait_whole(self, deadline_s: float) -> bool:
        """Wait until everything is in sync, and tell after how long; False: it never was."""
        try:
            after_s = wait_until(self.is_whole, deadline_s, "all copies are in sync", poll_s=0.1)
        except NeverHappenedError:
            broken = {str(k): list(v.isr) for k, v in self.view().items() if not v.is_whole}
            down = [node for node in self.everybody if not self.backend.is_running(node)]
            self.tell("whole", NOTE, is_whole=False, after_s=deadline_s, isr=broken, down=down)
            return False
        self.tell("whole", NOTE, is_whole=True, after_s=round(after_s, 3))
        return True

    # -- mending ---------------------------------------------------------------------------------

    def begin(self, nodes: Sequence[int], environment: Mapping[str, str] | None = None) -> None:
        """Start those that are down."""
        for node in nodes:
            if not self.backend.is_running(node):
                self.backend.begin(node, environment)

    def wait_ready(self, nodes: Sequence[int]) -> None:
        self.backend.wait_ready(nodes, _READY_DEADLINE_S)
