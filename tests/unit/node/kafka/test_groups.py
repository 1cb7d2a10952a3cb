"""The requests of groups, in every version, at a broker that has its groups to itself."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import pytest

from ottla.node import metric_table as table
from ottla.node.cluster import ClusterController
from ottla.node.groups import coordinator
from ottla.node.groups.places import OFFSETS_TOPIC
from ottla.node.kafka.cluster import NOT_ASKED_FOR
from ottla.proto.errors import ErrorCode, RequestError
from ottla.proto.kafka import apis
from ottla.proto.kafka.apis import ApiRow
from ottla.proto.kafka.uuids import UUID
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
    of_sync = min(version, 5)
    agreed = {"protocol_type": "consumer", "protocol_name": "range"} if of_sync >= 5 else {}
    answer = ask(
        desk,
        apis.SYNC_GROUP,
        of_sync,
        group_id=GROUP,
        generation_id=generation,
        member_id=member_id,
        assignments=[{"member_id": member_id, "assignment": b"all"}],
        **agreed,
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
        told = 0b1101_0100_1000 if group["error_code"] == 0 else NOT_ASKED_FOR
        assert group["authorized_operations"] == told
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
    assert found(desk, 6, kind=2)["error_code"] == ErrorCode.INVALID_REQUEST
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


def test_offsets_of_a_partition_that_is_not_there_are_not_deleted(desk: Desk) -> None:
    assert commit(desk, 9, "", -1, 7) == [0]
    topics = [{"name": "t", "partitions": [{"partition_index": 1}, {"partition_index": 9}]}]
    answer = ask(desk, apis.OFFSET_DELETE, 0, group_id=GROUP, topics=topics)
    assert list(_codes(answer)) == [0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_group_that_is_named_twice_is_found_twice(desk: Desk) -> None:
    fields = {"key_type": 0, "coordinator_keys": [GROUP, GROUP]}
    told = ask(desk, apis.FIND_COORDINATOR, 6, **fields)["coordinators"]
    assert [(one["key"], one["error_code"]) for one in told] == [(GROUP, 0), (GROUP, 0)]


def test_a_member_that_does_not_say_its_protocol_is_refused_since_it_can(desk: Desk) -> None:
    member_id, generation = stable(desk)
    fields = {
        "group_id": GROUP,
        "generation_id": generation,
        "member_id": member_id,
        "assignments": [],
    }
    assert ask(desk, apis.SYNC_GROUP, 4, **fields)["error_code"] == 0
    told = ask(desk, apis.SYNC_GROUP, 5, **fields)
    assert told["error_code"] == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_what_a_member_had_is_described_until_it_has_something_else(desk: Desk) -> None:
    member_id, _ = stable(desk)
    # The leader comes again: it wants to share out anew, and has not yet.
    assert join(desk, 5, member_id)["generation_id"] == 2
    group = described(desk, 6)
    (member,) = group["members"]
    assert (group["group_state"], group["protocol_data"]) == ("CompletingRebalance", "")
    assert (member["member_metadata"], member["member_assignment"]) == (b"", b"all")


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
        answer = ask(desk, apis.SYNC_GROUP, 4, assignments=[], **sync)
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


# ── What is too long, too much or too late ────────────────────────────────────────────────────


LONG: Final = "g" * 32_000


def test_a_name_that_is_too_long_is_no_group(desk: Desk) -> None:
    bad = ErrorCode.INVALID_GROUP_ID
    asked = {"key_type": 0, "coordinator_keys": [LONG, "g" * 1_001, "g" * 1_000]}
    assert list(_codes(ask(desk, apis.FIND_COORDINATOR, 6, **asked))) == [bad, bad, 0]
    assert join(desk, group_id=LONG)["error_code"] == bad
    assert described(desk, 6, LONG)["error_code"] == bad
    assert list(_codes(ask(desk, apis.DELETE_GROUPS, 2, groups_names=[LONG]))) == [bad]
    groups = [{"group_id": LONG, "topics": None}]
    assert list(_codes(ask(desk, apis.OFFSET_FETCH, 9, groups=groups))) == [bad]


def test_a_long_list_of_groups_leaves_the_loop_to_others(desk: Desk) -> None:
    async def story() -> None:
        others = 0
        names = [f"g{at}" for at in range(500)]
        asking = asyncio.ensure_future(desk.asked(apis.DELETE_GROUPS, 2, groups_names=names))
        while not asking.done():
            others += 1
            await asyncio.sleep(0)
        assert len((await asking)["results"]) == 500
        assert others >= 10

    desk.run(story())


def test_a_long_static_name_is_refused_and_poisons_no_group(desk: Desk) -> None:
    answer = join(desk, group_instance_id="i" * 250)
    assert answer["error_code"] == ErrorCode.INVALID_REQUEST
    assert not listed(desk)
    assert join(desk, group_instance_id="i" * 249)["error_code"] == 0


def test_more_protocols_than_anybody_has_are_refused(desk: Desk) -> None:
    many = [{"name": f"p{at}", "metadata": b""} for at in range(101)]
    assert join(desk, protocols=many)["error_code"] == ErrorCode.INVALID_REQUEST
    assert join(desk, protocols=many[1:])["error_code"] == ErrorCode.MEMBER_ID_REQUIRED
    long = [{"name": f"{at}{LONG}", "metadata": b""} for at in range(60)]
    assert join(desk, protocols=long)["error_code"] == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("version", [2, 4])
def test_an_old_commit_that_is_to_be_kept_for_ever_is(desk: Desk, version: int) -> None:
    topics = [{"name": "t", "partitions": [{"partition_index": 1, **_AT_ONE}]}]
    answer = ask(
        desk,
        apis.OFFSET_COMMIT,
        version,
        group_id=GROUP,
        generation_id_or_member_epoch=-1,
        member_id="",
        retention_time=2**63 - 1,
        topics=topics,
    )
    assert list(_codes(answer)) == [0]
    desk.run(desk.broker.groups.expire())
    assert fetched(desk, 9)[1] == (1, "")


def test_a_topic_that_was_deleted_and_made_again_at_once_has_no_offsets(desk: Desk) -> None:
    commit(desk, 9, "", -1, 7)
    image = desk.broker.controller.image
    again = replace(image.topics["t"], topic_id=UUID(int=12345))
    newer = replace(image, version=image.version + 1, topics={**image.topics, "t": again})
    desk.run(desk.broker.groups.obey(newer))
    settle(desk)
    assert fetched(desk, 9)[1] == (-1, "")


def test_what_is_committed_in_a_topic_made_again_stays_though_the_old_one_goes_later(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(desk, 9, "", -1, 7)
    image = desk.broker.controller.image
    again = replace(image.topics["t"], topic_id=UUID(int=12345))
    newer = replace(image, version=image.version + 1, topics={**image.topics, "t": again})
    controller = desk.broker.controller
    assert isinstance(controller, ClusterController)
    # Others are still at work on it.
    monkeypatch.setattr(controller.following, "image", newer)
    assert fetched(desk, 9)[1] == (-1, "")
    assert commit(desk, 9, "", -1, 3) == [0]
    desk.run(desk.broker.groups.obey(newer))
    settle(desk)
    assert fetched(desk, 9)[1] == (3, "note")


def test_groups_are_not_listed_by_one_who_may_not_speak_for_them(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    stable(desk)

    def refuse(*_: object) -> None:
        raise RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    monkeypatch.setattr(coordinator, "require_standing", refuse)
    answer = ask(desk, apis.LIST_GROUPS, 5, states_filter=[], types_filter=[])
    assert answer["error_code"] == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_controllers_that_store_nothing_are_no_place_for_replicas() -> None:
    voters = "11@localhost:1,12@localhost:2,13@localhost:3"
    flags = {"node_id": "1", "process_roles": "broker", "controller_quorum_voters": voters}
    with open_desk(Place(), **flags) as desk:
        assert desk.broker.groups._wanted().replication_factor == 1
