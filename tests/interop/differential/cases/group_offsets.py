"""OffsetCommit, OffsetFetch and OffsetDelete: how far a group has come."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final
from uuid import UUID

from ottla.proto.kafka.apis import LEAVE_GROUP, OFFSET_COMMIT, OFFSET_DELETE, OFFSET_FETCH
from tests.interop.differential.case import Ask, Case, Send, Talk, ends_of, many, one
from tests.interop.differential.cases.members import (
    commit_fields,
    committed,
    joined,
    settled,
)
from tests.interop.differential.messages import Fields
from tests.interop.differential.stage import EMPTY, FILLED

STRANGER: Final = "stranger-00000000-0000-0000-0000-000000000009"
STATIC: Final = "the-first"
MISSING: Final = "missing"
# The highest versions that name topics.
COMMITS: Final = 9
FETCHES: Final = 9
MANY_GROUPS: Final = range(8, 11)


def _id_of(ask: Ask, name: str) -> UUID:
    return ask.ids.get(name, UUID(int=9))


def _topic(ask: Ask, name: str, *partitions: Fields) -> Fields:
    return {"name": name, "topic_id": _id_of(ask, name), "partitions": list(partitions)}


def _wanted(ask: Ask, name: str, *indexes: int) -> Fields:
    return {"name": name, "topic_id": _id_of(ask, name), "partition_indexes": list(indexes)}


def _fetch_fields(
    group: str, topics: Sequence[Fields] | None, *, member_id: str | None = None, epoch: int = -1
) -> Fields:
    told = None if topics is None else list(topics)
    of_group = {"group_id": group, "member_id": member_id, "member_epoch": epoch, "topics": told}
    return {"group_id": group, "topics": told, "groups": [of_group], "require_stable": False}


def _look(ask: Ask) -> Send:
    """Show all that is committed."""
    return Send(OFFSET_FETCH, FETCHES, _fetch_fields(ask.topic, None))


# ── OffsetCommit ──────────────────────────────────────────────────────────────────────────────


def _commit(
    name: str,
    *topics: tuple[str, Sequence[Fields]],
    versions: Iterable[int] | None = None,
    **changes: Any,
) -> Case:
    """Commit for a group that nobody is a member of."""

    def talk(ask: Ask) -> Talk:
        told = [_topic(ask, topic, *partitions) for topic, partitions in topics]
        yield Send(OFFSET_COMMIT, ask.version, {**commit_fields(ask.topic, told), **changes})
        yield _look(ask)

    return many(name, OFFSET_COMMIT, talk, versions=versions)


def _commit_by_member(
    name: str, *, versions: Iterable[int] | None = None, is_stable: bool = True, **changes: Any
) -> Case:
    """Commit for a group that has a member with a name."""

    def talk(ask: Ask) -> Talk:
        join = settled if is_stable else joined
        member = yield from join(ask, group_instance_id=STATIC)
        told = [_topic(ask, FILLED, committed(0, 5), committed(1, 6))]
        fields = commit_fields(
            ask.topic, told, member_id=member.member_id, generation=member.generation
        )
        yield Send(OFFSET_COMMIT, ask.version, {**fields, **changes})
        yield _look(ask)

    return many(name, OFFSET_COMMIT, talk, versions=versions)


def _commit_after_leaving(ask: Ask) -> Talk:
    member = yield from settled(ask)
    leaver = {"member_id": member.member_id, "group_instance_id": None}
    yield Send(LEAVE_GROUP, 3, {"group_id": ask.topic, "members": [leaver]}, is_recorded=False)
    told = [_topic(ask, FILLED, committed())]
    for generation in (member.generation, -1):
        fields = commit_fields(ask.topic, told, member_id=member.member_id, generation=generation)
        yield Send(OFFSET_COMMIT, ask.version, fields)
    yield _look(ask)


def _commit_again(ask: Ask) -> Talk:
    """The last one counts, also where it is lower."""
    for offset in (9, 3):
        told = [_topic(ask, FILLED, committed(0, offset, epoch=0, metadata=f"at {offset}"))]
        yield Send(OFFSET_COMMIT, ask.version, commit_fields(ask.topic, told))
    yield _look(ask)


_ENDS: Final = ends_of(OFFSET_COMMIT)
_COMMIT: Final = (
    _commit("two partitions", (FILLED, (committed(0, 5), committed(1, 6)))),
    _commit("two topics", (FILLED, (committed(),)), (EMPTY, (committed(),))),
    many("again", OFFSET_COMMIT, _commit_again),
    _commit("behind the end", (FILLED, (committed(0, 10**12),)), versions=_ENDS),
    _commit("offset -1", (FILLED, (committed(0, -1),)), versions=_ENDS),
    _commit("offset -7", (FILLED, (committed(0, -7),)), versions=_ENDS),
    _commit("an epoch that is not yet", (FILLED, (committed(epoch=7),)), versions=range(6, 11)),
    _commit("metadata null", (FILLED, (committed(metadata=None),))),
    _commit("metadata of 4096 bytes", (FILLED, (committed(metadata="m" * 4096),)), versions=_ENDS),
    _commit(
        "metadata of 4097 bytes",
        (FILLED, (committed(metadata="m" * 4097), committed(1))),
        versions=_ENDS,
    ),
    _commit("an unknown topic", (MISSING, (committed(),))),
    _commit("a known and an unknown topic", (FILLED, (committed(),)), (MISSING, (committed(),))),
    _commit("an unknown partition", (FILLED, (committed(0), committed(9))), versions=_ENDS),
    _commit("partition -1", (FILLED, (committed(-1),)), versions=_ENDS),
    _commit("a partition twice", (FILLED, (committed(0, 5), committed(0, 6))), versions=_ENDS),
    _commit("a topic twice", (FILLED, (committed(),)), (FILLED, (committed(1),)), versions=_ENDS),
    _commit("no partitions", (FILLED, ()), versions=_ENDS),
    _commit("no topics", versions=_ENDS),
    _commit("to be kept for an hour", (FILLED, (committed(),)), retention_time=3_600_000),
    _commit(
        "generation 1 of an unknown group",
        (FILLED, (committed(),)),
        generation_id_or_member_epoch=1,
        member_id=STRANGER,
    ),
    _commit("an unknown member of an unknown group", (FILLED, (committed(),)), member_id=STRANGER),
    _commit_by_member("a member"),
    _commit_by_member("a member with its name", group_instance_id=STATIC, versions=range(7, 11)),
    _commit_by_member("a wrong name", group_instance_id="other", versions=range(7, 11)),
    _commit_by_member(
        "a wrong id for a name",
        group_instance_id=STATIC,
        member_id=STRANGER,
        versions=range(7, 11),
    ),
    _commit_by_member("before all is shared out", is_stable=False),
    _commit_by_member("an unknown member", member_id=STRANGER),
    _commit_by_member("generation 0", generation_id_or_member_epoch=0),
    _commit_by_member("generation 2", generation_id_or_member_epoch=2),
    _commit_by_member("a member without its generation", generation_id_or_member_epoch=-1),
    _commit_by_member(
        "somebody else while there is a member", generation_id_or_member_epoch=-1, member_id=""
    ),
    many("a member that has left", OFFSET_COMMIT, _commit_after_leaving),
)

# ── OffsetFetch ───────────────────────────────────────────────────────────────────────────────


def _fetch(
    name: str,
    *topics: tuple[str, Sequence[int]],
    versions: Iterable[int] | None = None,
    has_offsets: bool = True,
    is_all: bool = False,
    **changes: Any,
) -> Case:
    """Ask a group for what it has committed."""

    def talk(ask: Ask) -> Talk:
        if has_offsets:
            partition = committed(0, 7, epoch=0, metadata="here")
            told = [_topic(ask, FILLED, partition, committed(1)), _topic(ask, EMPTY, committed(0))]
            commit = commit_fields(ask.topic, told)
            yield Send(OFFSET_COMMIT, COMMITS, commit, is_recorded=False)
        wanted = None if is_all else [_wanted(ask, topic, *indexes) for topic, indexes in topics]
        yield Send(OFFSET_FETCH, ask.version, _fetch_fields(ask.topic, wanted, **changes))

    return many(name, OFFSET_FETCH, talk, versions=versions)


def _fetch_by_member(name: str, *, epoch: int, member_id: str | None = None) -> Case:
    """A group of the classic protocol is asked as one of the other would be."""

    def talk(ask: Ask) -> Talk:
        member = yield from settled(ask)
        who = member.member_id if member_id is None else member_id
        wanted = [_wanted(ask, FILLED, 0)]
        fields = _fetch_fields(ask.topic, wanted, member_id=who, epoch=epoch)
        yield Send(OFFSET_FETCH, ask.version, fields)

    return many(name, OFFSET_FETCH, talk, versions=(9, 10))


def _fetch_groups(*names: str) -> Case:
    def fields(ask: Ask) -> Fields:
        topics = [_wanted(ask, FILLED, 0)]
        groups = [
            {"group_id": name, "member_id": None, "member_epoch": -1, "topics": topics}
            for name in names
        ]
        return {"groups": groups, "require_stable": True}

    told = " and ".join(names) or "none"
    return one(f"groups: {told}", OFFSET_FETCH, fields, versions=MANY_GROUPS)


_FETCH: Final = (
    _fetch("two partitions", (FILLED, (0, 1))),
    _fetch("two topics", (FILLED, (0,)), (EMPTY, (0,))),
    _fetch("all", is_all=True, versions=range(2, 11)),
    _fetch(
        "all of a group that is not there", is_all=True, has_offsets=False, versions=range(2, 11)
    ),
    _fetch("a group that is not there", (FILLED, (0,)), has_offsets=False),
    _fetch("an unknown topic", (MISSING, (0,)), (FILLED, (0,))),
    _fetch("an unknown partition", (FILLED, (0, 9))),
    _fetch("partition -1", (FILLED, (-1,))),
    _fetch("a partition twice", (FILLED, (0, 0))),
    _fetch("a topic twice", (FILLED, (0,)), (FILLED, (1,))),
    _fetch("no partitions", (FILLED, ())),
    _fetch("no topics"),
    _fetch("with an unknown member", (FILLED, (0,)), member_id=STRANGER, epoch=1, versions=(9, 10)),
    _fetch(
        "with an unknown member of a group that is not there",
        (FILLED, (0,)),
        has_offsets=False,
        member_id=STRANGER,
        epoch=1,
        versions=(9, 10),
    ),
    _fetch_by_member("with a member", epoch=1),
    _fetch_by_member("with a member in another generation", epoch=9),
    _fetch_by_member("with an unknown member beside others", epoch=1, member_id=STRANGER),
    _fetch_groups(),
    _fetch_groups("one"),
    _fetch_groups("one", "two"),
    _fetch_groups("one", "one"),
    one(
        "a group without a name",
        OFFSET_FETCH,
        lambda ask: _fetch_fields("", [_wanted(ask, FILLED, 0)]),
    ),
)

# ── OffsetDelete ──────────────────────────────────────────────────────────────────────────────


def _delete_fields(group: str, *topics: tuple[str, Sequence[int]]) -> Fields:
    told = [
        {"name": name, "partitions": [{"partition_index": index} for index in indexes]}
        for name, indexes in topics
    ]
    return {"group_id": group, "topics": told}


def _delete(name: str, *topics: tuple[str, Sequence[int]], has_member: bool = False) -> Case:
    """Delete some of what is committed, and look at the rest."""

    def talk(ask: Ask) -> Talk:
        told = [_topic(ask, FILLED, committed(0), committed(1)), _topic(ask, EMPTY, committed(0))]
        commit = commit_fields(ask.topic, told)
        yield Send(OFFSET_COMMIT, COMMITS, commit, is_recorded=False)
        if has_member:
            yield from settled(ask)
        yield Send(OFFSET_DELETE, ask.version, _delete_fields(ask.topic, *topics))
        yield _look(ask)

    return many(name, OFFSET_DELETE, talk)


def _delete_while_joining(ask: Ask) -> Talk:
    """Nobody can tell yet what is read."""
    yield from joined(ask)
    yield Send(OFFSET_DELETE, ask.version, _delete_fields(ask.topic, (EMPTY, (0,))))


def _delete_of_others(ask: Ask) -> Talk:
    """A group that does not say what it reads."""
    yield from settled(ask, protocol_type="other")
    yield Send(OFFSET_DELETE, ask.version, _delete_fields(ask.topic, (EMPTY, (0,))))


_DELETE: Final = (
    _delete("one partition", (FILLED, (0,))),
    _delete("all partitions", (FILLED, (0, 1)), (EMPTY, (0,))),
    _delete("an unknown partition", (FILLED, (0, 9))),
    _delete("an unknown topic", (MISSING, (0,)), (FILLED, (0,))),
    _delete("a partition twice", (FILLED, (0, 0))),
    _delete("a topic twice", (FILLED, (0,)), (FILLED, (1,))),
    _delete("no partitions", (FILLED, ())),
    _delete("no topics"),
    _delete("what is read and what is not", (FILLED, (0,)), (EMPTY, (0,)), has_member=True),
    many("before all is shared out", OFFSET_DELETE, _delete_while_joining),
    many("a group of another protocol type", OFFSET_DELETE, _delete_of_others),
    one("an unknown group", OFFSET_DELETE, lambda ask: _delete_fields(ask.topic, (FILLED, (0,)))),
    one("a group without a name", OFFSET_DELETE, lambda _: _delete_fields("", (FILLED, (0,)))),
)

GROUP_OFFSET_CASES: Final[tuple[Case, ...]] = (*_COMMIT, *_FETCH, *_DELETE)
