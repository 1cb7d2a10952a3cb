"""DescribeGroups, ListGroups and DeleteGroups: looking at groups from outside."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from ottla.proto.kafka.apis import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    LEAVE_GROUP,
    LIST_GROUPS,
    OFFSET_COMMIT,
)
from tests.interop.differential.case import Ask, Case, Send, Talk, many, one
from tests.interop.differential.cases.members import (
    commit_fields,
    committed,
    joined,
    settled,
)
from tests.interop.differential.messages import Fields
from tests.interop.differential.stage import FILLED

MISSING: Final = "missing"
Prepare = Callable[[Ask], Talk]


# How a group came to be what it is.


def _stable(ask: Ask) -> Talk:
    yield from settled(ask, group_instance_id="the-first")


def _completing(ask: Ask) -> Talk:
    yield from joined(ask)


def _offsets_only(ask: Ask) -> Talk:
    told = [{"name": FILLED, "topic_id": ask.ids[FILLED], "partitions": [committed()]}]
    yield Send(OFFSET_COMMIT, 9, commit_fields(ask.topic, told), is_recorded=False)


def _left(ask: Ask) -> Talk:
    member = yield from settled(ask)
    leaver = {"member_id": member.member_id, "group_instance_id": None}
    yield Send(LEAVE_GROUP, 3, {"group_id": ask.topic, "members": [leaver]}, is_recorded=False)


def _of_others(ask: Ask) -> Talk:
    yield from settled(ask, protocol_type="connect")


_PREPARED: Final[dict[str, Prepare]] = {
    "with a member": _stable,
    "before all is shared out": _completing,
    "with offsets only": _offsets_only,
    "whose member has left": _left,
    "of another protocol type": _of_others,
}


def _then(name: str, prepare: Prepare, row: Any, fields: Callable[[Ask], Fields]) -> Case:
    def talk(ask: Ask) -> Talk:
        yield from prepare(ask)
        yield Send(row, ask.version, fields(ask))

    return many(name, row, talk)


def _describe_fields(*groups: str, operations: bool = False) -> Fields:
    return {"groups": list(groups), "include_authorized_operations": operations}


def _described(ask: Ask) -> Fields:
    return _describe_fields(ask.topic)


_DESCRIBE: Final = (
    *(
        _then(f"a group {name}", prepare, DESCRIBE_GROUPS, _described)
        for name, prepare in _PREPARED.items()
    ),
    _then(
        "what may be done with a group",
        _stable,
        DESCRIBE_GROUPS,
        lambda ask: _describe_fields(ask.topic, operations=True),
    ),
    _then(
        "a group that is there and one that is not",
        _offsets_only,
        DESCRIBE_GROUPS,
        lambda ask: _describe_fields(ask.topic, MISSING),
    ),
    one(
        "what may be done with an unknown group",
        DESCRIBE_GROUPS,
        lambda _: _describe_fields(MISSING, operations=True),
    ),
    one("a group twice", DESCRIBE_GROUPS, lambda _: _describe_fields(MISSING, MISSING)),
    one("a group without a name", DESCRIBE_GROUPS, lambda _: _describe_fields("")),
    one("no groups", DESCRIBE_GROUPS, lambda _: _describe_fields()),
)


def _list(
    name: str,
    prepare: Prepare,
    states: Sequence[str] = (),
    types: Sequence[str] = (),
    *,
    versions: Iterable[int] | None = None,
) -> Case:
    fields = {"states_filter": list(states), "types_filter": list(types)}

    def talk(ask: Ask) -> Talk:
        yield from prepare(ask)
        yield Send(LIST_GROUPS, ask.version, fields)

    return many(name, LIST_GROUPS, talk, versions=versions)


_LIST: Final = (
    *(_list(f"a group {name}", prepare) for name, prepare in _PREPARED.items()),
    *(
        _list(f"in states {' '.join(states)}", _stable, states, versions=(4, 5))
        for states in (
            ("Stable",),
            ("stable",),
            ("Empty",),
            ("Empty", "Stable"),
            ("Nonsense",),
            ("",),
        )
    ),
    *(
        _list(f"of types {' '.join(types)}", _stable, (), types, versions=(5,))
        for types in (("classic",), ("Classic",), ("consumer",), ("nonsense",), ("",))
    ),
    _list("of a state and a type", _offsets_only, ("Empty",), ("classic",), versions=(5,)),
)


def _delete_fields(*groups: str) -> Fields:
    return {"groups_names": list(groups)}


def _delete(name: str, prepare: Prepare) -> Case:
    """Delete a group, look at it, and delete it again."""

    def talk(ask: Ask) -> Talk:
        yield from prepare(ask)
        yield Send(DELETE_GROUPS, ask.version, _delete_fields(ask.topic))
        yield Send(DESCRIBE_GROUPS, 6, _described(ask))
        yield Send(DELETE_GROUPS, ask.version, _delete_fields(ask.topic))

    return many(f"a group {name}", DELETE_GROUPS, talk)


_DELETE: Final = (
    *(_delete(name, prepare) for name, prepare in _PREPARED.items()),
    _then(
        "a group twice",
        _offsets_only,
        DELETE_GROUPS,
        lambda ask: _delete_fields(ask.topic, ask.topic),
    ),
    _then(
        "a group that is there and one that is not",
        _offsets_only,
        DELETE_GROUPS,
        lambda ask: _delete_fields(ask.topic, MISSING),
    ),
    one("a group without a name", DELETE_GROUPS, lambda _: _delete_fields("")),
    one("no groups", DELETE_GROUPS, lambda _: _delete_fields()),
)

GROUP_ADMIN_CASES: Final[tuple[Case, ...]] = (*_DESCRIBE, *_LIST, *_DELETE)
