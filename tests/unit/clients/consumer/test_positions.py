"""Bookmarks: what is given out, in which order, and what counts as processed."""

from __future__ import annotations

import pytest

from ottla.clients.consumer.decoding import AbortedFilter
from ottla.clients.consumer.positions import (
    CHUNKS_MAX,
    PORTION,
    Bookmark,
    Bookmarks,
    Chunk,
    Reset,
)
from ottla.clients.consumer.record import OffsetAndMetadata
from ottla.proto.errors import CorruptionError, RequestError
from ottla.proto.ids import TopicPartition
from ottla.proto.records.build import build_batch
from ottla.proto.records.record import Record

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


def _chunk(first: int, count: int) -> Chunk:
    records = [Record(offset, 1, None, b"%d" % offset) for offset in range(first, first + count)]
    return Chunk(memoryview(build_batch(records, base_offset=first)))


def _bookmarks(*partitions: TopicPartition) -> Bookmarks:
    bookmarks = Bookmarks(check_crcs=True)
    for one in bookmarks.add(partitions):
        one.move(0)
    return bookmarks


def _feed(bookmark: Bookmark, first: int, count: int) -> None:
    assert bookmark.fetched(_chunk(first, count), bookmark.turn)


def test_records_come_in_order_and_the_position_follows_them() -> None:
    bookmarks = _bookmarks(A0)
    _feed(bookmarks.of(A0), 0, 5)
    _feed(bookmarks.of(A0), 5, 5)
    assert [one.offset for one in bookmarks.take(3)] == [0, 1, 2]
    assert bookmarks.of(A0).position == 3
    assert [one.offset for one in bookmarks.take(100)] == [3, 4, 5, 6, 7, 8, 9]
    assert bookmarks.of(A0).position == 10
    assert bookmarks.take(1) == []


def test_one_at_a_time_is_the_same() -> None:
    bookmarks = _bookmarks(A0)
    _feed(bookmarks.of(A0), 0, 3)
    _feed(bookmarks.of(A0), 3, 2)
    got = []
    while (record := bookmarks.next_record()) is not None:
        got.append(record.offset)
        assert bookmarks.of(A0).position == record.offset + 1
    assert got == [0, 1, 2, 3, 4]


def test_partitions_take_turns() -> None:
    bookmarks = _bookmarks(A0, A1)
    for one in bookmarks:
        _feed(one, 0, 2)
        _feed(one, 2, 2)
    got = [(one.partition, one.offset) for _ in range(4) for one in bookmarks.take(2)]
    assert sorted(got) == [(p, o) for p in (0, 1) for o in range(4)]
    assert {partition for partition, _ in got[:4]} == {0, 1}


def test_only_what_was_given_out_before_the_program_came_back_is_processed() -> None:
    bookmarks = _bookmarks(A0)
    _feed(bookmarks.of(A0), 0, 4)
    bookmarks.take(2)
    assert bookmarks.holds_out
    assert bookmarks.to_commit() == {A0: OffsetAndMetadata(0, "", -1)}
    bookmarks.came_back()
    assert bookmarks.to_commit() == {A0: OffsetAndMetadata(2, "", -1)}
    bookmarks.of(A0).committed = 2
    assert bookmarks.to_commit() == {}


def test_an_answer_to_a_question_from_before_a_seek_is_not_believed() -> None:
    bookmarks = _bookmarks(A0)
    bookmark = bookmarks.of(A0)
    turn = bookmark.turn
    bookmark.move(100)
    assert not bookmark.fetched(_chunk(0, 5), turn)
    assert bookmarks.take(10) == []
    assert bookmark.position == 100


def test_a_seek_throws_away_what_was_fetched() -> None:
    bookmarks = _bookmarks(A0)
    _feed(bookmarks.of(A0), 0, 5)
    bookmarks.take(1)
    bookmarks.of(A0).move(3)
    assert bookmarks.take(10) == []
    _feed(bookmarks.of(A0), 0, 5)
    assert [one.offset for one in bookmarks.take(10)] == [3, 4]


def test_what_is_paused_is_kept_and_not_given_out() -> None:
    bookmarks = _bookmarks(A0)
    _feed(bookmarks.of(A0), 0, 5)
    bookmarks.of(A0).paused = True
    assert not bookmarks.of(A0).wants_fetch
    assert bookmarks.take(10) == []
    bookmarks.of(A0).paused = False
    assert len(bookmarks.take(10)) == 5


def test_a_partition_with_full_buffers_wants_no_fetch() -> None:
    bookmark = _bookmarks(A0).of(A0)
    for number in range(CHUNKS_MAX):
        assert bookmark.wants_fetch
        _feed(bookmark, number * 5, 5)
    assert not bookmark.wants_fetch


def test_a_damaged_chunk_is_told_and_asked_for_again_from_the_position() -> None:
    bookmarks = _bookmarks(A0)
    bookmark = bookmarks.of(A0)
    chunk = _chunk(0, 5)
    broken = bytearray(chunk.data)
    broken[-1] ^= 1
    bookmark.fetched(Chunk(memoryview(broken)), bookmark.turn)
    bookmark.fetch_offset = 5
    with pytest.raises(CorruptionError):
        bookmarks.take(1)
    assert bookmark.position == bookmark.fetch_offset == 0
    assert bookmark.wants_fetch
    _feed(bookmark, 0, 5)
    assert len(bookmarks.take(10)) == 5


def _damaged(first: int, count: int) -> Chunk:
    broken = bytearray(_chunk(first, count).data)
    broken[-1] ^= 1
    return Chunk(memoryview(broken))


def test_damage_in_one_partition_does_not_swallow_the_records_of_another() -> None:
    bookmarks = _bookmarks(A0, A1)
    whole, broken = bookmarks.of(A0), bookmarks.of(A1)
    _feed(whole, 0, 10)
    broken.fetched(_damaged(0, 5), broken.turn)
    broken.fetch_offset = 5
    assert [one.offset for one in bookmarks.take(500)] == list(range(10))
    for _ in range(2):
        with pytest.raises(CorruptionError, match="a-1 at offset 0"):
            bookmarks.take(500)
        assert (whole.position, broken.position, broken.fetch_offset) == (10, 0, 0)
        broken.fetched(_damaged(0, 5), broken.turn)


def test_damage_does_not_swallow_what_was_fetched_before_it() -> None:
    bookmarks = _bookmarks(A0)
    bookmark = bookmarks.of(A0)
    _feed(bookmark, 0, 10)
    bookmark.fetched(_damaged(10, 5), bookmark.turn)
    assert [one.offset for one in bookmarks.take(500)] == list(range(10))
    with pytest.raises(CorruptionError, match="a-0 at offset 10"):
        bookmarks.next_record()
    assert bookmark.position == bookmark.fetch_offset == 10
    assert bookmark.wants_fetch


def test_a_chunk_is_opened_in_portions_of_whole_batches() -> None:
    bookmarks = _bookmarks(A0)
    bookmark = bookmarks.of(A0)
    batches = [bytes(_chunk(first, 300).data) for first in (0, 300, 600)]
    # The last batch did not fit into the fetch.
    whole, half = batches[0] + batches[1] + batches[2], batches[0][:100]
    bookmark.fetched(Chunk(memoryview(whole + half)), bookmark.turn)
    got = bookmarks.take(1)
    assert (len(bookmark.records), bookmark.opened is not None) == (600, True)
    while records := bookmarks.take(400):
        got += records
    assert [one.offset for one in got] == list(range(900))
    assert (bookmark.position, bookmark.opened) == (900, None)


def test_a_chunk_counts_as_waiting_until_its_last_portion_is_opened() -> None:
    bookmarks = _bookmarks(A0)
    bookmark = bookmarks.of(A0)
    data = bytes(_chunk(0, PORTION).data) + bytes(_chunk(PORTION, 5).data)
    bookmark.fetched(Chunk(memoryview(data)), bookmark.turn)
    assert bookmarks.bytes_waiting == len(data)
    assert len(bookmarks.take(1)) == 1
    assert bookmarks.bytes_waiting == len(data), "opened, and kept"
    assert len(bookmarks.take(PORTION)) == PORTION
    assert bookmarks.bytes_waiting == 0


def test_what_comes_before_a_damaged_portion_is_given_out() -> None:
    bookmarks = _bookmarks(A0)
    bookmark = bookmarks.of(A0)
    broken = bytearray(bytes(_chunk(0, PORTION).data) + bytes(_chunk(PORTION, 5).data))
    broken[-1] ^= 1
    bookmark.fetched(Chunk(memoryview(broken)), bookmark.turn)
    bookmark.fetch_offset = PORTION + 5
    assert len(bookmarks.take(PORTION)) == PORTION
    with pytest.raises(CorruptionError, match=f"a-0 at offset {PORTION}"):
        bookmarks.take(1)
    assert bookmark.position == bookmark.fetch_offset == PORTION
    assert bookmark.wants_fetch


def _in_transaction(first: int, count: int, *, control: bool = False) -> bytes:
    key = b"\0\0\0\0" if control else None
    records = [Record(first + one, 1, key, b"v") for one in range(count)]
    return build_batch(
        records, base_offset=first, transactional=True, producer_id=7, control=control
    )


def test_an_aborted_transaction_stays_aborted_when_damage_behind_it_is_looked_at_again() -> None:
    bookmarks = _bookmarks(A1, A0)
    _feed(bookmarks.of(A1), 0, 1)
    data = bytes(_chunk(0, PORTION - 100).data)
    data += _in_transaction(PORTION - 100, 200) + _in_transaction(PORTION + 100, 1, control=True)
    data += bytes(_damaged(PORTION + 101, 5).data)
    chunk = Chunk(memoryview(data), AbortedFilter([(7, PORTION - 100)]))
    bookmarks.of(A0).fetched(chunk, bookmarks.of(A0).turn)
    assert [one.partition for one in bookmarks.take(2 * PORTION)] == [1]
    with pytest.raises(CorruptionError, match=f"a-0 at offset {PORTION + 101}"):
        bookmarks.take(2 * PORTION)


def test_an_aborted_transaction_stays_over_from_portion_to_portion() -> None:
    batch = _in_transaction
    bookmarks = _bookmarks(A0)
    data = batch(0, 2) + batch(2, 1, control=True) + batch(3, PORTION) + batch(3 + PORTION, 2)
    chunk = Chunk(memoryview(data), AbortedFilter([(7, 0)]))
    bookmarks.of(A0).fetched(chunk, bookmarks.of(A0).turn)
    got = [*bookmarks.take(PORTION), *bookmarks.take(PORTION)]
    assert [one.offset for one in got] == list(range(3, 5 + PORTION))


def test_a_partition_that_is_not_ours_is_told() -> None:
    with pytest.raises(RequestError, match="a-1 is not assigned"):
        _bookmarks(A0).of(A1)


def test_what_is_removed_is_gone_with_all_it_had() -> None:
    bookmarks = _bookmarks(A0, A1)
    _feed(bookmarks.of(A0), 0, 5)
    bookmarks.take(1)
    bookmarks.remove([A0])
    assert bookmarks.take(10) == []
    assert not bookmarks.holds_out
    assert A0 not in bookmarks
    assert bookmarks.positions() == {A1: OffsetAndMetadata(0, "", -1)}


def test_the_reset_policy_knows_which_time_to_look_up() -> None:
    assert (Reset("earliest").time, Reset("latest").time) == (-2, -1)
