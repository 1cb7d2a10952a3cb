"""Carries the quorum's envelopes between nodes: the link of a member, and the door to it.

One stream for each ordered pair of voters: who sends, dials. In order, at most once, never again.
The quorum's thread hands envelopes over in `send`; all the rest happens on the event loop.

When a stream from or to a peer breaks, the peer's process may be gone. That is found out (rule 11a)
and told to the member, so that a quorum whose leader was killed need not wait for a time-out.

Not here: dialling (`sender.py`), being dialled (`receiver.py`).

N1  `send` never blocks: what cannot be taken is refused
N2  a process is called gone only if the probe has proven it
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Mapping
from random import Random
from threading import Lock
from typing import Any, Final

import grpc

from ottla.controller.quorum.messages import Envelope
from ottla.controller.sightings import Verdict
from ottla.node.internal.channels import Channels
from ottla.node.internal.identity import Handlers, WhoIAm
from ottla.node.internal.peers import Member, report_bug, resolve
from ottla.node.internal.probe import Probe
from ottla.node.internal.receiver import Receiver
from ottla.node.internal.sender import Sender
from ottla.node.internal.wire import FRAME_BYTES_MAX, encode_envelope
from ottla.node.logs import logger
from ottla.node.stream_counts import QUORUM, StreamCounts
from ottla.proto.errors import ensure
from ottla.proto.kafka.uuids import UUID
from ottla.proto.options.endpoints import Address

_log = logger("internal.raft")

PROBE_MS: Final = 500
# A process that ends may close its streams before its listener.
_PROBE_PAUSES_S: Final = (0.0, 0.01, 0.03, 0.1, 0.3)
_DEAD: Final = (Verdict.REFUSED, Verdict.OTHER_INCARNATION)


class RaftTransport:
    """The `Link` of this node's member. `attach`, `start`, then `stop`."""

    def __init__(
        self,
        *,
        me: WhoIAm,
        directory_id: str,
        voters: Mapping[int, Address],
        channels: Channels,
        probe: Probe,
        dice: Random,
        streams: StreamCounts | None = None,
    ) -> None:
        """`voters` are the addresses of all voters; that of this node is not used."""
        self._me: Final = me
        self._directory_id: Final = directory_id
        self._voters: Final = dict(voters)
        self._channels: Final = channels
        self._probe: Final = probe
        self._dice: Final = dice
        self._streams: Final = StreamCounts() if streams is None else streams
        self._member: Member | None = None
        self._senders: dict[int, Sender] = {}
        self._receiver: Final = Receiver(
            me=me,
            voters=self._voters,
            tls=channels.tls,
            on_lost=self._lost,
            reached=self._reached,
        )
        self._tasks: Final[set[asyncio.Task[None]]] = set()
        self._probing: Final[set[int]] = set()
        # The process of each peer that was last found to be gone.
        self._dead: Final[dict[int, UUID]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake_guard: Final = Lock()
        self._is_woken = False

    def attach(self, member: Member) -> None:
        """Say whose link this is, before `start`."""
        self._member = member

    @property
    def handlers(self) -> Handlers:
        return {"Raft": grpc.stream_stream_rpc_method_handler(self._receiver.serve)}

    @property
    def counts(self) -> Counter[str]:
        """Return how often what came in went wrong: `refused`, `malformed`, `lost_at_the_door`."""
        return self._receiver.counts

    @property
    def connected(self) -> frozenset[int]:
        """Return the peers that a stream of this node leads to."""
        return frozenset(peer for peer, sender in self._senders.items() if sender.is_connected)

    async def start(self) -> None:
        """Dial everybody, and let everybody in. The member must be running."""
        member, self._loop = self._member, asyncio.get_running_loop()
        ensure(member is not None, "attached before it starts")
        if member is None:
            return
        self._receiver.member = member
        self._senders = {
            peer: self._sender(peer, address, member)
            for peer, address in self._voters.items()
            if peer != self._me.node_id
        }
        for sender in self._senders.values():
            self._begin(sender.run())

    async def stop(self) -> None:
        self._loop = None
        self._receiver.stop()
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _sender(self, peer: int, address: Address, member: Member) -> Sender:
        return Sender(
            me=self._me,
            directory_id=self._directory_id,
            peer=peer,
            address=address,
            channels=self._channels,
            member=member,
            dice=self._dice,
            on_lost=self._lost,
            count=self._streams.of(QUORUM, peer),
        )

    # ── In the quorum's thread ────────────────────────────────────────────────────────────────

    def send(self, envelope: Envelope) -> bool:
        """Take an envelope, unless its stream is gone or too much waits there already."""
        loop, sender = self._loop, self._senders.get(envelope.receiver)
        if loop is None or sender is None:
            return False
        frame = encode_envelope(envelope)
        if len(frame) > FRAME_BYTES_MAX:
            _log.error("envelope_too_large", peer=envelope.receiver, size=len(frame))
            return False
        if not sender.outgoing.put(envelope.stream, frame):
            return False
        with self._wake_guard:
            is_woken, self._is_woken = self._is_woken, True
        if not is_woken:
            try:
                loop.call_soon_threadsafe(self._wake)
            except RuntimeError:
                # The loop is closed: the process ends.
                return False
        return True

    def _wake(self) -> None:
        with self._wake_guard:
            self._is_woken = False
        for sender in self._senders.values():
            sender.outgoing.is_filled.set()

    def _reached(self, peer: int) -> UUID | None:
        sender = self._senders.get(peer)
        return None if sender is None else sender.reached

    # ── Is it gone? ───────────────────────────────────────────────────────────────────────────

    def _lost(self, peer: int, incarnation: UUID) -> None:
        is_known = self._dead.get(peer) == incarnation
        if self._loop is not None and not is_known and peer not in self._probing:
            self._probing.add(peer)
            self._begin(self._find_out(peer, incarnation))

    async def _find_out(self, peer: int, incarnation: UUID) -> None:
        try:
            for pause_s in _PROBE_PAUSES_S:
                await asyncio.sleep(pause_s)
                verdict = await self._look(peer, incarnation)
                if verdict in _DEAD and self._member is not None:
                    self._dead[peer] = incarnation
                    _log.info("peer_gone", peer=peer, verdict=verdict.value)
                    self._member.process_is_gone(peer)
                if verdict in _DEAD or self._senders[peer].is_connected:
                    return
        finally:
            self._probing.discard(peer)

    async def _look(self, peer: int, incarnation: UUID) -> Verdict:
        address = self._senders[peer].reached_at
        try:
            address = address or (await resolve(self._channels.way_to(self._voters[peer])))[0]
        except OSError:
            return Verdict.SILENCE
        return await self._probe(
            address,
            node_id=peer,
            incarnation=incarnation,
            cluster_id=self._me.cluster_id,
            timeout_ms=PROBE_MS,
        )

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(report_bug)
