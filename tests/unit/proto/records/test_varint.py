"""Numbers of variable length: exact bytes, limits, and bytes that are no number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.proto.errors import RecordsError
from ottla.proto.records.varint import read_varint, read_varlong, size_of_varint, write_varint


def written(value: int) -> bytes:
    output = bytearray()
    write_varint(output, value)
    return bytes(output)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (-2, "03"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (-65, "8101"),
        (8191, "fe7f"),
        (8192, "808001"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
    ],
)
def test_numbers_of_32_bits_have_these_bytes(value: int, encoded: str) -> None:
    assert written(value).hex() == encoded
    assert read_varint(bytes.fromhex(encoded), 0) == (value, len(encoded) // 2)


@given(st.integers(-(2**63), 2**63 - 1), st.binary(max_size=3))
def test_numbers_of_64_bits_come_back(value: int, prefix: bytes) -> None:
    encoded = written(value)
    assert len(encoded) == size_of_varint(value) <= 10
    assert read_varlong(prefix + encoded + b"\xff", len(prefix)) == (
        value,
        len(prefix) + len(encoded),
    )


def test_a_number_written_longer_than_needed_is_read() -> None:
    assert read_varint(b"\x82\x80\x00", 0) == (1, 3)


@pytest.mark.parametrize(
    "encoded",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\x80", id="cut off"),
        pytest.param(b"\xff\xff\xff\xff", id="cut off after four"),
        pytest.param(b"\x80\x80\x80\x80\x80\x00", id="six bytes"),
        pytest.param(b"\xff\xff\xff\xff\x1f", id="33 bits"),
        pytest.param(written(2**31), id="one too large"),
        pytest.param(b"\x80" * 100, id="without end"),
    ],
)
def test_what_is_no_number_of_32_bits_is_refused(encoded: bytes) -> None:
    with pytest.raises(RecordsError, match="byte 0"):
        read_varint(encoded, 0)


@pytest.mark.parametrize(
    "encoded",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\xff" * 9, id="cut off"),
        pytest.param(b"\x80" * 10 + b"\x00", id="eleven bytes"),
        pytest.param(b"\xff" * 9 + b"\x02", id="65 bits"),
    ],
)
def test_what_is_no_number_of_64_bits_is_refused(encoded: bytes) -> None:
    with pytest.raises(RecordsError, match="byte 0"):
        read_varlong(encoded, 0)


def test_a_position_behind_the_end_is_refused() -> None:
    with pytest.raises(RecordsError):
        read_varint(b"\x00", 1)
