"""What followers and leaders say to one another on a replication stream, as bytes.

Two book-keepers on the telephone. One calls out only the accounts that have changed since the last
call; the other one reads out what is missing there. Whatever is not mentioned stands.

    follower ── Ask ──▶ leader      which partitions it wants, how far it has come in each
    follower ◀─ Answer ─ leader     batches, or why there are none

The stream is the session: the leader keeps the last claim of every partition, and an `Ask` names
only those that are new or changed. An `Ask` that is a fetch gets exactly one `Answer`. A partition
that an `Answer` names is not answered again before it was claimed anew.

Fields are big-endian and of fixed width, so that thousands of claims are read in one go. Whoever
changes them takes new kinds for both frames: then nodes of different builds refuse one another, in
either role. Kinds 1 and 2 had no "held by all".

    Ask      kind int8 = 3 │ flags │ broker epoch int64 │ answered int64 │ count int32
             count × (topic id 16 │ index │ leader epoch │ fetch offset int64 │ held offset int64 │
                      last epoch │ flags)
    Answer   kind int8 = 4 │ flags │ number int64 │ count int32
             count × (topic id 16 │ index │ leader epoch │ fetch offset int64 │ kind │ code int16 │
                      high watermark int64 │ start int64 │ end int64 │ gaps below int64 │
                      held by all int64 │ epoch │ size)
             the batches of all parts, one after another

Not here: whether to believe a claim (`replication/progress.py`) or a batch
(`replication/log/incoming.py`), and who says what when (`replication/pulling.py`, `feeding.py`).

R1  what was encoded decodes to an equal value
R2  whatever the bytes are, a decoder returns a value or raises `RemoteProtocolError`
R3  a count is held against the bytes that are there before anything is made of it
"""

from __future__ import annotations

import struct
from itertools import accumulate, pairwise
from typing import Any, Final, NamedTuple

from ottla.proto.errors import ErrorCode, RemoteProtocolError, ensure

Buffer = bytes | bytearray | memoryview

ASK_BYTES_MAX: Final = 1 << 20
# More partitions than these wait for the next answer.
PARTS_MAX: Final = 8192

# What a part of an answer is.
SERVED: Final = 0
DIVERGED: Final = 1
REFUSED: Final = 2

_ASK_KIND: Final = 3
_ANSWER_KIND: Final = 4
_IS_FETCH: Final = 1
_IS_LAST: Final = 2
_HAS_MORE: Final = 1
_IS_SYNCED: Final = 1
_IS_FORGOTTEN: Final = 2

_ASK: Final = struct.Struct(">BBqqI")
_CLAIM: Final = struct.Struct(">16siiqqiB")
_ANSWER: Final = struct.Struct(">BBqI")
_PART: Final = struct.Struct(">16siiqBhqqqqqiI")
_CLAIMS_MAX: Final = (ASK_BYTES_MAX - _ASK.size) // _CLAIM.size

# How much an answer may have beside its batches.
ANSWER_FRAME_BYTES_MAX: Final = _ANSWER.size + PARTS_MAX * _PART.size


class PartitionClaim(NamedTuple):
    """What a follower says of one partition; see `FetchClaim` for what it means."""

    topic_id: bytes
    # Hides tuple.index, which nobody asks a claim for.
    index: int  # type: ignore[assignment]
    leader_epoch: int
    fetch_offset: int
    held_offset: int
    last_epoch: int
    is_synced: bool = True
    # The partition is no longer followed on this stream; the rest says nothing.
    is_forgotten: bool = False


class Ask(NamedTuple):
    """What a follower says at one time: claims that are new or changed; all others stand."""

    broker_epoch: int
    # The number of the answer that it follows; 0: there was none yet.
    answered: int
    # An answer is wanted.
    is_fetch: bool
    claims: list[PartitionClaim]
    # Only with the last of several is everything said: before it, others may not stand any more.
    is_last: bool = True


class AnswerPart(NamedTuple):
    """What a leader says to one claim."""

    topic_id: bytes
    index: int  # type: ignore[assignment]  # as above
    # Both of the claim that is answered.
    leader_epoch: int
    fetch_offset: int
    # SERVED, DIVERGED or REFUSED.
    kind: int
    # The `ErrorCode` of a refusal, else 0.
    code: int
    high_watermark: int
    start_offset: int
    # Of the leader's log; where the logs part, of the epoch below.
    end_offset: int
    # Where the logs part: an epoch, whose end is `end_offset`.
    epoch: int = -1
    # Below it compaction may have left gaps between offsets.
    gaps_below: int = 0
    # Every replica has what is below it, as far as the leader knows.
    held_by_all: int = 0
    # The last batch may be cut.
    batches: bytes | memoryview = b""
    # What comes right after them, where the leader has it in pieces; who decodes gets one piece.
    more: tuple[bytes, ...] = ()

    @property
    def size(self) -> int:
        """How many bytes of batches there are."""
        return len(self.batches) + sum(map(len, self.more))


class Answer(NamedTuple):
    """What a leader says to a fetch. Answers of a stream are numbered from 1 on."""

    number: int
    # There is more to be had at once.
    has_more: bool
    parts: list[AnswerPart]


def encode_asks(ask: Ask) -> list[bytes]:
    """Return the frames of one ask; only the last of them is a fetch, if it is to be one."""
    claims = ask.claims
    frames: list[bytes] = []
    while len(claims) > _CLAIMS_MAX:
        part, claims = claims[:_CLAIMS_MAX], claims[_CLAIMS_MAX:]
        frames.append(_encode_ask(Ask(ask.broker_epoch, ask.answered, False, part, is_last=False)))
    frames.append(_encode_ask(ask if claims is ask.claims else ask._replace(claims=claims)))
    return frames


def _encode_ask(ask: Ask) -> bytes:
    flags = ask.is_fetch * _IS_FETCH | ask.is_last * _IS_LAST
    head = _ASK.pack(_ASK_KIND, flags, ask.broker_epoch, ask.answered, len(ask.claims))
    rows = [
        _CLAIM.pack(*claim[:6], claim.is_synced * _IS_SYNCED | claim.is_forgotten * _IS_FORGOTTEN)
        for claim in ask.claims
    ]
    return b"".join((head, *rows))


def decode_ask(frame: Buffer) -> Ask:
    """Return what a follower says, or raise `RemoteProtocolError`."""
    if not _ASK.size <= len(frame) <= ASK_BYTES_MAX:
        raise RemoteProtocolError(f"an ask of {len(frame)} bytes")
    kind, flags, broker_epoch, answered, count = _ASK.unpack_from(frame)
    if kind != _ASK_KIND:
        raise _other_build("ask", kind, _ASK_KIND)
    if flags > (_IS_FETCH | _IS_LAST):
        raise RemoteProtocolError(f"an ask with flags {flags}")
    if broker_epoch < -1 or answered < 0 or (flags & _IS_FETCH and not flags & _IS_LAST):
        raise RemoteProtocolError(
            f"an ask of broker epoch {broker_epoch} after answer {answered} with flags {flags}"
        )
    if len(frame) != _ASK.size + count * _CLAIM.size:
        raise RemoteProtocolError(f"an ask of {len(frame)} bytes that should have {count} claims")
    claims = [_claim(*row) for row in _CLAIM.iter_unpack(memoryview(frame)[_ASK.size :])]
    return Ask(broker_epoch, answered, bool(flags & _IS_FETCH), claims, bool(flags & _IS_LAST))


def _other_build(what: str, kind: int, own: int) -> RemoteProtocolError:
    return RemoteProtocolError(
        f"an {what} of kind {kind}, where this build has kind {own}: nodes of different builds "
        "cannot replicate with one another"
    )


def _claim(
    topic_id: bytes,
    index: int,
    leader_epoch: int,
    fetch_offset: int,
    held_offset: int,
    last_epoch: int,
    flags: int,
) -> PartitionClaim:
    if min(index, leader_epoch, fetch_offset, held_offset, last_epoch + 1, 3 - flags) < 0:
        raise RemoteProtocolError(
            f"a claim of partition {index} in epoch {leader_epoch} at {fetch_offset}, holding "
            f"{held_offset}, last epoch {last_epoch}, flags {flags}"
        )
    return PartitionClaim(
        topic_id,
        index,
        leader_epoch,
        fetch_offset,
        held_offset,
        last_epoch,
        bool(flags & _IS_SYNCED),
        bool(flags & _IS_FORGOTTEN),
    )


def answer_pieces(answer: Answer) -> list[Buffer]:
    """Return the pieces of the frame, to be joined once: no batch is copied here."""
    ensure(len(answer.parts) <= PARTS_MAX, "an answer has an end", parts=len(answer.parts))
    head = [_ANSWER.pack(_ANSWER_KIND, answer.has_more, answer.number, len(answer.parts))]
    batches: list[Buffer] = []
    for part in answer.parts:
        size = part.size
        head.append(_PART.pack(*part[:9], part.gaps_below, part.held_by_all, part.epoch, size))
        if size:
            batches += (part.batches, *part.more)
    return [b"".join(head), *batches]


def decode_answer(frame: Buffer) -> Answer:
    """Return what a leader says, or raise `RemoteProtocolError`. Batches are views of `frame`."""
    if len(frame) < _ANSWER.size:
        raise RemoteProtocolError(f"an answer of {len(frame)} bytes")
    kind, flags, number, count = _ANSWER.unpack_from(frame)
    if kind != _ANSWER_KIND:
        raise _other_build("answer", kind, _ANSWER_KIND)
    if flags > _HAS_MORE or number < 1:
        raise RemoteProtocolError(f"an answer of number {number}, flags {flags}")
    batches_start = _ANSWER.size + count * _PART.size
    if count > PARTS_MAX or len(frame) < batches_start:
        raise RemoteProtocolError(f"an answer of {len(frame)} bytes that should have {count} parts")
    view = memoryview(frame)
    rows = list(_PART.iter_unpack(view[_ANSWER.size : batches_start]))
    ends = list(accumulate((row[-1] for row in rows), initial=batches_start))
    if ends[-1] != len(frame):
        raise RemoteProtocolError(
            f"an answer of {len(frame)} bytes whose parts should end at {ends[-1]}"
        )
    parts = [
        _part(row, view[start:end]) for row, (start, end) in zip(rows, pairwise(ends), strict=True)
    ]
    return Answer(number, bool(flags), parts)


def _part(row: tuple[Any, ...], batches: memoryview) -> AnswerPart:
    gaps_below, held_by_all, epoch, size = row[-4:]
    part = AnswerPart._make((*row[:9], epoch, gaps_below, held_by_all, batches, ()))
    _, index, leader_epoch, fetch_offset, kind, code, high_watermark, start, end = part[:9]
    # Of a partition that a leader does not know it knows no offsets either: −1.
    lowest = -1 if kind == REFUSED and code != ErrorCode.OFFSET_OUT_OF_RANGE else 0
    if (
        min(index, leader_epoch, fetch_offset, gaps_below, held_by_all, epoch + 1) < 0
        or min(high_watermark, start, end) < lowest
        or kind not in (SERVED, DIVERGED, REFUSED)
        or (kind == REFUSED) != (code != 0)
        or (kind == DIVERGED) != (epoch != -1)
        or (kind != SERVED and size > 0)
    ):
        raise RemoteProtocolError(
            f"a part of kind {kind} and code {code} for partition {index} in epoch {leader_epoch} "
            f"at {fetch_offset}, with {high_watermark}, {start}, {end}, {epoch}, {size} bytes"
        )
    return part
