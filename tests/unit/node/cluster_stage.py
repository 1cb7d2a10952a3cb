"""A broker that is up, and its controllers, for the tests of what requests ask for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from ottla.controller.image import TopicInfo
from ottla.controller.port import NewTopic
from ottla.node.clock import Clock
from ottla.node.cluster import ClusterController
from ottla.node.lifeline import Lifeline
from ottla.proto.errors import ErrorCode, RequestError
from ottla.proto.ids import BrokerId
from tests.unit.node.doors import BEAT_MS, Controllers, follower, registration

US, OTHER = BrokerId(7), BrokerId(8)


@dataclass(slots=True)
class Stage:
    """Three controllers and a broker that is up."""

    controllers: Controllers
    line: Lifeline
    broker: ClusterController

    async def create(self, *names: str) -> list[TopicInfo | RequestError]:
        return await self.broker.create_topics(
            [NewTopic(one) for one in names], validate_only=False
        )

    def hold_back(self, version: int | None) -> None:
        """Let no controller give metadata after this version."""
        for door in self.controllers.doors.values():
            door.limit(version)


@asynccontextmanager
async def stage(*, timeout_ms: int = 5_000, brokers: int = 1) -> AsyncIterator[Stage]:
    controllers = Controllers(1, 2, 3)
    stages = []
    for broker_id in range(US, US + brokers):
        broker = follower(
            controllers, node_id=broker_id, timeout_ms=timeout_ms, first_id=1000 * (broker_id - US)
        )
        line = Lifeline(
            registration=registration(broker_id),
            doors=controllers.doors,
            clock=Clock(),
            session_ms=lambda: 5_000,
            heartbeat_ms=lambda: BEAT_MS,
            follower=broker,
        )
        stages.append(Stage(controllers, line, broker))
        await line.start()
        await line.register()
        line.recovered({})
        await line.unfenced()
    try:
        yield stages[0]
    finally:
        for one in stages:
            await one.line.stop()
            await one.broker.close()


def run(story: Callable[[Stage], Awaitable[None]], *, timeout_ms: int = 5_000) -> None:
    async def whole() -> None:
        async with stage(timeout_ms=timeout_ms) as one:
            await story(one)

    asyncio.run(whole())


def code_of(answer: object) -> ErrorCode | None:
    return answer.code if isinstance(answer, RequestError) else None
