"""Members of a quorum that reach one another over real gRPC on loopback, in one process."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from random import Random
from uuid import UUID, uuid4

import grpc

from ottla.controller.quorum.member import QuorumMember
from ottla.controller.quorum.runner import RunningMember
from ottla.controller.quorum.seam import Timing
from ottla.node import logs
from ottla.node.internal.channels import Channels
from ottla.node.internal.identity import WhoIAm, identity_handler, quorum_service
from ottla.node.internal.listener import InternalListener
from ottla.node.internal.probe import Probe
from ottla.node.internal.raft import RaftTransport
from ottla.node.internal.tls import Tls
from ottla.proto.options.endpoints import Address
from ottla.replication.storage.memory import MemoryStateStore
from tests.unit.controller.quorum.cluster import (
    CLUSTER_ID,
    Notes,
    directory_of,
    open_journal,
    voter,
)

DEADLINE_S = 20.0
ANYWHERE = Address("127.0.0.1", 0)
QUICK = Timing(heartbeat_ms=50, election_min_ms=200, election_max_ms=400)
# So long that only a death that was noticed explains a new leader.
PATIENT = Timing(heartbeat_ms=50, election_min_ms=2_000, election_max_ms=2_500)

Keys = Mapping[int, Tls | None]


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def within() -> None:
        async with asyncio.timeout(3 * DEADLINE_S):
            await story()

    asyncio.run(within())


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110  # what changes is in other threads
            await asyncio.sleep(0.002)


def listen_to_logs() -> io.StringIO:
    """Return what is logged from now on."""
    stream = io.StringIO()
    logs.setup(stream=stream, level="debug")
    return stream


async def ask(
    channel: grpc.aio.Channel, method: str, request: bytes, timeout_s: float = 5
) -> bytes:
    call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(method)
    return await call(request, timeout=timeout_s)


class Peer:
    """One node: its listener, its member and what joins them."""

    def __init__(
        self,
        node_id: int,
        size: int,
        tls: Tls | None = None,
        timing: Timing = QUICK,
        cluster_id: str = CLUSTER_ID,
        before: Peer | None = None,
    ) -> None:
        """`before` is the process of this node that ended, and left its disk and its address."""
        self.me = WhoIAm(node_id, uuid4(), cluster_id)
        self.size = size
        self.timing = timing
        self.machine = Notes()
        self.channels = Channels(tls)
        self.address: Address = ANYWHERE if before is None else before.address
        self.disk: dict[bytes, bytes] = {} if before is None else before.disk
        self.listener = InternalListener(self.address, tls)
        self._transport: RaftTransport | None = None
        self._member: RunningMember | None = None
        self.is_alive = True

    @property
    def node_id(self) -> int:
        return self.me.node_id

    @property
    def transport(self) -> RaftTransport:
        assert self._transport is not None
        return self._transport

    @property
    def member(self) -> RunningMember:
        assert self._member is not None
        return self._member

    def bind(self) -> None:
        self.address = self.listener.bind()

    async def start(self, voters: Mapping[int, Address]) -> None:
        self._transport = RaftTransport(
            me=self.me,
            directory_id=directory_of(self.node_id),
            voters=voters,
            channels=self.channels,
            probe=Probe(self.channels),
            dice=Random(self.node_id),
        )
        member = QuorumMember(
            journal=open_journal(MemoryStateStore(self.disk), voter(self.node_id, self.size)),
            machine=self.machine,
            link=self._transport,
            now_ms=lambda: time.monotonic_ns() // 1_000_000,
            dice=Random(self.node_id),
            timing=self.timing,
        )
        self._member = RunningMember(member)
        self._transport.attach(self._member)
        self.listener.add(quorum_service(identity_handler(self.me), self._transport.handlers))
        await self.listener.start()
        self._member.start()
        await self._transport.start()

    async def die(self) -> None:
        """End as a killed process does, as far as others can see."""
        self.is_alive = False
        if self._transport is not None:
            await self._transport.stop()
        await self.listener.stop(0)
        await self.channels.close()
        if self._member is not None:
            self._member.stop()


class Peers:
    """Voters 1 to `size`."""

    def __init__(
        self,
        size: int,
        keys: Keys | None = None,
        timing: Timing = QUICK,
        clusters: Mapping[int, str] | None = None,
    ) -> None:
        ids = range(1, size + 1)
        keys, clusters = keys or {}, clusters or {}
        self.peers = {
            n: Peer(n, size, keys.get(n), timing, clusters.get(n, CLUSTER_ID)) for n in ids
        }

    @property
    def alive(self) -> list[Peer]:
        return [peer for peer in self.peers.values() if peer.is_alive]

    async def start(self, host: str = "127.0.0.1", *, has_detours: bool = False) -> None:
        """Start all, known by that host; with detours, they are dialled where they are."""
        for peer in self.peers.values():
            peer.bind()
        voters = {n: Address(host, peer.address.port) for n, peer in self.peers.items()}
        if has_detours:
            detours = {voters[n]: peer.address for n, peer in self.peers.items()}
            for peer in self.peers.values():
                peer.channels = Channels(peer.channels.tls, detours)
        for peer in self.peers.values():
            await peer.start(voters)

    async def restart(self, node_id: int) -> Peer:
        before = self.peers[node_id]
        after = Peer(node_id, before.size, before.channels.tls, before.timing, before=before)
        after.bind()
        self.peers[node_id] = after
        await after.start({n: peer.address for n, peer in self.peers.items()})
        return after

    async def leader(self) -> Peer:
        await until(lambda: self._agreed() is not None)
        agreed = self._agreed()
        assert agreed is not None
        return agreed

    def _agreed(self) -> Peer | None:
        leaders = {peer.member.leader for peer in self.alive}
        found = leaders.pop() if len(leaders) == 1 else None
        return next((peer for peer in self.alive if peer.node_id == found), None)

    async def stop(self) -> None:
        for peer in self.alive:
            await peer.die()


@asynccontextmanager
async def quorum(
    size: int,
    keys: Keys | None = None,
    timing: Timing = QUICK,
    clusters: Mapping[int, str] | None = None,
) -> AsyncIterator[Peers]:
    peers = Peers(size, keys, timing, clusters)
    try:
        await peers.start()
        yield peers
    finally:
        await peers.stop()


def fresh_incarnation() -> UUID:
    return uuid4()
