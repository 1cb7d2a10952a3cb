"""FindCoordinator, JoinGroup, SyncGroup, Heartbeat and LeaveGroup: being a member of a group."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from ottla.proto.kafka.apis import (
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    SYNC_GROUP,
)
from tests.interop.differential.case import Ask, Case, Send, Talk, ends_of, many, one
from tests.interop.differential.cases.members import (
    Membership,
    assignment,
    join_fields,
    joined,
    protocols_of,
    settled,
    subscription,
    sync_fields,
)
from tests.interop.differential.messages import Fields
from tests.interop.differential.stage import FILLED

GROUP: Final = 0
SHARE: Final = 2
NAMED: Final = range(5, 10)
MANY_KEYS: Final = range(4, 7)
STRANGER: Final = "stranger-00000000-0000-0000-0000-000000000009"
STATIC: Final = "the-first"


def _described(ask: Ask) -> Send:
    """Show what the group is like after all that."""
    return Send(DESCRIBE_GROUPS, 5, {"groups": [ask.topic], "include_authorized_operations": False})


# ── FindCoordinator ───────────────────────────────────────────────────────────────────────────


def _find(name: str, kind: int, *keys: str, versions: Iterable[int] | None = None) -> Case:
    fields = {"key": (*keys, "")[0], "key_type": kind, "coordinator_keys": list(keys)}
    return one(name, FIND_COORDINATOR, lambda _: fields, versions=versions)


_FIND: Final = (
    _find("of a group", GROUP, "any"),
    _find("of a group without a name", GROUP, ""),
    _find("of something that is no share", SHARE, "any", versions=range(1, 7)),
    _find("of type 5", 5, "any", versions=range(1, 7)),
    _find("of type -1", -1, "any", versions=range(1, 7)),
    _find("of two groups", GROUP, "any", "other", versions=MANY_KEYS),
    _find("of a group twice", GROUP, "any", "any", versions=MANY_KEYS),
    _find("of no groups", GROUP, versions=MANY_KEYS),
)

# ── JoinGroup ─────────────────────────────────────────────────────────────────────────────────


def _join(name: str, **changes: Any) -> Case:
    """Ask to join a group that is not there."""
    return one(
        name, JOIN_GROUP, lambda ask: join_fields(ask.topic, **changes), versions=(0, 3, 5, 7, 9)
    )


def _first(ask: Ask) -> Talk:
    yield from joined(ask, ask.version, is_recorded=True)
    yield _described(ask)


def _join_twice(ask: Ask) -> Talk:
    """It did not get the answer before, so it is the same generation."""
    member = yield from joined(ask, ask.version)
    yield Send(JOIN_GROUP, ask.version, join_fields(ask.topic, member.member_id))


def _join_when_stable(ask: Ask) -> Talk:
    """The leader comes again: it wants to share out anew."""
    member = yield from settled(ask)
    yield Send(JOIN_GROUP, ask.version, join_fields(ask.topic, member.member_id))
    yield _described(ask)


def _join_with_more(ask: Ask) -> Talk:
    """Another subscription is another generation."""
    member = yield from settled(ask)
    protocols = protocols_of(("range", subscription(FILLED, "more")))
    fields = join_fields(ask.topic, member.member_id, protocols=protocols)
    yield Send(JOIN_GROUP, ask.version, fields)


def _join_beside(name: str, **changes: Any) -> Case:
    """Ask to join a group that has a member, and be refused."""

    def talk(ask: Ask) -> Talk:
        yield from settled(ask)
        yield Send(JOIN_GROUP, ask.version, join_fields(ask.topic, **changes))
        yield _described(ask)

    return many(name, JOIN_GROUP, talk, versions=(0, 3, 5, 7, 9))


def _choose(ask: Ask) -> Talk:
    """Of several protocols the first is taken; the group is described with it when stable."""
    protocols = protocols_of(("mine", b"m"), ("range", subscription(FILLED)))
    member = yield from joined(ask, ask.version, is_recorded=True, protocols=protocols)
    fields = sync_fields(ask.topic, *member, protocol_name="mine")
    yield Send(SYNC_GROUP, 5, fields)
    yield _described(ask)


def _come_back(ask: Ask) -> Talk:
    """A member with a name comes back: it has another id, and what it had. The old id is fenced."""
    old = yield from settled(ask, group_instance_id=STATIC)
    told = {"group_instance_id": STATIC}
    answer = yield Send(JOIN_GROUP, ask.version, join_fields(ask.topic, **told))
    assert not isinstance(answer, str), answer
    for member_id in (old.member_id, answer["member_id"]):
        fields = sync_fields(ask.topic, member_id, answer["generation_id"], [], **told)
        yield Send(SYNC_GROUP, 5, fields)
        yield Send(HEARTBEAT, 4, _beat(ask, Membership(member_id, old.generation), **told))
    yield Send(JOIN_GROUP, ask.version, join_fields(ask.topic, old.member_id, **told))
    yield _described(ask)


def _come_back_changed(ask: Ask) -> Talk:
    """Nobody but itself speaks the protocol of the group, and it is refused all the same."""
    told = {"group_instance_id": STATIC}
    yield from settled(ask, **told)
    protocols = protocols_of(("other", b"o"))
    yield Send(JOIN_GROUP, ask.version, join_fields(ask.topic, protocols=protocols, **told))


def _join_after_leaving(ask: Ask) -> Talk:
    member = yield from settled(ask)
    yield Send(LEAVE_GROUP, 3, _leave_fields(ask.topic, [(member.member_id, None)]))
    yield Send(JOIN_GROUP, ask.version, join_fields(ask.topic, member.member_id))
    yield from joined(ask, ask.version, is_recorded=True)


_JOIN: Final = (
    many("the first member", JOIN_GROUP, _first),
    many("a member that comes again", JOIN_GROUP, _join_twice),
    many("the leader of a stable group comes again", JOIN_GROUP, _join_when_stable),
    many("a member that wants to read more", JOIN_GROUP, _join_with_more),
    many("two protocols", JOIN_GROUP, _choose),
    many("a member that had left", JOIN_GROUP, _join_after_leaving),
    many("a member with a name comes back", JOIN_GROUP, _come_back, versions=NAMED),
    many(
        "a member with a name comes back with another protocol",
        JOIN_GROUP,
        _come_back_changed,
        versions=NAMED,
    ),
    one("a group without a name", JOIN_GROUP, lambda _: join_fields("")),
    one("an unknown member", JOIN_GROUP, lambda ask: join_fields(ask.topic, STRANGER)),
    _join("an unknown member with a name", member_id=STRANGER, group_instance_id=STATIC),
    _join("a session of 5999 ms", session_timeout=5999),
    _join("a session of 1800001 ms", session_timeout=1_800_001),
    _join("a session of -1 ms", session_timeout=-1),
    _join("no protocols", protocols=[]),
    _join("a protocol type without a name", protocol_type=""),
    _join_beside("an unknown member of a group with others", member_id=STRANGER),
    _join_beside("another protocol type", protocol_type="connect"),
    _join_beside("no protocol in common", protocols=protocols_of(("other", b""))),
    _join_beside("a wrong id for a name", member_id=STRANGER, group_instance_id=STATIC),
    _join_beside("no protocols in a group with others", protocols=[]),
)

# ── SyncGroup ─────────────────────────────────────────────────────────────────────────────────


def _sync(name: str, *, versions: Iterable[int] | None = None, **changes: Any) -> Case:
    """The leader says who reads what, or something that is refused."""

    def talk(ask: Ask) -> Talk:
        member = yield from joined(ask)
        fields = {**sync_fields(ask.topic, *member), **changes}
        yield Send(SYNC_GROUP, ask.version, fields)
        yield _described(ask)

    return many(name, SYNC_GROUP, talk, versions=versions)


def _sync_others(ask: Ask) -> Talk:
    """Whom nobody knows is left out, and whom the leader forgot reads nothing."""
    member = yield from joined(ask)
    fields = sync_fields(ask.topic, *member, assignments=[(STRANGER, assignment(FILLED, 0))])
    yield Send(SYNC_GROUP, ask.version, fields)
    yield _described(ask)


def _sync_twice(ask: Ask) -> Talk:
    """A stable group tells what it knows; the second word of the leader changes nothing."""
    member = yield from settled(ask)
    yield Send(SYNC_GROUP, ask.version, sync_fields(ask.topic, *member, assignments=[]))
    other = [(member.member_id, assignment(FILLED, 1))]
    yield Send(SYNC_GROUP, ask.version, sync_fields(ask.topic, *member, assignments=other))


def _sync_after_leaving(ask: Ask) -> Talk:
    member = yield from settled(ask)
    yield Send(
        LEAVE_GROUP, 3, _leave_fields(ask.topic, [(member.member_id, None)]), is_recorded=False
    )
    yield Send(SYNC_GROUP, ask.version, sync_fields(ask.topic, *member))


_SYNC: Final = (
    _sync("the leader shares out"),
    many("the leader shares out to others", SYNC_GROUP, _sync_others, versions=ends_of(SYNC_GROUP)),
    many("a stable group", SYNC_GROUP, _sync_twice),
    many("a member that has left", SYNC_GROUP, _sync_after_leaving),
    _sync("nothing to share out", assignments=[]),
    *(
        _sync(f"generation {number}", generation_id=number, versions=ends_of(SYNC_GROUP))
        for number in (-1, 0, 2)
    ),
    _sync("an unknown member", member_id=STRANGER),
    _sync("a wrong id for a name", group_instance_id=STATIC, versions=range(3, 6)),
    _sync("another protocol type", protocol_type="connect", versions=(5,)),
    _sync("another protocol", protocol_name="other", versions=(5,)),
    _sync("no protocol type", protocol_type=None, versions=(5,)),
    _sync("no protocol", protocol_name=None, versions=(5,)),
    one("an unknown group", SYNC_GROUP, lambda ask: sync_fields(ask.topic, STRANGER, 1)),
    one("a group without a name", SYNC_GROUP, lambda _: sync_fields("", STRANGER, 1)),
)

# ── Heartbeat ─────────────────────────────────────────────────────────────────────────────────


def _beat(ask: Ask, member: Membership, **changes: Any) -> Fields:
    return {
        "group_id": ask.topic,
        "generation_id": member.generation,
        "member_id": member.member_id,
        "group_instance_id": None,
        **changes,
    }


def _beats(name: str, *, versions: Iterable[int] | None = None, **changes: Any) -> Case:
    """In a stable group."""

    def talk(ask: Ask) -> Talk:
        member = yield from settled(ask)
        yield Send(HEARTBEAT, ask.version, _beat(ask, member, **changes))

    return many(name, HEARTBEAT, talk, versions=versions)


def _beat_before_sync(ask: Ask) -> Talk:
    member = yield from joined(ask)
    yield Send(HEARTBEAT, ask.version, _beat(ask, member))


def _beat_after_leaving(ask: Ask) -> Talk:
    member = yield from settled(ask)
    yield Send(
        LEAVE_GROUP, 3, _leave_fields(ask.topic, [(member.member_id, None)]), is_recorded=False
    )
    yield Send(HEARTBEAT, ask.version, _beat(ask, member))


_BEATS: Final = (
    _beats("a member"),
    many("a member before all is shared out", HEARTBEAT, _beat_before_sync),
    many("a member that has left", HEARTBEAT, _beat_after_leaving),
    _beats("an unknown member", member_id=STRANGER),
    _beats("a member without an id", member_id=""),
    *(_beats(f"generation {number}", generation_id=number) for number in (-1, 0, 2)),
    _beats("a wrong name", group_instance_id=STATIC, versions=(3, 4)),
    one("an unknown group", HEARTBEAT, lambda ask: _beat(ask, Membership(STRANGER, 1))),
    one(
        "a group without a name",
        HEARTBEAT,
        lambda ask: _beat(ask, Membership(STRANGER, 1), group_id=""),
    ),
)

# ── LeaveGroup ────────────────────────────────────────────────────────────────────────────────

Leaver = tuple[str, str | None]


def _leave_fields(group: str, leavers: Sequence[Leaver]) -> Fields:
    members = [
        {"member_id": member_id, "group_instance_id": name, "reason": None}
        for member_id, name in leavers
    ]
    return {"group_id": group, "member_id": (*leavers, ("", None))[0][0], "members": members}


def _leave(name: str, *leavers: Leaver, versions: Iterable[int] | None = None) -> Case:
    """Somebody is to leave a group that has one member."""

    def talk(ask: Ask) -> Talk:
        yield from settled(ask, group_instance_id=STATIC)
        yield Send(LEAVE_GROUP, ask.version, _leave_fields(ask.topic, leavers))
        yield _described(ask)

    return many(name, LEAVE_GROUP, talk, versions=versions)


def _leave_twice(ask: Ask) -> Talk:
    member = yield from settled(ask)
    for _ in range(2):
        yield Send(LEAVE_GROUP, ask.version, _leave_fields(ask.topic, [(member.member_id, None)]))
        yield _described(ask)


def _leave_before_joining(ask: Ask) -> Talk:
    """It was given an id, and does not come back with it."""
    answer = yield Send(JOIN_GROUP, 5, join_fields(ask.topic), is_recorded=False)
    assert not isinstance(answer, str), answer
    yield Send(LEAVE_GROUP, ask.version, _leave_fields(ask.topic, [(answer["member_id"], None)]))
    yield _described(ask)


def _leave_with_name(ask: Ask) -> Talk:
    member = yield from settled(ask, group_instance_id=STATIC)
    yield Send(LEAVE_GROUP, ask.version, _leave_fields(ask.topic, [(member.member_id, STATIC)]))
    yield _described(ask)


_MANY_LEAVE: Final = range(3, 6)
_LEAVE: Final = (
    many("the only member, and again", LEAVE_GROUP, _leave_twice),
    many("a member that was given an id", LEAVE_GROUP, _leave_before_joining),
    many("by id and name", LEAVE_GROUP, _leave_with_name, versions=_MANY_LEAVE),
    _leave("an unknown member", (STRANGER, None)),
    _leave("a member without an id", ("", None)),
    _leave("by name", ("", STATIC), versions=_MANY_LEAVE),
    _leave("by an unknown name", ("", "other"), versions=_MANY_LEAVE),
    _leave("by name with a wrong id", (STRANGER, STATIC), versions=_MANY_LEAVE),
    _leave(
        "one that is there and one that is not",
        ("", STATIC),
        (STRANGER, None),
        versions=_MANY_LEAVE,
    ),
    _leave("one twice", ("", STATIC), ("", STATIC), versions=_MANY_LEAVE),
    _leave("nobody", versions=_MANY_LEAVE),
    one("an unknown group", LEAVE_GROUP, lambda ask: _leave_fields(ask.topic, [(STRANGER, None)])),
    one("a group without a name", LEAVE_GROUP, lambda _: _leave_fields("", [(STRANGER, None)])),
)

MEMBERSHIP_CASES: Final[tuple[Case, ...]] = (*_FIND, *_JOIN, *_SYNC, *_BEATS, *_LEAVE)
