"""ListGroups, DescribeGroups, DeleteGroups: looking at groups from outside.

Each node tells of the groups that it coordinates; who wants all of them asks every node.

Not here: being a member (`groups.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from ottla.node.groups.group import Group
from ottla.node.groups.words import State
from ottla.node.groups.writing import into
from ottla.node.kafka.cluster import NOT_ASKED_FOR
from ottla.node.kafka.pauses import in_turns, with_pauses
from ottla.node.kafka.requests import Request
from ottla.proto.errors import ErrorCode, RequestError

if TYPE_CHECKING:
    from ottla.node.broker import Broker

# Bits by Kafka's numbers of operations: all that can be done with a group.
GROUP_OPERATIONS: Final = sum(1 << bit for bit in (3, 6, 8, 10, 11))
_NAME_CHARS_MAX: Final = 249
_NOT_FOUND_SINCE: Final = 6
_CLASSIC: Final = "classic"


# ── ListGroups ────────────────────────────────────────────────────────────────────────────────


async def list_groups(broker: Broker, request: Request) -> dict[str, Any]:
    states = {one.lower() for one in request.body.get("states_filter") or ()}
    types = {one.lower() for one in request.body.get("types_filter") or ()}
    try:
        groups = [
            {
                "group_id": group.group_id,
                "protocol_type": group.protocol_type or "",
                "group_state": group.state.value,
                "group_type": _CLASSIC,
            }
            for _, group in broker.groups.all()
            if not states or group.state.value.lower() in states
        ]
    except RequestError as refusal:
        # Nobody asked for one group: there is no other coordinator to look for.
        is_away = refusal.code is ErrorCode.NOT_COORDINATOR
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE if is_away else refusal.code
        return {"throttle_time": 0, "error_code": code, "groups": []}
    if types and _CLASSIC not in types:
        groups = []
    return {"throttle_time": 0, "error_code": ErrorCode.NONE, "groups": groups}


# ── DescribeGroups ────────────────────────────────────────────────────────────────────────────


async def describe_groups(broker: Broker, request: Request) -> dict[str, Any]:
    may_be_told = request.body.get("include_authorized_operations", False)
    groups = []
    async for name in with_pauses(request.body.groups):
        try:
            group = broker.groups.ledger_of(name).groups.get(name)
        except RequestError as refusal:
            told = _described(name, refusal.code, "")
        else:
            told = _unknown(name, request.version) if group is None else _group_told(group)
        if may_be_told and told["error_code"] is ErrorCode.NONE:
            told["authorized_operations"] = GROUP_OPERATIONS
        groups.append(told)
    return {"throttle_time": 0, "groups": groups}


def _described(name: str, code: ErrorCode, state: str) -> dict[str, Any]:
    return {
        "error_code": code,
        "error_message": None,
        "group_id": name,
        "group_state": state,
        "protocol_type": "",
        "protocol_data": "",
        "members": [],
        "authorized_operations": NOT_ASKED_FOR,
    }


def _unknown(name: str, version: int) -> dict[str, Any]:
    # Before there was a code for it, a group that is not there was called dead.
    is_told = version >= _NOT_FOUND_SINCE
    code = ErrorCode.GROUP_ID_NOT_FOUND if is_told else ErrorCode.NONE
    told = _described(name, code, State.DEAD.value)
    # A long name would make a text that is longer than texts can be.
    short = name if len(name) <= _NAME_CHARS_MAX else f"{name[:_NAME_CHARS_MAX]}…"
    told["error_message"] = f"Group {short} not found." if is_told else None
    return told


def _group_told(group: Group) -> dict[str, Any]:
    # While they share out anew nothing is agreed upon; what each had is still told, as in Kafka.
    protocol = group.protocol if group.state is State.STABLE else None
    return {
        **_described(group.group_id, ErrorCode.NONE, group.state.value),
        "protocol_type": group.protocol_type or "",
        "protocol_data": protocol or "",
        "members": [
            {
                "member_id": one.member_id,
                "group_instance_id": one.instance_id,
                "client_id": one.client_id,
                "client_host": one.client_host,
                "member_metadata": one.metadata_for(protocol),
                "member_assignment": one.assignment,
            }
            for one in group.members.values()
        ],
    }


# ── DeleteGroups ──────────────────────────────────────────────────────────────────────────────


async def delete_groups(broker: Broker, request: Request) -> dict[str, Any]:
    names = list(dict.fromkeys(request.body.groups_names))
    codes = [code for some in in_turns(names) for code in await _all_deleted(broker, some)]
    results = [
        {"group_id": name, "error_code": code} for name, code in zip(names, codes, strict=True)
    ]
    return {"throttle_time": 0, "results": results}


async def _all_deleted(broker: Broker, names: Sequence[str]) -> list[ErrorCode]:
    return await asyncio.gather(*(_deleted(broker, name) for name in names))


async def _deleted(broker: Broker, name: str) -> ErrorCode:
    try:
        ledger = broker.groups.ledger_of(name)
    except RequestError as refusal:
        return refusal.code
    group = ledger.groups.get(name)
    if group is None:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if group.state is not State.EMPTY:
        return ErrorCode.NON_EMPTY_GROUP
    future: asyncio.Future[ErrorCode | None] = asyncio.get_running_loop().create_future()
    ledger.delete(group, into(future))
    return await future or ErrorCode.NONE
