"""InitProducerId and DescribeProducers: who an idempotent producer is, and what logs know of it.

An id is drawn from a block that the controller gave to this node. What is left of the block when
the node stops is never used: ids are plenty, and none may be given twice.

A producer that asks again, with the id and epoch it had, gets a new id with epoch 0, as from Kafka:
only a transactional id has an epoch that can be raised, by its coordinator.

W1  no id is given twice, by this node or another

Not here: telling a retry from a new batch (`replication/producers.py`), and what becomes of
a transactional id (`node/transactions`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from ottla.controller.names import name_problem
from ottla.node.kafka.leading import led_here, require_standing
from ottla.node.kafka.requests import Request
from ottla.node.logs import logger
from ottla.node.transactions.words import FOR_EVER_MS, Init, Refused, Told
from ottla.proto.errors import ErrorCode, RequestError
from ottla.proto.ids import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    ProducerEpoch,
    ProducerId,
)
from ottla.proto.kafka.message import Message
from ottla.proto.options import transactions as rows
from ottla.replication.producers import Producer
from ottla.replication.replica import Replica

if TYPE_CHECKING:
    from ottla.node.broker import Broker

_log = logger("kafka.producers")

FIRST_EPOCH: Final = ProducerEpoch(0)
# What Kafka's schema has where there is no transaction.
_NONE: Final = -1
# Older clients know no other word for it.
_FENCED_SINCE: Final = 4


class ProducerIds:
    """The ids that this node may give away. Belongs to one event loop."""

    def __init__(self, take_block: Callable[[], Awaitable[range]]) -> None:
        self._take_block: Final = take_block
        self._left = iter(range(0))
        # Those who come while a block is on its way share it.
        self._taking: Final = asyncio.Lock()

    async def take(self) -> ProducerId:
        """Return an id that nobody had; raises what the controller raises."""
        async with self._taking:
            while (taken := next(self._left, None)) is None:
                self._left = iter(await self._take_block())
            return ProducerId(taken)

    async def take_for_requests(self) -> ProducerId:
        """Return an id, or raise what a producer is told: to try again, if that may help."""
        try:
            return await self.take()
        except RequestError as failure:
            _log.error("producer_ids_failed", error=str(failure))
            if not failure.code.retriable:
                raise
            # What Kafka answers when it has no block: the producer tries again.
            raise RequestError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) from None


async def init_producer_id(broker: Broker, request: Request) -> dict[str, Any]:
    body, told = request.body, Told()
    try:
        expected = _expected(body)
        if body.transactional_id is None:
            told = Told(await broker.producer_ids.take_for_requests(), FIRST_EPOCH)
        else:
            told = await _held(broker, body.transactional_id, _wish(broker, body, expected))
        error = ErrorCode.NONE
    except RequestError as refusal:
        error = refusal.code
        if error is ErrorCode.PRODUCER_FENCED and request.version < _FENCED_SINCE:
            error = ErrorCode.INVALID_PRODUCER_EPOCH
    return {
        "throttle_time": 0,
        "error_code": int(error),
        "producer_id": told.producer_id,
        "producer_epoch": told.producer_epoch,
        "ongoing_txn_producer_id": told.ongoing[0],
        "ongoing_txn_producer_epoch": told.ongoing[1],
    }


async def _held(broker: Broker, transactional_id: str, wish: Init) -> Told:
    answer = await broker.transactions.init(transactional_id, wish)
    if isinstance(answer, Refused):
        raise RequestError(answer.code)
    return answer


def _expected(body: Message) -> tuple[int, int] | None:
    """Return the id and epoch that a producer says it has, or None if it says none."""
    producer_id = body.get("producer_id", NO_PRODUCER_ID)
    epoch = body.get("producer_epoch", NO_PRODUCER_EPOCH)
    has_id, has_epoch = producer_id != NO_PRODUCER_ID, epoch != NO_PRODUCER_EPOCH
    if has_id != has_epoch or body.transactional_id == "":
        raise RequestError(ErrorCode.INVALID_REQUEST)
    return (producer_id, epoch) if has_id else None


def _wish(broker: Broker, body: Message, expected: tuple[int, int] | None) -> Init:
    of = broker.options.current.value_of
    is_two_phase = body.get("enable2_pc", False)
    keeps_prepared = body.get("keep_prepared_txn", False)
    if keeps_prepared and not is_two_phase:
        # What has a time-out is not prepared.
        raise RequestError(ErrorCode.INVALID_REQUEST)
    timeout_ms = FOR_EVER_MS if is_two_phase else body.transaction_timeout
    longest_ms = of(rows.TRANSACTION_MAX_TIMEOUT_MS)
    if not is_two_phase and not 0 < timeout_ms <= longest_ms:
        raise RequestError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    return Init(
        timeout_ms=timeout_ms,
        expected=expected,
        keeps_prepared=keeps_prepared,
        only_kept=is_two_phase and not of(rows.TWO_PHASE_COMMIT_ENABLE),
    )


async def describe_producers(broker: Broker, request: Request) -> dict[str, Any]:
    # Each partition once, however often it is asked for: a log may know many producers.
    topics: dict[str, dict[int, dict[str, Any]]] = {}
    for topic in request.body.topics:
        described = topics.setdefault(topic.name, {})
        for index in topic.partition_indexes:
            if index not in described:
                described[index] = _described(broker, topic.name, index)
    return {
        "throttle_time": 0,
        "topics": [
            {"name": name, "partitions": list(described.values())}
            for name, described in topics.items()
        ],
    }


def _described(broker: Broker, topic: str, index: int) -> dict[str, Any]:
    error, sentence = ErrorCode.NONE, None
    active: list[dict[str, int]] = []
    try:
        _require_name(topic)
        replica = led_here(broker, topic, index)
        # What they wrote last may be uncommitted, and another leader may know better by now.
        require_standing(broker, replica)
        active = [_state_of(one, replica) for one in replica.log.producers]
    except RequestError as refusal:
        error, sentence = refusal.code, refusal.sentence
    return {
        "partition_index": index,
        "error_code": int(error),
        "error_message": sentence,
        "active_producers": active,
    }


def _require_name(topic: str) -> None:
    if problem := name_problem(topic):
        raise RequestError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)


def _state_of(producer: Producer, replica: Replica) -> dict[str, int]:
    began = replica.log.producers.transactions.first_offset_of(producer.producer_id)
    return {
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
        "last_sequence": producer.last_sequence,
        "last_timestamp": producer.batches[-1].timestamp if producer.batches else NO_TIMESTAMP,
        "coordinator_epoch": producer.coordinator_epoch,
        "current_txn_start_offset": _NONE if began is None else began,
    }
