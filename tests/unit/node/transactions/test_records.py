"""Records of `__transaction_state` are Kafka's, byte for byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.node.transactions.records import decode_key, decode_value, encode_key, encode_value
from ottla.node.transactions.words import State, TransactionValue
from ottla.proto.errors import RecordsError

NUMBERS = st.integers(-1, 2**62)
EPOCHS = st.integers(-1, 2**15 - 1)
PLACES = st.frozensets(st.tuples(st.text(max_size=20), st.integers(0, 2**31 - 1)), max_size=6)
VALUES = st.builds(
    TransactionValue,
    producer_id=NUMBERS,
    producer_epoch=EPOCHS,
    timeout_ms=st.integers(0, 2**31 - 1),
    state=st.sampled_from([one for one in State if one is not State.EMPTY]),
    partitions=PLACES,
    updated_ms=NUMBERS,
    started_ms=NUMBERS,
    previous_producer_id=NUMBERS,
    next_producer_id=NUMBERS,
    next_producer_epoch=EPOCHS,
    client_version=st.sampled_from((0, 2)),
)


@given(VALUES)
def test_what_is_written_is_read_back(value: TransactionValue) -> None:
    assert decode_value(encode_value(value)) == value


def test_an_empty_transaction_is_what_kafka_writes() -> None:
    value = TransactionValue(
        producer_id=7,
        producer_epoch=1,
        timeout_ms=60_000,
        updated_ms=5,
        previous_producer_id=7,
        client_version=2,
    )
    # Version, id, epoch, time-out, state; no list; updated, started; tag 0 and tag 2.
    told = (
        "0001 0000000000000007 0001 0000ea60 00 00 0000000000000005 ffffffffffffffff"
        "02 00 08 0000000000000007 02 02 0002"
    )
    assert encode_value(value) == bytes.fromhex(told.replace(" ", ""))


def test_an_ongoing_transaction_is_what_kafka_writes() -> None:
    value = TransactionValue(
        producer_id=1,
        producer_epoch=0,
        timeout_ms=1,
        state=State.ONGOING,
        partitions=frozenset({("t", 1), ("t", 0)}),
        updated_ms=2,
        started_ms=2,
    )
    told = (
        "0001 0000000000000001 0000 00000001 01 02 0274 03 00000000 00000001 00"
        "0000000000000002 0000000000000002 00"
    )
    assert encode_value(value) == bytes.fromhex(told.replace(" ", ""))


def test_values_of_before_flexible_ones_are_read() -> None:
    told = "0000 0000000000000001 0003 00000001 04 00000001 0001 74 00000001 00000005"
    data = bytes.fromhex(told.replace(" ", "")) + (9).to_bytes(8, "big") + (8).to_bytes(8, "big")
    value = decode_value(data)
    assert (value.producer_epoch, value.state) == (3, State.COMPLETE_COMMIT)
    assert value.partitions == {("t", 5)}
    assert (value.updated_ms, value.started_ms) == (9, 8)


def test_keys_are_read_back_and_strange_ones_are_passed_over() -> None:
    assert encode_key("täx") == b"\x00\x00\x00\x04t\xc3\xa4x"
    assert decode_key(encode_key("täx")) == "täx"
    assert decode_key(b"\x00\x05anything") is None


@given(st.binary(max_size=80))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for read in (decode_key, decode_value):
        try:
            read(data)
        except RecordsError:
            continue


@pytest.mark.parametrize("number", [6, 7, 100])
def test_a_state_that_is_never_written_is_refused(number: int) -> None:
    value = TransactionValue(producer_id=1, producer_epoch=0, timeout_ms=1, updated_ms=2)
    data = bytearray(encode_value(value))
    data[16] = number
    with pytest.raises(RecordsError):
        decode_value(bytes(data))
