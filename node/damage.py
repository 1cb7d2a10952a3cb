"""Partitions that this broker gives up alone, because its own copy of them is damaged.

Bad bytes were found when they were read (rule 55), or the log turned out to lack what it once had
as a follower (rule 44). The rest of the disk is well, so the broker goes on; but of these it must
be neither leader nor in sync nor eligible. It has the controllers told so, until they obey.

Whatever was obeyed is watched from then on: the controllers do not remember the damage, and who is
seen with a claim again (elected uncleanly, say, or taken in by a leader that heard a fetch late)
reports again.

Not here: who finds the damage (`ottla.replication`), what a report does (`controller/brokers.py`),
and a disk that fails as a whole (`Lifeline.want_fence`).

D1  one report is under way at a time, again and again until it is obeyed or the partition is gone
D2  while the whole disk is offline nothing is reported. The broker is fenced then, and its claims
    stay: a disk that was full is as good as ever once there is room
D3  a partition is known by its topic's id: of a topic that was made anew nothing is given up
D4  the sole replica of a partition is not given up: there is no better copy to wait for (rule 8)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from ottla.controller.commands import Partitions, ReportDamage
from ottla.controller.image import MetadataImage, PartitionInfo
from ottla.controller.office import in_pieces
from ottla.node.cluster import ClusterController
from ottla.node.logs import logger
from ottla.proto.errors import RequestError
from ottla.proto.ids import BrokerId, TopicPartition
from ottla.proto.kafka.uuids import UUID

_log = logger("node.damage")

# Between two reports of which the first was not obeyed.
RETRY_S: Final = 0.5


@dataclass(slots=True)
class _Damage:
    """What is known of one damaged partition."""

    partition: TopicPartition
    why: str
    # The version of the metadata in which it was given up last; None: it was not yet.
    version: int | None = None


class DamageReporter:
    """Gives damaged partitions up, and sees to it that they stay so. `close` it once."""

    def __init__(
        self,
        node_id: BrokerId,
        controller: ClusterController,
        *,
        broker_epoch: Callable[[], int | None],
        is_offline: Callable[[], bool],
        retry_s: float = RETRY_S,
    ) -> None:
        self._node_id: Final = node_id
        self._controller: Final = controller
        self._broker_epoch: Final = broker_epoch
        self._is_offline: Final = is_offline
        self._retry_s: Final = retry_s
        self._damaged: dict[tuple[UUID, int], _Damage] = {}
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    def report(self, partition: TopicPartition, topic_id: bytes, why: str) -> None:
        """Give up a partition, whose copy here is damaged for this reason. On the loop."""
        key = (UUID(bytes=topic_id), partition.partition)
        if key not in self._damaged:
            self._damaged[key] = _Damage(partition, why)
            self._begin()

    async def obey(self, image: MetadataImage) -> None:
        """Look whether the controllers believe in this broker again. Listens to every image."""
        if self._damaged:
            self._begin()

    async def close(self) -> None:
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    # ── Reporting ─────────────────────────────────────────────────────────────────────────────

    def _begin(self) -> None:
        is_idle = self._task is None or self._task.done()
        if is_idle and not self._is_closed and self._wanted():
            self._task = asyncio.get_running_loop().create_task(self._report_all())
            self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            what = {"message": "damage could not be reported", "exception": error}
            task.get_loop().call_exception_handler(what)

    def _wanted(self) -> Partitions:
        """Return what is to be reported now; forget what is not here any more."""
        if self._is_offline():
            return {}
        image = self._controller.image
        wanted: dict[UUID, list[int]] = {}
        for key, damage in list(self._damaged.items()):
            info = _find(image, *key)
            if info is None or self._node_id not in info.replicas:
                del self._damaged[key]
            elif self._is_due(damage, info, image.version):
                wanted.setdefault(key[0], []).append(key[1])
        return {topic_id: tuple(sorted(wanted[topic_id])) for topic_id in sorted(wanted)}

    def _is_due(self, damage: _Damage, info: PartitionInfo, version: int) -> bool:
        if len(info.replicas) == 1:
            return False
        if damage.version is None:
            # Also without a claim: one may be under way.
            return True
        has_claim = self._node_id in info.isr or self._node_id in info.elr
        return has_claim and version >= damage.version

    async def _report_all(self) -> None:
        while wanted := self._wanted():
            piece = next(in_pieces(wanted))
            problem = await self._report(piece)
            if problem is not None:
                _log.warning("damage_not_reported", reason=problem)
                await asyncio.sleep(self._retry_s)

    async def _report(self, piece: Partitions) -> str | None:
        """Have a report committed; return why it was not."""
        epoch = self._broker_epoch()
        if epoch is None:
            return "this broker is not registered"
        command = ReportDamage(self._node_id, epoch, piece)
        asking = self._controller.asking
        try:
            outcome = await asking.commit(command, client="", deadline_ms=asking.deadline())
        except RequestError as error:
            return error.sentence
        if outcome.refusal is not None:
            return outcome.refusal.sentence
        for topic_id, indexes in piece.items():
            for index in indexes:
                self._obeyed(self._damaged.get((topic_id, index)), outcome.version or 0)
        return None

    def _obeyed(self, damage: _Damage | None, version: int) -> None:
        if damage is None:
            return
        if damage.version is None:
            told = {"partition": str(damage.partition), "reason": damage.why}
            _log.error("partition_given_up", **told, version=version)
        damage.version = version


def _find(image: MetadataImage, topic_id: UUID, index: int) -> PartitionInfo | None:
    topic = image.topic_by_id(topic_id)
    if topic is None or index >= len(topic.partitions):
        return None
    return topic.partitions[index]
