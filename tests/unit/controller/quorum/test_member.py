from __future__ import annotations

from itertools import permutations

import pytest

from ottla.controller.quorum.member import Compaction
from ottla.controller.quorum.membership import Standing
from ottla.controller.quorum.messages import (
    AppendAnswer,
    AskPreVote,
    PreVote,
    RequestVote,
    Vote,
)
from ottla.controller.quorum.port import Outcome, Refused, Role, Unknown, Why
from ottla.proto.errors import StorageError
from ottla.replication.storage.faults import FaultPlan, FaultRule, FaultyStore, Power
from ottla.replication.storage.memory import MemoryStateStore
from tests.hazards.ours import Ours, append, entries
from tests.unit.controller.quorum.cluster import STEP_MS, Cluster, open_journal, voter


def test_a_member_that_is_joining_catches_up_and_counts_for_nothing() -> None:
    cluster = Cluster(3)
    leader = cluster.elect()
    joiner, other = (n for n in (1, 2, 3) if n != leader)
    cluster.commit(leader, b"one")
    cluster.run(200)
    acknowledged = cluster.members[leader].status().acknowledged[joiner]
    cluster.kill(joiner)
    # Its disk is gone, and it says so.
    cluster.disks[joiner].clear()
    cluster.standings[joiner] = Standing.JOINING
    cluster.start(joiner)
    cluster.commit(leader, b"two")
    cluster.run(500)
    assert cluster.machines[joiner].commands == [b"one", b"two"]
    assert cluster.members[leader].status().acknowledged[joiner] == acknowledged
    # With the third one gone there is no majority, though two of three are up.
    cluster.kill(other)
    lost = cluster.propose(leader, b"three", timeout_ms=2_000)
    cluster.run(10_000)
    assert lost == [Unknown(Why.TIMED_OUT)]
    assert cluster.leaders() == []
    assert cluster.journals[joiner].vote is None
    # Once it was admitted, it is.
    journal = cluster.journals[joiner]
    journal.set_membership(voter(joiner, 3))
    journal.sync()
    cluster.elect()


@pytest.mark.parametrize("standing", [Standing.FORMING, Standing.JOINING])
def test_a_member_that_is_not_a_voter_yet_says_only_no(standing: Standing) -> None:
    ours = Ours(standing=standing)
    for _ in range(500):
        ours.tick()
    ours.tell(2, AskPreVote(1, 9, 1))
    ours.tell(2, RequestVote(1, 9, 1))
    assert ours.messages == [PreVote(1, 0, granted=False)]
    # It takes what a leader sends, and acknowledges nothing. That it lacks something it does say.
    ours.sent.clear()
    ours.tell(3, append(1, 0, *entries(2, 5), commit=4))
    assert ours.messages == [AppendAnswer(6, reset=False, success=False)]
    ours.tell(3, append(9, 1, commit=4))
    assert ours.messages[1:] == [AppendAnswer(6, reset=True, success=False)]
    ours.tick()
    assert ours.machine.commands == [b"2", b"3", b"4"]
    assert ours.journal.vote is None


def test_after_a_failed_commit_a_member_is_silent() -> None:
    plans = {node_id: FaultPlan() for node_id in (1, 2, 3)}
    disks: dict[int, dict[bytes, bytes]] = {1: {}, 2: {}, 3: {}}
    cluster = Cluster(
        3, open_store=lambda n: FaultyStore(MemoryStateStore(disks[n]), Power(), plans[n])
    )
    leader = cluster.elect()
    member = cluster.members[leader]
    found: list[Outcome] = []
    member.propose(b"one", 5_000, found.append)
    plans[leader].rules.append(FaultRule("commit", "*"))
    with pytest.raises(StorageError, match="failed to commit"):
        member.tick()
    assert found == [Unknown(Why.HALTED)]
    assert member.leader is None
    assert "failed to commit" in str(member.status().halted)
    before = [len(queue) for queue in cluster.network.queues.values()]
    with pytest.raises(StorageError, match="has stopped"):
        member.tick()
    member.propose(b"two", 5_000, found.append)
    assert found[1:] == [Refused(Why.HALTED)]
    assert [len(queue) for queue in cluster.network.queues.values()] == before
    cluster.kill(leader)
    assert cluster.elect() != leader


def test_all_that_waits_together_costs_one_commit() -> None:
    cluster = Cluster(3)
    leader = cluster.elect()
    cluster.run(300)
    before = {n: cluster.journals[n].syncs for n in (1, 2, 3)}
    found = [cluster.propose(leader, b"%d" % number) for number in range(200)]
    reads: list[Outcome] = []
    for _ in range(50):
        cluster.members[leader].read(1_000, reads.append)
    last = cluster.journals[leader].last_index
    cluster.run_until(lambda: all(found))
    cluster.run(100)
    assert len(reads) == 50
    # All reads together are one entry.
    assert cluster.journals[leader].last_index == last + 201
    assert {n: cluster.journals[n].syncs - before[n] for n in (1, 2, 3)} == {1: 1, 2: 1, 3: 1}


def test_a_journal_is_trimmed_by_its_size_as_well() -> None:
    cluster = Cluster(1, compaction=Compaction(size_bytes=100_000))
    leader = cluster.elect()
    for _ in range(20):
        cluster.commit(leader, bytes(10_000))
    assert cluster.journals[leader].size_bytes <= 120_000
    assert cluster.journals[leader].snapshot is not None


def test_a_journal_of_a_blank_store_is_not_opened() -> None:
    store = MemoryStateStore()
    open_journal(store, voter(1, 1))
    assert open_journal(store, voter(1, 1)).membership == voter(1, 1)


def test_whoever_waits_is_told_when_a_message_halts_the_member() -> None:
    plan = FaultPlan()
    ours = Ours(store=FaultyStore(MemoryStateStore(), Power(), plan))
    ours.lead()
    found = ours.propose(b"one")
    ours.tick()
    plan.rules.append(FaultRule("commit", "*"))
    with pytest.raises(StorageError, match="failed to commit"):
        ours.tell(2, RequestVote(ours.term + 1, 99, 99))
    assert found == [Unknown(Why.HALTED)]
    assert not any(isinstance(message, Vote) for message in ours.messages)


def test_a_new_leader_knows_when_it_heard_the_one_before_last() -> None:
    cluster = Cluster(3)
    first = cluster.elect()
    cluster.run(300)
    assert cluster.members[first].status().last_heard is None
    cluster.kill(first)
    died_ms = cluster.now_ms
    following = cluster.elect()
    heard = cluster.members[following].status().last_heard
    assert heard is not None
    assert heard[0] == first
    assert died_ms - 200 <= heard[1] <= died_ms


def test_a_leader_that_steps_down_forgets_whom_it_heard_before() -> None:
    cluster = Cluster(3)
    first = cluster.elect()
    cluster.run(300)
    cluster.kill(first)
    following = cluster.elect()
    cluster.kill(({1, 2, 3} - {first, following}).pop())
    member = cluster.members[following]
    cluster.run_until(lambda: member.status().role is not Role.LEADER)
    assert member.status().last_heard is None


def _asleep(cluster: Cluster, leader: int, for_ms: int) -> None:
    """Let the others live on without the leader; what they answered it before waits for it."""
    while not all(len(cluster.network.queues[peer, leader]) for peer in {1, 2, 3} - {leader}):
        cluster.now_ms += 1
        for member in cluster.members.values():
            member.tick()
        for peer in sorted({1, 2, 3} - {leader}):
            cluster.network.deliver(leader, peer)
    for _ in range(for_ms // STEP_MS):
        cluster.now_ms += STEP_MS
        for peer in sorted({1, 2, 3} - {leader}):
            cluster.members[peer].tick()
        for peer, other in permutations(sorted({1, 2, 3} - {leader})):
            cluster.network.deliver(peer, other)


def test_m4_answers_that_waited_while_a_leader_slept_do_not_make_it_one() -> None:
    cluster = Cluster(3)
    leader = cluster.elect()
    old = cluster.members[leader]
    _asleep(cluster, leader, 5_000)
    assert any(n != leader for n in cluster.leaders())
    # It wakes up, and what it finds first was said before it fell asleep.
    for peer in sorted({1, 2, 3} - {leader}):
        cluster.network.deliver(peer, leader, 1)
        assert old.status().role is not Role.LEADER
    old.tick()
    assert old.status().role is not Role.LEADER
    assert old.leader != leader


def test_m4_until_it_was_at_work_again_its_status_is_of_before_it_slept() -> None:
    cluster = Cluster(3)
    leader = cluster.elect()
    before_ms = cluster.members[leader].status().at_ms
    cluster.now_ms += 5_000
    assert cluster.members[leader].status().at_ms == before_ms


def test_m4_a_leader_that_slept_for_a_moment_goes_on_and_so_does_one_that_is_alone() -> None:
    cluster = Cluster(3)
    leader = cluster.elect()
    term = cluster.members[leader].status().term
    _asleep(cluster, leader, 400)
    cluster.run(2_000)
    assert cluster.leaders() == [leader]
    assert cluster.members[leader].status().term == term
    alone = Cluster(1)
    assert alone.elect() == 1
    alone.now_ms += 60_000
    alone.members[1].tick()
    assert alone.members[1].status().role is Role.LEADER


def test_who_is_ticked_only_when_its_rest_is_over_or_something_came_beats_and_votes_in_time() -> (
    None
):
    cluster = Cluster(3)
    leader = cluster.elect()
    term = cluster.members[leader].status().term
    ticks = 0
    for _ in range(5_000):
        cluster.now_ms += 1
        for member in tuple(cluster.members.values()):
            if member.rests_ms < 0 or member.has_backlog:
                member.tick()
                ticks += 1
        cluster.network.deliver_all()
    # Ten heartbeats a second, nothing of the others, and nobody lost patience.
    assert 40 <= ticks <= 60
    assert [one.status().term for one in cluster.members.values()] == [term] * 3
    cluster.kill(leader)
    followers = tuple(cluster.members.values())
    for _ in range(2_500):
        cluster.now_ms += 1
        for member in followers:
            if member.rests_ms < 0 or member.has_backlog:
                member.tick()
        if cluster.network.deliver_all():
            # What came is looked at by a tick at once, as by the thread that ticks a member.
            for member in followers:
                member.tick()
    assert len(cluster.leaders()) == 1
