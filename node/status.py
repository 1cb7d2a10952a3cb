"""What a node tells about itself: ready or not, where it listens, its cluster, its partitions.

The same walk over the partitions makes the page `/status` and the gauges of `/metrics`.

Not here: HTTP (`http.py`), what is counted while working (`metrics.py`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from http import HTTPStatus
from typing import Any, Final, Protocol

from ottla.controller.image import MetadataImage, TopicInfo
from ottla.node import metric_table as table
from ottla.node.exposition import CONTENT_TYPE, exposition
from ottla.node.facts import BrokerFacts, QuorumFacts
from ottla.node.http import JSON, Answer, Route
from ottla.node.metrics import Metrics, Reading
from ottla.node.readiness import Condition, why_not_ready
from ottla.proto.ids import BrokerId
from ottla.proto.options.topic import MIN_INSYNC_REPLICAS
from ottla.replication.leader import LeaderCore
from ottla.replication.progress import UNKNOWN_OFFSET
from ottla.replication.replica import Replica

PARTITIONS_MAX: Final = 1_000
# Replicas on one node with gauges of their own: four series each.
PARTITION_ROWS_MAX: Final = 2_000
# Partitions looked at between two pauses.
_PART: Final = 25


@dataclass(frozen=True, slots=True)
class FollowerStatus:
    """A follower of a partition that is led here."""

    broker: BrokerId
    is_in_sync: bool
    # Everything below is there; None: nothing was heard of it since this leader was elected.
    held_offset: int | None
    # How many records it lacks.
    lag: int | None


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One replica on this node, and what the metadata says of its partition."""

    topic: str
    partition: int
    leader: BrokerId | None
    leader_epoch: int
    start_offset: int
    high_watermark: int
    # Exclusive, as everywhere.
    end_offset: int
    size_bytes: int
    segment_count: int
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    # How many in-sync replicas acks=all needs.
    isr_min: int
    # Why it serves nothing, or None.
    offline: str | None
    # Who may lead besides those in sync, without a loss (KIP-966).
    elr: tuple[BrokerId, ...] = ()
    # Empty where this node does not lead.
    followers: tuple[FollowerStatus, ...] = ()

    @property
    def lag_max(self) -> int:
        """How many records the slowest follower lacks, of those that were heard."""
        return max((one.lag for one in self.followers if one.lag is not None), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """The node as a whole, now."""

    node_id: BrokerId
    cluster_id: str
    version: str
    roles: tuple[str, ...]
    # By name of the listener: where it really listens.
    listeners: Mapping[str, str]
    uptime_ms: int
    partition_count: int
    # Ready while all of them hold.
    conditions: tuple[Condition, ...] = ()
    # Its place in the cluster: as a controller, and as a broker; None where it is neither.
    quorum: QuorumFacts | None = None
    broker: BrokerFacts | None = None
    # Anything else worth a line, by name.
    more: Mapping[str, str | int] = field(default_factory=dict)

    @property
    def not_ready(self) -> str | None:
        """Why clients are not served yet, or not any more; None when they are."""
        return why_not_ready(self.conditions)


class NodeView(Protocol):
    """What the pages ask the node for."""

    def status(self) -> NodeStatus: ...

    def partitions(self) -> Iterable[PartitionStatus]:
        """Walk over what is here now. Other work is done in between (`Replicas` allows that)."""


def partition_statuses(
    replicas: Iterable[Replica], image: MetadataImage, isr_min_of: Callable[[str], int]
) -> Iterator[PartitionStatus]:
    """Yield the status of each replica; `isr_min_of` gives min.insync.replicas of a topic."""
    isr_min = _IsrMin(isr_min_of)
    for replica in replicas:
        log, name = replica.log, replica.partition
        topic = image.topic(name.topic)
        info = None
        # A partition that was deleted a moment ago is in no image any more.
        if topic is not None and name.partition < len(topic.partitions):
            info = topic.partitions[name.partition]
        yield PartitionStatus(
            topic=name.topic,
            partition=name.partition,
            leader=None if info is None else info.leader,
            leader_epoch=replica.leader_epoch,
            start_offset=log.start_offset,
            high_watermark=log.high_watermark,
            end_offset=log.end_offset,
            size_bytes=log.size_bytes,
            segment_count=len(log.segments),
            replicas=() if info is None else info.replicas,
            isr=() if info is None else info.isr,
            isr_min=1 if topic is None else isr_min.of(topic),
            offline=log.offline or replica.failure,
            elr=() if info is None else info.elr,
            followers=() if replica.leader is None else tuple(_followers(replica.leader)),
        )


def _followers(core: LeaderCore) -> Iterator[FollowerStatus]:
    for broker in core.view.replicas:
        try:
            one = core.progress_of(broker)
        except KeyError:
            # The leader follows nobody.
            continue
        if one.held_offset == UNKNOWN_OFFSET:
            yield FollowerStatus(broker, one.is_in_isr, None, None)
        else:
            lag = max(0, core.end_offset - one.held_offset)
            yield FollowerStatus(broker, one.is_in_isr, one.held_offset, lag)


class _IsrMin:
    """Remembers, during one walk, what is costly to work out from a topic's options."""

    def __init__(self, isr_min_of: Callable[[str], int]) -> None:
        self._isr_min_of: Final = isr_min_of
        # It depends on what the topic says itself, which most do not, and on its replicas.
        self._known: dict[tuple[str | None, int], int] = {}

    def of(self, topic: TopicInfo) -> int:
        key = (topic.configs.get(MIN_INSYNC_REPLICAS.name), topic.replication_factor)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._isr_min_of(topic.name)
        return found


# ── Gauges ────────────────────────────────────────────────────────────────────────────────────


def node_readings(node: NodeStatus) -> Iterator[Reading]:
    """Yield what is told of every node, whatever its roles."""
    yield Reading(table.NODE_READY, int(node.not_ready is None))
    quorum = node.quorum
    if quorum is not None and quorum.last_index is not None and quorum.commit_index is not None:
        yield Reading(table.COMMIT_LAG, quorum.last_index - quorum.commit_index)


def directory_readings(offline: str | None) -> Iterator[Reading]:
    """Yield whether the data directory serves; `offline` is why it does not."""
    yield Reading(table.OFFLINE_DIRECTORIES, int(offline is not None))


def tells_each(partition_count: int) -> bool:
    """Return whether so many partitions have gauges of their own.

    All or none of them: a sum that Prometheus makes over partitions is right, or is not there.
    """
    return partition_count <= PARTITION_ROWS_MAX


def replica_readings(
    node_id: BrokerId, partitions: Iterable[PartitionStatus], *, tells_each: bool = True
) -> Iterator[Reading]:
    """Yield the gauges of each log here if they are wanted, and then those over all of them."""
    count = led = offline = under_replicated = under_min = at_min = lag_max = size_bytes = 0
    lags: dict[BrokerId, int] = {}
    for status in partitions:
        if tells_each:
            labels = (status.topic, str(status.partition))
            yield Reading(table.LOG_SIZE, status.size_bytes, labels)
            yield Reading(table.LOG_START, status.start_offset, labels)
            yield Reading(table.LOG_END, status.end_offset, labels)
            yield Reading(table.LOG_SEGMENTS, status.segment_count, labels)
        count += 1
        size_bytes += status.size_bytes
        offline += status.offline is not None
        if status.leader == node_id:
            in_sync = len(status.isr)
            led += 1
            under_replicated += in_sync < len(status.replicas)
            under_min += in_sync < status.isr_min
            at_min += in_sync == status.isr_min
            lag_max = max(lag_max, status.lag_max)
            for one in status.followers:
                if one.lag is not None:
                    lags[one.broker] = max(lags.get(one.broker, 0), one.lag)
    yield Reading(table.LOGS_SIZE, size_bytes)
    for follower, lag in lags.items():
        yield Reading(table.FOLLOWER_LAG, lag, (str(follower),))
    yield Reading(table.PARTITION_COUNT, count)
    yield Reading(table.LEADER_COUNT, led)
    yield Reading(table.OFFLINE_REPLICAS, offline)
    yield Reading(table.UNDER_REPLICATED, under_replicated)
    yield Reading(table.UNDER_MIN_ISR, under_min)
    yield Reading(table.AT_MIN_ISR, at_min)
    yield Reading(table.REPLICATION_LAG, lag_max)


def cluster_readings(
    node_id: BrokerId, image: MetadataImage, *, leads: bool = True
) -> Iterator[Reading]:
    """Yield what the active controller tells of the cluster; the others only that they are not.

    `leads` is whether this node leads the quorum: one that was deposed may not have heard who took
    office.
    """
    is_active = leads and image.controller_id == node_id
    yield Reading(table.ACTIVE_CONTROLLER, int(is_active))
    if not is_active:
        return
    # An image never changes, so the walk may be long.
    count = leaderless = imbalanced = 0
    for topic in image.topics.values():
        count += len(topic.partitions)
        for partition in topic.partitions:
            leaderless += partition.leader is None
            imbalanced += partition.leader != partition.replicas[0]
    fenced = sum(broker.is_fenced for broker in image.brokers.values())
    yield Reading(table.ACTIVE_BROKERS, len(image.brokers) - fenced)
    yield Reading(table.FENCED_BROKERS, fenced)
    yield Reading(table.GLOBAL_TOPICS, len(image.topics))
    yield Reading(table.GLOBAL_PARTITIONS, count)
    yield Reading(table.OFFLINE_PARTITIONS, leaderless)
    yield Reading(table.PREFERRED_IMBALANCE, imbalanced)


# ── Pages ─────────────────────────────────────────────────────────────────────────────────────


def pages(view: NodeView, metrics: Metrics) -> dict[str, Route]:
    """Return the pages of a node, for `HttpListener`."""

    async def shows_metrics(_query: Mapping[str, str]) -> Answer:
        return Answer(HTTPStatus.OK, await exposition(metrics), CONTENT_TYPE)

    async def shows_live(_query: Mapping[str, str]) -> Answer:
        # Who answers is alive: this page is served by the loop that serves everything.
        return _json({"live": True})

    async def shows_ready(_query: Mapping[str, str]) -> Answer:
        return ready_answer(view.status())

    async def shows_status(query: Mapping[str, str]) -> Answer:
        return await status_answer(view, query.get("topic"))

    async def shows_index(_query: Mapping[str, str]) -> Answer:
        return Answer(HTTPStatus.OK, _INDEX)

    return {
        "/": shows_index,
        "/metrics": shows_metrics,
        "/health/live": shows_live,
        "/health/ready": shows_ready,
        "/status": shows_status,
    }


_INDEX: Final = b"""\
ottla

/metrics        for Prometheus
/health/live    200 while the process works
/health/ready   200 while clients are served, else 503; every condition, and what is waited for
/status         this node and its partitions, as JSON; ?topic=orders for those of one topic
/digest         the batches of a replica, as JSON: ?topic=orders&partition=0
"""


def ready_answer(node: NodeStatus) -> Answer:
    """Return 200 if clients are served, else 503 with the reason; in any case every condition."""
    told = {"node_id": node.node_id, **_readiness(node)}
    is_ready = node.not_ready is None
    return _json(told, HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE)


def _readiness(node: NodeStatus) -> dict[str, Any]:
    """Return what all pages tell alike."""
    return {
        "ready": node.not_ready is None,
        "reason": node.not_ready,
        "conditions": [_condition(one) for one in node.conditions],
    }


def _condition(one: Condition) -> dict[str, Any]:
    return {"name": one.name, "holds": one.holds, "reason": one.reason}


async def status_answer(view: NodeView, topic: str | None = None) -> Answer:
    """Return the node and its first partitions, or the first of one topic."""
    node = view.status()
    shown: list[dict[str, Any]] = []
    found = 0
    for number, status in enumerate(view.partitions()):
        if number % _PART == _PART - 1:
            await asyncio.sleep(0)
        if topic is None or status.topic == topic:
            found += 1
            if len(shown) < PARTITIONS_MAX:
                shown.append(asdict(status))
            elif topic is None:
                # How many there are is known without a walk.
                found = node.partition_count
                break
    if topic is not None and not found:
        sentence = "this node has no partition of that topic"
        return _json({"topic": topic, "reason": sentence}, HTTPStatus.NOT_FOUND)
    told: dict[str, Any] = asdict(node)
    told |= {**_readiness(node), "partitions": shown}
    if found > len(shown):
        told["note"] = f"the first {len(shown)} of {found} partitions; ?topic= shows one topic's"
    return _json(told)


def _json(told: Mapping[str, Any], status: HTTPStatus = HTTPStatus.OK) -> Answer:
    return Answer(status, json.dumps(told).encode() + b"\n", JSON)
