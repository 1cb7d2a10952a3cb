"""State records and producer snapshots as bytes: there and back, and never a wrong reading."""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from ottla.proto.errors import CorruptionError, StorageError
from ottla.proto.ids import INT32_MAX, INT64_MAX, LeaderEpoch, Offset, ProducerEpoch, ProducerId
from ottla.replication.epochs import EpochStart
from ottla.replication.log.state import (
    Intent,
    PartitionState,
    Pending,
    Trusted,
    decode_producers,
    decode_state,
    encode_producers,
    encode_state,
)
from ottla.replication.producers import BATCHES_MAX, Placed, Producer, ProducerStates

OFFSETS = st.integers(0, INT64_MAX).map(Offset)
TIMES = st.integers(-1, INT64_MAX)
EPOCHS = st.lists(st.tuples(st.integers(1, 1000), st.integers(1, 1000)), max_size=5).map(
    lambda steps: tuple(
        EpochStart(
            LeaderEpoch(sum(step[0] for step in steps[:n])),
            Offset(sum(step[1] for step in steps[:n])),
        )
        for n in range(len(steps))
    )
)
STATES = st.builds(
    PartitionState,
    recovery_point=OFFSETS,
    recovery_base=OFFSETS,
    recovery_position=st.integers(0, INT32_MAX),
    trusted=st.builds(
        Trusted,
        st.integers(0, INT32_MAX),
        st.integers(0, INT32_MAX),
        st.integers(-1, INT64_MAX),
        st.integers(-1, INT64_MAX),
    ),
    start_offset=OFFSETS,
    high_watermark=OFFSETS,
    cleaned_to=OFFSETS,
    gaps_below=OFFSETS,
    horizon_ms=TIMES,
    epochs=EPOCHS,
    pending=st.builds(
        Pending,
        intent=st.sampled_from(Intent),
        offset=OFFSETS,
        size=st.integers(0, INT32_MAX),
        crc=st.integers(0, INT32_MAX),
        sources=st.lists(OFFSETS, max_size=4).map(tuple),
    ),
)
SEQUENCES = st.integers(-1, INT32_MAX)
PLACED = st.builds(Placed, SEQUENCES, SEQUENCES, OFFSETS, OFFSETS, TIMES)
PRODUCERS = st.lists(
    st.builds(
        Producer,
        st.integers(0, INT64_MAX).map(ProducerId),
        st.integers(0, 2**15 - 1).map(ProducerEpoch),
        TIMES,
        st.lists(PLACED, max_size=BATCHES_MAX).map(lambda rows: deque(rows, BATCHES_MAX)),
    ),
    max_size=4,
    unique_by=lambda producer: producer.producer_id,
)


def states_of(producers: list[Producer]) -> ProducerStates:
    states = ProducerStates()
    for producer in producers:
        states.restore(producer)
    return states


@given(STATES)
def test_a_state_record_comes_back_as_it_was(state: PartitionState) -> None:
    assert decode_state("t-0", encode_state(state)) == state


@given(PRODUCERS)
def test_a_snapshot_comes_back_as_it_was(producers: list[Producer]) -> None:
    states = states_of(producers)
    assert list(decode_producers("t-0", encode_producers(states))) == list(states)


@given(STATES, st.data())
def test_a_mutated_state_record_is_refused_or_read_as_exactly_what_it_says(
    state: PartitionState, data: st.DataObject
) -> None:
    value = mutated(encode_state(state), data)
    try:
        again = decode_state("t-0", value)
    except StorageError:
        # Damaged, or the record of a newer program.
        return
    assert encode_state(again) == value


@given(PRODUCERS, st.data())
def test_a_mutated_snapshot_is_refused_or_read_as_exactly_what_it_says(
    producers: list[Producer], data: st.DataObject
) -> None:
    value = mutated(encode_producers(states_of(producers)), data)
    try:
        again = decode_producers("t-0", value)
    except CorruptionError:
        return
    # Two producers of one id may have become one, and their order may have changed.
    assert len(encode_producers(again)) <= len(value)


def mutated(value: bytes, data: st.DataObject) -> bytes:
    """Change a byte, cut the end off, or add one."""
    at = data.draw(st.integers(0, len(value) - 1))
    match data.draw(st.sampled_from(("change", "cut", "add"))):
        case "change":
            return value[:at] + bytes([data.draw(st.integers(0, 255))]) + value[at + 1 :]
        case "cut":
            return value[:at]
        case _:
            return value + data.draw(st.binary(min_size=1, max_size=9))
