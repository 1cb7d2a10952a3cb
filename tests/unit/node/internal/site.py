"""A controller with a real quorum of one, behind a real INTERNAL listener on loopback."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from random import Random
from typing import Any

from ottla.controller.active import ActiveController
from ottla.controller.delta import NotFollowed, decode_delta, follow, follow_whole
from ottla.controller.door import News
from ottla.controller.feed import MetadataFeed
from ottla.controller.image import BrokerInfo, ClusterDefaults, MetadataImage
from ottla.controller.machine import MetadataMachine
from ottla.controller.publishing import PublishingMachine
from ottla.controller.quorum.journal import create_journal
from ottla.controller.quorum.member import QuorumMember
from ottla.controller.quorum.membership import Membership, Standing
from ottla.controller.quorum.messages import Envelope
from ottla.controller.quorum.port import Outcome, QuorumStatus
from ottla.controller.quorum.runner import RunningMember
from ottla.controller.replay import first_state
from ottla.controller.sightings import Verdict
from ottla.controller.snapshot import decode_image
from ottla.node.internal.channels import Channels
from ottla.node.internal.listener import InternalListener
from ottla.node.internal.remote import RemoteDoor
from ottla.node.internal.service import Verifier, cluster_handlers
from ottla.node.internal.tls import Tls
from ottla.proto.ids import BrokerId
from ottla.proto.options.endpoints import Address
from ottla.replication.storage.memory import MemoryStateStore
from tests.unit.controller.cluster import CLUSTER_ID
from tests.unit.controller.controllers import Broker

WAIT_S = 20


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class _Alone:
    """A quorum of one has nobody to send to."""

    def send(self, envelope: Envelope) -> bool:
        raise AssertionError(f"it has nobody to say this to: {envelope}")


class Holding:
    """A member whose proposals can be held back before it hears of them."""

    def __init__(self, member: RunningMember) -> None:
        self._member = member
        self.is_holding = False
        self.held = asyncio.Event()
        self._never = asyncio.Event()

    async def propose(self, command: bytes, timeout_ms: int) -> Outcome:
        if self.is_holding:
            self.held.set()
            await self._never.wait()
        return await self._member.propose(command, timeout_ms)

    async def read(self, timeout_ms: int) -> Outcome:
        return await self._member.read(timeout_ms)

    def status(self) -> QuorumStatus:
        return self._member.status()


class Site:
    """One controller: its quorum in a thread, its listener, and doors to it from outside."""

    def __init__(
        self,
        *,
        session_ms: int = 2000,
        verifier: Verifier | None = None,
        deltas_max: int = 4096,
        # Of this node, and of the one that calls.
        tls: tuple[Tls, Tls] | None = None,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.failed: list[dict[str, Any]] = []
        self.loop.set_exception_handler(self._on_failure)
        self.told: list[tuple[str, Mapping[str, object]]] = []
        self.verdicts: dict[int, Verdict] = {}
        self.probed: list[tuple[int, str | None]] = []
        state = first_state(CLUSTER_ID)
        self.feed = MetadataFeed(state.image, deltas_max=deltas_max)
        self.member = self._member(MetadataMachine(state))
        self.quorum = Holding(self.member)
        self.controller = ActiveController(
            node_id=BrokerId(1),
            cluster_id=CLUSTER_ID,
            quorum=self.quorum,
            feed=self.feed,
            now_ms=now_ms,
            session_ms=lambda: session_ms,
            balance_s=lambda: 30,
            defaults=ClusterDefaults,
            probe=self._probe,
            tell=lambda event, facts: self.told.append((event, facts)),
        )
        own, calling = tls or (None, None)
        self.listener = InternalListener(Address("127.0.0.1", 0), own)
        self.listener.add(cluster_handlers(self.controller, own or verifier))
        self.channels = Channels(calling)

    def _member(self, machine: MetadataMachine) -> RunningMember:
        membership = Membership(Standing.VOTER, CLUSTER_ID, 1, "d", {1: "d"})
        member = QuorumMember(
            journal=create_journal(MemoryStateStore(), membership),
            machine=PublishingMachine(machine, self.loop, self.feed),
            link=_Alone(),
            now_ms=now_ms,
            dice=Random(1),
        )
        return RunningMember(member, self._on_status)

    def _on_status(self, status: QuorumStatus) -> None:
        self.loop.call_soon_threadsafe(self.controller.on_status, status)

    async def _probe(self, broker: BrokerInfo, peer: str | None) -> Verdict:
        self.probed.append((broker.broker_id, peer))
        return self.verdicts.get(broker.broker_id, Verdict.SAME_INCARNATION)

    async def start(self) -> None:
        self.address = self.listener.bind()
        await self.listener.start()
        self.member.start()
        await self.until(lambda: self.controller.is_active)

    async def stop(self) -> None:
        await self.controller.stop()
        await self.channels.close()
        await self.listener.stop(0.5)
        self.member.stop()
        # gRPC ends its calls by tasks of its own.
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        if rest:
            await asyncio.wait(rest, timeout=1)
        assert not self.failed, self.failed

    def _on_failure(self, _: asyncio.AbstractEventLoop, what: dict[str, Any]) -> None:
        # All loops of a process share gRPC's queue of events: one of an earlier test, whose loop is
        # closed, may come to this one.
        if "PollerCompletionQueue" not in str(what.get("message")):
            self.failed.append(what)

    def door(self, node_id: int = 1, *, cluster_id: str = CLUSTER_ID) -> RemoteDoor:
        return RemoteDoor(node_id, self.address, self.channels, cluster_id=lambda: cluster_id)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not condition():  # noqa: ASYNC110  # what changes comes over sockets
                await asyncio.sleep(0.002)

    def events(self, name: str) -> list[Mapping[str, object]]:
        return [facts for event, facts in self.told if event == name]

    def is_fenced(self, number: int) -> bool:
        return self.feed.image.brokers[BrokerId(number)].is_fenced


def on_site(story: Callable[[Site], Awaitable[None]], **fields: Any) -> None:
    async def whole() -> None:
        site = Site(**fields)
        try:
            await site.start()
            async with asyncio.timeout(2 * WAIT_S):
                await story(site)
        finally:
            await site.stop()

    asyncio.run(whole())


async def started(site: Site, *numbers: int) -> dict[int, Broker]:
    brokers = {number: Broker(number, site.door()) for number in numbers}
    for broker in brokers.values():
        await broker.start()
    return brokers


async def followed(stream: AsyncIterator[News], image: MetadataImage | None) -> MetadataImage:
    """Return the next image, as a broker follows it."""
    news = await anext(stream)
    if news.is_image:
        whole = decode_image(news.data)
        found = whole if image is None else follow_whole(image, whole)
    else:
        assert image is not None
        found = follow(image, decode_delta(news.data))
    assert not isinstance(found, NotFollowed)
    return found
