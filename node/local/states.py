"""How the nodes of a local cluster are, now: what the system says, and what they say themselves.

    ready     it serves clients
    running   it is alive, and says why it does not serve (yet, or any more)
    paused    it got SIGSTOP, and does nothing until SIGCONT
    dead      it was killed, or ended by itself
    stopped   it was asked to end, and did; or it was never started

Not here: changing anything (`cluster.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

from ottla.node.local.ask import ask
from ottla.node.local.processes import Life, life_of
from ottla.node.local.record import NodeRecord, Record

_OK: Final = 200
_SILENT: Final = "it does not answer over HTTP yet"


class State(Enum):
    """One word for how a node is."""

    READY = "ready"
    RUNNING = "running"
    PAUSED = "paused"
    DEAD = "dead"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node, how it is, and why."""

    record: NodeRecord
    state: State
    # Why it does not serve clients; empty if it does.
    reason: str = ""
    # Whom it takes for the active controller, if it was asked.
    controller: int | None = None

    @property
    def node_id(self) -> int:
        return self.record.plan.node_id

    @property
    def pid(self) -> int | None:
        """The number of its process, while there is one."""
        process = self.record.process
        is_there = self.state in (State.READY, State.RUNNING, State.PAUSED)
        return process.pid if process is not None and is_there else None

    def as_json(self) -> dict[str, Any]:
        plan = self.record.plan
        return {
            "id": self.node_id,
            "pid": self.pid,
            "roles": list(plan.roles),
            **{name.lower(): str(address) for name, address in plan.listeners.items()},
            "state": self.state.value,
            "reason": self.reason or None,
        }


async def states_of(record: Record) -> list[NodeState]:
    """Return how each node is, and whom it takes for the active controller; asked all at once."""
    nodes = record.nodes.values()
    states, controllers = await asyncio.gather(
        asyncio.gather(*(state_of(one) for one in nodes)),
        asyncio.gather(*(_controller_of(one) for one in nodes)),
    )
    pairs = zip(states, controllers, strict=True)
    return [replace(state, controller=controller) for state, controller in pairs]


async def state_of(node: NodeRecord) -> NodeState:
    """Return how a node is."""
    if node.process is None:
        return NodeState(node, State.STOPPED)
    life = life_of(node.process)
    if life is Life.GONE:
        return NodeState(node, State.DEAD, f"its process {node.process.pid} is gone")
    if life is Life.PAUSED:
        return NodeState(node, State.PAUSED, "it was paused with SIGSTOP")
    return await _told_by(node)


async def _told_by(node: NodeRecord) -> NodeState:
    ready = await ask(node.plan.listeners["HTTP"], "/health/ready")
    if ready is None:
        return NodeState(node, State.RUNNING, _SILENT)
    if ready.status == _OK:
        return NodeState(node, State.READY)
    return NodeState(node, State.RUNNING, str(ready.body.get("reason", "")))


async def _controller_of(node: NodeRecord) -> int | None:
    """Return whom a node takes for the active controller; None if it runs not, or does not know."""
    if node.process is None or life_of(node.process) is not Life.RUNNING:
        return None
    status = await ask(node.plan.listeners["HTTP"], "/status")
    return None if status is None else _controller_in(status.body)


def _controller_in(status: Mapping[str, Any]) -> int | None:
    quorum = status.get("quorum")
    found = quorum.get("leader") if isinstance(quorum, dict) else None
    return found if isinstance(found, int) else None


def active_controller(states: Iterable[NodeState]) -> int | None:
    """Return who says of itself that it is; if two do, whom the others name.

    What a node says of another may be old: it keeps to the last leader it heard of.
    """
    named = [(one.node_id, one.controller) for one in states if one.controller is not None]
    everybody = [controller for _, controller in named]
    itself = [controller for node_id, controller in named if node_id == controller]
    return max(itself, key=everybody.count, default=None)
