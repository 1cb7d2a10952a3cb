"""One puller and one stream for each leader, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import cast
from uuid import uuid4

from ottla.controller.image import BrokerInfo, MetadataImage
from ottla.controller.replay import first_state
from ottla.node.fetchers import Fetchers
from ottla.proto.ids import BrokerId
from ottla.proto.kafka.uuids import UUID
from ottla.replication.replica import Replica
from tests.unit.node.internal.link import Leader, NotedPuller, following, leader, run, until

ONE, THREE = BrokerId(1), BrokerId(3)


def replica() -> Replica:
    """Return what is only handed on."""
    return cast("Replica", object())


class Stage:
    """Fetchers, and the pullers they made."""

    def __init__(self, linger_s: float = 0.05) -> None:
        self.pullers: dict[BrokerId, list[NotedPuller]] = {ONE: [], THREE: []}
        self.fetchers = Fetchers(following(), self._make_puller, linger_s=linger_s)

    def _make_puller(self, leader: BrokerId, wake: Callable[[], None]) -> NotedPuller:
        self.pullers[leader].append(NotedPuller(leader, wake))
        return self.pullers[leader][-1]

    def obey(self, *nodes: Leader, incarnation: UUID | None = None) -> None:
        self.fetchers.obey(image_of(*nodes, incarnation=incarnation))


def image_of(*nodes: Leader, incarnation: UUID | None) -> MetadataImage:
    brokers = {
        BrokerId(node.me.node_id): BrokerInfo(
            BrokerId(node.me.node_id),
            "nowhere",
            1,
            incarnation=incarnation or node.me.incarnation,
            internal_host=node.address.host,
            internal_port=node.address.port,
        )
        for node in nodes
    }
    return replace(first_state("cluster").image, brokers=brokers)


@asynccontextmanager
async def stage(linger_s: float = 0.05) -> AsyncIterator[Stage]:
    found = Stage(linger_s)
    try:
        yield found
    finally:
        await found.fetchers.stop()
        assert found.fetchers.leaders == {}


def test_replicas_of_one_leader_share_a_stream() -> None:
    async def story() -> None:
        async with leader(1) as one, leader(3) as three, stage() as found:
            a, b, c = replica(), replica(), replica()
            found.fetchers.follow(a, ONE)
            found.obey(one, three)
            found.fetchers.follow(b, ONE)
            found.fetchers.follow(c, THREE)
            found.fetchers.follow(c, THREE)
            await one.fed()
            await three.fed()
            assert [puller.followed for puller in found.pullers[ONE]] == [[a, b]]
            assert [puller.followed for puller in found.pullers[THREE]] == [[c]]
            assert found.fetchers.leaders == {ONE: True, THREE: True}
            assert len(one.feeders) == len(three.feeders) == 1

    run(story)


def test_a_leader_of_whom_nothing_is_known_is_waited_for() -> None:
    async def story() -> None:
        async with leader(1) as one, stage() as found:
            found.fetchers.follow(replica(), ONE)
            await asyncio.sleep(0)
            assert found.fetchers.leaders == {ONE: False}
            found.obey(one)
            await one.fed()

    run(story)


def test_a_replica_that_follows_another_leader_leaves_the_one_before() -> None:
    async def story() -> None:
        async with leader(1) as one, leader(3) as three, stage() as found:
            found.obey(one, three)
            moving = replica()
            found.fetchers.follow(moving, ONE)
            await one.fed()
            found.fetchers.follow(moving, THREE)
            await three.fed()
            assert found.pullers[ONE][0].followed == []
            assert found.pullers[THREE][0].followed == [moving]
            # Nothing is followed at the first any more.
            await until(lambda: found.fetchers.leaders == {THREE: True})
            await until(lambda: one.feeders[0].closings)
            found.fetchers.follow(moving, ONE)
            await one.fed(1)
            assert found.pullers[ONE][1].followed == [moving]

    run(story)


def test_a_stream_outlives_a_moment_without_replicas() -> None:
    async def story() -> None:
        async with leader(1) as one, stage(linger_s=60) as found:
            found.obey(one)
            first, second = replica(), replica()
            found.fetchers.follow(first, ONE)
            await one.fed()
            found.fetchers.leave(first)
            found.fetchers.leave(first)
            found.fetchers.follow(second, ONE)
            assert [puller.followed for puller in found.pullers[ONE]] == [[second]]
            assert found.fetchers.leaders == {ONE: True}
            assert len(one.feeders) == 1

    run(story)


def test_another_process_of_a_leader_is_dialled_when_the_metadata_name_it() -> None:
    async def story() -> None:
        async with leader(1) as one, stage() as found:
            found.obey(one)
            found.fetchers.follow(replica(), ONE)
            await one.fed()
            found.obey(one)
            found.obey(one, incarnation=uuid4())
            await one.fed(1)
            # A broker that the metadata do not know any more keeps its place until it is left.
            found.obey()
            assert found.pullers[ONE][0].connections == 2

    run(story)


def test_after_the_stop_nothing_is_followed() -> None:
    async def story() -> None:
        async with leader(1) as one, stage() as found:
            found.obey(one)
            found.fetchers.follow(replica(), ONE)
            await one.fed()
            await found.fetchers.stop()
            await until(lambda: one.feeders[0].closings)
            found.fetchers.follow(replica(), ONE)
            found.fetchers.leave(replica())
            assert found.fetchers.leaders == {}

    run(story)
