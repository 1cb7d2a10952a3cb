"""Which messages of others are believed: first in first out, at most once, only from voters.

The library trusts whatever arrives. It counts one vote as often as it comes, takes an answer from
an earlier term for one of this term, lets a guest lead, and follows a commit index that its log
does not bear out. `Inbox` is the gate in front of it; `Outbox` makes the envelopes that pass it.

Not here: sockets. A shell opens and closes streams, carries envelopes in order, and drops what is
under way when a stream breaks. It never sends anything twice.

T1  an envelope passes at most once, and in the order in which it was sent
T2  nothing passes from another cluster, from a member that does not vote, or from a stream that
    was replaced
T3  an answer passes only in the term in which it was given; a vote passes once per voter and term
T4  votes and acknowledgements pass only from the data directory that the newest admission in the
    receiver's journal names, committed or not
T5  no commit index passes that goes beyond what the same message shows the receiver to hold
T6  what passes is well formed: the library need not check it
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from ottla.controller.quorum.entries import FIRST_INDEX, is_known_kind
from ottla.controller.quorum.membership import Standing
from ottla.controller.quorum.messages import (
    Append,
    AppendAnswer,
    AskPreVote,
    Envelope,
    Message,
    PreVote,
    RequestVote,
    SnapshotPart,
    Vote,
)

SNAPSHOT_PART_BYTES_MAX: Final = 64 * 1024
ENTRIES_MAX: Final = 100_000
_NUMBER_MAX: Final = 1 << 62
# Streams of one peer that are remembered as replaced.
_REPLACED_MAX: Final = 16


class Drop(Enum):
    """Why an envelope was not believed."""

    OTHER_CLUSTER = "It comes from another cluster."
    NOT_FOR_ME = "It is addressed to another member."
    NO_VOTER = "Its sender is not among the voters."
    WRONG_IDENTITY = "Its sender is not who its certificate says."
    OTHER_DIRECTORY = "Its sender votes from a data directory that was not admitted."
    OLD_STREAM = "It comes from a stream that is not, or no longer, open."
    REPEATED = "It came before."
    OTHER_TERM = "It answers a question of another term."
    VOTED_ALREADY = "Its sender has voted in this term."
    TWO_LEADERS = "Its sender leads in the term in which this member leads."
    NOT_YET_A_VOTER = "This member may not vote yet."
    MALFORMED = "It makes no sense."


@dataclass(frozen=True, slots=True)
class View:
    """What the receiver is at the moment."""

    standing: Standing
    term: int
    is_leader: bool
    last_index: int
    # By voter; None while its directory is not known.
    voters: Mapping[int, str | None]


class Inbox:
    """The gate of one member."""

    def __init__(self, *, node_id: int, cluster_id: str) -> None:
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._streams: dict[int, str] = {}
        self._replaced: dict[int, deque[str]] = {}
        self._last_sequence: dict[int, int] = {}
        self._votes_term = -1
        self._voted: set[int] = set()

    def open(self, peer: int, stream: str) -> bool:
        """Begin to believe a stream, and no other of that peer. An old one does not come back."""
        replaced = self._replaced.setdefault(peer, deque(maxlen=_REPLACED_MAX))
        if stream in replaced:
            return False
        if self._streams.get(peer) != stream:
            self.close(peer)
            self._streams[peer] = stream
            self._last_sequence[peer] = 0
        return True

    def close(self, peer: int) -> None:
        stream = self._streams.pop(peer, None)
        if stream is not None:
            self._replaced.setdefault(peer, deque(maxlen=_REPLACED_MAX)).append(stream)

    def admit(
        self, envelope: Envelope, view: View, *, verified_as: int | None = None
    ) -> Message | Drop:
        """Return the message as the library may see it, or why it must not.

        `verified_as` is whom the sender's certificate names, where there are certificates.
        """
        drop = self._check_sender(envelope, view, verified_as) or self._check_stream(envelope)
        if drop is not None:
            return drop
        message = envelope.message
        if not _is_well_formed(message):
            return Drop.MALFORMED
        drop = _check_directory(envelope, view) or self._check_term(envelope, view)
        return drop or _bounded(message, view)

    def _check_sender(self, envelope: Envelope, view: View, verified_as: int | None) -> Drop | None:
        if envelope.cluster_id != self._cluster_id:
            return Drop.OTHER_CLUSTER
        if envelope.receiver != self._node_id:
            return Drop.NOT_FOR_ME
        if envelope.sender not in view.voters or envelope.sender == self._node_id:
            return Drop.NO_VOTER
        if verified_as is not None and verified_as != envelope.sender:
            return Drop.WRONG_IDENTITY
        return None

    def _check_stream(self, envelope: Envelope) -> Drop | None:
        if self._streams.get(envelope.sender) != envelope.stream:
            return Drop.OLD_STREAM
        if envelope.sequence <= self._last_sequence[envelope.sender]:
            return Drop.REPEATED
        self._last_sequence[envelope.sender] = envelope.sequence
        return None

    def _check_term(self, envelope: Envelope, view: View) -> Drop | None:
        match envelope.message:
            case AppendAnswer():
                return None if envelope.sender_term == view.term else Drop.OTHER_TERM
            case Vote(term=term):
                return self._check_vote(envelope.sender, term, view)
            case PreVote(asked_term=term):
                return None if term == view.term else Drop.OTHER_TERM
            case RequestVote():
                is_voter = view.standing is Standing.VOTER
                return None if is_voter else Drop.NOT_YET_A_VOTER
            case AskPreVote():
                # Who may not vote says no, so that the asker learns who is there.
                return None
            case Append(term=term) | SnapshotPart(term=term):
                return Drop.TWO_LEADERS if view.is_leader and term == view.term else None

    def _check_vote(self, voter: int, term: int, view: View) -> Drop | None:
        if term != view.term:
            return Drop.OTHER_TERM
        if self._votes_term != term:
            self._votes_term = term
            self._voted.clear()
        if voter in self._voted:
            return Drop.VOTED_ALREADY
        self._voted.add(voter)
        return None


class Outbox:
    """Makes the envelopes of one member."""

    def __init__(
        self, *, node_id: int, cluster_id: str, directory_id: str, new_stream: Callable[[], str]
    ) -> None:
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._directory_id = directory_id
        self._new_stream = new_stream
        self._streams: dict[int, str] = {}
        self._sequences: dict[int, int] = {}

    def open(self, peer: int) -> str:
        """Begin a new stream to a peer and return its name, which the peer must be told."""
        stream = self._new_stream()
        self._streams[peer] = stream
        self._sequences[peer] = 0
        return stream

    def close(self, peer: int) -> None:
        self._streams.pop(peer, None)

    def wrap(self, peer: int, message: Message, sender_term: int) -> Envelope | None:
        """Return the envelope to send, or None if no stream to that peer is open."""
        stream = self._streams.get(peer)
        if stream is None:
            return None
        self._sequences[peer] += 1
        return Envelope(
            cluster_id=self._cluster_id,
            sender=self._node_id,
            receiver=peer,
            directory_id=self._directory_id,
            stream=stream,
            sequence=self._sequences[peer],
            sender_term=sender_term,
            message=message,
        )


def counts_for_a_majority(message: Message) -> bool:
    """Tell whether the receiver would count the sender because of this message.

    Everything else may come from a member whose admission the receiver has not read yet: it could
    never read it otherwise.
    """
    match message:
        case PreVote(granted=granted):
            return granted
        case AppendAnswer(success=success):
            return success
        case _:
            return isinstance(message, Vote)


def needs_a_voter(message: Message) -> bool:
    """Tell whether only a voter may say this (B1). Refusals may come from anybody."""
    return not isinstance(message, PreVote | AppendAnswer) or counts_for_a_majority(message)


def _check_directory(envelope: Envelope, view: View) -> Drop | None:
    admitted = view.voters[envelope.sender]
    if admitted is None or admitted == envelope.directory_id:
        return None
    return Drop.OTHER_DIRECTORY if counts_for_a_majority(envelope.message) else None


def _bounded(message: Message, view: View) -> Message:
    """Take out of a message what the receiver could not justify (T5)."""
    match message:
        case Append():
            shown = message.previous_index + len(message.entries)
            return replace(message, commit_index=min(message.commit_index, shown))
        case AppendAnswer(reset=True):
            # Beyond its own end the library looks for an entry that is not there, for ever.
            return replace(message, next_index=min(message.next_index, view.last_index + 1))
        case AppendAnswer(success=True):
            if message.next_index > view.last_index + 1:
                return replace(message, success=False)
            return message
        case _:
            return message


def _is_well_formed(message: Message) -> bool:
    match message:
        case RequestVote() | AskPreVote():
            return _are_numbers(message.term, message.last_index, message.last_term)
        case Vote():
            return _are_numbers(message.term)
        case PreVote():
            return _are_numbers(message.asked_term, message.term)
        case AppendAnswer():
            is_sound = not (message.reset and message.success)
            return (
                is_sound and _are_numbers(message.next_index) and message.next_index > FIRST_INDEX
            )
        case Append():
            return _is_well_formed_append(message)
        case SnapshotPart():
            fits = len(message.data) <= SNAPSHOT_PART_BYTES_MAX
            numbers = (message.term, message.index, message.entry_term, message.position)
            return fits and _are_numbers(*numbers)


def _is_well_formed_append(message: Append) -> bool:
    numbers = (message.term, message.commit_index, message.previous_index, message.previous_term)
    if not _are_numbers(*numbers) or len(message.entries) > ENTRIES_MAX:
        return False
    index, term = message.previous_index, message.previous_term
    for entry in message.entries:
        if entry.index != index + 1 or not term <= entry.term <= message.term:
            return False
        if not is_known_kind(entry.command):
            return False
        index, term = entry.index, entry.term
    return term <= message.term and index >= FIRST_INDEX


def _are_numbers(*numbers: int) -> bool:
    return all(0 <= number <= _NUMBER_MAX for number in numbers)
