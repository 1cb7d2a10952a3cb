"""ElectLeaders: give partitions their preferred leaders back, or leaderless ones any at all.

Answers stand where the request has its partitions: one that is named twice is answered twice, and
elected once. Whoever names none means all, and is told of those that were changed.

The time that a client allows is not looked at: an answer comes when the change is durable, or when
this node gives up asking.

Not here: who may lead (`ottla.controller`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from ottla.node.kafka.refusals import error_fields
from ottla.node.kafka.requests import Request
from ottla.proto.errors import ErrorCode, RequestError

if TYPE_CHECKING:
    from ottla.controller.commands import ElectionKind
    from ottla.node.broker import Broker

_PREFERRED: Final = 0
# Version 0 knows no other kind.
_KINDS: Final[dict[int, ElectionKind]] = {_PREFERRED: "preferred", 1: "unclean"}

Elected = dict[tuple[str, int], RequestError | None]


async def elect_leaders(broker: Broker, request: Request) -> dict[str, Any]:
    asked = request.body.topic_partitions
    named = None if asked is None else [(one.topic, one.partitions) for one in asked]
    number = request.body.get("election_type", _PREFERRED)
    if number not in _KINDS:
        refused = RequestError(ErrorCode.INVALID_REQUEST, f"There is no election of type {number}.")
        return _refused(named, refused)
    try:
        return await _elected(broker, request, _KINDS[number], named)
    except RequestError as refused:
        # Whoever names partitions is told for each of them; who means all, only so.
        return _refused(named, refused)


async def _elected(
    broker: Broker,
    request: Request,
    kind: ElectionKind,
    named: list[tuple[str, list[int]]] | None,
) -> dict[str, Any]:
    wanted = None
    if named is not None:
        pairs = ((topic, index) for topic, indexes in named for index in indexes)
        wanted = list(dict.fromkeys(pairs))
    done = await broker.controller.elect_leaders(kind, wanted, client=request.client)
    found: Elected = {(topic, index): error for topic, index, error in done}
    if named is None:
        # As in Kafka, every topic stands there, also one of which nothing was changed.
        changed: dict[str, list[int]] = {name: [] for name in broker.controller.image.topics}
        for topic, index in found:
            changed.setdefault(topic, []).append(index)
        named = list(changed.items())
    return _told(ErrorCode.NONE, named, found)


def _refused(named: list[tuple[str, list[int]]] | None, error: RequestError) -> dict[str, Any]:
    """Return the answer to a request that is refused as a whole."""
    named = named or []
    found: Elected = {(topic, index): error for topic, indexes in named for index in indexes}
    return _told(error.code, named, found)


def _told(
    code: ErrorCode, named: Iterable[tuple[str, list[int]]], found: Elected
) -> dict[str, Any]:
    return {
        "throttle_time": 0,
        "error_code": code,
        "replica_election_results": [
            {
                "topic": topic,
                "partition_result": [
                    {"partition_id": index, **error_fields(found[topic, index])}
                    for index in indexes
                ],
            }
            for topic, indexes in named
        ],
    }
