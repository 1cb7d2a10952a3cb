"""What a member does after each answer of its coordinator."""

from __future__ import annotations

import pytest

from ottla.clients.consumer.assignors import assignors_of
from ottla.clients.consumer.membership import (
    Membership,
    Reaction,
    change_of,
    make_assignments,
    reaction_to,
    read_assignment,
    subscriptions_of,
    unowned_of,
)
from ottla.clients.consumer.protocol import (
    Subscription,
    decode_sticky_data,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from ottla.proto.errors import ErrorCode
from ottla.proto.ids import TopicPartition

A0, A1, A2 = (TopicPartition("a", number) for number in range(3))


def _member(*names: str) -> Membership:
    return Membership(
        group_id="g",
        instance_id=None,
        assignors=assignors_of(names or ("range",)),
        session_timeout_ms=45_000,
        rebalance_timeout_ms=300_000,
    )


def _settled(core: Membership, *partitions: TopicPartition) -> Membership:
    core.want_join("begin")
    core.joined("m-1", 3, core.assignors[0].name)
    core.settle(partitions, "begin")
    return core


@pytest.mark.parametrize(
    ("code", "reaction"),
    [
        (ErrorCode.NONE, Reaction.GO_ON),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, Reaction.RETRY),
        (ErrorCode.NOT_COORDINATOR, Reaction.FIND),
        (ErrorCode.REBALANCE_IN_PROGRESS, Reaction.REJOIN),
        (ErrorCode.ILLEGAL_GENERATION, Reaction.RESET),
        (ErrorCode.UNKNOWN_MEMBER_ID, Reaction.RESET),
        (ErrorCode.MEMBER_ID_REQUIRED, Reaction.TAKE_ID),
        (ErrorCode.FENCED_INSTANCE_ID, Reaction.FATAL),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, Reaction.FATAL),
    ],
)
def test_each_code_has_one_reaction(code: ErrorCode, reaction: Reaction) -> None:
    assert reaction_to(code) is reaction


def test_a_rebalance_keeps_the_member_id_and_an_unknown_member_loses_it() -> None:
    core = _settled(_member(), A0)
    core.react(ErrorCode.REBALANCE_IN_PROGRESS, "Heartbeat")
    assert core.member.member_id == "m-1"
    assert core.join_reason == "Heartbeat: REBALANCE_IN_PROGRESS"
    core.react(ErrorCode.UNKNOWN_MEMBER_ID, "Heartbeat")
    assert core.member.member_id == ""
    assert not core.member.is_in
    assert core.owned == (A0,)


def test_an_illegal_generation_keeps_the_id_and_forgets_the_generation() -> None:
    core = _settled(_member(), A0)
    core.react(ErrorCode.ILLEGAL_GENERATION, "OffsetCommit")
    assert core.member.member_id == "m-1"
    assert not core.member.is_in


def test_a_reason_that_comes_during_a_round_makes_another_round() -> None:
    core = _member()
    core.want_join("begin")
    core.joined("m-1", 1, "range")
    core.forget("something new")
    core.joined("m-1", 2, "range")
    core.settle((A0,), "begin")
    assert core.join_reason == "something new"


def test_eager_members_do_not_join_again_after_a_change() -> None:
    core = _settled(_member(), A0, A1)
    core.want_join("again")
    change = core.settle((A0,), "again")
    assert change.revoked == (A1,)
    assert core.join_reason is None


def test_a_cooperative_member_that_lets_go_joins_again_and_one_that_only_gains_does_not() -> None:
    core = _settled(_member("cooperative-sticky"), A0, A1)
    core.want_join("again")
    assert core.settle((A0,), "again").rejoin
    assert core.join_reason is not None
    reason = core.join_reason
    assert core.settle((A0, A2), reason).added == (A2,)
    assert core.join_reason is None


def test_a_mix_of_assignors_is_as_eager_as_its_eagerest() -> None:
    assert not _member("range", "cooperative-sticky").cooperative
    assert _member("cooperative-sticky").cooperative


def test_a_sticky_member_tells_what_it_had_also_after_letting_go() -> None:
    core = _settled(_member("sticky"), A0, A1)
    core.let_go(core.owned)
    (protocol,) = core.join_fields(["a"])["protocols"]
    subscription = decode_subscription(protocol["metadata"])
    assert subscription.owned == ()
    data = decode_sticky_data(subscription.user_data)
    assert data is not None
    assert (data.partitions, data.generation) == ((A0, A1), 3)


def test_a_member_with_broken_metadata_gets_nothing_and_stops_nobody() -> None:
    good = encode_subscription(Subscription(("a",)))
    members = subscriptions_of([("good", None, good), ("broken", None, b"\x00")])
    (assignor,) = assignors_of(["range"])
    shared = make_assignments(assignor, members, {"a": 2})
    assert read_assignment(shared["good"]) == (A0, A1)
    assert read_assignment(shared["broken"]) == ()


def test_a_change_is_what_came_and_what_went() -> None:
    change = change_of((A0, A1), (A1, A2))
    assert (change.added, change.revoked) == ((A2,), (A0,))


def test_a_member_that_is_out_still_says_as_whom_it_was_given_its_partitions() -> None:
    core = _settled(_member(), A0)
    assert core.holder() == ("g", 3, "m-1", None)
    core.react(ErrorCode.UNKNOWN_MEMBER_ID, "Heartbeat")
    assert core.holder() == ("g", 3, "m-1", None), "or its offsets would be taken unchecked"
    core.let_go([A0])
    core.joined("m-2", 5, "range")
    assert core.holder() == ("g", 3, "m-1", None), "nothing is given out yet as the new one"
    core.settle((A1,), core.join_reason)
    assert core.holder() == ("g", 5, "m-2", None)
    core.leave()
    assert core.holder() == ("g", -1, "", None)


def test_a_partition_that_is_in_nobodys_assignment_has_no_owner() -> None:
    hands = [encode_assignment([A0]), encode_assignment([A2, TopicPartition("gone", 7)])]
    assert unowned_of({"a": 3}, hands) == {A1}
    assert unowned_of({"a": 1}, hands) == set()
    assert unowned_of({}, hands) == set()


def test_who_has_unreadable_bytes_or_none_owns_nothing() -> None:
    assert unowned_of({"a": 2}, [encode_assignment([A0]), b"\x00", b""]) == {A1}
