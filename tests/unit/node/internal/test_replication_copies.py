"""A leader and a follower with real replicas, joined by real sockets: what is written is copied."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from statistics import median
from time import perf_counter
from uuid import uuid4

from ottla.controller.image import BrokerInfo
from ottla.controller.replay import first_state
from ottla.node.fetchers import Fetchers
from ottla.node.internal.entrance import Entrance
from ottla.node.internal.identity import WhoIAm
from ottla.node.internal.listener import InternalListener
from ottla.node.internal.replication_service import ReplicationService
from ottla.proto.ids import BrokerId, Offset
from ottla.proto.options.endpoints import Address
from ottla.replication.feeding import Feeder
from ottla.replication.pulling import Puller
from ottla.replication.replica import Replica
from tests.builders import NOW_MS, produced
from tests.unit.node.internal.link import CLUSTER_ID, following, now_ms, run, until
from tests.unit.replication.stream import (
    BROKER_EPOCHS,
    EPOCH,
    FOLLOWER,
    LEADER,
    TOPIC_ID,
    Broker,
    Clock,
    bytes_of,
    view,
)


class RealClock(Clock):
    def read(self) -> int:
        return now_ms()


class Pair:
    """Two brokers with the same partitions."""

    def __init__(self, count: int) -> None:
        self.leader = Broker(LEADER, RealClock())
        self.follower = Broker(FOLLOWER, RealClock())
        for index in range(count):
            self.leader.make(index).lead(view())
            self.follower.make(index).follow(EPOCH, LEADER)
        own = replace(following(), broker_epoch=lambda: BROKER_EPOCHS[FOLLOWER])
        self.fetchers = Fetchers(own, self._make_puller)
        self.address = Address("127.0.0.1", 0)

    def _make_puller(self, leader: BrokerId, wake: Callable[[], None]) -> Puller:
        epoch = BROKER_EPOCHS[FOLLOWER]
        return Puller(leader, broker_epoch=lambda: epoch, now_ms=now_ms, wake=wake)

    def _make_feeder(
        self, follower: BrokerId, wake: Callable[[], None], look: Callable[[], None]
    ) -> Feeder:
        return Feeder(
            follower,
            self.leader.find,
            bytes_max=lambda: 10 << 20,
            wait_ms=lambda: 500,
            now_ms=now_ms,
            wake=wake,
            look=look,
        )

    def led(self, index: int = 0) -> Replica:
        return self.leader.replicas[TOPIC_ID, index]

    def followed(self, index: int = 0) -> Replica:
        return self.follower.replicas[TOPIC_ID, index]

    def write(self, *values: bytes, index: int = 0) -> None:
        self.led(index).append([produced(value) for value in values], now_ms=NOW_MS)

    def is_copied(self) -> bool:
        """Whether all is committed, and the same on both."""
        return all(
            led.log.high_watermark == led.log.end_offset == followed.log.end_offset
            and bytes_of(led.log) == bytes_of(followed.log)
            for key, led in self.leader.replicas.items()
            for followed in (self.follower.replicas[key],)
        )

    @asynccontextmanager
    async def leading(self) -> AsyncIterator[ReplicationService]:
        """Let a process of the leader run, at the address of the one before."""
        me = WhoIAm(LEADER, uuid4(), CLUSTER_ID)
        entrance = Entrance(Address("127.0.0.1", 0), None)
        told = entrance.bind()
        service = ReplicationService(
            me=me,
            make_feeder=self._make_feeder,
            is_broker=lambda broker: True,
            now_ms=now_ms,
            verifier=None,
            where=lambda: told,
        )
        entrance.start(service.redeem)
        listener = InternalListener(self.address, None)
        listener.add(service.handler)
        self.address = listener.bind()
        await listener.start()
        known = BrokerInfo(
            LEADER,
            "nowhere",
            1,
            incarnation=me.incarnation,
            internal_host=self.address.host,
            internal_port=self.address.port,
        )
        self.fetchers.obey(replace(first_state(CLUSTER_ID).image, brokers={LEADER: known}))
        try:
            yield service
        finally:
            await entrance.stop()
            await service.stop()
            await listener.stop(0)
            assert not any(replica.feeds for replica in self.leader.replicas.values())

    def follow(self) -> None:
        for replica in self.follower.replicas.values():
            self.fetchers.follow(replica, LEADER)


@asynccontextmanager
async def pair(count: int = 1) -> AsyncIterator[Pair]:
    found = Pair(count)
    try:
        yield found
    finally:
        await found.fetchers.stop()


def test_what_is_written_is_copied_and_then_committed() -> None:
    async def story() -> None:
        async with pair(3) as both, both.leading():
            both.write(b"before")
            both.follow()
            await until(both.is_copied)
            for number in range(20):
                for index in range(3):
                    both.write(b"%d" % number, b"and another", index=index)
                await asyncio.sleep(0)
            await until(both.is_copied)
            assert [both.led(index).log.end_offset for index in range(3)] == [41, 40, 40]

    run(story)


def test_a_write_is_committed_without_waiting_for_a_timer() -> None:
    async def story() -> None:
        async with pair() as both, both.leading():
            both.follow()
            both.write(b"first")
            await until(both.is_copied)
            took_ms = []
            for _ in range(50):
                began, end = perf_counter(), both.led().log.end_offset
                both.write(b"x" * 100)
                while both.led().log.high_watermark == end:  # noqa: ASYNC110  # to be seen at once
                    await asyncio.sleep(0)
                took_ms.append(1000 * (perf_counter() - began))
            print(f"committed after {median(took_ms):.2f} ms, at most {max(took_ms):.2f}")
            assert median(took_ms) < 200

    run(story)


def test_after_the_leader_has_started_again_the_copy_goes_on() -> None:
    async def story() -> None:
        async with pair(2) as both:
            both.follow()
            for round_number in range(3):
                async with both.leading():
                    for index in range(2):
                        both.write(b"%d" % round_number * 1000, index=index)
                    await until(both.is_copied)
                # Nobody is there to copy it until the next round.
                both.write(b"alone")
            async with both.leading():
                await until(both.is_copied)
            assert both.followed().log.end_offset == Offset(6)

    run(story)


def test_what_is_left_is_fed_no_more() -> None:
    async def story() -> None:
        async with pair(2) as both, both.leading():
            both.follow()
            both.write(b"a")
            both.write(b"b", index=1)
            await until(both.is_copied)
            both.fetchers.leave(both.followed(1))
            await until(lambda: not both.led(1).feeds)
            assert both.led(0).feeds
            both.write(b"c", index=1)
            both.write(b"d")
            await until(lambda: both.led().log.high_watermark == 2)
            assert both.followed(1).log.end_offset == 1
            both.fetchers.follow(both.followed(1), LEADER)
            await until(both.is_copied)

    run(story)
