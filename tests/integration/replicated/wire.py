"""Metadata, produce and fetch as the writers and the reader here ask for them.

Not here: what follows from an answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ottla.clients.connection import Connection
from ottla.clients.errors import NotSentError, OutcomeUnknownError
from ottla.proto.errors import ErrorCode, OttlaError
from ottla.proto.ids import TopicPartition
from ottla.proto.kafka.apis import (
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_TOPIC_PARTITIONS,
    ELECT_LEADERS,
    METADATA,
    ApiRow,
)
from ottla.proto.kafka.message import Message
from ottla.proto.kafka.uuids import ZERO_UUID
from tests.integration.nodes import wait_until
from tests.integration.replicated.background import first_of

CONNECT_S: Final = 1.0
CHANGE_S: Final = 30.0
# With names and leader hints; the next one wants topic ids.
PRODUCE_VERSION: Final = 12
FETCH_VERSION: Final = 12
_CHANGE_MS: Final = 20_000
_PREFERRED: Final = 0
_DONE: Final = (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT)
# Answers to an election that leave nothing to do.
_ELECTED: Final = (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)


@dataclass(frozen=True, slots=True)
class PartitionSeen:
    """A partition as one node tells of it."""

    leader: int
    epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]

    @property
    def is_whole(self) -> bool:
        return self.leader >= 0 and set(self.isr) == set(self.replicas)


View = Mapping[TopicPartition, PartitionSeen]


class Lines:
    """Connections to nodes by their ids, opened when they are needed; for one event loop."""

    def __init__(self, addresses: Mapping[int, str]) -> None:
        self.addresses: Final = dict(addresses)
        self._open: Final = dict[int, Connection]()

    async def to(self, node_id: int) -> Connection:
        """Return a connection that is open, as far as we know, or raise `NotSentError`."""
        known = self._open.get(node_id)
        if known is None or known.is_closed:
            host, _, port = self.addresses[node_id].rpartition(":")
            known = await Connection.open(
                host, int(port), connect_timeout_s=CONNECT_S, request_timeout_s=CONNECT_S
            )
            self._open[node_id] = known
        return known

    def cut(self, node_id: int) -> None:
        known = self._open.pop(node_id, None)
        if known is not None:
            known.abort()

    async def close(self) -> None:
        for one in self._open.values():
            one.abort()
        self._open.clear()


def metadata_fields(topics: Collection[str]) -> dict[str, Any]:
    return {
        "topics": [{"name": name, "topic_id": ZERO_UUID} for name in topics],
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": False,
    }


def place_fields(place: TopicPartition) -> dict[str, Any]:
    return {
        "topics": [{"name": place.topic}],
        "response_partition_limit": 1,
        "cursor": {"topic_name": place.topic, "partition_index": place.partition},
    }


def view_in(answer: Message) -> dict[TopicPartition, PartitionSeen]:
    return {
        TopicPartition(topic.name, part.partition_index): PartitionSeen(
            part.leader_id, part.leader_epoch, tuple(part.replica_nodes), tuple(part.isr_nodes)
        )
        for topic in answer.topics
        if topic.error_code == ErrorCode.NONE
        for part in topic.partitions
    }


async def ask_view(
    lines: Lines, node_id: int, topics: Collection[str], timeout_s: float
) -> View | None:
    """Return what one node tells; None if it does not answer."""
    return await _ask(lines, node_id, METADATA, metadata_fields(topics), timeout_s)


async def ask_place(
    lines: Lines, node_id: int, place: TopicPartition, timeout_s: float
) -> PartitionSeen | None:
    """Return what one node tells of one partition; None if it does not answer, or know it.

    Asked with Metadata, it would tell of a thousand others as well. Then the processor time of the
    one who asks is what is measured, on a machine of few cores.
    """
    fields = place_fields(place)
    view = await _ask(lines, node_id, DESCRIBE_TOPIC_PARTITIONS, fields, timeout_s)
    return None if view is None else view.get(place)


async def _ask(
    lines: Lines, node_id: int, row: ApiRow, fields: Mapping[str, Any], timeout_s: float
) -> View | None:
    try:
        async with asyncio.timeout(timeout_s):
            line = await lines.to(node_id)
            return view_in(await line.call(row, fields))
    except (TimeoutError, OttlaError):
        lines.cut(node_id)
        return None


def look(addresses: Mapping[int, str], topics: Collection[str], timeout_s: float = 2.0) -> View:
    """Return the partitions as the nodes tell of them, each as the newest epoch has it."""

    async def whole() -> View:
        lines = Lines(addresses)
        try:
            views = await asyncio.gather(
                *(ask_view(lines, node_id, topics, timeout_s) for node_id in addresses)
            )
        finally:
            await lines.close()
        return newest([view for view in views if view is not None])

    return asyncio.run(whole())


def newest(views: Sequence[View]) -> View:
    found = dict[TopicPartition, PartitionSeen]()
    for view in views:
        for place, seen in view.items():
            known = found.get(place)
            # Of one epoch a broker that just lost its leader names nobody.
            if known is None or (seen.epoch, seen.leader >= 0) > (known.epoch, known.leader >= 0):
                found[place] = seen
    return found


def topic_fields(
    name: str, assignments: Sequence[Sequence[int]], configs: Mapping[str, str]
) -> dict[str, Any]:
    """Return a topic with a partition for each list of nodes, the first of which is to lead it."""
    return {
        "name": name,
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": [
            {"partition_index": index, "broker_ids": list(nodes)}
            for index, nodes in enumerate(assignments)
        ],
        "configs": [{"name": key, "value": value} for key, value in configs.items()],
    }


def change(addresses: Mapping[int, str], row: Any, fields: Mapping[str, Any]) -> Message:
    """Ask any node that answers for a change; give up after a while."""
    found = list[Message]()

    async def ask(node_id: int) -> Message | None:
        lines = Lines(addresses)
        try:
            line = await lines.to(node_id)
            return await line.call(row, fields, timeout_s=CHANGE_S)
        except (NotSentError, OutcomeUnknownError):
            return None
        finally:
            await lines.close()

    def holds() -> bool:
        for node_id in addresses:
            answer = asyncio.run(ask(node_id))
            if answer is not None and ErrorCode.NOT_CONTROLLER not in set(codes_in(answer)):
                found[:] = [answer]
                return True
        return False

    wait_until(holds, CHANGE_S, f"somebody takes {row.name}")
    return found[0]


def codes_in(answer: Message) -> Iterator[int]:
    """Yield every error code of an answer."""
    for name, value in vars(answer).items():
        if name == "error_code":
            yield value
        for one in value if isinstance(value, list) else ():
            if isinstance(one, Message):
                yield from codes_in(one)


def create_topic(
    addresses: Mapping[int, str],
    name: str,
    assignments: Sequence[Sequence[int]],
    configs: Mapping[str, str] | None = None,
) -> None:
    """Create a topic, and wait until every node knows a leader of each partition."""
    topic = topic_fields(name, assignments, configs or {})
    fields = {"topics": [topic], "timeout": _CHANGE_MS, "validate_only": False}
    answer = change(addresses, CREATE_TOPICS, fields)
    # What takes long may be done, and not known everywhere yet.
    assert all(one.error_code in _DONE for one in answer.topics), answer

    def is_known() -> bool:
        views = [look({node: address}, [name]) for node, address in addresses.items()]
        return all(
            len(view) == len(assignments) and all(seen.leader >= 0 for seen in view.values())
            for view in views
        )

    wait_until(is_known, 2 * CHANGE_S, f"every node knows {name}")


def delete_topic(addresses: Mapping[int, str], name: str) -> None:
    named = {"name": name, "topic_id": ZERO_UUID}
    fields = {"topics": [named], "topic_names": [name], "timeout": _CHANGE_MS}
    change(addresses, DELETE_TOPICS, fields)


def elect_preferred(addresses: Mapping[int, str], topic: str, indexes: Sequence[int]) -> None:
    """Let the first replica of each partition lead it."""
    fields = {
        "election_type": _PREFERRED,
        "topic_partitions": [{"topic": topic, "partitions": list(indexes)}],
        "timeout": _CHANGE_MS,
    }

    def holds() -> bool:
        answer = change(addresses, ELECT_LEADERS, fields)
        return all(code in _ELECTED for code in codes_in(answer))

    wait_until(holds, CHANGE_S, f"the first replicas lead {topic}")


async def newer_leader(
    lines: Lines, place: TopicPartition, epoch: int, timeout_s: float, *, not_: int | None = None
) -> PartitionSeen | None:
    """Ask all nodes at once; return the first leader named of this epoch or a later one.

    With `not_`, a node that is known: then only one of a later epoch is news.
    """

    async def one(node_id: int) -> PartitionSeen | None:
        return await ask_place(lines, node_id, place, timeout_s)

    def is_news(seen: PartitionSeen) -> bool:
        return seen.leader >= 0 and (
            seen.epoch > epoch if not_ is not None else seen.epoch >= epoch
        )

    asked = [node_id for node_id in lines.addresses if node_id != not_]
    return await first_of(map(one, asked), is_news, timeout_s)
