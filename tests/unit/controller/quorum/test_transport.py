from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from ottla.controller.quorum.entries import COMMAND, Entry
from ottla.controller.quorum.membership import Standing
from ottla.controller.quorum.messages import (
    Append,
    AppendAnswer,
    AskPreVote,
    Envelope,
    Message,
    PreVote,
    RequestVote,
    Vote,
)
from ottla.controller.quorum.transport import Drop, Inbox, Outbox, View, needs_a_voter

VIEW = View(Standing.VOTER, 3, False, 10, {1: "d1", 2: "d2", 3: None})
YES = AppendAnswer(5, reset=False, success=True)
HEARTBEAT = Append(3, 4, 7, 2, ())


def boxes() -> tuple[Inbox, Outbox]:
    names = iter("abcdefgh")
    outbox = Outbox(node_id=2, cluster_id="c", directory_id="d2", new_stream=lambda: next(names))
    inbox = Inbox(node_id=1, cluster_id="c")
    assert inbox.open(2, outbox.open(1))
    return inbox, outbox


def wrap(outbox: Outbox, message: Message, term: int = 3) -> Envelope:
    envelope = outbox.wrap(1, message, term)
    assert envelope is not None
    return envelope


def test_nothing_is_sent_without_a_stream() -> None:
    _, outbox = boxes()
    outbox.close(1)
    assert outbox.wrap(1, HEARTBEAT, 3) is None


def test_what_was_sent_comes_out_once_and_in_order() -> None:
    inbox, outbox = boxes()
    first, second, third = (wrap(outbox, HEARTBEAT) for _ in range(3))
    assert inbox.admit(first, VIEW) == HEARTBEAT
    assert inbox.admit(third, VIEW) == HEARTBEAT
    for late in (first, second, third):
        assert inbox.admit(late, VIEW) is Drop.REPEATED


def test_a_new_stream_replaces_the_old_one_for_ever() -> None:
    inbox, outbox = boxes()
    old = wrap(outbox, HEARTBEAT)
    stream = outbox.open(1)
    new = wrap(outbox, HEARTBEAT)
    assert inbox.admit(new, VIEW) is Drop.OLD_STREAM
    assert inbox.open(2, stream)
    assert inbox.admit(new, VIEW) == HEARTBEAT
    assert inbox.admit(old, VIEW) is Drop.OLD_STREAM
    assert not inbox.open(2, old.stream)
    # To hear once more of the one that is open changes nothing.
    assert inbox.open(2, stream)
    assert inbox.admit(new, VIEW) is Drop.REPEATED


def test_a_commit_index_goes_no_further_than_the_message_shows() -> None:
    inbox, outbox = boxes()
    entries = (Entry(COMMAND, 8, 3), Entry(COMMAND, 9, 3))
    far = replace(HEARTBEAT, commit_index=100)
    for message, bound in [(far, 7), (replace(far, entries=entries), 9), (HEARTBEAT, 4)]:
        passed = inbox.admit(wrap(outbox, message), VIEW)
        assert passed == replace(message, commit_index=bound)


def test_an_answer_points_no_further_than_the_end_of_the_log() -> None:
    inbox, outbox = boxes()
    wish = AppendAnswer(500, reset=True, success=False)
    assert inbox.admit(wrap(outbox, wish), VIEW) == replace(wish, next_index=11)
    claim = AppendAnswer(500, reset=False, success=True)
    assert inbox.admit(wrap(outbox, claim), VIEW) == replace(claim, success=False)
    assert inbox.admit(wrap(outbox, YES), VIEW) == YES


def test_a_leader_believes_in_no_other_leader_of_its_term() -> None:
    inbox, outbox = boxes()
    leader = replace(VIEW, is_leader=True)
    assert inbox.admit(wrap(outbox, HEARTBEAT), leader) is Drop.TWO_LEADERS
    newer = replace(HEARTBEAT, term=4)
    assert inbox.admit(wrap(outbox, newer, 4), leader) == newer


def test_from_a_directory_that_was_not_admitted_nothing_counts_and_the_rest_passes() -> None:
    inbox, outbox = boxes()
    view = replace(VIEW, voters={**VIEW.voters, 2: "another"})
    counted: tuple[Message, ...] = (Vote(3), YES, PreVote(3, 3, granted=True))
    for message in counted:
        assert inbox.admit(wrap(outbox, message), view) is Drop.OTHER_DIRECTORY
    others: tuple[Message, ...] = (
        HEARTBEAT,
        RequestVote(4, 10, 3),
        AskPreVote(3, 10, 3),
        PreVote(3, 3, granted=False),
        AppendAnswer(5, reset=True, success=False),
    )
    for message in others:
        assert inbox.admit(wrap(outbox, message), view) == message


def test_who_is_no_voter_yet_is_not_asked_for_its_vote() -> None:
    inbox, outbox = boxes()
    view = replace(VIEW, standing=Standing.JOINING)
    assert inbox.admit(wrap(outbox, RequestVote(4, 10, 3)), view) is Drop.NOT_YET_A_VOTER
    # It may be asked what it would do, and says no.
    question = AskPreVote(3, 10, 3)
    assert inbox.admit(wrap(outbox, question), view) == question
    assert inbox.admit(wrap(outbox, HEARTBEAT), view) == HEARTBEAT


def test_only_refusals_are_for_everybody_to_say() -> None:
    assert not needs_a_voter(PreVote(1, 1, granted=False))
    assert not needs_a_voter(AppendAnswer(5, reset=True, success=False))
    rest: tuple[Message, ...] = (Vote(1), YES, HEARTBEAT, RequestVote(1, 1, 1))
    assert all(needs_a_voter(message) for message in (*rest, PreVote(1, 1, granted=True)))


@given(st.lists(st.tuples(st.integers(2, 4), st.integers(1, 4)), max_size=40))
def test_each_voter_counts_once_in_each_term(votes: list[tuple[int, int]]) -> None:
    inbox = Inbox(node_id=1, cluster_id="c")
    passed: set[tuple[int, int]] = set()
    term = 1
    for sequence, (sender, vote_term) in enumerate(votes, start=1):
        inbox.open(sender, f"s{sender}")
        # The receiver's own term only grows.
        term = max(term, vote_term)
        view = View(Standing.VOTER, term, False, 1, dict.fromkeys(range(1, 5)))
        letter = Envelope("c", sender, 1, "d", f"s{sender}", sequence, 1, Vote(vote_term))
        if not isinstance(inbox.admit(letter, view), Drop):
            assert vote_term == term
            assert (sender, vote_term) not in passed
            passed.add((sender, vote_term))
