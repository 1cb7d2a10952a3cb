from __future__ import annotations

import asyncio
import io
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from ottla.controller.commands import (
    AlterPartitions,
    CreateTopic,
    DeleteTopic,
    PartitionChange,
    ReportDamage,
)
from ottla.controller.door import Denied
from ottla.controller.image import PartitionInfo
from ottla.controller.port import NewTopic, TopicDefaults
from ottla.controller.proposal import decode_proposal
from ottla.node import logs
from ottla.node.clock import Clock
from ottla.node.damage import DamageReporter
from ottla.proto.errors import ErrorCode
from ottla.proto.ids import BrokerId, TopicPartition
from ottla.proto.kafka.uuids import UUID
from tests.unit.node.doors import Controllers, registration, until
from tests.unit.node.lifelines import OTHER, US, Broker, broker

TOPIC = UUID(int=1 << 70)
HERE = TopicPartition("t", 0)
WHY = "bad bytes at offset 5"


@dataclass(slots=True)
class Stage:
    """Two brokers, one topic on both, and what one of them reports."""

    controllers: Controllers
    us: Broker
    reporter: DamageReporter
    offline: list[str] = field(default_factory=list)

    @property
    def partition(self) -> PartitionInfo:
        return self.controllers.image.topics["t"].partitions[0]

    @property
    def reports(self) -> list[ReportDamage]:
        """What was reported, as often as it was committed."""
        read = [decode_proposal(data, feature_level=1).command for data in self.controllers.fed]
        return [one for one in read if isinstance(one, ReportDamage)]

    def create(self, *replicas: BrokerId, topic_id: UUID = TOPIC) -> None:
        configs = {"min.insync.replicas": "2"}
        wanted = NewTopic("t", assignments={0: replicas}, configs=configs)
        self.controllers.do(CreateTopic(wanted, topic_id, TopicDefaults(1, 1), 1))

    def ask(self, leader: Broker, *isr: BrokerId) -> None:
        """Have the leader ask for an in-sync set."""
        now, epoch = self.partition, leader.line.broker_epoch
        members = tuple((one, -1) for one in isr)
        change = PartitionChange(TOPIC, 0, now.leader_epoch, now.partition_epoch, members)
        assert epoch is not None
        self.controllers.do(AlterPartitions(OTHER, epoch, (change,)))

    async def followed(self) -> None:
        """Wait until this broker has seen everything, and a little longer."""
        await self.us.metadata.following.reached(self.controllers.image.version)
        for _ in range(20):
            await asyncio.sleep(0)


@asynccontextmanager
async def _stage() -> AsyncIterator[tuple[Stage, Broker]]:
    controllers = Controllers(1)
    async with (
        broker(controllers) as us,
        broker(controllers, registration(OTHER)) as other,
    ):
        await us.up()
        await other.up()
        offline: list[str] = []
        reporter = DamageReporter(
            US,
            us.metadata,
            broker_epoch=lambda: us.line.broker_epoch,
            is_offline=lambda: bool(offline),
            retry_s=0.01,
        )
        us.metadata.watch(reporter.obey)
        stage = Stage(controllers, us, reporter, offline)
        try:
            yield stage, other
        finally:
            await reporter.close()


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """The log of the node, to be read again."""
    sink, root = logs._current.sink, logging.getLogger()
    handlers, level = list(root.handlers), root.level
    stream = io.StringIO()
    logs.setup("text", "info", stream=stream, clock=Clock())
    yield stream
    logs._current.sink = sink
    root.handlers[:] = handlers
    root.setLevel(level)


def test_rule_55_a_damaged_partition_is_given_up_and_told_once(log: io.StringIO) -> None:
    async def story() -> None:
        async with _stage() as (stage, _):
            stage.create(US, OTHER)
            await stage.followed()
            stage.reporter.report(HERE, TOPIC.bytes, WHY)
            stage.reporter.report(HERE, TOPIC.bytes, "another reason")
            await until(lambda: stage.partition.leader == OTHER)
            assert stage.partition.isr == (OTHER,)
            assert stage.partition.elr == ()
            await stage.followed()
            assert len(stage.reports) == 1
            assert stage.us.line.state.value == "unfenced"

    asyncio.run(story())
    told = [line for line in log.getvalue().splitlines() if "partition_given_up" in line]
    assert len(told) == 1
    assert WHY in told[0]


def test_it_is_reported_again_until_it_is_obeyed() -> None:
    async def story() -> None:
        async with _stage() as (stage, _):
            stage.create(US, OTHER)
            await stage.followed()
            door = stage.controllers.doors[1]
            door.answers = [Denied(ErrorCode.UNKNOWN_SERVER_ERROR, "Not now.")] * 3
            stage.reporter.report(HERE, TOPIC.bytes, WHY)
            await until(lambda: stage.partition.leader == OTHER)
            assert not door.answers

    asyncio.run(story())


def test_who_is_taken_in_again_reports_again() -> None:
    async def story() -> None:
        async with _stage() as (stage, other):
            stage.create(OTHER, US)
            await stage.followed()
            stage.reporter.report(HERE, TOPIC.bytes, WHY)
            await until(lambda: US not in stage.partition.isr)
            await stage.followed()
            # A fetch was long under way, and the leader believes in it.
            stage.ask(other, OTHER, US)
            assert US in stage.partition.isr
            await until(lambda: US not in stage.partition.isr)
            await stage.followed()
            assert len(stage.reports) == 2

    asyncio.run(story())


def test_a_report_is_sent_although_there_is_no_claim_yet() -> None:
    async def story() -> None:
        async with _stage() as (stage, other):
            stage.create(OTHER, US)
            stage.ask(other, OTHER)
            stage.controllers.do(ReportDamage(US, stage.us.line.broker_epoch or 0, {TOPIC: (0,)}))
            await stage.followed()
            assert (stage.partition.isr, stage.partition.elr) == ((OTHER,), ())
            before = stage.partition.partition_epoch
            stage.reporter.report(HERE, TOPIC.bytes, WHY)
            await until(lambda: stage.partition.partition_epoch > before)

    asyncio.run(story())


def test_while_the_whole_disk_is_offline_nothing_is_reported() -> None:
    async def story() -> None:
        async with _stage() as (stage, _):
            stage.create(US, OTHER)
            await stage.followed()
            stage.offline.append("the disk is full")
            stage.reporter.report(HERE, TOPIC.bytes, WHY)
            stage.us.line.want_fence("the disk is full")
            await until(lambda: stage.partition.leader == OTHER)
            await stage.followed()
            assert not stage.reports
            assert stage.partition.elr == (US,)

    asyncio.run(story())


def test_rule_8_the_sole_replica_is_not_given_up() -> None:
    async def story() -> None:
        async with _stage() as (stage, _):
            stage.create(US)
            await stage.followed()
            stage.reporter.report(HERE, TOPIC.bytes, WHY)
            await stage.followed()
            assert not stage.reports
            assert stage.partition.leader == US

    asyncio.run(story())


def test_rule_5_a_topic_that_was_made_anew_is_not_given_up() -> None:
    async def story() -> None:
        async with _stage() as (stage, _):
            stage.create(US, OTHER)
            await stage.followed()
            stage.controllers.doors[1].held_in = asyncio.Event()
            stage.reporter.report(HERE, TOPIC.bytes, WHY)
            stage.controllers.do(DeleteTopic("t", TOPIC))
            stage.create(US, OTHER, topic_id=UUID(int=2 << 70))
            stage.controllers.doors[1].held_in.set()
            await stage.followed()
            assert stage.partition.leader == US

    asyncio.run(story())


def test_a_reporter_that_is_closed_gives_up() -> None:
    async def story() -> None:
        async with _stage() as (stage, _):
            stage.create(US, OTHER)
            await stage.followed()
            stage.controllers.elect(None)
            stage.reporter.report(HERE, TOPIC.bytes, WHY)
            await stage.followed()
            await stage.reporter.close()
            stage.reporter.report(TopicPartition("t", 1), TOPIC.bytes, WHY)
            assert not stage.reports

    asyncio.run(story())
