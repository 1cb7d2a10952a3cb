"""The records and names that the tests of all foreign clients share."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from tests.integration.clients.port import ReadRecord, Record

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
# Bytes that no codec makes smaller, and that every client still sends at its default limits.
MEGABYTE: Final = Random(4).randbytes(1_000_000)
# A moment of 2023: a node must keep what the producer says, however long ago that is.
MOMENT_MS: Final = 1_700_000_000_000

SAMPLE: Final = (
    Record(b"x"),
    Record(None, key=b"tombstone"),
    Record(b"", key=b""),
    Record("žluťoučký kůň".encode(), key=bytes(range(256)), timestamp_ms=MOMENT_MS),
    Record(
        b"with headers",
        headers=(("twice", b"1"), ("twice", b"\xff\xfe"), ("empty", b""), ("ž", b"2")),
        timestamp_ms=MOMENT_MS + 1,
    ),
    Record(MEGABYTE, key=b"large"),
    Record(b"a" * 100_000, timestamp_ms=MOMENT_MS + 2),
)
# Not every client can send a header without a value, and kcat shows none beyond a zero byte.
ODD_HEADERS: Final = (Record(b"x", headers=(("null", None), ("zero", b"\x00\x01"), ("", b""))),)
# kcat takes keys and headers from its command line, and has no word for a timestamp.
KCAT_SAMPLE: Final = (
    Record(b"x"),
    Record(None, key=b"tombstone"),
    Record(b"\x00\xff\n", key="kůň".encode()),
    Record(b"with headers", headers=(("twice", b"one"), ("twice", b"two"), ("empty", b""))),
    Record(MEGABYTE, key=b"large"),
    Record(b"a" * 100_000),
)


def assert_same(read: list[ReadRecord], sent: Sequence[Record], first_offset: int = 0) -> None:
    """Fail unless these are the records that were sent, in order, without a gap."""
    told = [(each.offset, each.key, each.headers, _short(each.value)) for each in read]
    wanted = [
        (offset, each.key, each.headers, _short(each.value))
        for offset, each in enumerate(sent, first_offset)
    ]
    if told != wanted:
        raise AssertionError(f"read {told}, but sent {wanted}")
    for got, each in zip(read, sent, strict=True):
        if got.value != each.value:
            raise AssertionError(f"the value at {got.offset} is another one")
        if each.timestamp_ms not in (None, got.timestamp_ms):
            raise AssertionError(
                f"{got.offset} has the time {got.timestamp_ms}, not that of {each}"
            )


def _short(value: bytes | None) -> bytes | None:
    # A difference of a megabyte helps nobody, and takes pytest minutes to print.
    return value if value is None else value[:40]


def numbered(count: int) -> tuple[Record, ...]:
    """Return records that can be told apart, one second after the other."""
    return tuple(
        Record(f"value {i}".encode(), timestamp_ms=MOMENT_MS + 1000 * i) for i in range(count)
    )
