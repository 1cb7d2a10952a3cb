"""Offsets of a group: shown when committed, kept for as long as promised."""

from __future__ import annotations

import time
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from ottla.node.groups.loading import Piece, decode_piece, load
from ottla.node.groups.offsets import Offsets, Retention
from ottla.node.groups.places import java_hash, partition_of
from ottla.node.groups.records import (
    GroupKey,
    GroupValue,
    OffsetKey,
    OffsetValue,
    encode_group,
    encode_key,
    encode_offset,
)
from ottla.proto.records.build import build_batch
from ottla.proto.records.decode import decode_records
from ottla.proto.records.header import LENGTH_END, read_batch_length
from ottla.proto.records.record import Record
from ottla.proto.records.validate import validate_stored

PLACE = ("t", 0)


def value(offset: int, commit_ms: int = 0, expire_ms: int | None = None) -> OffsetValue:
    return OffsetValue(offset, -1, "", commit_ms, expire_ms)


def retention(now_ms: int, **given_: object) -> Retention:
    chosen = {"keep_ms": 100, "empty_since_ms": None, "has_members": False} | given_
    return Retention(now_ms=now_ms, **chosen)  # type: ignore[arg-type]


def test_what_is_under_way_is_not_shown() -> None:
    offsets = Offsets()
    offsets.begin([PLACE])
    assert offsets.get(PLACE) is None
    assert not offsets.is_idle
    offsets.settle({PLACE: value(5)})
    assert offsets.get(PLACE) == value(5)


def test_what_was_refused_leaves_no_trace() -> None:
    offsets = Offsets()
    offsets.begin({PLACE: value(5)})
    offsets.give_up({PLACE: value(5)})
    assert offsets.is_idle


def test_an_offset_expires_when_its_group_has_been_empty_for_long() -> None:
    offsets = Offsets()
    offsets.replay({PLACE: value(5, commit_ms=10)})
    assert offsets.expired(retention(149, empty_since_ms=50)) == []
    assert offsets.expired(retention(150, empty_since_ms=50)) == [PLACE]
    assert offsets.expired(retention(109)) == []
    assert offsets.expired(retention(110)) == [PLACE]


def test_an_offset_of_a_group_with_members_expires_only_if_nobody_reads_the_topic() -> None:
    offsets = Offsets()
    offsets.replay({PLACE: value(5, commit_ms=10)})
    assert offsets.expired(retention(10**9, has_members=True)) == []
    read = frozenset({"t"})
    assert offsets.expired(retention(10**9, has_members=True, subscribed=read)) == []
    other = frozenset({"u"})
    assert offsets.expired(retention(10**9, has_members=True, subscribed=other)) == [PLACE]


def test_nothing_expires_under_something_newer() -> None:
    offsets = Offsets()
    offsets.replay({PLACE: value(5, commit_ms=10)})
    offsets.begin([PLACE])
    assert offsets.expired(retention(10**9)) == []


def test_a_commit_that_says_when_it_expires_does_then() -> None:
    offsets = Offsets()
    offsets.replay({PLACE: value(5, commit_ms=10, expire_ms=20)})
    assert offsets.expired(retention(19)) == []
    assert offsets.expired(retention(20)) == [PLACE]


COMMITS = st.lists(
    st.tuples(st.sampled_from("gh"), st.integers(0, 2), st.none() | st.integers(0, 99)), max_size=40
)


@given(COMMITS, st.integers(1, 5))
def test_a_load_ends_with_the_last_word_on_everything(
    commits: list[tuple[str, int, int | None]], size: int
) -> None:
    offsets: dict[tuple[str, int], int] = {}
    records = []
    for at, (group, partition, offset) in enumerate(commits):
        key = encode_key(OffsetKey(group, "t", partition))
        records.append(Record(at, 0, key, None if offset is None else encode_offset(value(offset))))
        offsets.pop((group, partition), None)
        if offset is not None:
            offsets[group, partition] = offset
    log = b"".join(
        build_batch(records[at : at + size], base_offset=at) for at in range(0, len(records), size)
    )
    loaded = load(_pieces(log, len(records)))
    found = {
        (group, place[1]): one.offset
        for group, of_group in loaded.offsets.items()
        for place, one in of_group.items()
    }
    assert found == offsets
    assert loaded.unreadable == 0


def _pieces(log: bytes, end: int) -> list[Piece]:
    """Read a log as a coordinator does: pieces that end in the middle of a batch."""
    pieces, at = list[Piece](), 0
    while at < end:
        rest = _from(log, at)
        piece = decode_piece(rest[: len(rest) // 2], at)
        if piece.next_offset == at:
            piece = decode_piece(rest, at)
        pieces.append(piece)
        at = piece.next_offset
    return pieces


def _from(log: bytes, offset: int) -> bytes:
    at = 0
    while (
        int.from_bytes(log[at : at + 8], "big") + int.from_bytes(log[at + 23 : at + 27], "big")
        < offset
    ):
        at += 12 + int.from_bytes(log[at + 8 : at + 12], "big")
    return log[at:]


def test_a_record_that_cannot_be_read_spoils_no_other() -> None:
    good = encode_key(GroupKey("g"))
    records = [
        Record(0, 0, None, b"no key"),
        Record(1, 0, b"\x00", b"x"),
        Record(2, 0, encode_key(GroupKey("h")), b"\x00\x63"),
        Record(3, 0, good, encode_group(GroupValue("consumer", 3, None, None, 0))),
        Record(4, 0, b"\x00\x09future", b"x"),
    ]
    loaded = load([decode_piece(build_batch(records), 0)])
    assert loaded.groups["g"].generation == 3
    assert loaded.unreadable == 2
    assert list(loaded.names()) == ["g"]


def test_reading_old_news_costs_little_more_than_looking_at_it() -> None:
    """Groups commit the same places again and again: only the last word is taken apart.

    By the time of the processor, and against the least that can be done with the same bytes.
    """
    log = bytearray()
    for at in range(4_000):
        key = encode_key(OffsetKey(f"group-{at % 100}", "topic", at % 5))
        log += build_batch([Record(at, 1, key, encode_offset(value(at)))], base_offset=at)
    data = bytes(log)

    def look() -> None:
        view, at = memoryview(data), 0
        while at < len(view):
            end = at + LENGTH_END + read_batch_length(view, at)
            validate_stored(view[at:end])
            decode_records(view[at:end])
            at = end

    def read() -> None:
        assert len(load([decode_piece(data, 0)]).offsets) == 100

    assert _cpu_s(read) < 2 * _cpu_s(look)


def _cpu_s(work: Callable[[], None]) -> float:
    """Return what it takes when nothing comes between."""
    taken = []
    for _ in range(5):
        began = time.process_time()
        work()
        taken.append(time.process_time() - began)
    return min(taken)


def test_a_group_belongs_to_the_partition_that_java_says() -> None:
    assert java_hash("") == 0
    assert java_hash("polygenelubricants") == -(2**31)
    assert partition_of("polygenelubricants", 50) == 0
    assert java_hash("hello") == 99162322
    assert partition_of("hello", 50) == 22
    # Two units of UTF-16.
    assert java_hash("😀") == 0xD83D * 31 + 0xDE00
