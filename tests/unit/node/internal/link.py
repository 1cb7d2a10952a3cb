"""Both ends of a replication stream, over real sockets, with sides that only keep notes."""

from __future__ import annotations

import asyncio
import socket
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from ottla.node.internal.cable import Buffer
from ottla.node.internal.channels import Channels
from ottla.node.internal.entrance import Entrance
from ottla.node.internal.identity import WhoIAm
from ottla.node.internal.listener import InternalListener
from ottla.node.internal.replication_service import ReplicationService
from ottla.node.internal.replication_stream import Follower, ReplicationStream, Whereabouts
from ottla.node.internal.tls import Tls
from ottla.proto.errors import RemoteProtocolError
from ottla.proto.ids import BrokerId
from ottla.proto.options.endpoints import Address

CLUSTER_ID = "cluster"
LEADER = BrokerId(1)
FOLLOWER = BrokerId(2)
DEADLINE_S = 20.0
GARBAGE = b"garbage"


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110  # what changes comes over sockets
            await asyncio.sleep(0.002)


def run(story: Callable[[], Awaitable[None]]) -> None:
    """Tell a story; a bug that is only reported to the loop, or a task left behind, fails it."""
    failed: list[dict[str, Any]] = []

    def note(_: asyncio.AbstractEventLoop, what: dict[str, Any]) -> None:
        # All loops of a process share gRPC's queue of events: one of an earlier test, whose loop is
        # closed, may come to this one.
        if "PollerCompletionQueue" not in str(what.get("message")):
            failed.append(what)

    async def whole() -> None:
        asyncio.get_running_loop().set_exception_handler(note)
        async with asyncio.timeout(2 * DEADLINE_S):
            await story()
        # gRPC ends its calls by tasks of its own.
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        if rest:
            _, rest = await asyncio.wait(rest, timeout=2)
        assert not rest, rest
        assert not failed, failed

    asyncio.run(whole())


@contextmanager
def hole(host: str, port: int = 0) -> Iterator[Address]:
    """Give an address at which nobody is refused, and nobody gets an answer: its line is full."""
    with socket.socket() as found, ExitStack() as waiting:
        found.bind((host, port))
        found.listen(0)
        for _ in range(4):
            one = waiting.enter_context(socket.socket())
            one.setblocking(False)
            with suppress(BlockingIOError):
                one.connect(found.getsockname())
        yield Address(host, found.getsockname()[1])


@dataclass(eq=False)
class NotedFeeder:
    """Keeps what it hears; answers each ask, when there is something or when its time has come."""

    follower: BrokerId
    wake: Callable[[], None]
    wait_ms: int = 60_000
    heard: list[bytes] = field(default_factory=list)
    news: deque[bytes] = field(default_factory=deque)
    closings: int = 0
    _due_ms: int | None = None

    def take(self, ask: Buffer) -> None:
        if ask == GARBAGE:
            raise RemoteProtocolError("This is no ask.")
        self.heard.append(bytes(ask))
        self._due_ms = now_ms() + self.wait_ms
        if self.news:
            self.wake()

    def tell(self, news: bytes) -> None:
        self.news.append(news)
        self.wake()

    def next_answer(self) -> list[bytes | memoryview] | None:
        if self._due_ms is None or (not self.news and now_ms() < self._due_ms):
            return None
        self._due_ms = None
        pieces = [memoryview(one) for one in self.news]
        self.news.clear()
        return [b"=", *pieces]

    def due_ms(self) -> int | None:
        return self._due_ms

    def close(self) -> None:
        self.closings += 1


@dataclass(eq=False)
class NotedPuller:
    """Asks once for each answer, and keeps them."""

    leader: BrokerId = LEADER
    wake: Callable[[], None] = lambda: None
    connections: int = 0
    # As they were lent: whoever keeps one keeps its bytes.
    answers: list[Buffer] = field(default_factory=list)
    asked: int = 0
    followed: list[object] = field(default_factory=list)
    _may_ask: bool = False

    def connected(self) -> None:
        self.connections += 1
        self._may_ask = True

    def next_asks(self) -> list[bytes]:
        if not self._may_ask:
            return []
        self._may_ask = False
        self.asked += 1
        return [f"ask {self.asked}".encode()]

    def take(self, answer: Buffer) -> None:
        if answer == b"=" + GARBAGE:
            raise RemoteProtocolError("This is no answer.")
        self.answers.append(answer)
        self._may_ask = True

    def due_ms(self) -> int | None:
        return None

    @property
    def is_empty(self) -> bool:
        return not self.followed

    def add(self, replica: object) -> None:
        self.followed.append(replica)

    def remove(self, replica: object) -> None:
        self.followed.remove(replica)


class Leader:
    """A node that can be pulled from."""

    def __init__(
        self,
        node_id: int = LEADER,
        *,
        tls: Tls | None = None,
        address: Address | None = None,
        silent_ms: int = 30_000,
        beat_ms: int = 2_000,
        wait_ms: int = 60_000,
    ) -> None:
        self.me = WhoIAm(node_id, uuid4(), CLUSTER_ID)
        self.feeders: list[NotedFeeder] = []
        self.known = {BrokerId(1), FOLLOWER, BrokerId(3)}
        self._wait_ms = wait_ms
        self.service = ReplicationService(
            me=self.me,
            make_feeder=self._make_feeder,
            is_broker=self.known.__contains__,
            now_ms=now_ms,
            verifier=tls,
            where=lambda: self.entrance_address,
            silent_ms=silent_ms,
            beat_ms=beat_ms,
        )
        self.entrance = Entrance(Address("127.0.0.1", 0), tls)
        self.entrance_address = Address("127.0.0.1", 0)
        self.listener = InternalListener(address or Address("127.0.0.1", 0), tls)
        self.listener.add(self.service.handler)
        self.address = Address("127.0.0.1", 0)

    def _make_feeder(
        self, follower: BrokerId, wake: Callable[[], None], _: Callable[[], None]
    ) -> NotedFeeder:
        assert all(one.closings for one in self.feeders if one.follower == follower)
        self.feeders.append(NotedFeeder(follower, wake, self._wait_ms))
        return self.feeders[-1]

    @property
    def where(self) -> Whereabouts:
        return Whereabouts(self.address, self.me.incarnation)

    async def start(self) -> None:
        self.address = self.listener.bind()
        self.entrance_address = self.entrance.bind()
        self.entrance.start(self.service.redeem)
        await self.listener.start()

    async def stop(self) -> None:
        await self.entrance.stop()
        await self.service.stop()
        await self.listener.stop(0)
        assert [one.closings for one in self.feeders] == [1] * len(self.feeders)

    async def fed(self, number: int = 0) -> NotedFeeder:
        """Return a feeder once it has been asked."""
        await until(lambda: len(self.feeders) > number and self.feeders[number].heard)
        return self.feeders[number]


@asynccontextmanager
async def leader(node_id: int = LEADER, **fields: Any) -> AsyncIterator[Leader]:
    found = Leader(node_id, **fields)
    try:
        await found.start()
        yield found
    finally:
        await found.stop()


def following(
    *,
    tls: Tls | None = None,
    receive_bytes_max: int = 32 << 20,
    detours: Mapping[Address, Address] | None = None,
) -> Follower:
    return Follower(
        me=WhoIAm(FOLLOWER, UUID(int=2), CLUSTER_ID),
        channels=Channels(tls, detours),
        broker_epoch=lambda: 7,
        now_ms=now_ms,
        receive_bytes_max=lambda: receive_bytes_max,
    )


@asynccontextmanager
async def pulling(
    where: Whereabouts | None, follower: Follower | None = None
) -> AsyncIterator[tuple[ReplicationStream, NotedPuller]]:
    """Keep a stream to a leader."""
    stream = ReplicationStream(LEADER, follower or following())
    if where is not None:
        stream.point_at(where)
    puller = NotedPuller(LEADER, stream.wake)
    task = asyncio.get_running_loop().create_task(stream.run(puller))
    try:
        yield stream, puller
    finally:
        assert not task.done(), task
        task.cancel()
        await asyncio.wait([task])
