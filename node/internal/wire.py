"""Envelopes, accounts and greetings as bytes, and back.

Every decoder is total: bytes that are none of ours raise `RemoteProtocolError` with one sentence.
What is decoded is bounded in size, in the length of its texts and in the number of its parts.

Not here: whether to believe it (`ottla.controller.quorum.transport`), and carrying it (`raft.py`).

I1  what was encoded decodes to an equal value
I2  whatever the bytes are, a decoder returns a value or raises `RemoteProtocolError`
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar, assert_never

from google.protobuf.message import DecodeError
from google.protobuf.message import Message as Proto

from ottla.controller.quorum.entries import Entry
from ottla.controller.quorum.formation import Account
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
from ottla.controller.quorum.transport import ENTRIES_MAX
from ottla.proto.errors import RemoteProtocolError
from ottla.proto.gen import quorum_pb2 as pb
from ottla.proto.kafka.uuids import UUID

# A frame holds entries of at most 64 KiB in all and one more, or a part of a snapshot; small
# entries grow by their numbers.
FRAME_BYTES_MAX: Final = 2 << 20
# Accounts, greetings and identities.
SMALL_BYTES_MAX: Final = 64 * 1024
TEXT_MAX: Final = 128
VOTERS_MAX: Final = 100
_UUID_BYTES: Final = 16

_STANDINGS: Final = {
    pb.STANDING_BLANK: Standing.BLANK,
    pb.STANDING_FORMING: Standing.FORMING,
    pb.STANDING_JOINING: Standing.JOINING,
    pb.STANDING_VOTER: Standing.VOTER,
}
_STANDING_NUMBERS: Final = {standing: number for number, standing in _STANDINGS.items()}

P = TypeVar("P", bound=Proto)


@dataclass(frozen=True, slots=True)
class Hello:
    """How a Raft stream begins."""

    cluster_id: str
    sender: int
    receiver: int
    directory_id: str
    stream: str
    # Drawn at each start of the sender's process.
    incarnation: UUID


@dataclass(frozen=True, slots=True)
class Identity:
    """Who listens at an address."""

    # Empty while it belongs to none.
    cluster_id: str
    node_id: int
    incarnation: UUID


# ── Raft streams ──────────────────────────────────────────────────────────────────────────────


def encode_hello(hello: Hello) -> bytes:
    told = pb.Hello(
        cluster_id=hello.cluster_id,
        sender=hello.sender,
        receiver=hello.receiver,
        directory_id=hello.directory_id,
        stream=hello.stream,
        incarnation=hello.incarnation.bytes,
    )
    return pb.Frame(hello=told).SerializeToString()


def encode_envelope(envelope: Envelope) -> bytes:
    told = pb.Envelope(
        cluster_id=envelope.cluster_id,
        sender=envelope.sender,
        receiver=envelope.receiver,
        directory_id=envelope.directory_id,
        stream=envelope.stream,
        sequence=envelope.sequence,
        sender_term=envelope.sender_term,
    )
    _put_message(told, envelope.message)
    return pb.Frame(envelope=told).SerializeToString()


def decode_frame(data: bytes) -> Hello | Envelope:
    frame = _parsed(pb.Frame, data, FRAME_BYTES_MAX, "A frame of a Raft stream")
    match frame.WhichOneof("content"):
        case "hello":
            return _hello(frame.hello)
        case "envelope":
            return _envelope(frame.envelope)
        case _:
            raise RemoteProtocolError("A frame of a Raft stream is neither Hello nor envelope.")


def encode_accepted(incarnation: UUID) -> bytes:
    return pb.Accepted(incarnation=incarnation.bytes).SerializeToString()


def decode_accepted(data: bytes) -> UUID:
    told = _parsed(pb.Accepted, data, SMALL_BYTES_MAX, "The answer to a Hello")
    return _uuid(told.incarnation)


def _hello(told: pb.Hello) -> Hello:
    return Hello(
        cluster_id=_text(told.cluster_id),
        sender=told.sender,
        receiver=told.receiver,
        directory_id=_text(told.directory_id),
        stream=_text(told.stream),
        incarnation=_uuid(told.incarnation),
    )


def _envelope(told: pb.Envelope) -> Envelope:
    name = told.WhichOneof("message")
    decode = None if name is None else _MESSAGES.get(name)
    if decode is None:
        raise RemoteProtocolError("An envelope holds no message that is known here.")
    return Envelope(
        cluster_id=_text(told.cluster_id),
        sender=told.sender,
        receiver=told.receiver,
        directory_id=_text(told.directory_id),
        stream=_text(told.stream),
        sequence=told.sequence,
        sender_term=told.sender_term,
        message=decode(told),
    )


def _put_message(told: pb.Envelope, message: Message) -> None:
    match message:
        case RequestVote(term, index, last_term):
            told.request_vote.CopyFrom(
                pb.RequestVote(term=term, last_index=index, last_term=last_term)
            )
        case Vote(term):
            told.vote.CopyFrom(pb.Vote(term=term))
        case Append():
            told.append.CopyFrom(_told_append(message))
        case SnapshotPart():
            told.snapshot_part.CopyFrom(_told_part(message))
        case AppendAnswer(next_index, reset, success):
            told.append_answer.CopyFrom(
                pb.AppendAnswer(next_index=next_index, reset=reset, success=success)
            )
        case AskPreVote(term, index, last_term):
            told.ask_pre_vote.CopyFrom(
                pb.AskPreVote(term=term, last_index=index, last_term=last_term)
            )
        case PreVote(asked_term, term, granted):
            told.pre_vote.CopyFrom(pb.PreVote(asked_term=asked_term, term=term, granted=granted))
        case _:
            assert_never(message)


def _told_append(message: Append) -> pb.Append:
    return pb.Append(
        term=message.term,
        commit_index=message.commit_index,
        previous_index=message.previous_index,
        previous_term=message.previous_term,
        entries=[
            pb.LogEntry(index=each.index, term=each.term, command=each.command)
            for each in message.entries
        ],
    )


def _told_part(message: SnapshotPart) -> pb.SnapshotPart:
    return pb.SnapshotPart(
        term=message.term,
        index=message.index,
        entry_term=message.entry_term,
        position=message.position,
        data=message.data,
        is_last=message.is_last,
    )


def _append(told: pb.Append) -> Append:
    _require_few(told.entries, ENTRIES_MAX, "entries")
    entries = tuple(Entry(each.command, each.index, each.term) for each in told.entries)
    head = (told.term, told.commit_index, told.previous_index, told.previous_term)
    return Append(*head, entries)


def _part(told: pb.SnapshotPart) -> SnapshotPart:
    of = (told.term, told.index, told.entry_term)
    return SnapshotPart(*of, told.position, told.data, told.is_last)


_MESSAGES: Final[dict[str, Callable[[pb.Envelope], Message]]] = {
    "request_vote": lambda told: RequestVote(
        told.request_vote.term, told.request_vote.last_index, told.request_vote.last_term
    ),
    "vote": lambda told: Vote(told.vote.term),
    "append": lambda told: _append(told.append),
    "snapshot_part": lambda told: _part(told.snapshot_part),
    "append_answer": lambda told: AppendAnswer(
        told.append_answer.next_index, told.append_answer.reset, told.append_answer.success
    ),
    "ask_pre_vote": lambda told: AskPreVote(
        told.ask_pre_vote.term, told.ask_pre_vote.last_index, told.ask_pre_vote.last_term
    ),
    "pre_vote": lambda told: PreVote(
        told.pre_vote.asked_term, told.pre_vote.term, told.pre_vote.granted
    ),
}


# ── Introductions ─────────────────────────────────────────────────────────────────────────────


def encode_account(account: Account) -> bytes:
    voters = account.voters or {}
    return pb.Account(
        node_id=account.node_id,
        directory_id=account.directory_id,
        configured=account.configured,
        standing=_STANDING_NUMBERS[account.standing],
        cluster_id=account.cluster_id,
        voters=[pb.VoterEntry(node_id=n, directory_id=voters[n]) for n in sorted(voters)],
    ).SerializeToString()


def decode_account(data: bytes) -> Account:
    told = _parsed(pb.Account, data, SMALL_BYTES_MAX, "What a member says about itself")
    standing = _STANDINGS.get(told.standing)
    if standing is None:
        raise RemoteProtocolError("A member says about itself what is not known here.")
    _require_few(told.configured, VOTERS_MAX, "configured voters")
    _require_few(told.voters, VOTERS_MAX, "voters")
    me = (told.node_id, _text(told.directory_id), tuple(told.configured), standing)
    if standing is Standing.BLANK:
        return Account(*me)
    voters = {
        each.node_id: _text(each.directory_id) if each.HasField("directory_id") else None
        for each in told.voters
    }
    return Account(*me, _text(told.cluster_id), voters)


# ── Identities ────────────────────────────────────────────────────────────────────────────────


def encode_identity(identity: Identity) -> bytes:
    return pb.Identity(
        cluster_id=identity.cluster_id,
        node_id=identity.node_id,
        incarnation=identity.incarnation.bytes,
    ).SerializeToString()


def decode_identity(data: bytes) -> Identity:
    told = _parsed(pb.Identity, data, SMALL_BYTES_MAX, "An identity")
    return Identity(_text(told.cluster_id), told.node_id, _uuid(told.incarnation))


# ── What all of them need ─────────────────────────────────────────────────────────────────────


def _parsed(kind: type[P], data: bytes, limit: int, what: str) -> P:
    if len(data) > limit:
        raise RemoteProtocolError(f"{what} has {len(data)} bytes; {limit} are allowed.")
    told = kind()
    try:
        told.ParseFromString(data)
    except DecodeError:
        raise RemoteProtocolError(f"{what} cannot be read.") from None
    return told


def _text(text: str) -> str:
    if len(text) > TEXT_MAX:
        raise RemoteProtocolError(f"A name has {len(text)} characters; {TEXT_MAX} are allowed.")
    return text


def _uuid(raw: bytes) -> UUID:
    if len(raw) != _UUID_BYTES:
        raise RemoteProtocolError(f"An incarnation has {len(raw)} bytes instead of {_UUID_BYTES}.")
    return UUID(bytes=raw)


def _require_few(items: Sequence[object], limit: int, what: str) -> None:
    if len(items) > limit:
        raise RemoteProtocolError(f"There are {len(items)} {what}; {limit} are allowed.")
