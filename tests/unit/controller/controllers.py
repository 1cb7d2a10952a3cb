"""Active controllers over a quorum without Raft, on virtual time, and brokers that ask them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from random import Random

from ottla.controller.active import ActiveController
from ottla.controller.commands import Command, Partitions
from ottla.controller.door import Beat, BeatAnswer, Door, Line, NotActive, Registered, Registration
from ottla.controller.feed import MetadataFeed
from ottla.controller.image import BrokerInfo, ClusterDefaults, MetadataImage
from ottla.controller.machine import MetadataMachine
from ottla.controller.office import Requests
from ottla.controller.proposal import encode_proposal
from ottla.controller.publishing import PublishingMachine
from ottla.controller.quorum.fake import FakeCluster, FakeQuorum
from ottla.controller.quorum.port import Outcome, QuorumStatus, Unknown, Why
from ottla.controller.replay import first_state
from ottla.controller.sightings import Verdict
from ottla.proto.ids import BrokerId
from tests.unit.controller.cluster import CLUSTER_ID, some_id
from tests.unit.controller.virtual import play

TICK_S = 0.01
SESSION_MS = 2000
WAIT_S = 30


class AskedFake:
    """A member without Raft, asked as `RunningMember` is."""

    def __init__(self, member: FakeQuorum) -> None:
        self.member = member
        self.asked: list[bytes] = []
        # How long a proposal lies at the door before the member takes it.
        self.delay_s = 0.0
        # As it is while a thread hangs.
        self.stuck: QuorumStatus | None = None
        # So many proposals are committed, and their proposers never hear of it.
        self.unknown = 0

    async def propose(self, command: bytes, timeout_ms: int) -> Outcome:
        self.asked.append(command)
        await asyncio.sleep(self.delay_s)
        outcome = await self._ask(lambda done: self.member.propose(command, timeout_ms, done))
        if self.unknown > 0:
            self.unknown -= 1
            return Unknown(Why.TIMED_OUT)
        return outcome

    async def read(self, timeout_ms: int) -> Outcome:
        return await self._ask(lambda done: self.member.read(timeout_ms, done))

    def status(self) -> QuorumStatus:
        return self.member.status() if self.stuck is None else self.stuck

    @staticmethod
    async def _ask(begin: Callable[[Callable[[Outcome], None]], None]) -> Outcome:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Outcome] = loop.create_future()

        def settle(outcome: Outcome) -> None:
            if not future.done():
                future.set_result(outcome)

        def done(outcome: Outcome) -> None:
            # Behind the image that the command made, as it comes from another thread.
            loop.call_soon(settle, outcome)

        begin(done)
        return await future


class Controllers:
    """Controllers 1 to `size`, and what each of them told and probed."""

    def __init__(self, size: int = 1, *, session_ms: int = SESSION_MS) -> None:
        self.loop = asyncio.get_running_loop()
        self.cluster = FakeCluster(size, now_ms=self.now_ms, dice=Random(0))
        self.session_ms = session_ms
        self.balance_s = 30
        self.verdicts: dict[int, Verdict] = {}
        self.probed: list[tuple[int, str | None]] = []
        self.probe_s = 0.001
        self.probe_fails: OSError | None = None
        self.told: list[tuple[str, Mapping[str, object]]] = []
        self.feeds: dict[int, MetadataFeed] = {}
        self.members: dict[int, AskedFake] = {}
        self.controllers: dict[int, ActiveController] = {}
        self._gists: dict[int, tuple[object, ...]] = {}
        for node_id in range(1, size + 1):
            self._start(node_id)
        self._ticking = self.loop.create_task(self._tick())

    def now_ms(self) -> int:
        return round(self.loop.time() * 1000)

    def _start(self, node_id: int) -> None:
        state = first_state(CLUSTER_ID)
        feed = MetadataFeed(state.image, tell=self._tell)
        machine = PublishingMachine(MetadataMachine(state), self.loop, feed)
        member = AskedFake(self.cluster.start(node_id, machine))
        self.feeds[node_id], self.members[node_id] = feed, member
        self.controllers[node_id] = ActiveController(
            node_id=BrokerId(node_id),
            cluster_id=CLUSTER_ID,
            quorum=member,
            feed=feed,
            now_ms=self.now_ms,
            session_ms=lambda: self.session_ms,
            balance_s=lambda: self.balance_s,
            defaults=ClusterDefaults,
            probe=self._probe,
            tell=self._tell,
        )

    def _tell(self, event: str, facts: Mapping[str, object]) -> None:
        self.told.append((event, facts))

    def events(self, name: str) -> list[Mapping[str, object]]:
        return [facts for event, facts in self.told if event == name]

    async def _probe(self, broker: BrokerInfo, peer: str | None) -> Verdict:
        self.probed.append((broker.broker_id, peer))
        if self.probe_fails is not None:
            raise self.probe_fails
        await asyncio.sleep(self.probe_s)
        return self.verdicts.get(broker.broker_id, Verdict.SAME_INCARNATION)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self.cluster.tick()
            for node_id, member in self.members.items():
                status = member.status()
                gist = (status.role, status.term, status.leader)
                if self._gists.get(node_id) != gist:
                    self._gists[node_id] = gist
                    self.controllers[node_id].on_status(status)

    async def stop(self) -> None:
        self._ticking.cancel()
        for controller in self.controllers.values():
            await controller.stop()

    async def active(self) -> ActiveController:
        """Return the controller that is in office, once there is one."""
        found: list[ActiveController] = []

        def is_there() -> bool:
            found[:] = [one for one in self.controllers.values() if one.is_active]
            return bool(found)

        await self.until(is_there)
        return found[0]

    async def until(self, condition: Callable[[], bool]) -> int:
        """Wait, and return how many milliseconds it took."""
        start_ms = self.now_ms()
        async with asyncio.timeout(WAIT_S):
            while not condition():  # noqa: ASYNC110  # the time is virtual
                await asyncio.sleep(0.001)
        return self.now_ms() - start_ms

    @property
    def image(self) -> MetadataImage:
        """The newest image that any controller has."""
        return max((feed.image for feed in self.feeds.values()), key=lambda one: one.version)

    def broker(self, number: int) -> BrokerInfo:
        return self.image.brokers[BrokerId(number)]


class Broker:
    """A broker that speaks to one controller."""

    def __init__(self, number: int, door: Door, *, incarnation: int | None = None) -> None:
        self.number = BrokerId(number)
        self.door = door
        self.wanted = Registration(
            cluster_id=CLUSTER_ID,
            broker_id=self.number,
            incarnation=some_id(100 + number if incarnation is None else incarnation),
            directory_id=some_id(number),
            boot_id=some_id(500),
            host=f"host-{number}",
            port=9092,
            internal_host="127.0.0.1",
            internal_port=9093,
        )
        self.epoch = -1
        self.line: Line = door.open_line()
        self.requests: Requests | None = None

    async def register(self) -> int:
        answer = await self.door.register(self.wanted)
        assert isinstance(answer, Registered), answer
        self.epoch = answer.broker_epoch
        self.renumber()
        return self.epoch

    def renumber(self) -> None:
        """Begin to count the requests of this life."""
        self.requests = Requests(self.number, self.epoch)

    async def beat(
        self,
        *,
        is_recovered: bool = True,
        applied: int | None = None,
        wants_fence: bool = False,
        wants_shutdown: bool = False,
        damaged: Partitions | None = None,
    ) -> BeatAnswer | NotActive:
        beat = Beat(
            broker_id=self.number,
            broker_epoch=self.epoch,
            applied_version=self.epoch if applied is None else applied,
            is_recovered=is_recovered,
            wants_fence=wants_fence,
            wants_shutdown=wants_shutdown,
            damaged=damaged or {},
        )
        return await self.line.beat(beat)

    async def start(self) -> None:
        """Register, and beat until it may serve."""
        await self.register()
        async with asyncio.timeout(WAIT_S):
            while True:
                answer = await self.beat()
                if isinstance(answer, BeatAnswer) and not answer.is_fenced:
                    return
                await asyncio.sleep(0.02)

    def request(self, command: Command) -> bytes:
        assert self.requests is not None
        return encode_proposal(self.requests.proposal(command))


def told(story: Callable[[Controllers], Awaitable[None]], size: int = 1) -> None:
    """Play a story of controllers, and stop them in the end."""

    async def whole() -> None:
        stage = Controllers(size)
        await story(stage)
        await stage.stop()

    play(whole)


async def started(stage: Controllers, *numbers: int) -> dict[int, Broker]:
    door = await stage.active()
    brokers = {number: Broker(number, door) for number in numbers}
    for broker in brokers.values():
        await broker.start()
    return brokers


async def keep_beating(stage: Controllers, milliseconds: int, *brokers: Broker) -> None:
    end_ms = stage.now_ms() + milliseconds
    while stage.now_ms() < end_ms:
        for broker in brokers:
            await broker.beat(applied=stage.image.version)
        await asyncio.sleep(0.1)
