"""Brokers with real lifelines and real controllers, over a quorum without Raft, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest

from ottla.controller.active import ActiveController
from ottla.controller.broker_life import State
from ottla.controller.door import Denied, Door, NotActive, Unresolved
from ottla.controller.image import MetadataImage, TopicInfo
from ottla.controller.outcome import Outcome
from ottla.controller.port import NewTopic, TopicDefaults
from ottla.controller.replay import first_state
from ottla.node.clock import Clock
from ottla.node.cluster import ClusterController
from ottla.node.lifeline import Lifeline
from ottla.proto.errors import ErrorCode
from ottla.proto.ids import BrokerId
from tests.unit.controller.cluster import CLUSTER_ID
from tests.unit.controller.controllers import SESSION_MS, Controllers
from tests.unit.controller.controllers import Broker as Registrant
from tests.unit.controller.virtual import play
from tests.unit.node.doors import Ids, check

BEAT_MS = 300


class VirtualClock(Clock):
    """The time of the running loop."""

    __slots__ = ()

    def monotonic_ms(self) -> int:
        return round(asyncio.get_running_loop().time() * 1000)


class Elsewhere:
    """The door of a controller in another process than the broker's."""

    def __init__(self, controller: ActiveController, caller: int) -> None:
        self._controller = controller
        self._caller = caller
        self.register = controller.register
        self.open_line = controller.open_line
        self.read_version = controller.read_version
        self.describe_quorum = controller.describe_quorum
        self.follow = controller.follow

    async def propose(
        self, proposal: bytes, *, client: str
    ) -> Outcome | NotActive | Denied | Unresolved:
        return await self._controller.forward(proposal, client=client, caller=self._caller)


class Node:
    """A broker and its metadata."""

    def __init__(self, number: int, controllers: Controllers, *, incarnation: int = 0) -> None:
        self.number = BrokerId(number)
        doors: dict[int, Door] = {
            key: one if key == number else Elsewhere(one, number)
            for key, one in controllers.controllers.items()
        }
        self.deaths: list[str] = []
        self.versions: list[int] = []
        self.metadata = ClusterController(
            node_id=self.number,
            image=first_state(CLUSTER_ID).image,
            doors=doors,
            check_configs=check,
            defaults=lambda: TopicDefaults(1, 1),
            new_uuid=Ids(1 + 10_000 * number + 1000 * incarnation),
            clock=VirtualClock(),
        )
        wanted = Registrant(number, next(iter(doors.values())), incarnation=900 + incarnation)
        self.line = Lifeline(
            registration=wanted.wanted,
            doors=doors,
            clock=VirtualClock(),
            session_ms=lambda: SESSION_MS,
            heartbeat_ms=lambda: BEAT_MS,
            follower=self.metadata,
            on_death=self.deaths.append,
        )
        self.metadata.watch(self._see)

    async def _see(self, image: MetadataImage) -> None:
        self.versions.append(image.version)

    async def start(self) -> None:
        await self.line.start()
        await self.line.register()
        self.line.recovered({})
        await self.line.unfenced()

    async def stop(self) -> None:
        await self.line.stop()
        await self.metadata.close()

    async def create(self, name: str) -> object:
        (answer,) = await self.metadata.create_topics([NewTopic(name)], validate_only=False)
        return answer

    @property
    def is_heard(self) -> bool:
        return self.line.is_heard(VirtualClock().monotonic_ms())


@asynccontextmanager
async def cluster(size: int = 3) -> AsyncIterator[tuple[Controllers, list[Node]]]:
    controllers = Controllers(size)
    nodes = [Node(number, controllers) for number in range(1, size + 1)]
    await asyncio.gather(*(node.start() for node in nodes))
    try:
        yield controllers, nodes
    finally:
        for node in nodes:
            await node.stop()
        await controllers.stop()


def test_brokers_come_up_and_a_topic_is_made_through_any_of_them() -> None:
    async def story() -> None:
        async with cluster() as (controllers, nodes):
            for node in nodes:
                assert isinstance(await node.create(f"t{node.number}"), TopicInfo)
                assert node.line.source == node.number
                assert node.is_heard
            assert set(controllers.image.topics) == {"t1", "t2", "t3"}
            assert all(not one.is_fenced for one in controllers.image.brokers.values())
            view = await nodes[2].metadata.describe_quorum()
            assert view.status.leader == (await controllers.active()).node_id

    play(story)


def test_a_lone_node_is_unfenced_without_waiting_for_an_interval() -> None:
    async def story() -> None:
        controllers = Controllers(1)
        await controllers.active()
        began_ms = controllers.now_ms()
        node = Node(1, controllers)
        await node.start()
        assert controllers.now_ms() - began_ms < BEAT_MS
        await node.stop()
        await controllers.stop()

    play(story)


def test_nobody_is_fenced_when_the_controller_dies_and_wishes_go_on() -> None:
    async def story() -> None:
        async with cluster() as (controllers, nodes):
            active = await controllers.active()
            epochs = [node.line.broker_epoch for node in nodes]
            controllers.cluster.crash(active.node_id)
            survivor = next(node for node in nodes if node.number != active.node_id)
            assert isinstance(await survivor.create("after"), TopicInfo)
            await controllers.until(lambda: all(node.is_heard for node in nodes))
            assert [node.line.broker_epoch for node in nodes] == epochs
            assert controllers.events("broker_fenced") == []
            assert all(node.line.state is State.UNFENCED for node in nodes)

    play(story)


def test_a_shutdown_moves_what_is_led_and_the_next_life_is_accepted_at_once() -> None:
    async def story() -> None:
        async with cluster() as (controllers, nodes):
            leaving = nodes[1]
            began_ms = controllers.now_ms()
            assert await leaving.line.shut_down(5_000)
            assert controllers.now_ms() - began_ms < SESSION_MS
            await leaving.stop()
            epoch = leaving.line.broker_epoch
            assert epoch is not None
            again = Node(leaving.number, controllers, incarnation=1)
            await again.line.start()
            assert await again.line.register() > epoch
            nodes[1] = again

    play(story)


def test_without_a_majority_nobody_is_heard_and_nothing_is_done() -> None:
    async def story() -> None:
        async with cluster() as (controllers, nodes):
            for node_id in (1, 2):
                controllers.cluster.crash(node_id)
            await controllers.until(lambda: not any(node.is_heard for node in nodes))
            answer = await nodes[2].create("never")
            assert getattr(answer, "code", None) in (
                ErrorCode.NOT_CONTROLLER,
                ErrorCode.REQUEST_TIMED_OUT,
            )
            assert nodes[2].deaths == []

    play(story)


@pytest.mark.parametrize("seed", range(4))
def test_wishes_and_lives_outlast_a_storm_of_elections(seed: int) -> None:
    """Members are cut off and come back; what was told as done is there, once, for everybody."""
    dice = Random(seed)

    async def storm(controllers: Controllers) -> None:
        for _ in range(6):
            controllers.cluster.cut_off(dice.randrange(1, 4))
            await asyncio.sleep(dice.random() * 3)
            controllers.cluster.heal()
            await asyncio.sleep(dice.random() * 2)

    async def wish(node: Node, told: dict[str, object]) -> None:
        for number in range(10):
            name = f"t{node.number}-{number}"
            told[name] = await node.create(name)
            await asyncio.sleep(dice.random())

    async def story() -> None:
        async with cluster() as (controllers, nodes):
            told: dict[str, object] = {}
            await asyncio.gather(storm(controllers), *(wish(node, told) for node in nodes))
            await controllers.until(lambda: all(node.is_heard for node in nodes))
            version = controllers.image.version
            await controllers.until(
                lambda: all(node.metadata.applied_version >= version for node in nodes)
            )
            for name, answer in told.items():
                if isinstance(answer, TopicInfo):
                    assert controllers.image.topics[name].topic_id == answer.topic_id
                else:
                    code = getattr(answer, "code", None)
                    assert code in (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT), answer
            for node in nodes:
                assert node.deaths == []
                assert node.versions == sorted(set(node.versions))

    play(story)
