"""What is encoded quickly is what `build_batch` builds, byte for byte."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.clients.producer.encoding import encode_batch
from ottla.proto.records.build import build_batch
from ottla.proto.records.compression import Codec
from ottla.proto.records.record import Record

CONTENT = st.none() | st.binary(max_size=40)
ENTRY = st.tuples(
    st.integers(0, 1 << 41),
    CONTENT,
    CONTENT,
    st.lists(st.tuples(st.text(max_size=5), CONTENT), max_size=3).map(tuple),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(ENTRY, min_size=1, max_size=20), st.sampled_from(Codec), st.booleans())
def test_a_batch_is_that_of_the_slow_way(
    entries: list[tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]],
    codec: Codec,
    is_transactional: bool,
) -> None:
    made = encode_batch(
        entries,
        codec=codec,
        producer_id=7,
        producer_epoch=1,
        base_sequence=5,
        is_transactional=is_transactional,
    )
    records = [Record(at, *entry) for at, entry in enumerate(entries)]
    assert made == build_batch(
        records,
        codec=codec,
        producer_id=7,
        producer_epoch=1,
        base_sequence=5,
        transactional=is_transactional,
    )


@pytest.mark.parametrize("size", [0, 63, 64, 8191, 8192, 16_383, 16_384, 300_000])
def test_sizes_around_the_ends_of_the_tables_are_written_right(size: int) -> None:
    entries = [(1000, b"k" * size, b"v" * size, ()), (999, None, b"v" * size, ())]
    records = [Record(at, *entry) for at, entry in enumerate(entries)]
    assert encode_batch(entries) == build_batch(records)


def test_a_batch_of_more_records_than_the_tables_have_rows_is_written_right() -> None:
    entries = [(at, None, b"", ()) for at in range(20_000)]
    records = [Record(at, *entry) for at, entry in enumerate(entries)]
    assert encode_batch(entries) == build_batch(records)
