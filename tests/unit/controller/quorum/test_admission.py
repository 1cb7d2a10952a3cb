"""Voters that lost their disks come back without taking anything with them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.controller.quorum.entries import ADMIT, Admit, Entry, encode_admission
from ottla.controller.quorum.member import Compaction
from ottla.controller.quorum.membership import Standing
from ottla.controller.quorum.messages import (
    AppendAnswer,
    AskPreVote,
    Envelope,
    Message,
    PreVote,
    RequestVote,
    Vote,
)
from ottla.controller.quorum.port import Committed, Outcome, Refused, Unknown, Why
from ottla.controller.quorum.transport import Drop
from ottla.proto.errors import StorageError
from tests.hazards.ours import Ours, append, entries
from tests.unit.controller.quorum.cluster import CLUSTER_ID, directory_of
from tests.unit.controller.quorum.wiped import WipedCluster

LONG_MS = 10_000


def commit_many(cluster: WipedCluster, leader: int, count: int, size: int = 1) -> None:
    found = [cluster.propose(leader, b"%d" % n + bytes(size)) for n in range(count)]
    cluster.run_until(lambda: all(found))
    assert all(isinstance(outcome, Committed) for (outcome,) in found)


@pytest.mark.parametrize("limit", [4, 10_000])
def test_a_voter_that_lost_its_disk_comes_back_and_counts_again(limit: int) -> None:
    cluster = WipedCluster(compaction=Compaction(entries=limit))
    leader = cluster.elect()
    lost, other = cluster.others(leader)
    commit_many(cluster, leader, 20)
    cluster.wipe(lost)
    # Until it was admitted it says only what counts for nothing.
    cluster.is_telling = False
    cluster.run(1_000)
    assert cluster.machines[lost].commands == cluster.machines[leader].commands
    assert cluster.standing(lost) is Standing.JOINING
    assert "joins with an empty data directory" in str(cluster.members[lost].status().trouble)
    assert (cluster.journals[lost].snapshot is None) == (limit > 20)
    cluster.is_telling = True
    cluster.run_until(lambda: cluster.is_voter(lost))
    assert cluster.members[lost].status().trouble is None
    cluster.run(300)
    for member in cluster.members.values():
        assert member.status().admitted[lost] == cluster.directory(lost)
    cluster.kill(other)
    cluster.commit(leader, b"with its help")
    cluster.kill(leader)
    cluster.start(other)
    assert cluster.elect() == lost
    cluster.run_until(lambda: cluster.machines[other].commands[-1:] == [b"with its help"])


def test_the_quorum_that_admits_a_joiner_is_one_without_it() -> None:
    cluster = WipedCluster()
    leader = cluster.elect()
    lost, other = cluster.others(leader)
    cluster.is_telling = False
    cluster.wipe(lost)
    cluster.run(500)
    cluster.network.cut_off(other)
    found = cluster.admit(leader, lost)
    cluster.run(LONG_MS)
    assert found == [Unknown(Why.TIMED_OUT)]
    assert cluster.standing(lost) is Standing.JOINING
    # What the joiner says keeps nobody in office, either.
    assert cluster.leaders() == []
    cluster.network.heal()
    cluster.run_until(lambda: cluster.is_voter(lost))


@pytest.mark.parametrize("is_pending", [False, True])
def test_a_joiner_keeps_no_leader_in_office(is_pending: bool) -> None:
    cluster = WipedCluster()
    leader = cluster.elect()
    lost, other = cluster.others(leader)
    cluster.is_telling = False
    cluster.wipe(lost)
    cluster.run(500)
    cluster.kill(other)
    if is_pending:
        cluster.admit(leader, lost)
    term = cluster.members[leader].status().term
    cluster.run(1_500)
    assert cluster.leaders() == []
    cluster.run(LONG_MS)
    # It asks, and nobody says yes: the term stays as it was.
    assert cluster.members[leader].status().term == term
    assert "wait for a leader" in str(cluster.members[leader].status().trouble) or is_pending


def test_two_of_three_that_lost_their_disks_are_never_a_quorum() -> None:
    cluster = WipedCluster()
    leader = cluster.elect()
    cluster.commit(leader, b"one")
    lost = cluster.others(leader)
    kept = [cluster.wipe(node_id) for node_id in lost]
    cluster.run(LONG_MS)
    assert cluster.leaders() == []
    assert [cluster.standing(node_id) for node_id in lost] == [Standing.JOINING] * 2
    status = cluster.members[leader].status()
    assert f"lost their data directories ({lost[0]}, {lost[1]})" in str(status.trouble)
    cluster.kill(leader)
    cluster.run(LONG_MS)
    assert cluster.leaders() == []
    # One of the disks is found again: nothing that was written meanwhile stands in its way.
    cluster.start(leader)
    cluster.kill(lost[0])
    cluster.disks[lost[0]] = kept[0]
    cluster.start(lost[0])
    cluster.run_until(lambda: cluster.is_voter(lost[1]))
    cluster.run_until(lambda: cluster.machines[lost[1]].commands == [b"one"])
    assert cluster.members[leader].status().trouble is None


def test_a_follower_whose_leader_is_among_the_lost_says_so_too() -> None:
    cluster = WipedCluster()
    leader = cluster.elect()
    cluster.commit(leader, b"one")
    other, left = cluster.others(leader)
    for node_id in (leader, other):
        cluster.wipe(node_id)
    cluster.run(LONG_MS)
    assert cluster.leaders() == []
    # It was asked by nobody to vote, and remembers who led last.
    status = cluster.members[left].status()
    lost = ", ".join(map(str, sorted((leader, other))))
    assert f"lost their data directories ({lost})" in str(status.trouble)
    assert status.leader is None


def test_two_of_five_come_back_one_after_the_other() -> None:
    cluster = WipedCluster(5)
    leader = cluster.elect()
    cluster.commit(leader, b"one")
    lost = cluster.others(leader)[:2]
    for node_id in lost:
        cluster.wipe(node_id)
    cluster.run_until(lambda: all(map(cluster.is_voter, lost)))
    assert cluster.commit(leader, b"two").answer == 2


def test_what_two_had_committed_is_not_lost_with_one_disk() -> None:
    cluster = WipedCluster()
    one = cluster.elect()
    lost, behind = cluster.others(one)
    cluster.network.cut_off(behind)
    cluster.commit(one, b"precious")
    cluster.wipe(lost)
    cluster.kill(one)
    cluster.network.heal()
    # The one that lost it and the one that never had it are two of three, and no quorum.
    cluster.run(LONG_MS)
    assert cluster.leaders() == []
    assert cluster.machines[behind].commands == []
    cluster.start(one)
    assert cluster.elect() == one
    cluster.run_until(lambda: cluster.is_voter(lost))
    for node_id in (one, lost, behind):
        assert cluster.machines[node_id].commands == [b"precious"]


@pytest.mark.parametrize("is_sent", [False, True])
def test_a_leader_that_dies_while_it_admits_leaves_it_to_the_next(is_sent: bool) -> None:
    cluster = WipedCluster()
    leader = cluster.elect()
    lost, other = cluster.others(leader)
    cluster.commit(leader, b"one")
    cluster.is_telling = False
    cluster.wipe(lost)
    cluster.run(500)
    if not is_sent:
        cluster.network.cut_off(leader)
    cluster.admit(leader, lost)
    cluster.step()
    newest = cluster.journals[leader].admissions.newest
    assert newest[lost] == cluster.directory(lost)
    cluster.kill(leader)
    cluster.network.heal()
    assert (cluster.journals[other].admissions.newest == newest) == is_sent
    cluster.is_telling = True
    cluster.run(LONG_MS)
    assert cluster.leaders() == []
    assert cluster.standing(lost) is Standing.JOINING
    cluster.start(leader)
    cluster.run_until(lambda: cluster.is_voter(lost))
    cluster.run_until(lambda: cluster.machines[lost].commands == [b"one"])


def trickle(cluster: WipedCluster, leader: int, receiver: int) -> None:
    """Let a heartbeat's time pass, in which no more than three messages reach one member."""
    cluster.now_ms += 100
    for node_id in sorted(cluster.members):
        cluster.members[node_id].tick()
    for way in sorted(cluster.network.queues):
        cluster.network.deliver(*way, 3 if way == (leader, receiver) else None)


@pytest.mark.parametrize("limit", [20, 10_000])
def test_one_that_crashes_on_its_way_goes_on_as_a_joiner(limit: int) -> None:
    cluster = WipedCluster(compaction=Compaction(entries=limit))
    leader = cluster.elect()
    lost = cluster.others(leader)[0]
    commit_many(cluster, leader, 30, size=20_000)
    cluster.is_telling = False
    cluster.wipe(lost)
    ends: list[int] = []
    for life in range(1, 20):
        for _ in range(life):
            trickle(cluster, leader, lost)
            ends.append(cluster.journals[lost].last_index)
        cluster.kill(lost)
        cluster.start(lost)
        assert cluster.standing(lost) is Standing.JOINING
        assert cluster.journals[lost].last_index == ends[-1]
    assert ends[-1] == cluster.journals[leader].last_index
    assert len(set(ends)) > 3 or limit == 20
    cluster.is_telling = True
    cluster.run_until(lambda: cluster.is_voter(lost))
    assert cluster.machines[lost].commands == cluster.machines[leader].commands


def test_of_one_that_lost_its_disk_twice_the_newest_directory_counts() -> None:
    cluster = WipedCluster()
    leader = cluster.elect()
    lost, other = cluster.others(leader)
    cluster.wipe(lost)
    cluster.run_until(lambda: cluster.is_voter(lost))
    first = cluster.directory(lost)
    cluster.wipe(lost)
    cluster.run_until(lambda: cluster.is_voter(lost))
    cluster.run(300)
    member = cluster.members[leader]
    assert member.status().admitted[lost] == cluster.directory(lost) != first
    history = (directory_of(lost), first, cluster.directory(lost))
    assert cluster.journals[other].admissions.had(lost) == history
    # What the directories before have sent counts for nothing.
    term, last = member.status().term, member.status().last_index
    assert member.accept_stream(lost, "late")
    envelope = Envelope(CLUSTER_ID, lost, leader, "", "late", 0, term, Vote(term))
    yes = AppendAnswer(last, reset=False, success=True)
    counted: tuple[Message, ...] = (Vote(term), yes, PreVote(term, term, granted=True))
    letters = [
        replace(envelope, directory_id=directory_id, message=message)
        for directory_id in history[:2]
        for message in counted
    ]
    for sequence, letter in enumerate(letters, start=1):
        assert member.receive(replace(letter, sequence=sequence)) is Drop.OTHER_DIRECTORY


def test_of_two_that_joined_for_one_voter_the_one_that_speaks_is_admitted() -> None:
    cluster = WipedCluster()
    leader = cluster.elect()
    lost, other = cluster.others(leader)
    cluster.is_telling = False
    cluster.wipe(lost)
    cluster.run(500)
    # It is being admitted, and loses its disk once more.
    cluster.network.cut(leader, other)
    first = cluster.admit(leader, lost)
    cluster.run(50)
    cluster.wipe(lost)
    cluster.network.cut(leader, other)
    cluster.run(200)
    assert cluster.admit(leader, lost) == [Refused(Why.ADMITTING, leader)]
    cluster.network.heal()
    cluster.is_telling = True
    cluster.run_until(lambda: cluster.is_voter(lost))
    cluster.run(200)
    assert isinstance(first[0], Committed)
    assert cluster.journals[other].admissions.had(lost) == (
        directory_of(lost),
        directory_of(lost) + "x",
        directory_of(lost) + "xx",
    )


def test_an_admission_is_refused_with_the_reason() -> None:
    cluster = WipedCluster()
    leader = cluster.elect()
    lost, other = cluster.others(leader)

    def refusal(at: int, voter: int, directory_id: str) -> Why:
        found: list[Outcome] = []
        cluster.members[at].admit(voter, directory_id, 1_000, found.append)
        (outcome,) = found
        assert isinstance(outcome, Refused)
        assert outcome.leader == leader
        return outcome.why

    assert refusal(other, lost, "new") is Why.NOT_LEADER
    assert refusal(leader, 9, "new") is Why.NO_VOTER
    assert refusal(leader, leader, "new") is Why.NO_VOTER
    assert refusal(leader, lost, directory_of(lost)) is Why.ADMITTED_ALREADY
    # Somebody tells an old story.
    assert refusal(leader, lost, "new") is Why.NOT_HEARD
    cluster.wipe(lost)
    cluster.run_until(lambda: cluster.is_voter(lost))
    assert refusal(leader, lost, directory_of(lost)) is Why.DIRECTORY_REPLACED
    assert refusal(leader, lost, cluster.directory(lost)) is Why.ADMITTED_ALREADY
    cluster.is_telling = False
    cluster.wipe(lost)
    cluster.network.cut_off(other)
    cluster.run(300)
    assert refusal(leader, lost, cluster.directory(lost)) is Why.TOO_FEW


def test_two_admissions_that_wait_together_are_one() -> None:
    cluster = WipedCluster()
    leader = cluster.elect()
    lost = cluster.others(leader)[0]
    cluster.is_telling = False
    cluster.wipe(lost)
    cluster.run(500)
    one, two = cluster.admit(leader, lost), cluster.admit(leader, lost)
    cluster.run_until(lambda: bool(one and two))
    assert isinstance(one[0], Committed)
    assert two == [Refused(Why.ADMITTED_ALREADY, leader)]


@pytest.mark.parametrize("limit", [4, 10_000])
def test_who_was_admitted_is_known_again_after_a_restart_of_all(limit: int) -> None:
    cluster = WipedCluster(compaction=Compaction(entries=limit))
    leader = cluster.elect()
    lost, other = cluster.others(leader)
    cluster.wipe(lost)
    cluster.run_until(lambda: cluster.is_voter(lost))
    commit_many(cluster, leader, 20)
    cluster.run(500)
    for node_id in (1, 2, 3):
        cluster.kill(node_id)
    assert (cluster.journals[leader].snapshot is None) == (limit > 20)
    for node_id in (leader, lost):
        cluster.start(node_id)
        newest = cluster.journals[node_id].admissions.newest
        assert newest[lost] == cluster.directory(lost)
    # It does not wait to hear once more that it was admitted: it is needed now.
    assert cluster.is_voter(lost)
    cluster.commit(cluster.elect(), b"after")
    cluster.start(other)
    cluster.run_until(lambda: cluster.machines[other].commands[-1:] == [b"after"])


def test_a_joiner_that_reads_of_its_admission_in_a_snapshot_votes() -> None:
    cluster = WipedCluster(compaction=Compaction(entries=4))
    leader = cluster.elect()
    lost, other = cluster.others(leader)
    cluster.is_telling = False
    cluster.wipe(lost)
    cluster.run(300)
    cluster.network.cut(leader, lost)
    found = cluster.admit(leader, lost)
    cluster.run_until(lambda: bool(found))
    commit_many(cluster, leader, 20)
    admitted = cluster.journals[leader].snapshot
    assert admitted is not None
    assert admitted.directories[lost] == (directory_of(lost), cluster.directory(lost))
    cluster.network.heal()
    cluster.run_until(lambda: cluster.is_voter(lost))
    cluster.kill(other)
    cluster.commit(leader, b"with its help")


def test_an_admission_that_was_never_committed_is_taken_back() -> None:
    cluster = WipedCluster()
    leader = cluster.elect()
    lost, other = cluster.others(leader)
    kept = dict(cluster.disks[lost])
    cluster.is_telling = False
    cluster.wipe(lost)
    cluster.run(300)
    # Only the old leader writes it down, and dies.
    for peer in (lost, other):
        cluster.network.cut(leader, peer)
    cluster.admit(leader, lost)
    cluster.step()
    assert cluster.journals[leader].admissions.newest[lost] == cluster.directory(lost)
    cluster.kill(leader)
    cluster.network.heal()
    # The disk is found again.
    cluster.kill(lost)
    cluster.disks[lost] = kept
    cluster.start(lost)
    new_leader = cluster.elect()
    cluster.commit(new_leader, b"other")
    cluster.start(leader)
    cluster.run_until(lambda: cluster.machines[leader].commands == [b"other"])
    assert cluster.journals[leader].admissions.newest[lost] == directory_of(lost)
    cluster.kill(other)
    cluster.commit(cluster.elect(), b"with the help of the old one")


def test_a_directory_that_was_replaced_is_silent_and_stops() -> None:
    cluster = WipedCluster()
    leader = cluster.elect()
    lost = cluster.others(leader)[0]
    kept = cluster.wipe(lost)
    cluster.run_until(lambda: cluster.is_voter(lost))
    cluster.commit(leader, b"one")
    cluster.kill(lost)
    cluster.disks[lost] = kept
    cluster.start(lost)
    assert cluster.is_voter(lost)
    with pytest.raises(StorageError, match="with the data directory"):
        cluster.run(2_000)
    assert "move this one away" in str(cluster.members[lost].status().halted)


def test_a_joiner_whose_directory_was_replaced_before_it_voted_stops_too() -> None:
    cluster = WipedCluster()
    leader = cluster.elect()
    lost = cluster.others(leader)[0]
    cluster.wipe(lost)
    cluster.run_until(
        lambda: cluster.journals[leader].admissions.newest[lost] == cluster.directory(lost)
    )
    # It is admitted, and its disk goes before it knows.
    assert not cluster.is_voter(lost)
    kept = cluster.wipe(lost)
    cluster.run_until(lambda: cluster.is_voter(lost))
    cluster.kill(lost)
    cluster.disks[lost] = kept
    cluster.wipes[lost] -= 1
    cluster.start(lost)
    assert not cluster.is_voter(lost)
    with pytest.raises(StorageError, match="with the data directory"):
        cluster.run(2_000)
    assert "move this one away" in str(cluster.members[lost].status().halted)


def test_a_voter_that_reads_of_another_directory_of_its_own_counts_for_nothing_at_once() -> None:
    ours = Ours()
    mine = ADMIT + encode_admission(Admit(1, "another"))
    ours.tell(2, append(1, 0, *entries(2, 3), commit=3))
    assert ours.messages == [AppendAnswer(4, reset=False, success=True)]
    # Nobody knows yet whether it will be committed.
    ours.tell(2, append(3, 1, Entry(mine, 4, 1), commit=3))
    assert ours.messages[1:] == [AppendAnswer(5, reset=False, success=False)]
    ours.sent.clear()
    for _ in range(500):
        ours.tick()
    ours.tell(3, RequestVote(2, 9, 2))
    ours.tell(3, AskPreVote(2, 9, 2))
    assert ours.messages == [PreVote(2, 1, granted=False)]
    assert "takes the place of this one" in str(ours.member.status().trouble)
    # It was not: the next leader has something else there.
    ours.sent.clear()
    ours.tell(3, append(3, 1, *entries(4, 4, term=2), term=2, commit=3))
    assert ours.messages == [AppendAnswer(5, reset=False, success=True)]
    assert ours.member.status().trouble is None


def test_what_the_directory_before_had_acknowledged_does_not_help_the_new_one() -> None:
    cluster = WipedCluster()
    leader = cluster.elect()
    lost, other = cluster.others(leader)
    cluster.run(300)
    assert cluster.members[leader].status().acknowledged[lost] > 1
    cluster.is_telling = False
    cluster.wipe(lost)
    cluster.run(300)
    cluster.network.cut(other, leader)
    cluster.admit(leader, lost)
    cluster.run(100)
    status = cluster.members[leader].status()
    assert status.admitted[lost] == cluster.directory(lost)
    assert status.acknowledged[lost] == 0
