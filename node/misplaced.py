"""A node where it does not belong: with the id of another process, or among another cluster.

The others meet a voter where `controller.quorum.voters` says. If another process answers there,
this one would be heard by nobody as itself: it waits for a quorum for ever, or takes the place of
another. Nobody can know that better than the process itself, which knows who it is.

Not here: how others refuse the second of two (`internal/receiver.py`), and brokers with one id,
whom the controllers tell (`controller/broker_life.py`).

P1  only who answers for two sessions ends this node: a life before this one may be ending
P2  once this process has answered itself nobody is asked any more; silence proves nothing
P3  a broker that has never followed any metadata gives up when more than half of its controllers
    say that they are of another cluster; one of them alone may be the wrong one
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from ottla.controller.broker_life import DUPLICATE_SESSIONS
from ottla.controller.door import DoorClosedError, OtherClusterError
from ottla.node.clock import Clock
from ottla.node.internal.identity import WhoIAm
from ottla.node.internal.wire import Identity
from ottla.proto.options.endpoints import Address

_ANSWER_MS: Final = 500
# Between two questions: at first, and where nobody ever answers.
_ASK_S: Final = 0.5
_ASK_MAX_S: Final = 5.0


class Identifies(Protocol):
    """Asks who answers at an address: `Probe`."""

    async def identity(
        self, address: Address, *, node_id: int, timeout_ms: int
    ) -> Identity | None: ...


async def find_double(
    me: WhoIAm,
    address: Address,
    probe: Identifies,
    clock: Clock,
    *,
    session_ms: int,
    ask_s: float = _ASK_S,
) -> str | None:
    """Return why this process cannot be this node, or None once it is found to be it."""
    since_ms: int | None = None
    pause_s = ask_s
    while True:
        found = await probe.identity(address, node_id=me.node_id, timeout_ms=_ANSWER_MS)
        now_ms = clock.monotonic_ms()
        if found is not None and found.incarnation == me.incarnation:
            return None
        if found is None:
            since_ms, pause_s = None, min(pause_s * 1.5, _ASK_MAX_S)
        elif since_ms is None:
            since_ms, pause_s = now_ms, ask_s
        elif now_ms - since_ms >= DUPLICATE_SESSIONS * session_ms:
            return _sentence(me, address, found)
        await asyncio.sleep(pause_s)


class Elsewhere:
    """Counts the controllers that say that they are of another cluster than this broker (P3)."""

    def __init__(self, controllers: int) -> None:
        self._controllers: Final = controllers
        self._elsewhere: set[int | None] = set()

    def note(self, node_id: int | None, error: DoorClosedError) -> str | None:
        """Take in why a controller gives nothing; return why none ever will, if that is clear."""
        if not isinstance(error, OtherClusterError):
            self._elsewhere.discard(node_id)
            return None
        self._elsewhere.add(node_id)
        if 2 * len(self._elsewhere) <= self._controllers:
            return None
        return (
            f"The controllers are of another cluster than this node: {error} Correct "
            "controller.quorum.voters, or give this node a data directory of its own (log.dirs)."
        )


def _sentence(me: WhoIAm, address: Address, found: Identity) -> str:
    if found.node_id == me.node_id:
        return (
            f"Another process is node {me.node_id} and answers at {address}, where "
            "controller.quorum.voters has it. Stop that process, or give this one another node.id."
        )
    return (
        f"controller.quorum.voters has node {me.node_id} at {address}, and node {found.node_id} "
        "answers there. Correct that list, or node.id."
    )
