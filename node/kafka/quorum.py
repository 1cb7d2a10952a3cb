"""DescribeQuorum: how the controllers are, under the names of Kafka's own quorum.

Kafka keeps its metadata in a topic of one partition. Here it is a Raft journal, told as if it were
one: the leader epoch is the Raft term, the high watermark is the index of the last committed entry,
and a voter's end offset is the index of the last entry that it has acknowledged. An observer's is
the index up to which it has followed the metadata.

Entries are sent to voters, nobody fetches them. So there is no time of a last fetch, and the time
at which a voter had caught up is told only of one that has: it is now.

Not here: the quorum (`ottla.controller.quorum`).
"""

from __future__ import annotations

from base64 import urlsafe_b64decode
from typing import TYPE_CHECKING, Any, Final

from ottla.controller.door import QuorumView
from ottla.controller.names import METADATA_TOPIC
from ottla.controller.quorum.port import QuorumStatus
from ottla.node.kafka.refusals import error_fields
from ottla.node.kafka.requests import Request
from ottla.proto.errors import ErrorCode, RequestError
from ottla.proto.ids import BrokerId
from ottla.proto.kafka.message import Message
from ottla.proto.kafka.uuids import UUID, ZERO_UUID
from ottla.proto.options import node
from ottla.proto.options.endpoints import Address

if TYPE_CHECKING:
    from ottla.node.broker import Broker

# What Kafka's examples call the listener of a controller, and what its tools look for.
_LISTENER: Final = "CONTROLLER"
_UNKNOWN: Final = -1
_NO_LEADER: Final = RequestError(
    ErrorCode.NOT_LEADER_OR_FOLLOWER, "The voters have no leader at the moment."
)


async def describe_quorum(broker: Broker, request: Request) -> dict[str, Any]:
    topics = request.body.topics
    if not _is_about_the_metadata(topics):
        return _told(None, [_stranger(topic) for topic in topics], [])
    try:
        view = await broker.controller.describe_quorum()
    except RequestError as refused:
        return _told(refused, [], [])
    if view.status.leader is None:
        return _told(_NO_LEADER, [], [])
    now_ms = broker.clock.now_ms()
    partition = {
        **_partition(0, None),
        "leader_id": view.status.leader,
        "leader_epoch": view.status.term,
        "high_watermark": view.status.commit_index,
        "current_voters": [_voter(view.status, one, now_ms) for one in view.status.voters],
        "observers": [_observer(one, end) for one, end in sorted(view.observers.items())],
    }
    topic = {"topic_name": METADATA_TOPIC, "partitions": [partition]}
    return _told(None, [topic], _nodes(broker, view))


def _is_about_the_metadata(topics: list[Message]) -> bool:
    named = [
        (topic.topic_name, one.partition_index) for topic in topics for one in topic.partitions
    ]
    return named == [(METADATA_TOPIC, 0)] and len(topics) == 1


def _told(
    error: RequestError | None, topics: list[dict[str, Any]], nodes: list[dict[str, Any]]
) -> dict[str, Any]:
    return {**error_fields(error), "topics": topics, "nodes": nodes}


def _stranger(topic: Message) -> dict[str, Any]:
    """Return the answer for a topic that no quorum keeps, or that was not asked for alone."""
    refused = RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    partitions = [_partition(one.partition_index, refused) for one in topic.partitions]
    return {"topic_name": topic.topic_name, "partitions": partitions}


def _partition(index: int, error: RequestError | None) -> dict[str, Any]:
    return {
        "partition_index": index,
        **error_fields(error),
        "leader_id": 0,
        "leader_epoch": 0,
        "high_watermark": 0,
        "current_voters": [],
        "observers": [],
    }


def _voter(status: QuorumStatus, voter: int, now_ms: int) -> dict[str, Any]:
    is_leader = voter == status.leader
    # Nothing is acknowledged before the first entry of a term: 0 says no more than no number.
    end = status.last_index if is_leader else status.acknowledged.get(voter, 0) or _UNKNOWN
    return {
        "replica_id": voter,
        "replica_directory_id": _directory(status.admitted.get(voter)),
        "log_end_offset": end,
        "last_fetch_timestamp": now_ms if is_leader else _UNKNOWN,
        "last_caught_up_timestamp": now_ms if end >= status.last_index else _UNKNOWN,
    }


def _observer(observer: int, end: int) -> dict[str, Any]:
    return {
        "replica_id": observer,
        "replica_directory_id": ZERO_UUID,
        "log_end_offset": end,
        "last_fetch_timestamp": _UNKNOWN,
        "last_caught_up_timestamp": _UNKNOWN,
    }


def _directory(text: str | None) -> UUID:
    """Return the id of a data directory, which is written as Kafka writes ids."""
    if text is None:
        return ZERO_UUID
    try:
        return UUID(bytes=urlsafe_b64decode(text + "=="))
    except ValueError:
        # Written by hand into a voter's store: it has no place in this answer.
        return ZERO_UUID


def _nodes(broker: Broker, view: QuorumView) -> list[dict[str, Any]]:
    """Return where the voters are found, as this node knows it."""
    found = {voter: _address(broker, voter) for voter in view.status.voters}
    return [
        {
            "node_id": voter,
            "listeners": [{"name": _LISTENER, "host": address.host, "port": address.port}],
        }
        for voter, address in found.items()
        if address is not None
    ]


def _address(broker: Broker, voter: int) -> Address | None:
    for one in broker.options.static.value_of(node.CONTROLLER_VOTERS):
        if one.node_id == voter:
            return one.address
    # A voter that is alone need not be named.
    registered = broker.controller.image.brokers.get(BrokerId(voter))
    if registered is None or not registered.internal_port:
        return None
    return Address(registered.internal_host, registered.internal_port)
