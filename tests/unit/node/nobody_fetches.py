"""In the place of the streams to leaders, for tests that are about something else."""

from __future__ import annotations

from ottla.controller.image import MetadataImage
from ottla.node.fetchers import Fetchers
from ottla.proto.ids import BrokerId
from ottla.replication.replica import Replica


class NobodyFetches(Fetchers):
    """What is followed here stays as it is."""

    def __init__(self) -> None:
        """Begin without anybody to dial."""

    def follow(self, replica: Replica, leader: BrokerId) -> None: ...

    def leave(self, replica: Replica) -> None: ...

    def obey(self, image: MetadataImage) -> None: ...

    async def stop(self) -> None: ...
