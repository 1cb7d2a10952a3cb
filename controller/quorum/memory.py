"""A network in memory between members of one process, for tests and simulations.

Each ordered pair has one queue. Nothing moves until somebody calls `deliver`, so a test decides
what has arrived when.

Not here: loss, delay and reordering by dice; those are the simulator's.

W1  a queue keeps its order, and is dropped when its way is cut or one of its ends goes
"""

from __future__ import annotations

from collections import deque
from typing import Final

from ottla.controller.quorum.member import QuorumMember
from ottla.controller.quorum.messages import Envelope

QUEUE_MAX: Final = 10_000


class MemoryLink:
    """One member's side of the network."""

    def __init__(self, network: MemoryNetwork) -> None:
        self._network = network

    def send(self, envelope: Envelope) -> bool:
        return self._network.take(envelope)


class MemoryNetwork:
    """All queues between all members."""

    def __init__(self) -> None:
        self.members: Final[dict[int, QuorumMember]] = {}
        self.queues: Final[dict[tuple[int, int], deque[Envelope]]] = {}
        self._cut: set[tuple[int, int]] = set()

    def link(self) -> MemoryLink:
        return MemoryLink(self)

    def attach(self, member: QuorumMember) -> None:
        """A member started: open the ways between it and all others."""
        self.members[member.node_id] = member
        for peer in sorted(self.members):
            if peer != member.node_id:
                self._open(member.node_id, peer)
                self._open(peer, member.node_id)

    def detach(self, node_id: int) -> None:
        """A member's process is gone, with all that was under way to and from it."""
        del self.members[node_id]
        for peer in sorted(self.members):
            self._close(node_id, peer)
            self._close(peer, node_id)

    def cut(self, sender: int, receiver: int) -> None:
        """Break one way."""
        self._cut.add((sender, receiver))
        self._close(sender, receiver)

    def cut_off(self, node_id: int) -> None:
        """Break all ways to and from a member."""
        for peer in sorted(self.members):
            if peer != node_id:
                self.cut(node_id, peer)
                self.cut(peer, node_id)

    def heal(self) -> None:
        """Open all ways that were cut."""
        cut, self._cut = sorted(self._cut), set()
        for sender, receiver in cut:
            self._open(sender, receiver)

    def take(self, envelope: Envelope) -> bool:
        queue = self.queues.get((envelope.sender, envelope.receiver))
        if queue is None or len(queue) >= QUEUE_MAX:
            return False
        queue.append(envelope)
        return True

    def deliver(self, sender: int, receiver: int, count: int | None = None) -> int:
        """Deliver the oldest envelopes of one way, all if no number is given."""
        queue = self.queues.get((sender, receiver), deque())
        wanted = len(queue) if count is None else min(count, len(queue))
        for _ in range(wanted):
            self.members[receiver].receive(queue.popleft())
        return wanted

    def deliver_all(self) -> int:
        """Deliver everything that is under way now; answers stay under way."""
        waiting = {way: len(queue) for way, queue in self.queues.items()}
        return sum(self.deliver(*way, count) for way, count in sorted(waiting.items()))

    def _open(self, sender: int, receiver: int) -> None:
        if (sender, receiver) in self._cut or not {sender, receiver} <= self.members.keys():
            return
        self.queues[sender, receiver] = deque()
        stream = self.members[sender].open_stream(receiver)
        self.members[receiver].accept_stream(sender, stream)

    def _close(self, sender: int, receiver: int) -> None:
        if self.queues.pop((sender, receiver), None) is not None and sender in self.members:
            self.members[sender].close_stream(receiver)
