"""The requests of groups, in every version, at a broker that has its groups to itself."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

import pytest

from ottla.node import metric_table as table
from ottla.node.groups.places import OFFSETS_TOPIC
from ottla.proto.errors import ErrorCode
from ottla.proto.kafka import apis
from ottla.proto.kafka.apis import ApiRow
from tests.builders import produced
from tests.replicas import all_synced
from tests.unit.node.kafka.desk import Desk, Place, open_desk

GROUP: Final = "g"
SUBSCRIPTION: Final = bytes.fromhex("0001 00000001 0001 74 ffffffff")
FLAGS: Final = {"offsets_topic_num_partitions": "2", "group_initial_rebalance_delay_ms": "0"}
_AT_ONE: Final = {"committed_offset": 1, "committed_metadata": ""}
LOADING: Final = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@pytest.fixture
def desk() -> Iterator[Desk]:
    with open_desk(Place(), **FLAGS) as opened:
        opened.create("t", 2)
        found(opened)
        yield opened


def ask(desk: Desk, row: ApiRow, version: int, **fields: Any) -> dict[str, Any]:
    """Ask as a client does: again, while the coordinator is still reading."""
    return desk.run(_asked(desk, row, version, fields))


async def _asked(desk: Desk, row: ApiRow, version: int, fields: dict[str, Any]) -> dict[str, Any]:
    while True:
        answer = await desk.asked(row, version, **fields)
        if LOADING not in _codes(answer):
            return answer
        await asyncio.sleep(0)


def _codes(value: Any) -> Iterator[int]:
    if isinstance(value, dict):
        if "error_code" in value:
            yield value["error_code"]
        for one in value.values():
            yield from _codes(one)
    elif isinstance(value, list):
        for one in value:
            yield from _codes(one)


def found(desk: Desk, version: int = 6, *, kind: int = 0) -> dict[str, Any]:
    if version >= 4:
        answer = ask(desk, apis.FIND_COORDINATOR, version, key_type=kind, coordinator_keys=[GROUP])
        (told,) = answer["coordinators"]
        return dict(told)
    fields = {"key": GROUP} | ({"key_type": kind} if version >= 1 else {})
    return ask(desk, apis.FIND_COORDINATOR, version, **fields)


def join(desk: Desk, version: int = 9, member_id: str = "", **fields: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "group_id": GROUP,
        "session_timeout": 30_000,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": SUBSCRIPTION}],
    }
    if version >= 1:
        given["rebalance_timeout"] = 30_000
    return ask(desk, apis.JOIN_GROUP, version, **given | fields)


def joined(desk: Desk, version: int = 9) -> tuple[str, int]:
    """Return the id and generation of somebody who is the only member by now."""
    answer = join(desk, version)
    if version >= 4:
        assert answer["error_code"] == ErrorCode.MEMBER_ID_REQUIRED
        answer = join(desk, version, answer["member_id"])
    assert answer["error_code"] == 0
    return answer["member_id"], answer["generation_id"]


def stable(desk: Desk, version: int = 9) -> tuple[str, int]:
    member_id, generation = joined(desk, version)
    answer = ask(
        desk,
        apis.SYNC_GROUP,
        min(version, 5),
        group_id=GROUP,
        generation_id=generation,
        member_id=member_id,
        assignments=[{"member_id": member_id, "assignment": b"all"}],
    )
    assert (answer["error_code"], answer["assignment"]) == (0, b"all")
    return member_id, generation


def commit(desk: Desk, version: int, member_id: str, generation: int, offset: int) -> list[int]:
    partition = {
        "partition_index": 1,
        "committed_offset": offset,
        "committed_metadata": "note",
    }
    topic: dict[str, Any] = {"name": "t"}
    if version >= 10:
        topic = {"topic_id": desk.broker.controller.image.topics["t"].topic_id}
    answer = ask(
        desk,
        apis.OFFSET_COMMIT,
        version,
        group_id=GROUP,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[{**topic, "partitions": [partition]}],
    )
    return list(_codes(answer))


def fetched(desk: Desk, version: int, *, is_all: bool = False) -> dict[int, tuple[int, str]]:
    topic: dict[str, Any] = {"name": "t"}
    if version >= 10:
        topic = {"topic_id": desk.broker.controller.image.topics["t"].topic_id}
    topics = None if is_all else [{**topic, "partition_indexes": [0, 1]}]
    if version >= 8:
        fields: dict[str, Any] = {"groups": [{"group_id": GROUP, "topics": topics}]}
    else:
        fields = {"group_id": GROUP, "topics": topics}
    answer = ask(desk, apis.OFFSET_FETCH, version, **fields)
    assert not any(_codes(answer))
    told = answer["groups"][0]["topics"] if version >= 8 else answer["topics"]
    return {
        one["partition_index"]: (one["committed_offset"], one["metadata"])
        for topic in told
        for one in topic["partitions"]
    }


def listed(
    desk: Desk, version: int = 5, states: tuple[str, ...] = (), types: tuple[str, ...] = ()
) -> list[dict[str, Any]]:
    fields = {"states_filter": list(states)} if version >= 4 else {}
    fields |= {"types_filter": list(types)} if version >= 5 else {}
    answer = ask(desk, apis.LIST_GROUPS, version, **fields)
    assert answer["error_code"] == 0
    return list(answer["groups"])


def described(desk: Desk, version: int, name: str = GROUP) -> dict[str, Any]:
    fields = {"include_authorized_operations": True} if version >= 3 else {}
    (group,) = ask(desk, apis.DESCRIBE_GROUPS, version, groups=[name], **fields)["groups"]
    if version >= 3:
        assert group["authorized_operations"] == 0b1101_0100_1000
    return dict(group)


def settle(desk: Desk) -> None:
    """Let what was written to the topic of groups be committed."""
    for index in range(2):
        desk.run(all_synced(desk.replica(OFFSETS_TOPIC, index)))


def versions(row: ApiRow) -> range:
    return range(row.low, row.high + 1)


@pytest.mark.parametrize("version", versions(apis.FIND_COORDINATOR))
def test_the_coordinator_is_found_and_the_topic_made(version: int) -> None:
    with open_desk(Place(), **FLAGS) as desk:
        answer = found(desk, version)
        assert (answer["error_code"], answer["node_id"]) == (0, 1)
        topic = desk.broker.controller.image.topics[OFFSETS_TOPIC]
        assert (len(topic.partitions), topic.replication_factor) == (2, 1)
        assert topic.configs["cleanup.policy"] == "compact"


def test_there_is_no_coordinator_of_what_is_not_there(desk: Desk) -> None:
    assert found(desk, 6, kind=1)["error_code"] == ErrorCode.INVALID_REQUEST
    assert found(desk, 3, kind=7)["error_code"] == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", versions(apis.JOIN_GROUP))
def test_a_member_joins_learns_what_it_reads_and_leaves(desk: Desk, version: int) -> None:
    member_id, generation = stable(desk, version)
    assert (generation, member_id.startswith("test-")) == (1, True)
    beat = {"group_id": GROUP, "generation_id": 1, "member_id": member_id}
    told = ask(desk, apis.HEARTBEAT, min(version, 4), **beat)
    assert told["error_code"] == 0
    of_leaving = min(version, 5)
    if of_leaving >= 3:
        leaving: dict[str, Any] = {"members": [{"member_id": member_id}]}
    else:
        leaving = {"member_id": member_id}
    left = ask(desk, apis.LEAVE_GROUP, of_leaving, group_id=GROUP, **leaving)
    assert not any(_codes(left))
    told = ask(desk, apis.HEARTBEAT, min(version, 4), **beat)
    assert told["error_code"] == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", versions(apis.OFFSET_COMMIT))
def test_a_committed_offset_is_there_in_every_version(desk: Desk, version: int) -> None:
    member_id, generation = stable(desk)
    assert commit(desk, version, member_id, generation, 40 + version) == [0]
    for of_fetch in versions(apis.OFFSET_FETCH):
        expected = {0: (-1, ""), 1: (40 + version, "note")}
        assert fetched(desk, of_fetch) == expected
        if of_fetch >= 2:
            assert fetched(desk, of_fetch, is_all=True) == {1: (40 + version, "note")}


def test_only_members_commit_while_there_are_any(desk: Desk) -> None:
    assert commit(desk, 9, "", -1, 7) == [0]
    assert commit(desk, 9, "m", 1, 7) == [ErrorCode.UNKNOWN_MEMBER_ID]
    member_id, generation = stable(desk)
    assert commit(desk, 9, "", -1, 8) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert commit(desk, 9, member_id, generation - 1, 8) == [ErrorCode.ILLEGAL_GENERATION]
    assert fetched(desk, 9)[1] == (7, "note")


def test_a_group_that_is_not_there_is_told_by_newer_versions(desk: Desk) -> None:
    assert commit(desk, 8, "m", 1, 7) == [ErrorCode.ILLEGAL_GENERATION]
    assert commit(desk, 9, "m", 1, 7) == [ErrorCode.GROUP_ID_NOT_FOUND]
    assert desk.broker.groups.ledgers
    assert not any(one.groups for one in desk.broker.groups.ledgers.values())


def test_groups_are_listed_described_and_deleted(desk: Desk) -> None:
    member_id, generation = stable(desk)
    commit(desk, 9, member_id, generation, 7)
    for version in versions(apis.LIST_GROUPS):
        (group,) = listed(desk, version)
        assert (group["group_id"], group["protocol_type"]) == (GROUP, "consumer")
    for states, count in ((("stable",), 1), (("Empty",), 0), ((), 1)):
        assert len(listed(desk, 5, states, ("Classic",))) == count
    assert not listed(desk, types=("consumer",))
    for version in versions(apis.DESCRIBE_GROUPS):
        group = described(desk, version)
        (member,) = group["members"]
        assert (group["group_state"], group["protocol_data"]) == ("Stable", "range")
        assert (member["member_id"], member["member_assignment"]) == (member_id, b"all")
        assert member["member_metadata"] == SUBSCRIPTION
    for version in versions(apis.DELETE_GROUPS):
        (result,) = ask(desk, apis.DELETE_GROUPS, version, groups_names=[GROUP])["results"]
        assert result["error_code"] == ErrorCode.NON_EMPTY_GROUP
    ask(desk, apis.LEAVE_GROUP, 5, group_id=GROUP, members=[{"member_id": member_id}])
    assert list(_codes(ask(desk, apis.DELETE_GROUPS, 2, groups_names=[GROUP]))) == [0]
    assert fetched(desk, 9)[1] == (-1, "")
    assert not listed(desk)
    unknown = ask(desk, apis.DELETE_GROUPS, 2, groups_names=[GROUP])
    assert list(_codes(unknown)) == [ErrorCode.GROUP_ID_NOT_FOUND]


def test_a_group_that_is_not_there_is_dead_or_not_found(desk: Desk) -> None:
    old = described(desk, 5, "x")
    assert (old["error_code"], old["group_state"]) == (0, "Dead")
    new = described(desk, 6, "x")
    assert (new["error_code"], new["group_state"]) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")


def test_offsets_are_deleted_unless_somebody_reads_them(desk: Desk) -> None:
    member_id, generation = stable(desk)
    commit(desk, 9, member_id, generation, 7)
    topics = [{"name": "t", "partitions": [{"partition_index": 1}]}]
    answer = ask(desk, apis.OFFSET_DELETE, 0, group_id=GROUP, topics=topics)
    assert list(_codes(answer)) == [0, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]
    ask(desk, apis.LEAVE_GROUP, 5, group_id=GROUP, members=[{"member_id": member_id}])
    answer = ask(desk, apis.OFFSET_DELETE, 0, group_id=GROUP, topics=topics)
    assert list(_codes(answer)) == [0, 0]
    assert fetched(desk, 9)[1] == (-1, "")


def test_offsets_of_a_deleted_topic_go_with_it(desk: Desk) -> None:
    commit(desk, 9, "", -1, 7)
    desk.run(desk.broker.controller.delete_topics(["t"]))
    settle(desk)
    desk.create("t", 2)
    assert fetched(desk, 9)[1] == (-1, "")


def test_another_life_of_the_node_knows_generation_assignment_and_offsets() -> None:
    place = Place()
    with open_desk(place, **FLAGS) as desk:
        desk.create("t", 2)
        found(desk)
        member_id, generation = stable(desk)
        commit(desk, 9, member_id, generation, 7)
        commit(desk, 9, member_id, generation, 8)
    with open_desk(place, **FLAGS) as desk:
        assert fetched(desk, 9)[1] == (8, "note")
        beat = {"group_id": GROUP, "generation_id": generation, "member_id": member_id}
        assert ask(desk, apis.HEARTBEAT, 4, **beat)["error_code"] == 0
        sync = {"group_id": GROUP, "generation_id": generation, "member_id": member_id}
        answer = ask(desk, apis.SYNC_GROUP, 5, assignments=[], **sync)
        assert answer["assignment"] == b"all"


def test_offsets_expire_and_then_the_group(desk: Desk) -> None:
    commit(desk, 9, "", -1, 7)
    (ledger,) = (one for one in desk.broker.groups.ledgers.values() if one.groups)

    async def expire(keep_ms: int) -> int:
        return ledger.expire(keep_ms)

    assert desk.run(expire(1)) == 0
    assert desk.run(expire(0)) == 1
    settle(desk)
    assert fetched(desk, 9)[1] == (-1, "")
    assert not listed(desk)


def test_the_coordinator_tells_of_groups_rebalances_and_lag(desk: Desk) -> None:
    member_id, generation = stable(desk)
    commit(desk, 9, member_id, generation, 0)
    desk.write("t", produced(b"a", b"b", b"c"))
    topics = [{"name": "t", "partitions": [{"partition_index": 0, **_AT_ONE}]}]
    asked = {"group_id": GROUP, "member_id": member_id, "topics": topics}
    ask(desk, apis.OFFSET_COMMIT, 9, generation_id_or_member_epoch=generation, **asked)
    told = {(one.row, one.labels): one.value for one in desk.broker.groups.readings()}
    assert told[table.GROUP_LAG, (GROUP, "t", "0")] == 2
    assert told[table.GROUP_LAG, (GROUP, "t", "1")] == 0
    assert told[table.GROUPS, ("Stable",)] == 1
    assert told[table.GROUP_MEMBERS, ()] == 1
    assert told[table.GROUPS_LOADING, ()] == 0
    assert told[table.GROUP_REBALANCES, ("member_joined",)] == 1
