"""Who leads what, who is in sync: asked of the nodes themselves, past all links that are ill.

Not here: what clients see of it (`runner/`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ottla.chaos.history import Place
from ottla.clients.connection import Connection
from ottla.proto.errors import ErrorCode, OttlaError
from ottla.proto.kafka.apis import DESCRIBE_QUORUM, FIND_COORDINATOR, METADATA, ApiRow
from ottla.proto.kafka.message import Message
from ottla.proto.kafka.uuids import ZERO_UUID

_ANSWER_S: Final = 2.0
_QUORUM: Final = "__cluster_metadata"
# What is coordinated.
GROUP: Final = 0
TRANSACTIONAL_ID: Final = 1


@dataclass(frozen=True, slots=True)
class Seen:
    """A partition as a node tells of it."""

    leader: int
    epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]

    @property
    def is_whole(self) -> bool:
        return self.leader >= 0 and set(self.isr) == set(self.replicas)


View = Mapping[Place, Seen]


async def call(
    address: str, row: ApiRow, fields: Mapping[str, Any], timeout_s: float = _ANSWER_S
) -> Message | None:
    """Return what a node answers; None if it does not."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(timeout_s):
            line = await Connection.open(
                host, int(port), connect_timeout_s=timeout_s, request_timeout_s=timeout_s
            )
            try:
                return await line.call(row, fields)
            finally:
                line.abort()
    except (TimeoutError, OttlaError):
        return None


def ask(address: str, row: ApiRow, fields: Mapping[str, Any], timeout_s: float) -> Message | None:
    """Return what a node answers, from a thread without a loop."""
    return asyncio.run(call(address, row, fields, timeout_s))


def look(addresses: Mapping[int, str], topics: Collection[str]) -> dict[int, View]:
    """Return what each node tells that answers."""
    fields = {
        "topics": [{"name": name, "topic_id": ZERO_UUID} for name in topics],
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": False,
    }

    async def everybody() -> list[Message | None]:
        asked = (call(address, METADATA, fields) for address in addresses.values())
        return await asyncio.gather(*asked)

    answers = zip(addresses, asyncio.run(everybody()), strict=True)
    return {node: view_in(answer) for node, answer in answers if answer is not None}


def coordinator_of(address: str, key: str, kind: int = GROUP) -> int | None:
    """Return who coordinates a group or an id, as a node tells it; None if it does not."""
    fields = {"key": key, "key_type": kind, "coordinator_keys": [key]}
    answer = ask(address, FIND_COORDINATOR, fields, _ANSWER_S)
    if answer is None:
        return None
    told = answer.get("coordinators")
    found = told[0] if told else answer
    return int(found.node_id) if found.error_code == ErrorCode.NONE else None


def term_of(address: str) -> int | None:
    """Return the term of the quorum, as a node knows it; None if it does not say."""
    fields = {"topics": [{"topic_name": _QUORUM, "partitions": [{"partition_index": 0}]}]}
    answer = ask(address, DESCRIBE_QUORUM, fields, _ANSWER_S)
    if answer is None or answer.error_code != ErrorCode.NONE:
        return None
    told = [part for topic in answer.topics for part in topic.partitions]
    return int(told[0].leader_epoch) if told and told[0].error_code == ErrorCode.NONE else None


def view_in(answer: Message) -> View:
    return {
        Place(topic.name, part.partition_index): Seen(
            part.leader_id, part.leader_epoch, tuple(part.replica_nodes), tuple(part.isr_nodes)
        )
        for topic in answer.topics
        if topic.error_code == ErrorCode.NONE
        for part in topic.partitions
    }


def newest(views: Mapping[int, View]) -> View:
    """Return of each partition what the one with the newest leader epoch tells."""
    found = dict[Place, Seen]()
    for node, view in views.items():
        for place, seen in view.items():
            known = found.get(place)
            # Among equals the leader knows best, and whoever names one better than who does not.
            rank = (seen.epoch, seen.leader >= 0, seen.leader == node)
            if known is None or rank > (known.epoch, known.leader >= 0, False):
                found[place] = seen
    return found
