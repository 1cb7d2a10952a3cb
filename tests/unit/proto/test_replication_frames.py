"""Frames of the replication stream: their bounds, and bytes that nobody of ours has sent."""

from __future__ import annotations

import tracemalloc

import pytest

from ottla.proto.errors import ErrorCode, InvariantError, RemoteProtocolError
from ottla.proto.replication import (
    ANSWER_FRAME_BYTES_MAX,
    ASK_BYTES_MAX,
    DIVERGED,
    PARTS_MAX,
    REFUSED,
    SERVED,
    Answer,
    AnswerPart,
    Ask,
    PartitionClaim,
    answer_pieces,
    decode_answer,
    decode_ask,
    encode_asks,
)

TOPIC = bytes(range(16))
CLAIM = PartitionClaim(TOPIC, 3, 7, 100, 90, 6)
OUT_OF_RANGE = int(ErrorCode.OFFSET_OUT_OF_RANGE)
UNKNOWN = int(ErrorCode.UNKNOWN_TOPIC_ID)


def ask(*claims: PartitionClaim, is_fetch: bool = True) -> bytes:
    (frame,) = encode_asks(Ask(42, 5, is_fetch, list(claims)))
    return frame


def served(batches: bytes = b"batches", **changes: object) -> AnswerPart:
    part = AnswerPart(
        TOPIC, 3, 7, 100, SERVED, 0, 95, 10, 120, gaps_below=50, held_by_all=70, batches=batches
    )
    return part._replace(**changes)  # type: ignore[arg-type]  # names are the fields'


def answer(*parts: AnswerPart) -> bytes:
    return b"".join(answer_pieces(Answer(6, has_more=True, parts=list(parts))))


# ── Sound frames ──────────────────────────────────────────────────────────────────────────────


def test_an_ask_without_claims_is_a_few_bytes() -> None:
    assert len(ask()) == 22
    assert decode_ask(ask()) == Ask(42, 5, is_fetch=True, claims=[])


def test_the_bytes_of_an_ask_stay_what_they_are() -> None:
    expected = (
        "03 03 000000000000002a 0000000000000005 00000001"
        "000102030405060708090a0b0c0d0e0f 00000003 00000007"
        "0000000000000064 000000000000005a 00000006 01"
    )
    assert ask(CLAIM) == bytes.fromhex(expected)


def test_the_bytes_of_an_answer_stay_what_they_are() -> None:
    expected = (
        "04 01 0000000000000006 00000001"
        "000102030405060708090a0b0c0d0e0f 00000003 00000007 0000000000000064 00 0000"
        "000000000000005f 000000000000000a 0000000000000078 0000000000000032"
        "0000000000000046 ffffffff 00000003"
        "616263"
    )
    assert answer(served(b"abc")) == bytes.fromhex(expected)


def test_batches_are_not_copied_on_the_way_out_or_in() -> None:
    batches = b"b" * 1000
    pieces = answer_pieces(Answer(1, False, [served(b""), served(batches)]))
    assert pieces[1] is batches
    frame = b"".join(pieces)
    (_, part) = decode_answer(frame).parts
    assert isinstance(part.batches, memoryview)
    assert part.batches.obj is frame
    assert part.batches == batches


def test_an_ask_with_too_many_claims_for_a_frame_becomes_several() -> None:
    claims = [CLAIM._replace(index=number) for number in range(50_000)]
    frames = encode_asks(Ask(42, 5, True, claims))
    assert len(frames) == 3
    assert max(map(len, frames)) <= ASK_BYTES_MAX
    asks = [decode_ask(frame) for frame in frames]
    assert [claim for one in asks for claim in one.claims] == claims
    assert [one.is_fetch for one in asks] == [False, False, True]
    assert [one.is_last for one in asks] == [False, False, True]
    assert {(one.broker_epoch, one.answered) for one in asks} == {(42, 5)}


def test_an_answer_beside_its_batches_has_a_bound() -> None:
    parts = [served(b"")] * PARTS_MAX
    assert len(answer(*parts)) == ANSWER_FRAME_BYTES_MAX
    with pytest.raises(InvariantError):
        answer(*parts, served(b""))


def test_a_refusal_may_know_no_offsets_but_one_about_offsets_must() -> None:
    nothing = served(b"", kind=REFUSED, high_watermark=-1, start_offset=-1, end_offset=-1)
    decode_answer(answer(nothing._replace(code=UNKNOWN)))
    with pytest.raises(RemoteProtocolError):
        decode_answer(answer(nothing._replace(code=OUT_OF_RANGE)))


# ── Hostile bytes ─────────────────────────────────────────────────────────────────────────────


def test_r2_every_truncation_of_an_ask_is_refused() -> None:
    frame = ask(CLAIM, CLAIM._replace(is_forgotten=True))
    for size in range(len(frame)):
        with pytest.raises(RemoteProtocolError):
            decode_ask(frame[:size])
    with pytest.raises(RemoteProtocolError):
        decode_ask(frame + b"x")


def test_r2_every_truncation_of_an_answer_is_refused() -> None:
    frame = answer(served(), served(b""), served(b"", kind=REFUSED, code=UNKNOWN))
    for size in range(len(frame)):
        with pytest.raises(RemoteProtocolError):
            decode_answer(frame[:size])
    with pytest.raises(RemoteProtocolError):
        decode_answer(frame + b"x")


def test_r2_one_is_not_taken_for_the_other() -> None:
    with pytest.raises(RemoteProtocolError):
        decode_ask(answer(served()))
    with pytest.raises(RemoteProtocolError):
        decode_answer(ask(CLAIM))


@pytest.mark.parametrize("count", [2, 1000, 2**31, 2**32 - 1])
def test_r3_an_absurd_count_costs_no_memory(count: int) -> None:
    hostile_ask = bytearray(ask(CLAIM))
    hostile_ask[18:22] = count.to_bytes(4, "big")
    hostile_answer = bytearray(answer(served()))
    hostile_answer[10:14] = count.to_bytes(4, "big")
    tracemalloc.start()
    with pytest.raises(RemoteProtocolError):
        decode_ask(bytes(hostile_ask))
    with pytest.raises(RemoteProtocolError):
        decode_answer(bytes(hostile_answer))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000


def test_r3_sizes_that_add_up_to_more_than_is_there_are_refused() -> None:
    frame = bytearray(answer(served(b"abc"), served(b"def")))
    assert frame[14 + 79 : 14 + 83] == (3).to_bytes(4, "big")
    for size in (0, 2, 4, 6, 2**31, 2**32 - 1):
        frame[14 + 79 : 14 + 83] = size.to_bytes(4, "big")
        with pytest.raises(RemoteProtocolError):
            decode_answer(bytes(frame))


def test_an_ask_larger_than_a_frame_is_refused_unread() -> None:
    with pytest.raises(RemoteProtocolError):
        decode_ask(bytes(ASK_BYTES_MAX + 1))


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param(CLAIM._replace(index=-1), id="index"),
        pytest.param(CLAIM._replace(leader_epoch=-1), id="leader epoch"),
        pytest.param(CLAIM._replace(fetch_offset=-1), id="fetch offset"),
        pytest.param(CLAIM._replace(held_offset=-1), id="held offset"),
        pytest.param(CLAIM._replace(last_epoch=-2), id="last epoch"),
    ],
)
def test_a_claim_with_numbers_that_cannot_be_is_refused(odd: PartitionClaim) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_ask(ask(CLAIM, odd))


@pytest.mark.parametrize(
    ("place", "value"), [(0, 0), (0, 2), (1, 4), (1, 1), (1, 255), (2, 0xFF), (10, 0xFF), (66, 4)]
)
def test_an_ask_with_flags_or_a_head_that_cannot_be_is_refused(place: int, value: int) -> None:
    frame = bytearray(ask(CLAIM))
    frame[place] = value
    with pytest.raises(RemoteProtocolError):
        decode_ask(bytes(frame))


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param(served(index=-1), id="index"),
        pytest.param(served(leader_epoch=-1), id="leader epoch"),
        pytest.param(served(fetch_offset=-1), id="fetch offset"),
        pytest.param(served(kind=3), id="kind"),
        pytest.param(served(code=1), id="served with a code"),
        pytest.param(served(high_watermark=-1), id="high watermark"),
        pytest.param(served(start_offset=-1), id="start"),
        pytest.param(served(end_offset=-1), id="end"),
        pytest.param(served(gaps_below=-1), id="gaps below"),
        pytest.param(served(held_by_all=-1), id="held by all"),
        pytest.param(served(epoch=4), id="served with an epoch"),
        pytest.param(served(kind=DIVERGED, epoch=4), id="diverged with batches"),
        pytest.param(served(b"", kind=DIVERGED), id="diverged without an epoch"),
        pytest.param(served(kind=REFUSED, code=UNKNOWN), id="refused with batches"),
        pytest.param(served(b"", kind=REFUSED), id="refused without a code"),
        pytest.param(served(b"", kind=REFUSED, code=UNKNOWN, end_offset=-2), id="refused below"),
    ],
)
def test_a_part_that_contradicts_itself_is_refused(odd: AnswerPart) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_answer(answer(odd))


@pytest.mark.parametrize(("place", "value"), [(0, 1), (1, 2), (2, 0xFF), (9, 0)])
def test_an_answer_with_a_head_that_cannot_be_is_refused(place: int, value: int) -> None:
    frame = bytearray(answer(served()))
    frame[place] = value
    with pytest.raises(RemoteProtocolError):
        decode_answer(bytes(frame))


def test_the_frames_of_another_build_are_refused_and_not_misread() -> None:
    """Kinds 1 and 2 were shorter by a field; whatever comes after them, they are named as such."""
    older = b"\x01" + encode_asks(Ask(1, 0, True, []))[0][1:]
    with pytest.raises(RemoteProtocolError, match=r"an ask of kind 1, .* kind 3: .* builds"):
        decode_ask(older)
    older = b"\x02" + answer()[1:]
    with pytest.raises(RemoteProtocolError, match=r"an answer of kind 2, .* kind 4: .* builds"):
        decode_answer(older)
