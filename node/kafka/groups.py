"""FindCoordinator, JoinGroup, SyncGroup, Heartbeat, LeaveGroup: being a member of a group.

A join is answered when all others have joined too, a sync when the leader of the group has said
who reads what and that is committed. Until then the connection waits, as with Kafka: a member has
one of its own for this.

Not here: what a group does (`node/groups`), offsets (`group_offsets.py`), and looking at groups
from outside (`group_admin.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ottla.node.clock import new_uuid
from ottla.node.groups.group import Group
from ottla.node.groups.ledger import Ledger
from ottla.node.groups.places import partition_of
from ottla.node.groups.words import Effect, Join, JoinAnswer, Sync, SyncAnswer
from ottla.node.kafka.leading import endpoints_of
from ottla.node.kafka.requests import Request
from ottla.proto.errors import ErrorCode, RequestError
from ottla.proto.kafka.message import Message
from ottla.proto.options import node, topic

if TYPE_CHECKING:
    from ottla.node.broker import Broker

_GROUP: Final = 0
_TRANSACTION: Final = 1
_NOBODY: Final = -1
_MANY_KEYS_SINCE: Final = 4
_ID_NEEDED_SINCE: Final = 4
_SKIP_SINCE: Final = 9
_NULL_PROTOCOL_SINCE: Final = 7
_MANY_LEAVE_SINCE: Final = 3
# A client may call itself anything; so much of it becomes part of a member's id.
_NAME_MAX: Final = 200
# Of what a member says why it joins or leaves; the rest of the log line is ours.
_REASON_MAX: Final = 255

A = TypeVar("A", JoinAnswer, SyncAnswer)
Question = Callable[[Group, int], list[Effect]]


# ── FindCoordinator ───────────────────────────────────────────────────────────────────────────


async def find_coordinator(broker: Broker, request: Request) -> dict[str, Any]:
    body = request.body
    kind = body.get("key_type", _GROUP)
    if request.version < _MANY_KEYS_SINCE:
        found = await _coordinator(broker, request, kind, body.key)
        return {"throttle_time": 0, **found}
    coordinators = [
        {"key": key, **await _coordinator(broker, request, kind, key)}
        for key in dict.fromkeys(body.coordinator_keys)
    ]
    return {"throttle_time": 0, "coordinators": coordinators}


async def _coordinator(broker: Broker, request: Request, kind: int, key: str) -> dict[str, Any]:
    try:
        node_id, host, port = await _found(broker, request, kind, key)
    except RequestError as refusal:
        return {
            "error_code": refusal.code,
            "error_message": refusal.sentence,
            "node_id": _NOBODY,
            "host": "",
            "port": _NOBODY,
        }
    return {
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "node_id": node_id,
        "host": host,
        "port": port,
    }


async def _found(broker: Broker, request: Request, kind: int, key: str) -> tuple[int, str, int]:
    if kind == _TRANSACTION:
        raise RequestError(ErrorCode.INVALID_REQUEST, "There are no transactions yet.")
    if kind != _GROUP:
        raise RequestError(ErrorCode.INVALID_REQUEST, f"There is no coordinator of type {kind}.")
    info = await broker.groups.topic(request.client)
    leader = info.partitions[partition_of(key, len(info.partitions))].leader
    image = broker.controller.image
    endpoints = () if leader is None else endpoints_of(image, [leader], request.listener)
    for node_id, host, port, _ in endpoints:
        return node_id, host, port
    raise RequestError(ErrorCode.COORDINATOR_NOT_AVAILABLE)


# ── JoinGroup ─────────────────────────────────────────────────────────────────────────────────


async def join_group(broker: Broker, request: Request) -> dict[str, Any]:
    body = request.body
    try:
        ledger = _ledger(broker, body.group_id)
        wish = _join_wish(broker, request)
        group = _group_to_join(ledger, body.group_id, wish)
    except RequestError as refusal:
        return _join_told(JoinAnswer(error=refusal.code, member_id=body.member_id), request.version)

    def join(waiter: asyncio.Future[JoinAnswer]) -> Question:
        return lambda one, now_ms: one.join(wish, waiter, now_ms, ledger.terms)

    answer = await _answered(ledger, group, join)
    return _join_told(answer, request.version)


def _ledger(broker: Broker, group_id: str) -> Ledger:
    if not group_id:
        raise RequestError(ErrorCode.INVALID_GROUP_ID)
    return broker.groups.ledger_of(group_id)


def _join_wish(broker: Broker, request: Request) -> Join:
    body, of = request.body, broker.options.current.value_of
    session_ms = body.session_timeout
    least, most = of(node.GROUP_MIN_SESSION_TIMEOUT_MS), of(node.GROUP_MAX_SESSION_TIMEOUT_MS)
    if not least <= session_ms <= most:
        raise RequestError(ErrorCode.INVALID_SESSION_TIMEOUT)
    protocols = tuple((one.name, bytes(one.metadata)) for one in body.protocols)
    # What could never be written with its group is refused at once: there may be many of them.
    room = broker.options.of_topic({}).value_of(topic.MAX_MESSAGE_BYTES)
    if sum(len(metadata) for _, metadata in protocols) > room:
        raise RequestError(ErrorCode.MESSAGE_TOO_LARGE)
    rebalance_ms = body.get("rebalance_timeout", session_ms)
    return Join(
        member_id=body.member_id,
        instance_id=body.get("group_instance_id"),
        client_id=(request.head.client_id or "")[:_NAME_MAX],
        client_host=f"/{request.host}",
        session_ms=session_ms,
        # −1: an old client, for which both are the same.
        rebalance_ms=session_ms if rebalance_ms < 0 else rebalance_ms,
        protocol_type=body.protocol_type,
        protocols=protocols,
        is_id_needed=request.version >= _ID_NEEDED_SINCE,
        may_skip=request.version >= _SKIP_SINCE,
        reason=(body.get("reason") or "")[:_REASON_MAX],
        fresh=str(new_uuid()),
    )


def _group_to_join(ledger: Ledger, group_id: str, wish: Join) -> Group:
    group = ledger.groups.get(group_id)
    if group is not None:
        return group
    if wish.member_id:
        raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID)
    return Group(group_id)


async def _answered(
    ledger: Ledger,
    group: Group,
    question: Callable[[asyncio.Future[A]], Question],
) -> A:
    """Put a question to a group, and wait for as long as its answer takes."""
    future: asyncio.Future[A] = asyncio.get_running_loop().create_future()
    ledger.ask(group, question(future))
    return await future


def _join_told(answer: JoinAnswer, version: int) -> dict[str, Any]:
    protocol = answer.protocol
    return {
        "throttle_time": 0,
        "error_code": answer.error,
        "generation_id": answer.generation,
        "protocol_type": answer.protocol_type,
        "protocol_name": protocol if version >= _NULL_PROTOCOL_SINCE else protocol or "",
        "leader": answer.leader,
        "skip_assignment": answer.skip_assignment,
        "member_id": answer.member_id,
        "members": [
            {"member_id": member_id, "group_instance_id": instance_id, "metadata": metadata}
            for member_id, instance_id, metadata in answer.members
        ],
    }


# ── SyncGroup ─────────────────────────────────────────────────────────────────────────────────


async def sync_group(broker: Broker, request: Request) -> dict[str, Any]:
    body = request.body
    wish = Sync(
        member_id=body.member_id,
        instance_id=body.get("group_instance_id"),
        generation=body.generation_id,
        protocol_type=body.get("protocol_type"),
        protocol=body.get("protocol_name"),
        assignments={one.member_id: bytes(one.assignment) for one in body.assignments},
    )
    try:
        ledger, group = _known(broker, body.group_id)
    except RequestError as refusal:
        return _sync_told(SyncAnswer(error=refusal.code))

    def sync(waiter: asyncio.Future[SyncAnswer]) -> Question:
        return lambda one, now_ms: one.sync(wish, waiter, now_ms)

    return _sync_told(await _answered(ledger, group, sync))


def _known(broker: Broker, group_id: str) -> tuple[Ledger, Group]:
    ledger = _ledger(broker, group_id)
    group = ledger.groups.get(group_id)
    if group is None:
        raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID)
    return ledger, group


def _sync_told(answer: SyncAnswer) -> dict[str, Any]:
    return {
        "throttle_time": 0,
        "error_code": answer.error,
        "protocol_type": answer.protocol_type,
        "protocol_name": answer.protocol,
        "assignment": answer.assignment,
    }


# ── Heartbeat ─────────────────────────────────────────────────────────────────────────────────


async def heartbeat(broker: Broker, request: Request) -> dict[str, Any]:
    body = request.body
    try:
        _, group = _known(broker, body.group_id)
        code = group.heartbeat(
            body.member_id,
            body.get("group_instance_id"),
            body.generation_id,
            broker.clock.monotonic_ms(),
        )
    except RequestError as refusal:
        code = refusal.code
    return {"throttle_time": 0, "error_code": code}


# ── LeaveGroup ────────────────────────────────────────────────────────────────────────────────


async def leave_group(broker: Broker, request: Request) -> dict[str, Any]:
    body = request.body
    is_many = request.version >= _MANY_LEAVE_SINCE
    leavers = body.members if is_many else [body]
    try:
        ledger = _ledger(broker, body.group_id)
    except RequestError as refusal:
        return {"throttle_time": 0, "error_code": refusal.code, "members": []}
    group = ledger.groups.get(body.group_id)
    codes = [ErrorCode.UNKNOWN_MEMBER_ID for _ in leavers]
    if group is not None:
        codes = _let_go(ledger, group, leavers)
    if not is_many:
        return {"throttle_time": 0, "error_code": codes[0]}
    members = [
        {
            "member_id": one.member_id,
            "group_instance_id": one.group_instance_id,
            "error_code": code,
        }
        for one, code in zip(leavers, codes, strict=True)
    ]
    return {"throttle_time": 0, "error_code": ErrorCode.NONE, "members": members}


def _let_go(ledger: Ledger, group: Group, leavers: list[Message]) -> list[ErrorCode]:
    codes: list[ErrorCode] = []

    def leave(one: Group, now_ms: int) -> list[Effect]:
        named = [
            (
                leaver.member_id,
                leaver.get("group_instance_id"),
                (leaver.get("reason") or "")[:_REASON_MAX],
            )
            for leaver in leavers
        ]
        found, effects = one.leave(named, now_ms)
        codes.extend(found)
        return effects

    ledger.ask(group, leave)
    return codes
