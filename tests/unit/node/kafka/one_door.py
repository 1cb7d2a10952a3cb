"""The controllers of a cluster, in memory, behind the one door that a broker of a test has.

The broker's side is the real one (`ClusterController`). Behind the door is the metadata's state
machine, fed with the bytes that come through it; what they changed goes back as news before they
are answered. There is no quorum, no network and no waiting.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

from ottla.controller.delta import encode_delta
from ottla.controller.door import (
    DoorClosedError,
    Line,
    News,
    NotActive,
    QuorumView,
    Registered,
    Registration,
)
from ottla.controller.outcome import Outcome
from ottla.controller.port import CheckConfigs, TopicDefaults
from ottla.controller.proposal import NO_REQUEST, Proposal, encode_proposal
from ottla.controller.quorum.membership import Standing
from ottla.controller.quorum.port import QuorumStatus, Role
from ottla.controller.snapshot import encode_image
from ottla.node.clock import Clock
from ottla.node.cluster import ClusterController
from ottla.proto.ids import BrokerId
from ottla.proto.kafka.uuids import UUID
from tests.unit.controller.cluster import CLUSTER_ID, Cluster

__all__ = ["CLUSTER_ID", "Cluster", "OneDoor"]


class OneDoor:
    """The door of the only controller. `open` once, before anything is asked."""

    def __init__(self, cluster: Cluster, node_id: BrokerId) -> None:
        self.cluster = cluster
        self.node_id = node_id
        # Nobody answers any more.
        self.is_closed = False
        # Whoever is asked says that he is not the one.
        self.is_deposed = False
        self.clients: list[str] = []
        self.view = QuorumView(_status_of(node_id))
        self._news: deque[News] = deque()
        self._controller: ClusterController | None = None

    def open(
        self,
        *,
        check_configs: CheckConfigs,
        defaults: Callable[[], TopicDefaults],
        new_uuid: Callable[[], UUID],
        clock: Clock,
        timeout_ms: int = 10_000,
    ) -> ClusterController:
        """Start this broker anew, and return how it asks. It has no news yet (`tell`)."""
        wanted = replace(
            self.cluster.registration(self.node_id), host="127.0.0.1", internal_host="127.0.0.1"
        )
        outcome = self.cluster.feed(encode_proposal(Proposal(NO_REQUEST, wanted)))
        assert outcome.refusal is None, outcome.refusal
        self.cluster.unfence(self.node_id)
        self._controller = ClusterController(
            node_id=self.node_id,
            image=self.cluster.image,
            doors={int(self.node_id): self},
            check_configs=check_configs,
            defaults=defaults,
            new_uuid=new_uuid,
            clock=clock,
            timeout_ms=timeout_ms,
        )
        assert outcome.epoch is not None
        self._controller.begin_session(outcome.epoch)
        return self._controller

    async def tell(self) -> None:
        """Have the broker see everything, as a whole image."""
        image = self.cluster.image
        await self._pass_on(News(encode_image(image), is_image=True, version=image.version))

    async def _pass_on(self, news: News) -> None:
        assert self._controller is not None
        self._news.append(news)
        # Who is at it takes ours too.
        while self._news and not self._controller.following.is_busy:
            assert await self._controller.take_news(self._news.popleft())

    # ── What a broker asks ────────────────────────────────────────────────────────────────────

    async def propose(self, proposal: bytes, *, client: str) -> Outcome | NotActive:
        if self._refuses():
            return NotActive(None)
        self.clients.append(client)
        outcome = self.cluster.feed(proposal)
        delta = self.cluster.machine.last_delta
        if delta is not None:
            await self._pass_on(News(encode_delta(delta), is_image=False, version=delta.version))
        return outcome

    async def read_version(self) -> int | NotActive:
        return NotActive(None) if self._refuses() else self.cluster.image.version

    async def describe_quorum(self) -> QuorumView | NotActive:
        return NotActive(None) if self._refuses() else self.view

    def _refuses(self) -> bool:
        if self.is_closed:
            raise DoorClosedError("Nobody answers.")
        return self.is_deposed

    # ── What only a whole node asks ───────────────────────────────────────────────────────────

    async def register(self, wanted: Registration) -> Registered:
        raise AssertionError("a request does not ask for this")

    def open_line(self) -> Line:
        raise AssertionError("a request does not ask for this")

    def follow(self, version: int, digest: bytes) -> AsyncIterator[News]:
        raise AssertionError("a request does not ask for this")


def _status_of(node_id: BrokerId) -> QuorumStatus:
    return QuorumStatus(
        node_id=node_id,
        standing=Standing.VOTER,
        role=Role.LEADER,
        term=1,
        leader=node_id,
        voters=(node_id,),
        first_index=1,
        last_index=5,
        commit_index=5,
        applied_index=5,
    )
