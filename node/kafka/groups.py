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

from ottla.controller.image import TopicInfo
from ottla.node.clock import new_uuid
from ottla.node.groups.coordinator import require_group_id
from ottla.node.groups.group import Group
from ottla.node.groups.ledger import Ledger
from ottla.node.groups.own_topic import PATIENCE_S
from ottla.node.groups.words import Effect, Join, JoinAnswer, Sync, SyncAnswer
from ottla.node.kafka.leading import endpoints_of
from ottla.node.kafka.pauses import with_pauses
from ottla.node.kafka.requests import Request
from ottla.node.transactions.coordinator import require_transactional_id
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
_PROTOCOL_SINCE: Final = 5
# A client may call itself anything; so much of it becomes part of a member's id.
_NAME_MAX: Final = 200
# Of what a member says why it joins or leaves; the rest of the log line is ours.
_REASON_MAX: Final = 255
# Of group.instance.id: Kafka's clients hold it to the rules of a topic's name.
_INSTANCE_MAX: Final = 249
# Names of assignors that one member may bring. Every other member's are compared with them.
_PROTOCOLS_MAX: Final = 100

A = TypeVar("A", JoinAnswer, SyncAnswer)
Question = Callable[[Group, int], list[Effect]]


# ── FindCoordinator ───────────────────────────────────────────────────────────────────────────


async def find_coordinator(broker: Broker, request: Request) -> dict[str, Any]:
    body = request.body
    kind = body.get("key_type", _GROUP)
    search = _Search(broker, request, kind)
    if request.version < _MANY_KEYS_SINCE:
        return {"throttle_time": 0, **await search.told(body.key)}
    coordinators = [
        {"key": key, **await search.told(key)} async for key in with_pauses(body.coordinator_keys)
    ]
    return {"throttle_time": 0, "coordinators": coordinators}


class _Search:
    """The keys of one request: however many there are, they wait together, and for one topic."""

    def __init__(self, broker: Broker, request: Request, kind: int) -> None:
        self._broker: Final = broker
        self._request: Final = request
        self._kind: Final = kind
        self._until_s: Final = asyncio.get_running_loop().time() + PATIENCE_S
        # Why there is no such topic; not tried again for every key.
        self._no_topic: RequestError | None = None

    async def told(self, key: str) -> dict[str, Any]:
        try:
            node_id, host, port = await self._found(key)
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

    async def _found(self, key: str) -> tuple[int, str, int]:
        if self._kind == _TRANSACTION:
            require_transactional_id(key)
            leader = await self._broker.transactions.leader_of(
                await self._topic(), key, self._until_s
            )
        elif self._kind == _GROUP:
            require_group_id(key)
            leader = await self._broker.groups.leader_of(await self._topic(), key, self._until_s)
        else:
            sentence = f"There is no coordinator of type {self._kind}."
            raise RequestError(ErrorCode.INVALID_REQUEST, sentence)
        image = self._broker.controller.image
        endpoints = () if leader is None else endpoints_of(image, [leader], self._request.listener)
        for node_id, host, port, _ in endpoints:
            return node_id, host, port
        raise RequestError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    async def _topic(self) -> TopicInfo:
        if self._no_topic is not None:
            raise self._no_topic
        try:
            client, until_s = self._request.client, self._until_s
            if self._kind == _TRANSACTION:
                return await self._broker.transactions.topic.info(client, until_s)
            return await self._broker.groups.topic(client, until_s)
        except RequestError as refusal:
            self._no_topic = refusal
            raise


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
    instance_id = body.get("group_instance_id")
    if instance_id is not None and len(instance_id) > _INSTANCE_MAX:
        raise RequestError(ErrorCode.INVALID_REQUEST)
    if len(body.protocols) > _PROTOCOLS_MAX:
        raise RequestError(ErrorCode.INVALID_REQUEST)
    protocols = tuple((one.name, bytes(one.metadata)) for one in body.protocols)
    # What could never be written with its group is refused at once: there may be many of them.
    room = broker.options.of_topic({}).value_of(topic.MAX_MESSAGE_BYTES)
    if sum(len(name) + len(metadata) for name, metadata in protocols) > room:
        raise RequestError(ErrorCode.MESSAGE_TOO_LARGE)
    rebalance_ms = body.get("rebalance_timeout", session_ms)
    return Join(
        member_id=body.member_id,
        instance_id=instance_id,
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
        _require_protocol(wish, request.version)
        ledger, group = _known(broker, body.group_id)
    except RequestError as refusal:
        return _sync_told(SyncAnswer(error=refusal.code))

    def sync(waiter: asyncio.Future[SyncAnswer]) -> Question:
        return lambda one, now_ms: one.sync(wish, waiter, now_ms)

    return _sync_told(await _answered(ledger, group, sync))


def _require_protocol(wish: Sync, version: int) -> None:
    """Since a member says what it believes was agreed upon, it has to (KIP-559)."""
    if version >= _PROTOCOL_SINCE and (wish.protocol_type is None or wish.protocol is None):
        raise RequestError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


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
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        # As Kafka does: whether the member is in is not known yet, and not every client knows this
        # code here (aiokafka 0.14 ends its heartbeats with it). Its session begins after the load.
        # Nobody else gives its partitions away meanwhile: who may be replaced does not say this (P5
        # of `node/groups/ledger.py`).
        code = ErrorCode.NONE
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
