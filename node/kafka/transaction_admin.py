"""DescribeTransactions, ListTransactions: looking at transactions from outside.

Each node tells of the transactions that it coordinates; who wants all of them asks every node.

Not here: taking part in one (`transactions.py`), and what logs know of producers (`producers.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from ottla.node.kafka.pauses import with_pauses
from ottla.node.kafka.requests import Request
from ottla.node.transactions.patterns import Pattern
from ottla.node.transactions.transaction import Transaction
from ottla.node.transactions.words import STATES_BY_WORD, State
from ottla.proto.errors import ErrorCode, RequestError

if TYPE_CHECKING:
    from ottla.node.broker import Broker

_ANY_DURATION: Final = -1
# What a pattern may cost: some seconds for all ids together, a few milliseconds between two pauses.
STEPS_MAX: Final = 20_000_000
_STEPS_AT_ONCE: Final = 20_000
_PIECE: Final = 100


async def describe_transactions(broker: Broker, request: Request) -> dict[str, Any]:
    states = [
        _described(broker, name) async for name in with_pauses(request.body.transactional_ids)
    ]
    return {"throttle_time": 0, "transaction_states": states}


def _described(broker: Broker, name: str) -> dict[str, Any]:
    if not name:
        return _refused(name, ErrorCode.INVALID_REQUEST)
    try:
        one = broker.transactions.ledger_of(name).transactions.get(name)
    except RequestError as refusal:
        return _refused(name, refusal.code)
    if one is None or one.is_new:
        return _refused(name, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    value = one.value
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(value.partitions):
        topics.setdefault(topic, []).append(index)
    return {
        "error_code": ErrorCode.NONE,
        "transactional_id": name,
        "transaction_state": value.state.word,
        "transaction_timeout": value.timeout_ms,
        "transaction_start_time": value.started_ms,
        "producer_id": value.producer_id,
        "producer_epoch": value.producer_epoch,
        "topics": [{"topic": topic, "partitions": some} for topic, some in topics.items()],
    }


def _refused(name: str, code: ErrorCode) -> dict[str, Any]:
    return {
        "error_code": code,
        "transactional_id": name,
        "transaction_state": "",
        "transaction_timeout": 0,
        "transaction_start_time": 0,
        "producer_id": 0,
        "producer_epoch": 0,
        "topics": [],
    }


async def list_transactions(broker: Broker, request: Request) -> dict[str, Any]:
    body = request.body
    words = list(dict.fromkeys(body.state_filters))
    unknown = [word for word in words if word not in STATES_BY_WORD]
    states = {STATES_BY_WORD[word] for word in words if word in STATES_BY_WORD}
    ids = set(body.producer_id_filters)
    longer_ms = body.get("duration_filter", _ANY_DURATION)
    now_ms = broker.clock.now_ms()
    try:
        found = [
            one
            for one in broker.transactions.all()
            if (not words or one.value.state in states)
            and (not ids or one.value.producer_id in ids)
            and _is_older(one, longer_ms, now_ms)
        ]
        pattern = body.get("transactional_id_pattern", None)
        told = await _fitting(pattern, found) if pattern else found
        code = ErrorCode.NONE
    except RequestError as refusal:
        # Nobody asked for one id: there is no other coordinator to look for.
        is_away = refusal.code is ErrorCode.NOT_COORDINATOR
        code, told = ErrorCode.COORDINATOR_NOT_AVAILABLE if is_away else refusal.code, []
    return {
        "throttle_time": 0,
        "error_code": code,
        "unknown_state_filters": unknown,
        "transaction_states": [
            {
                "transactional_id": one.transactional_id,
                "producer_id": one.value.producer_id,
                "transaction_state": one.value.state.word,
            }
            for one in told
        ],
    }


async def _fitting(text: str, found: Sequence[Transaction]) -> list[Transaction]:
    """Return those whose ids fit a pattern; raises `RequestError` for one that is none."""
    pattern, fitting = Pattern(text), list[Transaction]()
    pause_at = _STEPS_AT_ONCE
    for one in found:
        name, places = one.transactional_id, pattern.begin
        for start in range(0, len(name), _PIECE):
            places = pattern.after(places, name[start : start + _PIECE], is_begin=start == 0)
            if pattern.steps > STEPS_MAX:
                # What takes longer than this is asked by nobody who means well.
                raise RequestError(ErrorCode.INVALID_REGULAR_EXPRESSION)
            if pattern.steps > pause_at:
                pause_at = pattern.steps + _STEPS_AT_ONCE
                await asyncio.sleep(0)
        if pattern.is_end(places, name):
            fitting.append(one)
    return fitting


def _is_older(one: Transaction, longer_ms: int, now_ms: int) -> bool:
    if one.is_new:
        return False
    if longer_ms < 0:
        return True
    is_ongoing = one.value.state is State.ONGOING
    return is_ongoing and now_ms - one.value.started_ms > longer_ms
