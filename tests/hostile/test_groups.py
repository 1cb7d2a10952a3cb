"""hostile-input.md, "Groups".

The answers are those of Kafka 4.3 unless a row says otherwise.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest

from ottla.proto.kafka.apis import (
    CREATE_PARTITIONS,
    DELETE_TOPICS,
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    PRODUCE,
    SYNC_GROUP,
    ApiRow,
)
from ottla.proto.kafka.decode import decode_response
from ottla.proto.kafka.framing import read_response_head
from ottla.proto.kafka.message import Message
from tests.hostile.stage import (
    CLOSED,
    DEADLINE_S,
    FILLED,
    FILLED_END,
    GROWTH_MAX,
    MISSING,
    Bystander,
    Closed,
    Target,
    batch,
    codes_of,
    frame_of,
    produce_fields,
    target,
)

pytestmark = pytest.mark.integration

GROUP: Final = "prey"
LOADING: Final = 14
MEMBER_ID_REQUIRED: Final = 79
UNKNOWN_MEMBER: Final = 25
CROWD: Final = 10_000
# For all of them, sent before the first is answered.
CROWD_S: Final = 60.0


def join_fields(**changes: Any) -> dict[str, Any]:
    return {
        "group_id": GROUP,
        "session_timeout": 30_000,
        "rebalance_timeout": 30_000,
        "member_id": "",
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"m"}],
        "reason": None,
        **changes,
    }


def commit_fields(
    offset: int = 1, *, topic: str = FILLED, index: int = 0, text: str = "", **changes: Any
) -> dict[str, Any]:
    partition = {
        "partition_index": index,
        "committed_offset": offset,
        "committed_leader_epoch": -1,
        "committed_metadata": text,
    }
    return {
        "group_id": GROUP,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [{"name": topic, "partitions": [partition]}],
        **changes,
    }


def ask(attacked: Target, row: ApiRow, version: int, fields: dict[str, Any]) -> Message | Closed:
    """Ask, and again while the coordinator is only just beginning."""
    end = time.monotonic() + DEADLINE_S
    while True:
        answer = attacked.ask(row, version, fields)
        codes = codes_of(answer)
        if isinstance(codes, Closed) or LOADING not in codes or time.monotonic() > end:
            return answer


@pytest.fixture
def prey(attacked: Target) -> Target:
    """The node, which coordinates."""
    fields = {"key_type": 0, "coordinator_keys": [GROUP]}
    assert codes_of(ask(attacked, FIND_COORDINATOR, 6, fields)) == (0,)
    assert codes_of(ask(attacked, OFFSET_COMMIT, 9, commit_fields(group_id="warm"))) == (0,)
    # A heartbeat is taken while the partition of its group is read: that has to be over.
    stranger = join_fields(member_id="nobody")
    assert codes_of(ask(attacked, JOIN_GROUP, 9, stranger)) == (UNKNOWN_MEMBER,)
    return attacked


LONG: Final = "x" * 32_000
# What is asked, and every code of the answer.
ROWS: Final[dict[str, tuple[ApiRow, int, dict[str, Any], tuple[int, ...] | Closed]]] = {
    "group id empty, join": (JOIN_GROUP, 9, join_fields(group_id=""), (24,)),
    # Kafka takes it, and counts it in with every request.
    "group id of 32,000": (JOIN_GROUP, 9, join_fields(group_id=LONG), (24,)),
    "500 such ids to be found": (
        FIND_COORDINATOR,
        6,
        {"key_type": 0, "coordinator_keys": [f"{at}{LONG}" for at in range(500)]},
        (24,) * 500,
    ),
    # Kafka takes it, and then cannot write the group.
    "static id of 32,000": (JOIN_GROUP, 9, join_fields(group_instance_id=LONG), (42,)),
    "101 protocols": (
        JOIN_GROUP,
        9,
        join_fields(protocols=[{"name": f"p{at}", "metadata": b""} for at in range(101)]),
        (42,),
    ),
    # Kafka takes it, and gives an answer that no text can hold.
    "a name of 32,000 to be described": (
        DESCRIBE_GROUPS,
        6,
        {"groups": [LONG], "include_authorized_operations": False},
        (24,),
    ),
    "more partitions for the topic of groups": (
        CREATE_PARTITIONS,
        3,
        {
            "topics": [{"name": "__consumer_offsets", "count": 99, "assignments": None}],
            "timeout": 10_000,
            "validate_only": False,
        },
        (37,),
    ),
    "the topic of groups deleted": (
        DELETE_TOPICS,
        5,
        {"topic_names": ["__consumer_offsets"], "timeout": 10_000},
        (44,),
    ),
    "unknown member, join": (JOIN_GROUP, 9, join_fields(member_id="nobody"), (UNKNOWN_MEMBER,)),
    "zero protocols": (JOIN_GROUP, 9, join_fields(protocols=[]), (23,)),
    "no protocol type": (JOIN_GROUP, 9, join_fields(protocol_type=""), (23,)),
    # Kafka lets it in, and then cannot write the group.
    "10 MiB of metadata": (
        JOIN_GROUP,
        9,
        join_fields(protocols=[{"name": "range", "metadata": bytes(10 << 20)}]),
        (10,),
    ),
    "session time-out 0": (JOIN_GROUP, 9, join_fields(session_timeout=0), (26,)),
    "session time-out −1": (JOIN_GROUP, 9, join_fields(session_timeout=-1), (26,)),
    "session time-out of 24 days": (JOIN_GROUP, 9, join_fields(session_timeout=2**31 - 1), (26,)),
    "unknown member, heartbeat": (
        HEARTBEAT,
        4,
        {"group_id": GROUP, "generation_id": 1, "member_id": "x", "group_instance_id": None},
        (UNKNOWN_MEMBER,),
    ),
    "unknown member, sync": (
        SYNC_GROUP,
        5,
        {
            "group_id": GROUP,
            "generation_id": 1,
            "member_id": "x",
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [],
        },
        (UNKNOWN_MEMBER,),
    ),
    "leave for others who are not there": (
        LEAVE_GROUP,
        5,
        {
            "group_id": GROUP,
            "members": [{"member_id": "other", "group_instance_id": None, "reason": None}],
        },
        (0, UNKNOWN_MEMBER),
    ),
    "commit for a topic that is not there": (OFFSET_COMMIT, 9, commit_fields(topic=MISSING), (3,)),
    # Kafka 4.3 takes it.
    "commit for partition 9 of 2": (OFFSET_COMMIT, 9, commit_fields(index=9), (3,)),
    "commit for partition −1": (OFFSET_COMMIT, 9, commit_fields(index=-1), (3,)),
    "commit of offset −5": (OFFSET_COMMIT, 9, commit_fields(-5), (0,)),
    "commit above the high watermark": (OFFSET_COMMIT, 9, commit_fields(FILLED_END + 99), (0,)),
    "commit with 4,097 bytes of text": (OFFSET_COMMIT, 9, commit_fields(text="x" * 4097), (12,)),
    "commit with 4,096 bytes of text": (OFFSET_COMMIT, 9, commit_fields(text="x" * 4096), (0,)),
    "commit in a generation of nobody's": (
        OFFSET_COMMIT,
        9,
        commit_fields(group_id="void", generation_id_or_member_epoch=1),
        (69,),
    ),
    "write to the topic of groups": (
        PRODUCE,
        9,
        produce_fields("__consumer_offsets", [(0, batch())]),
        (17,),
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_groups(prey: Target, name: str) -> None:
    row, version, fields, expected = ROWS[name]
    assert codes_of(ask(prey, row, version, fields)) == expected


def test_a_group_id_of_64_kib_is_no_text_of_the_protocol(prey: Target) -> None:
    frame = frame_of(JOIN_GROUP, 9, join_fields(group_id="MARK"))
    long = b"\x81\x80\x04" + b"x" * (64 << 10)
    assert frame.count(b"\x05MARK") == 1
    content = frame[4:].replace(b"\x05MARK", long)
    framed = len(content).to_bytes(4, "big") + content
    assert prey.ask_raw(JOIN_GROUP, 9, framed) is CLOSED


def member(prey: Target, group: str, **changes: Any) -> tuple[str, int]:
    """Return the id and generation of the only member of a group."""
    fields = join_fields(group_id=group, **changes)
    answer = ask(prey, JOIN_GROUP, 9, fields)
    assert not isinstance(answer, Closed)
    if answer.error_code == MEMBER_ID_REQUIRED:
        answer = ask(prey, JOIN_GROUP, 9, {**fields, "member_id": answer.member_id})
        assert not isinstance(answer, Closed)
    assert answer.error_code == 0
    return answer.member_id, answer.generation_id


def sync_fields(group: str, member_id: str, generation: int, **given: bytes) -> dict[str, Any]:
    return {
        "group_id": group,
        "generation_id": generation,
        "member_id": member_id,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [{"member_id": key, "assignment": data} for key, data in given.items()],
    }


def test_a_leader_assigns_to_strangers_only(prey: Target) -> None:
    member_id, generation = member(prey, "strangers")
    fields = sync_fields("strangers", member_id, generation, stranger=b"all")
    answer = ask(prey, SYNC_GROUP, 5, fields)
    assert not isinstance(answer, Closed)
    assert (answer.error_code, answer.assignment) == (0, b"")


def test_an_old_generation(prey: Target) -> None:
    member_id, generation = member(prey, "old")
    beat = {"group_id": "old", "member_id": member_id, "group_instance_id": None}
    answer = ask(prey, HEARTBEAT, 4, {**beat, "generation_id": generation - 1})
    assert codes_of(answer) == (22,)
    commit = commit_fields(
        group_id="old", member_id=member_id, generation_id_or_member_epoch=generation - 1
    )
    assert codes_of(ask(prey, OFFSET_COMMIT, 9, commit)) == (22,)


def test_a_static_id_that_is_used_again_fences_the_first(prey: Target) -> None:
    first, generation = member(prey, "static", group_instance_id="desk")
    fields = sync_fields("static", first, generation, **{first: b"all"})
    fields["group_instance_id"] = "desk"
    assert codes_of(ask(prey, SYNC_GROUP, 5, fields)) == (0,)
    second, _ = member(prey, "static", group_instance_id="desk")
    assert second != first
    beat = {"group_id": "static", "generation_id": generation, "group_instance_id": "desk"}
    assert codes_of(ask(prey, HEARTBEAT, 4, {**beat, "member_id": first})) == (82,)
    assert codes_of(ask(prey, HEARTBEAT, 4, {**beat, "member_id": second})) == (0,)


def test_what_was_refused_is_not_there(prey: Target) -> None:
    asked = {"group_id": "void", "member_id": None, "member_epoch": -1, "topics": None}
    answer = ask(prey, OFFSET_FETCH, 9, {"groups": [asked], "require_stable": False})
    assert not isinstance(answer, Closed)
    assert answer.groups[0].topics == []


def leave_fields(group: str, member_id: str, instance_id: str | None = None) -> dict[str, Any]:
    leaver = {"member_id": member_id, "group_instance_id": instance_id, "reason": None}
    return {"group_id": group, "members": [leaver]}


def test_who_leaves_for_a_member_takes_it_out(prey: Target) -> None:
    """As with Kafka, whose tools do this: an id is all that it takes."""
    member_id, generation = member(prey, "victims")
    beat = {"group_id": "victims", "generation_id": generation, "group_instance_id": None}
    sync = sync_fields("victims", member_id, generation, **{member_id: b"all"})
    assert codes_of(ask(prey, SYNC_GROUP, 5, sync)) == (0,)
    assert codes_of(ask(prey, HEARTBEAT, 4, {**beat, "member_id": member_id})) == (0,)
    assert codes_of(ask(prey, LEAVE_GROUP, 5, leave_fields("victims", member_id))) == (0, 0)
    gone = ask(prey, HEARTBEAT, 4, {**beat, "member_id": member_id})
    assert codes_of(gone) == (UNKNOWN_MEMBER,)
    again = ask(prey, LEAVE_GROUP, 5, leave_fields("victims", member_id))
    assert codes_of(again) == (0, UNKNOWN_MEMBER)


def test_who_leaves_for_a_static_member_with_another_id_is_fenced(prey: Target) -> None:
    member_id, generation = member(prey, "statics", group_instance_id="chair")
    sync = sync_fields("statics", member_id, generation, **{member_id: b"all"})
    sync["group_instance_id"] = "chair"
    assert codes_of(ask(prey, SYNC_GROUP, 5, sync)) == (0,)
    for instance_id, code in (("chair", 82), ("table", UNKNOWN_MEMBER), (None, UNKNOWN_MEMBER)):
        leave = leave_fields("statics", "other", instance_id)
        assert codes_of(ask(prey, LEAVE_GROUP, 5, leave)) == (0, code)
    beat = {"group_id": "statics", "generation_id": generation, "member_id": member_id}
    assert codes_of(ask(prey, HEARTBEAT, 4, {**beat, "group_instance_id": "chair"})) == (0,)
    # By its name alone, as Kafka's tools take static members out.
    assert codes_of(ask(prey, LEAVE_GROUP, 5, leave_fields("statics", "", "chair"))) == (0, 0)


def crowd_joins(small: Target) -> list[int]:
    """Return what each of CROWD is told; all have asked before the first looks."""
    assert codes_of(
        ask(small, FIND_COORDINATOR, 6, {"key_type": 0, "coordinator_keys": [GROUP]})
    ) == (0,)
    ask(small, JOIN_GROUP, 9, join_fields(member_id="nobody"))
    frame = frame_of(JOIN_GROUP, 9, join_fields())
    codes, end = list[int](), time.monotonic() + CROWD_S
    with small.wire() as wire, ThreadPoolExecutor(1) as sender:
        sent = sender.submit(wire.send, frame * CROWD)
        for _ in range(CROWD):
            answer = wire.read_frame()
            assert not isinstance(answer, Closed)
            assert time.monotonic() < end
            _, at = read_response_head(JOIN_GROUP, 9, answer)
            codes.append(decode_response(JOIN_GROUP, 9, answer[at:]).error_code)
        sent.result()
    return codes


def test_more_want_to_be_members_than_may(tmp_path: Path) -> None:
    """Those above group.max.size are turned away, also while they have only an id."""
    with target(tmp_path, group_max_size="20") as small:
        assert crowd_joins(small) == [MEMBER_ID_REQUIRED] * 20 + [81] * (CROWD - 20)
        small.settles(16 << 20)


def test_as_many_want_to_be_members_as_like_to(tmp_path: Path) -> None:
    """Without group.max.size, as Kafka has it, each is given an id, and nobody else waits."""
    with target(tmp_path) as small:
        bystander = Bystander(small.node.bootstrap)
        assert crowd_joins(small) == [MEMBER_ID_REQUIRED] * CROWD
        bystander.is_served()
        small.settles(GROWTH_MAX)
        bystander.close()
