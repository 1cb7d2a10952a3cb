"""Brokers with a lifeline to controllers in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from ottla.controller.broker_life import State
from ottla.controller.door import Registration
from ottla.controller.image import MetadataImage
from ottla.node.clock import Clock
from ottla.node.cluster import ClusterController
from ottla.node.lifeline import Lifeline
from ottla.proto.ids import BrokerId
from tests.unit.node.doors import (
    BEAT_MS,
    Controllers,
    follower,
    registration,
)

CLOCK = Clock()
US, OTHER = BrokerId(7), BrokerId(8)


@dataclass(slots=True)
class Broker:
    """A broker, what it was told, and what became of it."""

    line: Lifeline
    metadata: ClusterController
    versions: list[int] = field(default_factory=list)
    deaths: list[str] = field(default_factory=list)

    async def up(self) -> int:
        epoch = await self.line.register()
        self.line.recovered({})
        await self.line.unfenced()
        return epoch

    def is_heard(self) -> bool:
        return self.line.is_heard(CLOCK.monotonic_ms())

    def state(self) -> State:
        return self.line.state


@asynccontextmanager
async def broker(
    controllers: Controllers, wanted: Registration | None = None
) -> AsyncIterator[Broker]:
    wanted = wanted or registration()
    metadata = follower(controllers, node_id=wanted.broker_id)
    line = Lifeline(
        registration=wanted,
        doors=controllers.doors,
        clock=CLOCK,
        session_ms=lambda: controllers.session_ms,
        heartbeat_ms=lambda: BEAT_MS,
        follower=metadata,
        on_death=lambda reason: one.deaths.append(reason),
    )
    one = Broker(line, metadata)

    async def listen(image: MetadataImage) -> None:
        one.versions.append(image.version)

    metadata.watch(listen)
    await line.start()
    try:
        async with asyncio.timeout(20):
            yield one
    finally:
        await line.stop()
        await metadata.close()
