"""Counts what a controller does: how long proposals take, who was elected, whom a voter hears.

Not here: the numbers of other things (`metrics.py`), and the quorum (`ottla.controller.quorum`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.controller.image import MetadataImage, TopicInfo
from ottla.controller.quorum.member import QuorumMember
from ottla.controller.quorum.messages import Envelope
from ottla.controller.quorum.port import Committed, Outcome, QuorumStatus
from ottla.controller.quorum.runner import RunningMember
from ottla.node.clock import Clock
from ottla.node.metrics import ControllerMetrics
from ottla.node.stream_counts import QUORUM, StreamCounts


class CountedMember(RunningMember):
    """Takes the time of what is committed, and notes when other voters were heard."""

    def __init__(
        self,
        member: QuorumMember,
        watcher: Callable[[QuorumStatus], None],
        *,
        counts: ControllerMetrics,
        streams: StreamCounts,
        clock: Clock,
    ) -> None:
        super().__init__(member, watcher)
        self._counts: Final = counts
        self._streams: Final = streams
        self._clock: Final = clock

    async def propose(self, command: bytes, timeout_ms: int) -> Outcome:
        began_us = self._clock.monotonic_us()
        outcome = await super().propose(command, timeout_ms)
        # What was refused or is unknown has no duration: it did not happen, or nobody can tell.
        if isinstance(outcome, Committed):
            self._counts.proposals.observe((self._clock.monotonic_us() - began_us) / 1e6)
        return outcome

    def deliver(self, envelope: Envelope, *, verified_as: int | None = None) -> bool:
        self._streams.of(QUORUM, envelope.sender).heard_ms = self._clock.monotonic_ms()
        return super().deliver(envelope, verified_as=verified_as)


class ElectionCounts:
    """Compares each image with the one before it, while this controller leads the quorum.

    Every voter sees every election; only one of them may count it.
    """

    def __init__(self, counts: ControllerMetrics, leads: Callable[[], bool]) -> None:
        self._counts: Final = counts
        self._leads: Final = leads
        self._before: MetadataImage | None = None

    def obey(self, image: MetadataImage) -> None:
        before, self._before = self._before, image
        if before is None or before.topics is image.topics or not self._leads():
            return
        for name, topic in image.topics.items():
            old = before.topics.get(name)
            # What stayed the same is the same object in both.
            if old is not None and old is not topic and old.topic_id == topic.topic_id:
                self._compare(old, topic)

    def _compare(self, old: TopicInfo, new: TopicInfo) -> None:
        for was, now in zip(old.partitions, new.partitions, strict=False):
            if now.leader is None or now.leader_epoch == was.leader_epoch:
                continue
            self._counts.elections += 1
            self._counts.unclean_elections += now.last_unclean_epoch == now.leader_epoch
