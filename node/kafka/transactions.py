"""AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, WriteTxnMarkers: a transaction and its end.

An answer is given when what was decided is committed in `__transaction_state`. The markers are on
their way then: Kafka's clients do not wait for them.

Not here: InitProducerId (`producers.py`), offsets (`transaction_offsets.py`), looking from outside
(`transaction_admin.py`), and what is decided (`node/transactions`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ottla.controller.names import is_internal
from ottla.node.groups.coordinator import require_group_id
from ottla.node.groups.own_topic import PATIENCE_S
from ottla.node.groups.places import OFFSETS_TOPIC, partition_of
from ottla.node.kafka.requests import Request
from ottla.node.transactions.marking import write_markers
from ottla.node.transactions.peers import Admission, Outcomes, WantedMarker
from ottla.node.transactions.words import NEW_CLIENT, OLD_CLIENT, Place, Refused, Told
from ottla.proto.errors import ErrorCode, RequestError
from ottla.proto.kafka.message import Message
from ottla.proto.records.control import EndMarker, Marker
from ottla.replication.producers import NO_COORDINATOR

if TYPE_CHECKING:
    from ottla.node.broker import Broker

# Older clients know no other word for it than INVALID_PRODUCER_EPOCH.
_FENCED_SINCE: Final = 2
_MANY_SINCE: Final = 4
# Since then a transaction ends with a new epoch (KIP-890).
_NEW_CLIENT_SINCE: Final = 5


def _told(code: ErrorCode, version: int) -> ErrorCode:
    is_new = version >= _FENCED_SINCE
    is_fenced = code is ErrorCode.PRODUCER_FENCED
    return ErrorCode.INVALID_PRODUCER_EPOCH if is_fenced and not is_new else code


def _code_of(answer: Told | Refused) -> ErrorCode:
    return answer.code if isinstance(answer, Refused) else ErrorCode.NONE


# ── AddPartitionsToTxn ────────────────────────────────────────────────────────────────────────


async def add_partitions_to_txn(broker: Broker, request: Request) -> dict[str, Any]:
    body, version = request.body, request.version
    if version < _MANY_SINCE:
        asked = Admission(
            transactional_id=body.v3_and_below_transactional_id,
            producer_id=body.v3_and_below_producer_id,
            producer_epoch=body.v3_and_below_producer_epoch,
            places=_places(body.v3_and_below_topics),
            adds=True,
        )
        codes = await _added(broker, asked, version)
        topics = _results(body.v3_and_below_topics, codes)
        return {"throttle_time": 0, "results_by_topic_v3_and_below": topics}
    results = []
    for one in body.transactions:
        asked = Admission(
            transactional_id=one.transactional_id,
            producer_id=one.producer_id,
            producer_epoch=one.producer_epoch,
            places=_places(one.topics),
            adds=not one.verify_only,
        )
        codes = await _added(broker, asked, version)
        told = {"transactional_id": one.transactional_id}
        results.append({**told, "topic_results": _results(one.topics, codes)})
    return {
        "throttle_time": 0,
        "error_code": ErrorCode.NONE,
        "results_by_transaction": results,
    }


def _places(topics: Iterable[Message]) -> tuple[Place, ...]:
    return tuple({(topic.name, index): None for topic in topics for index in topic.partitions})


async def _added(broker: Broker, asked: Admission, version: int) -> Outcomes:
    wrong = _wrong(broker, asked.places)
    if wrong:
        # All or nothing: one transaction is not begun with half of its partitions.
        rest = dict.fromkeys(asked.places, ErrorCode.OPERATION_NOT_ATTEMPTED)
        return {**rest, **wrong}
    try:
        if not asked.adds:
            return broker.transactions.verify(asked)
        client = NEW_CLIENT if version >= _MANY_SINCE else OLD_CLIENT
        code = _code_of(await broker.transactions.add(asked, client))
    except RequestError as refusal:
        code = refusal.code
    return dict.fromkeys(asked.places, _told(code, version))


def _wrong(broker: Broker, places: Sequence[Place]) -> dict[Place, ErrorCode]:
    unknown = broker.transactions.unknown_of(places)
    wrong = dict.fromkeys(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    # Stricter: Kafka lets its brokers, who send the later versions, add them. Ours ask otherwise.
    ours = [place for place in places if is_internal(place[0])]
    return wrong | dict.fromkeys(ours, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _results(topics: Iterable[Message], codes: Mapping[Place, ErrorCode]) -> list[dict[str, Any]]:
    return [
        {
            "name": topic.name,
            "results_by_partition": [
                {"partition_index": index, "partition_error_code": codes[topic.name, index]}
                for index in topic.partitions
            ],
        }
        for topic in topics
    ]


# ── AddOffsetsToTxn ───────────────────────────────────────────────────────────────────────────


async def add_offsets_to_txn(broker: Broker, request: Request) -> dict[str, Any]:
    body = request.body
    try:
        require_group_id(body.group_id)
        until_s = asyncio.get_running_loop().time() + PATIENCE_S
        info = await broker.groups.topic(request.client, until_s)
        place = (OFFSETS_TOPIC, partition_of(body.group_id, len(info.partitions)))
        asked = Admission(
            transactional_id=body.transactional_id,
            producer_id=body.producer_id,
            producer_epoch=body.producer_epoch,
            places=(place,),
            adds=True,
        )
        code = _code_of(await broker.transactions.add(asked, OLD_CLIENT))
    except RequestError as refusal:
        code = refusal.code
    return {"throttle_time": 0, "error_code": _told(code, request.version)}


# ── EndTxn ────────────────────────────────────────────────────────────────────────────────────


async def end_txn(broker: Broker, request: Request) -> dict[str, Any]:
    body, version = request.body, request.version
    answer: Told | Refused
    try:
        answer = await broker.transactions.end(
            body.transactional_id,
            body.producer_id,
            body.producer_epoch,
            is_commit=body.committed,
            version=NEW_CLIENT if version >= _NEW_CLIENT_SINCE else OLD_CLIENT,
        )
    except RequestError as refusal:
        answer = Refused(refusal.code)
    told = answer if isinstance(answer, Told) else Told()
    return {
        "throttle_time": 0,
        "error_code": _told(_code_of(answer), version),
        "producer_id": told.producer_id,
        "producer_epoch": told.producer_epoch,
    }


# ── WriteTxnMarkers ───────────────────────────────────────────────────────────────────────────


async def write_txn_markers(broker: Broker, request: Request) -> dict[str, Any]:
    """Write markers that an operator sends: `kafka-transactions.sh abort` does.

    Between nodes they do not come this way.
    """
    answers = [await _written(broker, _wanted(one)) for one in request.body.markers]
    markers = [
        {"producer_id": one.producer_id, "topics": _marker_topics(one.topics, outcomes)}
        for one, outcomes in zip(request.body.markers, answers, strict=True)
    ]
    return {"markers": markers}


async def _written(broker: Broker, wanted: WantedMarker) -> Outcomes:
    end, info = wanted.end, broker.transactions.topic.known
    if end.producer_id < 0 or end.producer_epoch < 0:
        return dict.fromkeys(wanted.places, ErrorCode.INVALID_PRODUCER_EPOCH)
    latest = max((one.leader_epoch for one in info.partitions), default=-1) if info else -1
    if end.marker.coordinator_epoch > latest:
        # Stricter: no coordinator has come so far, and after this one the log would hear no other.
        fenced = dict.fromkeys(wanted.places, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
        unknown = broker.transactions.unknown_of(wanted.places)
        return fenced | dict.fromkeys(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    told = await write_markers(broker, [_in_step(broker, end, place) for place in wanted.places])
    return {place: code for one in told for place, code in one.items()}


def _in_step(broker: Broker, end: EndMarker, place: Place) -> WantedMarker:
    """Return a marker that makes the log take nobody for a later coordinator than it did.

    With a later epoch than that of the real one, the log would hear the real one no more.
    """
    replica = broker.replicas.get(*place)
    producer = None if replica is None else replica.log.producers.get(end.producer_id)
    known = NO_COORDINATOR if producer is None else producer.coordinator_epoch
    told = end.marker.coordinator_epoch
    # One that is too low stays so, and is refused.
    marker = end.marker._replace(coordinator_epoch=told if told < known else max(known, 0))
    return WantedMarker(end._replace(marker=marker), (place,))


def _wanted(one: Message) -> WantedMarker:
    marker = Marker(one.transaction_result, one.coordinator_epoch)
    places = {
        (topic.name, index): None for topic in one.topics for index in topic.partition_indexes
    }
    return WantedMarker(EndMarker(one.producer_id, one.producer_epoch, marker), tuple(places))


def _marker_topics(topics: Iterable[Message], codes: Outcomes) -> list[dict[str, Any]]:
    return [
        {
            "name": topic.name,
            "partitions": [
                {"partition_index": index, "error_code": codes[topic.name, index]}
                for index in topic.partition_indexes
            ],
        }
        for topic in topics
    ]
