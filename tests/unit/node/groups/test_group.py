"""The transitions of a group."""

from __future__ import annotations

import pytest

from ottla.node.groups.group import NEW_MEMBER_MS, Group
from ottla.node.groups.words import State, Terms
from ottla.proto.errors import ErrorCode
from tests.unit.node.groups.party import REBALANCE_MS, SESSION_MS, Party


def test_one_who_has_no_id_is_given_one_and_comes_again() -> None:
    party = Party()
    first = party.joined(party.join(is_id_needed=True))
    assert first.error is ErrorCode.MEMBER_ID_REQUIRED
    assert first.member_id == "c-1"
    ticket = party.join(first.member_id, is_id_needed=True)
    party.wait(1)
    answer = party.joined(ticket)
    assert (answer.error, answer.generation, answer.leader) == (ErrorCode.NONE, 1, "c-1")
    assert answer.members == (("c-1", None, b"all"),)
    assert party.reasons == ["member_joined"]


def test_an_id_that_nobody_came_back_with_expires() -> None:
    party = Party()
    member_id = party.joined(party.join(is_id_needed=True)).member_id
    party.wait(SESSION_MS)
    assert not party.group.pending
    assert party.joined(party.join(member_id)).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_new_group_waits_for_more_to_come() -> None:
    party = Party(Terms(initial_delay_ms=500, size_max=9))
    first = party.join()
    party.wait(499)
    second = party.join()
    party.wait(1)
    assert party.waits(first), "somebody came meanwhile: it waits once more"
    party.wait(500)
    assert party.joined(first).generation == party.joined(second).generation == 1
    assert len(party.joined(first).members) == 2
    assert party.joined(second).members == ()


def test_a_new_group_does_not_wait_for_longer_than_a_rebalance_may_take() -> None:
    party = Party(Terms(initial_delay_ms=500, size_max=9))
    first = party.join(rebalance_ms=1_200)
    for _ in range(11):
        party.wait(100)
        party.join(rebalance_ms=1_200)
    party.wait(200)
    assert not party.waits(first)


def test_the_members_learn_what_they_read_when_it_is_committed_and_not_before() -> None:
    party = Party()
    party.unwritten = []
    ticket = party.join()
    party.wait(1)
    one = party.joined(ticket).member_id
    asked = party.sync(one, {one: b"everything"})
    assert party.waits(asked)
    (write,) = party.unwritten
    assert write.value.members[0].assignment == b"everything"
    party.commit(write)
    assert party.synced(asked).assignment == b"everything"
    assert party.group.state is State.STABLE


def test_an_assignment_that_could_not_be_written_is_shared_out_anew() -> None:
    party = Party()
    party.unwritten = []
    ticket = party.join()
    party.wait(1)
    one = party.joined(ticket).member_id
    asked = party.sync(one, {one: b"x"})
    party.commit(party.unwritten[0], ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert party.synced(asked).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert party.group.state is State.PREPARING
    assert party.reasons[-1] == "assignment_not_written"
    again = party.join(one)
    assert party.joined(again).generation == 2


def test_a_newcomer_makes_all_others_join_again() -> None:
    party = Party()
    one, two = party.gather(2)
    ticket = party.join()
    assert party.beat(one) is ErrorCode.REBALANCE_IN_PROGRESS
    party.join(one)
    assert party.waits(ticket)
    party.join(two)
    assert party.joined(ticket).generation == 3
    assert party.group.state is State.COMPLETING


def test_who_does_not_join_again_in_time_is_a_member_no_more() -> None:
    party = Party()
    one, two = party.gather(2)
    again = party.join(two, protocols=(("range", b"more"),))
    until_ms = party.now_ms + REBALANCE_MS
    while party.waits(again):
        party.beat(one)
        party.wait(SESSION_MS // 2)
    assert party.now_ms == until_ms
    assert set(party.group.members) == {two}
    assert party.beat(one) is ErrorCode.UNKNOWN_MEMBER_ID
    assert party.joined(again).leader == two


def test_one_who_is_silent_for_a_session_is_out() -> None:
    party = Party()
    one, two = party.gather(2)
    for _ in range(3):
        party.wait(SESSION_MS // 2)
        party.beat(one)
    assert set(party.group.members) == {one}
    assert party.reasons[-1] == "session_expired"
    assert party.beat(two) is ErrorCode.UNKNOWN_MEMBER_ID


def test_one_who_waits_for_others_is_not_silent() -> None:
    party = Party()
    one, two = party.gather(2)
    ticket = party.join(one, protocols=(("range", b"more"),))
    for _ in range(4):
        party.wait(SESSION_MS - 1)
        party.beat(two)
    assert party.waits(ticket)
    assert one in party.group.members


def test_a_newcomer_whose_connection_may_be_gone_does_not_wait_for_ever() -> None:
    party = Party()
    one, _ = party.gather(2, rebalance_ms=NEW_MEMBER_MS * 4)
    ticket = party.join()
    elapsed = 0
    while elapsed < NEW_MEMBER_MS:
        party.beat(one)
        elapsed += SESSION_MS // 2
        party.wait(SESSION_MS // 2)
        if not party.waits(ticket):
            break
    party.wait(1)
    assert not party.waits(ticket)


def test_the_last_one_to_leave_empties_the_group() -> None:
    party = Party()
    (one,) = party.gather(1)
    assert party.leave(one) == [ErrorCode.NONE]
    assert (party.group.state, party.group.generation) == (State.EMPTY, 2)
    assert party.written[-1].members == ()
    assert party.reasons[-1] == "member_left"


def test_who_leaves_for_others_must_know_their_ids() -> None:
    party = Party()
    one, _ = party.gather(2)
    assert party.leave("stranger") == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert party.leave((one, "no such name", "")) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert party.group.state is State.STABLE


def test_a_pending_member_that_leaves_disturbs_nobody() -> None:
    party = Party()
    party.gather(1)
    member_id = party.joined(party.join(is_id_needed=True)).member_id
    assert party.leave(member_id) == [ErrorCode.NONE]
    assert party.group.state is State.STABLE


def test_the_protocol_that_most_like_best_is_chosen() -> None:
    party = Party(Terms(initial_delay_ms=10, size_max=9))
    first = (("a", b"1"), ("b", b"2"))
    second = (("b", b"3"), ("a", b"4"), ("c", b"5"))
    tickets = [party.join(protocols=one) for one in (first, second, second)]
    party.wait(100)
    assert {party.joined(one).protocol for one in tickets} == {"b"}
    leader = party.joined(tickets[0])
    assert sorted(metadata for _, _, metadata in leader.members) == [b"2", b"3", b"3"]


def test_who_has_no_protocol_in_common_cannot_join() -> None:
    party = Party()
    party.gather(1)
    refused = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert party.joined(party.join(protocols=(("sticky", b""),))).error is refused
    assert party.joined(party.join(protocol_type="connect")).error is refused
    assert party.joined(party.join(protocols=())).error is refused
    assert party.group.state is State.STABLE


def test_a_group_has_at_most_as_many_members_as_it_may() -> None:
    party = Party(Terms(initial_delay_ms=0, size_max=2))
    one, _ = party.gather(2)
    assert party.joined(party.join()).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    refused = party.join(is_id_needed=True)
    assert party.joined(refused).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert party.waits(party.join(one)), "who is in it may join again"


@pytest.mark.parametrize("is_leader", [True, False])
def test_a_static_member_that_restarts_gets_what_it_had(is_leader: bool) -> None:
    party = Party()
    first = party.join(instance_id="desk-1")
    party.wait(1)
    one = party.joined(first).member_id
    second = party.join(instance_id="desk-2")
    party.join(one, instance_id="desk-1")
    two = party.joined(second).member_id
    party.share([one, two])
    before, reasons = party.group.generation, list(party.reasons)
    old, name = (one, "desk-1") if is_leader else (two, "desk-2")
    answer = party.joined(party.join(instance_id=name))
    assert (answer.error, answer.generation) == (ErrorCode.NONE, before)
    assert answer.skip_assignment is is_leader
    assert len(answer.members) == (2 if is_leader else 0)
    assert party.reasons == reasons, "nobody was disturbed"
    assert party.synced(party.sync(answer.member_id, instance_id=name)).assignment == old.encode()
    fenced = party.group.heartbeat(old, name, before, party.now_ms)
    assert fenced is ErrorCode.FENCED_INSTANCE_ID
    assert party.written[-1].members[-1].member_id == answer.member_id


def test_an_old_static_leader_is_told_that_another_one_leads() -> None:
    party = Party()
    first = party.join(instance_id="desk-1")
    party.wait(1)
    one = party.joined(first).member_id
    party.share([one])
    answer = party.joined(party.join(instance_id="desk-1", may_skip=False))
    assert (answer.leader, answer.members, answer.skip_assignment) == (one, (), False)
    assert party.group.leader == answer.member_id


def test_two_that_claim_one_name_fence_each_other() -> None:
    party = Party(Terms(initial_delay_ms=100, size_max=9))
    first = party.join(instance_id="desk-1")
    second = party.join(instance_id="desk-1")
    assert party.joined(first).error is ErrorCode.FENCED_INSTANCE_ID
    party.wait(200)
    assert party.joined(second).error is ErrorCode.NONE
    assert len(party.group.members) == 1


def test_a_static_member_keeps_its_place_while_its_session_lasts() -> None:
    party = Party()
    first = party.join(instance_id="desk-1", rebalance_ms=100)
    party.wait(1)
    one = party.joined(first).member_id
    party.share([one])
    ticket = party.join(rebalance_ms=100)
    party.wait(200)
    answer = party.joined(ticket)
    assert [member for member, _, _ in answer.members] == [one, answer.member_id]


def test_an_administrator_removes_a_static_member_by_its_name() -> None:
    party = Party()
    first = party.join(instance_id="desk-1")
    party.wait(1)
    party.share([party.joined(first).member_id])
    assert party.leave(("", "desk-2", "")) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert party.leave(("", "desk-1", "")) == [ErrorCode.NONE]
    assert party.reasons[-1] == "member_removed"


def test_the_leader_who_joins_again_wants_a_rebalance_and_others_do_not() -> None:
    party = Party()
    one, two = party.gather(2)
    assert party.joined(party.join(two)).generation == 2
    assert party.group.state is State.STABLE
    ticket = party.join(one)
    assert party.waits(ticket)
    assert party.reasons[-1] == "leader_rejoined"


def test_who_never_asks_for_its_assignment_is_out() -> None:
    party = Party()
    first = party.join()
    party.wait(1)
    one = party.joined(first).member_id
    second = party.join()
    party.join(one)
    two = party.joined(second).member_id
    party.sync(one, {one: b"x", two: b"y"})
    for _ in range(REBALANCE_MS // 5_000 + 1):
        party.beat(one)
        party.beat(two)
        party.wait(5_000)
    assert set(party.group.members) == {one}
    assert party.reasons[-1] == "sync_timed_out"


def test_old_generations_and_strangers_are_refused() -> None:
    party = Party()
    one, _ = party.gather(2)
    assert party.beat(one, 1) is ErrorCode.ILLEGAL_GENERATION
    assert party.beat("nobody") is ErrorCode.UNKNOWN_MEMBER_ID
    old = party.sync(one, generation=1)
    assert party.synced(old).error is ErrorCode.ILLEGAL_GENERATION
    other = party.sync(one, protocol="sticky")
    assert party.synced(other).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_assignments_for_strangers_are_left_out() -> None:
    party = Party()
    ticket = party.join()
    party.wait(1)
    one = party.joined(ticket).member_id
    asked = party.sync(one, {"stranger": b"everything"})
    assert party.synced(asked).assignment == b""
    assert [member.member_id for member in party.written[-1].members] == [one]


def test_who_may_commit() -> None:
    party = Party()
    group, now_ms = party.group, party.now_ms
    assert group.commit_refusal("", None, -1, now_ms) is ErrorCode.NONE
    one, _ = party.gather(2)
    generation = group.generation
    assert group.commit_refusal("", None, -1, now_ms) is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.commit_refusal(one, None, generation, now_ms) is ErrorCode.NONE
    assert group.commit_refusal(one, None, 1, now_ms) is ErrorCode.ILLEGAL_GENERATION
    party.join(one)
    assert group.commit_refusal(one, None, generation, now_ms) is ErrorCode.NONE
    assert group.commit_refusal("x", "name", generation, now_ms) is ErrorCode.UNKNOWN_MEMBER_ID


def test_nobody_commits_between_a_generation_and_its_assignments() -> None:
    party = Party()
    ticket = party.join()
    party.wait(1)
    one = party.joined(ticket).member_id
    code = party.group.commit_refusal(one, None, 1, party.now_ms)
    assert code is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_group_that_ends_tells_everybody_who_waits() -> None:
    party = Party()
    one, _ = party.gather(2)
    waiting = [party.join(), party.join(one)]
    party.carry_out(party.group.close(ErrorCode.NOT_COORDINATOR))
    assert [party.joined(each).error for each in waiting] == [ErrorCode.NOT_COORDINATOR] * 2
    assert party.joined(party.join()).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert party.beat(one) is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_another_coordinator_goes_on_with_the_same_generation() -> None:
    party = Party()
    one, two = party.gather(2)
    value = party.written[-1]
    party.group = Group.restore("party", value, party.now_ms)
    assert party.beat(one) is ErrorCode.NONE
    assert party.synced(party.sync(two)).assignment == two.encode()
    party.wait(SESSION_MS - 1)
    party.beat(one)
    party.wait(1)
    assert set(party.group.members) == {one}


def test_the_first_assignments_of_a_generation_count_and_no_others_are_written() -> None:
    party = Party()
    party.unwritten = []
    ticket = party.join()
    party.wait(1)
    one = party.joined(ticket).member_id
    first = party.sync(one, {one: b"first"})
    second = party.sync(one, {one: b"second"})
    assert party.synced(first).error is ErrorCode.REBALANCE_IN_PROGRESS
    (write,) = party.unwritten
    party.commit(write)
    assert party.synced(second).assignment == b"first"


def test_whoever_waits_for_static_members_that_are_away_looks_once_in_a_while() -> None:
    party = Party()
    static = party.join(instance_id="s", rebalance_ms=0, session_ms=1_800_000)
    other = party.join()
    party.wait(200)
    given = {party.joined(one).member_id: b"all" for one in (static, other)}
    for ticket, name in ((static, "s"), (other, None)):
        party.sync(party.joined(ticket).member_id, given, instance_id=name)
    party.leave(party.joined(other).member_id)
    assert party.group.state is State.PREPARING
    ticks = 0
    end_ms = party.now_ms + 10_000
    while ticks < 100 and party.now_ms < end_ms:
        due_ms = party.group.next_deadline_ms
        assert due_ms is not None
        party.now_ms = max(party.now_ms, due_ms)
        party.carry_out(party.group.tick(party.now_ms))
        ticks += 1
    assert ticks <= 12


def test_protocols_that_nobody_speaks_any_more_are_forgotten() -> None:
    party = Party()
    many = tuple((f"p{at}", b"") for at in range(50))
    (member_id,) = party.gather(1, protocols=many)
    assert len(party.group._speakers) == 50
    party.join(member_id, protocols=many[:2])
    assert len(party.group._speakers) == 2
    party.leave(member_id)
    assert not party.group._speakers


def test_silence_counts_from_when_somebody_was_listened_to() -> None:
    party = Party()
    ids = party.gather(2)
    refused_ms = party.now_ms + SESSION_MS + 5
    party.group.forgive(refused_ms)
    party.wait(SESSION_MS + 5)
    assert len(party.group.members) == 2
    party.beat(ids[0])
    party.wait(SESSION_MS - 1)
    assert len(party.group.members) == 2
    party.beat(ids[0])
    party.wait(1)
    assert list(party.group.members) == [ids[0]]


def test_a_rebalance_waits_for_those_who_were_not_listened_to() -> None:
    party = Party()
    ids = party.gather(2, session_ms=10 * REBALANCE_MS)
    party.join(ids[0], protocols=(("range", b"more"),), session_ms=10 * REBALANCE_MS)
    party.wait(REBALANCE_MS - 1)
    party.group.forgive(party.now_ms)
    party.wait(REBALANCE_MS - 1)
    assert len(party.group.members) == 2
    party.wait(1)
    assert list(party.group.members) == [ids[0]]
