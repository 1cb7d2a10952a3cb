"""Frames of the replication stream: what goes in comes out, and no bytes break a decoder."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from ottla.proto.errors import RemoteProtocolError
from ottla.proto.ids import INT32_MAX, INT64_MAX
from ottla.proto.replication import (
    DIVERGED,
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

TOPIC_IDS = st.binary(min_size=16, max_size=16)
INDEXES = EPOCHS = st.integers(0, INT32_MAX)
OFFSETS = st.integers(0, INT64_MAX)
CLAIMS = st.builds(
    PartitionClaim,
    TOPIC_IDS,
    INDEXES,
    EPOCHS,
    OFFSETS,
    OFFSETS,
    st.integers(-1, INT32_MAX),
    st.booleans(),
    st.booleans(),
)
ASKS = st.builds(
    Ask,
    st.integers(-1, INT64_MAX),
    OFFSETS,
    st.booleans(),
    st.lists(CLAIMS, max_size=20),
    st.just(value=True),
)
# Topic id, index, leader epoch, fetch offset.
CLAIMED = (TOPIC_IDS, INDEXES, EPOCHS, OFFSETS)
# High watermark, start, end.
BOUNDS = (OFFSETS, OFFSETS, OFFSETS)
PARTS = st.one_of(
    st.builds(
        AnswerPart,
        *CLAIMED,
        st.just(SERVED),
        st.just(0),
        *BOUNDS,
        epoch=st.just(-1),
        gaps_below=OFFSETS,
        held_by_all=OFFSETS,
        batches=st.binary(max_size=200),
        more=st.lists(st.binary(max_size=50), max_size=3).map(tuple),
    ),
    st.builds(
        AnswerPart,
        *CLAIMED,
        st.just(DIVERGED),
        st.just(0),
        *BOUNDS,
        epoch=EPOCHS,
        gaps_below=st.just(0),
        held_by_all=st.just(0),
        batches=st.just(b""),
        more=st.just(()),
    ),
    st.builds(
        AnswerPart,
        *CLAIMED,
        st.just(REFUSED),
        st.sampled_from([-1, 1, 6, 74]),
        *BOUNDS,
        epoch=st.just(-1),
        gaps_below=st.just(0),
        held_by_all=st.just(0),
        batches=st.just(b""),
        more=st.just(()),
    ),
)
ANSWERS = st.builds(Answer, st.integers(1, INT64_MAX), st.booleans(), st.lists(PARTS, max_size=20))


@given(ASKS)
def test_r1_an_ask_survives_the_wire(ask: Ask) -> None:
    (frame,) = encode_asks(ask)
    assert decode_ask(frame) == ask
    assert decode_ask(memoryview(frame)) == ask


@given(ANSWERS)
def test_r1_an_answer_survives_the_wire(answer: Answer) -> None:
    # Whoever gets it has each part in one piece.
    parts = [
        part._replace(batches=b"".join((part.batches, *part.more)), more=())
        for part in answer.parts
    ]
    assert decode_answer(b"".join(answer_pieces(answer))) == answer._replace(parts=parts)


@given(st.binary(max_size=300))
def test_r2_any_bytes_are_a_frame_or_are_refused(junk: bytes) -> None:
    for decode in (decode_ask, decode_answer):
        with suppress(RemoteProtocolError):
            decode(junk)


@given(st.one_of(ASKS, ANSWERS), st.lists(st.tuples(st.integers(0), st.integers(0, 255))))
def test_r2_a_damaged_frame_is_a_frame_or_is_refused(
    sound: Ask | Answer, damage: list[tuple[int, int]]
) -> None:
    pieces = encode_asks(sound) if isinstance(sound, Ask) else answer_pieces(sound)
    frame = bytearray(b"".join(pieces))
    for place, value in damage:
        frame[place % len(frame)] = value
    with suppress(RemoteProtocolError):
        if isinstance(sound, Ask):
            (again,) = encode_asks(decode_ask(bytes(frame)))
            assert again == frame
        else:
            assert b"".join(answer_pieces(decode_answer(bytes(frame)))) == frame
