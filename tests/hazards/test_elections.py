"""P5, P6, P7, P9, P11: one vote, one leader. First as shipped, then ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.controller.quorum.entries import Entry
from ottla.controller.quorum.layout import HEAD_KEY
from ottla.controller.quorum.messages import AppendAnswer, AskPreVote, PreVote, RequestVote, Vote
from ottla.controller.quorum.port import Role
from ottla.controller.quorum.transport import Drop
from ottla.proto.errors import CorruptionError
from tests.hazards.ours import Ours, append
from tests.hazards.plain import Node, indexes, plain, sent, stand, tell
from tests.unit.controller.quorum.cluster import Cluster


def test_p5_a_lost_vote_is_not_given_twice(tmp_path: Path) -> None:
    file = str(tmp_path / "j")
    request = {"type": "request_vote", "term": 9, "last_log_index": 1, "last_log_term": 0}
    library = plain(journalFile=file)
    tell(library, "b", **request)
    (tmp_path / "j.meta").write_bytes(b"")  # what a rename without a sync can leave
    again = plain(journalFile=file)
    tell(again, "c", **request)
    votes = [(voter, message["type"]) for one in (library, again) for voter, message in sent(one)]
    assert votes == [("b", "response_vote"), ("c", "response_vote")]

    ours = Ours()
    ours.tell(2, RequestVote(term=9, last_index=1, last_term=0))
    assert ours.messages == [Vote(9)]
    restarted = Ours(disk=dict(ours.disk))
    restarted.tell(3, RequestVote(term=9, last_index=1, last_term=0))
    assert restarted.messages == []
    assert (restarted.journal.term, restarted.journal.vote) == (9, 2)
    for torn in (b"", ours.disk[HEAD_KEY][:-1]):
        with pytest.raises(CorruptionError, match="must not vote"):
            Ours(disk={**ours.disk, HEAD_KEY: torn})


def test_p6_an_answer_of_another_term_commits_nothing() -> None:
    library = plain()
    stand(library, "c")
    library.put("w")
    library.doTick(0)
    answer = {"next_node_idx": indexes(library)[-1] + 1, "reset": False, "success": True}
    tell(library, "b", type="next_node_idx", **answer)  # from an earlier leadership
    library.doTick(0)
    assert library.count == 1

    ours = Ours()
    ours.lead()
    ours.propose(b"w")
    ours.tick()
    last = ours.journal.last_index
    stale = AppendAnswer(last + 1, reset=False, success=True)
    assert ours.tell(2, stale, sender_term=ours.term - 1) is Drop.OTHER_TERM
    ours.tick()
    assert ours.member.status().commit_index == 1
    assert ours.tell(2, stale) is None
    ours.tick()
    assert ours.member.status().commit_index == last


def test_p7_one_vote_counts_once() -> None:
    library = plain("a", "bcde")
    stand(library, "b", "b")
    assert library._isLeader()

    ours = Ours(5)
    ours.stand()
    assert ours.tell(2, Vote(ours.term)) is None
    assert ours.tell(2, Vote(ours.term)) is Drop.VOTED_ALREADY
    assert not ours.leads
    # The same envelope once more does not even get that far.
    letter = ours.letter(3, Vote(ours.term - 1))
    assert ours.member.receive(letter) is Drop.OTHER_TERM
    assert ours.member.receive(letter) is Drop.REPEATED
    assert ours.tell(3, Vote(ours.term)) is None
    assert ours.leads


def test_p9_a_member_with_a_bad_link_deposes_nobody() -> None:
    library = plain()
    stand(library, "c")
    assert library._isLeader()
    request = {"type": "request_vote", "term": library.raftCurrentTerm + 1}
    tell(library, "b", **request, last_log_index=0, last_log_term=0)
    assert not library._isLeader()

    cluster = Cluster(3)
    leader = cluster.elect()
    follower = next(n for n in (1, 2, 3) if n != leader)
    term = cluster.members[leader].status().term
    cluster.network.cut(leader, follower)  # it hears nothing, and can speak
    cluster.run(10_000)
    assert cluster.leaders() == [leader]
    assert {member.status().term for member in cluster.members.values()} == {term}
    cluster.network.heal()
    cluster.run(500)
    assert cluster.members[follower].leader == leader


def test_p9_a_leader_without_a_majority_steps_down_soon() -> None:
    library = plain()
    assert library.conf.leaderFallbackTimeout == 30
    cluster = Cluster(3)
    leader = cluster.elect()
    cluster.network.cut_off(leader)
    cluster.run(1_200)
    assert cluster.members[leader].status().role is not Role.LEADER
    cluster.run(2_000)
    assert len(cluster.leaders()) == 1
    assert leader not in cluster.leaders()


def test_p9_the_one_with_the_newest_log_wins_though_its_term_is_behind() -> None:
    cluster = Cluster(3)
    leader = cluster.elect()
    cluster.commit(leader, b"one")
    # The others have gone through terms in which nobody was elected.
    for node_id in (1, 2, 3):
        if node_id != leader:
            cluster.members[node_id]._raft.adopt_term(40)
    assert cluster.members[leader].status().term < 40
    cluster.run(10_000)
    assert len(cluster.leaders()) == 1
    assert cluster.members[cluster.leaders()[0]].status().term > 40


def test_p9_whoever_hears_a_leader_says_no() -> None:
    ours = Ours()
    ours.tell(2, append(1, 0, term=1))
    ours.tell(3, AskPreVote(term=1, last_index=9, last_term=1))
    assert ours.messages[-1] == PreVote(1, 1, granted=False)
    ours.tick(600)
    ours.tell(3, AskPreVote(term=1, last_index=9, last_term=1))
    assert ours.messages[-1] == PreVote(1, 1, granted=True)
    ours.tell(3, AskPreVote(term=1, last_index=0, last_term=0))
    assert ours.messages[-1] == PreVote(1, 1, granted=False)


def test_p9_a_dead_process_is_replaced_at_once() -> None:
    cluster = Cluster(3)
    leader = cluster.elect()
    began = cluster.now_ms
    cluster.kill(leader)
    for member in cluster.members.values():
        member.process_is_gone(leader)
    cluster.run_until(lambda: bool(cluster.leaders()))
    assert cluster.now_ms - began <= 100


def test_p11_members_do_not_change_by_an_entry() -> None:
    library = plain("a", "bcde", dynamicMembershipChange=True)
    stand(library, "b", "c")
    for voter in "bc":
        last = indexes(library)[-1]
        answer = {"next_node_idx": last + 1, "reset": False, "success": True}
        tell(library, voter, type="next_node_idx", **answer)
    library.doTick(0)
    library.doTick(0)
    committed = library.raftCommitIndex
    library.removeNodeFromCluster(Node("d"))
    library.removeNodeFromCluster(Node("e"))
    library.addNodeToCluster(Node("x"))
    library.doTick(0)
    # Several changes at once, and none of them committed.
    assert sorted(node.id for node in library.otherNodes) == ["b", "c", "x"]
    assert library.raftCommitIndex == committed

    ours = Ours()
    change = Entry(b"\x02" + b"['rem', 3]", 2, 1)
    assert ours.tell(2, append(1, 0, change)) is Drop.MALFORMED
    assert ours.journal.last_index == 1
    assert ours.member.status().voters == (1, 2, 3)


def test_a_member_whose_term_is_ahead_of_the_leaders_is_not_left_behind() -> None:
    library = plain()
    tell(library, "b", type="request_vote", term=9, last_log_index=0, last_log_term=-1)
    head = {"term": 8, "commit_index": 1, "prevLogIdx": 1, "prevLogTerm": 0, "entries": []}
    tell(library, "c", type="append_entries", **head)
    # No answer, so the leader cannot know.
    assert sent(library) == []

    cluster = Cluster(3)
    leader = cluster.elect()
    ahead = next(n for n in (1, 2, 3) if n != leader)
    # It stood for election, and nobody heard of it.
    cluster.members[ahead]._raft.adopt_term(40)
    cluster.run(5_000)
    new_leader = cluster.elect()
    cluster.commit(new_leader, b"one")
    cluster.run(300)
    assert [machine.commands for machine in cluster.machines.values()] == [[b"one"]] * 3
