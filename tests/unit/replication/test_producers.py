"""Telling a retry from a new batch (rule 61), and remembering it (rule 62)."""

from __future__ import annotations

import pytest

from ottla.proto.errors import CorruptionError, ErrorCode, RequestError
from ottla.proto.ids import INT32_MAX, LeaderEpoch, Offset
from ottla.proto.records.header import BatchHeader, read_header
from ottla.replication.log.append import Appended
from ottla.replication.log.log import Log
from ottla.replication.log.state import decode_producers, encode_producers, producers_key
from ottla.replication.log.surgery import truncate
from ottla.replication.producers import BATCHES_MAX, PRODUCERS_MAX, ProducerStates
from tests.builders import EPOCH, NOW_MS, OneLog, append, headers_of, produced

PRODUCER = 7


def header(sequence: int, *, offset: int = 0, count: int = 1, epoch: int = 0) -> BatchHeader:
    """Return the header of a batch of the producer, placed at `offset`."""
    raw = produced(*[b"x"] * count, producer_id=PRODUCER, producer_epoch=epoch, sequence=sequence)
    return read_header(raw)._replace(base_offset=offset)


def states(*headers: BatchHeader) -> ProducerStates:
    producers = ProducerStates()
    for one in headers:
        producers.record(one, Offset(one.base_offset), one.max_timestamp)
    return producers


def code_of(producers: ProducerStates, one: BatchHeader) -> ErrorCode:
    with pytest.raises(RequestError) as refused:
        producers.check(one)
    return refused.value.code


def send(log: Log, sequence: int, *, count: int = 1, epoch: int = 0) -> Appended:
    raw = produced(*[b"x"] * count, producer_id=PRODUCER, producer_epoch=epoch, sequence=sequence)
    return log.append_as_leader(raw, epoch=log.epochs.latest, now_ms=NOW_MS)


# -- rule 61 -----------------------------------------------------------------------------------


def test_rule_61_each_of_the_last_five_batches_keeps_its_original_offset() -> None:
    producers = states(*(header(n, offset=100 + n) for n in range(BATCHES_MAX)))
    for sequence in range(BATCHES_MAX):
        placed = producers.check(header(sequence))
        assert placed is not None
        assert placed.first_offset == 100 + sequence


def test_s1_rule_61_the_sixth_oldest_batch_is_forgotten_and_out_of_order() -> None:
    producers = states(*(header(n, offset=n) for n in range(BATCHES_MAX + 1)))
    assert code_of(producers, header(0)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producers.check(header(1)) is not None


def test_rule_61_the_next_sequence_is_accepted() -> None:
    assert states(header(0, count=3)).check(header(3)) is None


@pytest.mark.parametrize("sequence", [1, 2, 4, 100])
def test_rule_61_a_gap_or_an_overlap_is_out_of_order(sequence: int) -> None:
    producers = states(header(0, count=3))
    assert code_of(producers, header(sequence)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_rule_61_a_repeat_of_another_length_is_no_repeat() -> None:
    producers = states(header(0, count=3))
    assert code_of(producers, header(0, count=2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_rule_61_sequences_wrap_to_zero() -> None:
    producers = states(header(INT32_MAX))
    assert producers.check(header(0)) is None
    assert code_of(producers, header(1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_rule_61_a_batch_may_wrap_inside_and_is_known_again() -> None:
    producers = states(header(INT32_MAX, count=3, offset=40))
    placed = producers.check(header(INT32_MAX, count=3))
    assert placed is not None
    assert (placed.first_offset, placed.last_sequence) == (40, 1)
    assert producers.check(header(2)) is None


def test_rule_61_a_new_epoch_begins_with_sequence_zero() -> None:
    producers = states(header(0), header(1))
    assert producers.check(header(0, epoch=1)) is None
    assert code_of(producers, header(2, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_rule_61_an_older_epoch_is_refused() -> None:
    producers = states(header(0, epoch=3))
    assert code_of(producers, header(1, epoch=2)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_rule_61_a_new_epoch_forgets_the_batches_of_the_old_one() -> None:
    producers = states(header(0), header(1), header(0, epoch=1, offset=9))
    placed = producers.check(header(0, epoch=1))
    assert placed is not None
    assert placed.first_offset == 9
    assert code_of(producers, header(5, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_rule_62_an_unknown_producer_may_begin_anywhere() -> None:
    assert ProducerStates().check(header(12345)) is None


def test_s3_checking_changes_nothing() -> None:
    producers = states(header(0))
    before = encode_producers(producers)
    producers.check(header(1))
    producers.check(header(0))
    code_of(producers, header(9))
    assert encode_producers(producers) == before


def test_a_batch_without_a_producer_is_not_remembered() -> None:
    assert len(states(read_header(produced(b"x")))) == 0


# -- expiry ------------------------------------------------------------------------------------


def test_a_producer_is_forgotten_only_after_its_expiry_has_passed() -> None:
    producers = states(header(0))
    assert producers.expire(NOW_MS + 1000, 1000) == 0
    assert producers.expire(NOW_MS + 1001, 1000) == 1
    assert producers.get(PRODUCER) is None


def test_a_producer_that_goes_on_is_not_forgotten() -> None:
    producers = states(header(0), header(1)._replace(max_timestamp=NOW_MS + 5000))
    assert producers.expire(NOW_MS + 5500, 1000) == 0


# -- snapshots ---------------------------------------------------------------------------------


def test_a_snapshot_brings_back_what_was_taken() -> None:
    producers = states(header(0, offset=3), header(1, offset=5))
    again = decode_producers("t-0", encode_producers(producers))
    assert list(again) == list(producers)


def test_a_snapshot_of_nobody_is_possible() -> None:
    assert list(decode_producers("t-0", encode_producers(ProducerStates()))) == []


@pytest.mark.parametrize("cut", [0, 1, 4, 10, 20, -1])
def test_a_short_snapshot_is_corruption(cut: int) -> None:
    value = encode_producers(states(header(0)))
    with pytest.raises(CorruptionError):
        decode_producers("t-0", value[:cut])


def test_a_snapshot_of_a_later_format_is_refused() -> None:
    value = encode_producers(states(header(0)))
    later = value[0] + 1
    with pytest.raises(CorruptionError, match=f"format version {later}"):
        decode_producers("t-0", bytes([later]) + value[1:])


# -- in a log ----------------------------------------------------------------------------------


def test_rule_61_a_retry_gets_the_original_offset_and_writes_nothing() -> None:
    log = OneLog().create()
    first = send(log, 0, count=2)
    append(log, b"somebody else")
    again = send(log, 0, count=2)
    assert (again.first_offset, again.last_offset) == (first.first_offset, first.last_offset)
    assert again.is_duplicate
    assert not first.is_duplicate
    assert log.end_offset == 3


@pytest.mark.parametrize("is_checkpointed", [True, False], ids=["snapshot", "batches"])
def test_rule_62_retries_after_a_restart_still_get_their_original_offsets(
    is_checkpointed: bool,
) -> None:
    one = OneLog()
    log = one.create()
    for sequence in range(BATCHES_MAX):
        send(log, sequence)
    if is_checkpointed:
        log.checkpoint()
    log.close()
    log, _ = one.open()
    for sequence in range(BATCHES_MAX):
        assert send(log, sequence).first_offset == sequence
    assert send(log, BATCHES_MAX).first_offset == BATCHES_MAX


def test_rule_62_a_snapshot_and_the_batches_after_it_make_the_state() -> None:
    one = OneLog()
    log = one.create()
    for sequence in range(3):
        send(log, sequence)
    log.checkpoint()
    for sequence in range(3, 8):
        send(log, sequence)
    expected = list(log.producers)
    log.close()
    assert list(one.open()[0].producers) == expected


def test_rule_62_what_was_cut_off_is_not_remembered_and_the_rest_is() -> None:
    log = OneLog().create()
    for sequence in range(4):
        send(log, sequence)
    log.checkpoint()
    truncate(log, Offset(2))
    log.assign_epoch(LeaderEpoch(1))
    assert send(log, 1).is_duplicate
    with pytest.raises(RequestError):
        send(log, 3)
    assert send(log, 2).first_offset == 2


def test_rule_49a_snapshots_above_the_cut_are_gone_from_the_store() -> None:
    one = OneLog()
    log = one.create()
    send(log, 0)
    log.checkpoint()
    send(log, 1)
    log.checkpoint()
    truncate(log, Offset(1))
    assert one.store.get(producers_key("t-0", Offset(1))) is not None
    assert one.store.get(producers_key("t-0", Offset(2))) is None


def test_a_damaged_snapshot_is_made_up_for_by_the_batches() -> None:
    one = OneLog()
    log = one.create()
    send(log, 0)
    send(log, 1)
    log.checkpoint()
    log.close()
    one.store.commit({producers_key("t-0", Offset(2)): b"\x01junk"})
    log, _ = one.open()
    assert send(log, 1).first_offset == 1


def test_a_follower_remembers_producers_as_its_leader_does() -> None:
    leader, follower = OneLog().create(), OneLog().create()
    for sequence in range(3):
        send(leader, sequence)
    for one in headers_of(leader):
        found = leader.read(Offset(one.base_offset), bytes_max=1)
        assert found is not None
        follower.append_as_follower(found.read(), now_ms=NOW_MS)
    assert list(follower.producers) == list(leader.producers)
    assert follower.epochs.latest == EPOCH


# -- S4: how many are remembered ---------------------------------------------------------------


def first_of(producer_id: int, offset: int, sequence: int = 0) -> BatchHeader:
    return header(sequence, offset=offset)._replace(producer_id=producer_id)


def crowd(count: int) -> ProducerStates:
    """Return the states after so many producers have sent a batch each, in the order of ids."""
    producers = ProducerStates()
    one = header(0)
    for number in range(count):
        producers.record(one._replace(producer_id=number), Offset(number), NOW_MS)
    return producers


def test_s4_of_many_producers_the_longest_silent_are_forgotten() -> None:
    producers = crowd(PRODUCERS_MAX)
    # The very first speaks again, and the second becomes the longest silent.
    producers.record(first_of(0, PRODUCERS_MAX, sequence=1), Offset(PRODUCERS_MAX), NOW_MS)
    for number in range(3):
        at = PRODUCERS_MAX + 1 + number
        producers.record(first_of(10**9 + number, at), Offset(at), NOW_MS)
    assert len(producers) == PRODUCERS_MAX
    assert [one.producer_id for one in producers][:3] == [0, 4, 5]


def test_s4_rule_62_a_forgotten_producer_that_goes_on_is_taken_for_an_unknown_one() -> None:
    producers = crowd(PRODUCERS_MAX + 1)
    assert producers.get(0) is None
    assert producers.check(first_of(0, 0, sequence=17)) is None
    with pytest.raises(RequestError):
        producers.check(first_of(1, 0, sequence=17))


def test_s4_s2_a_snapshot_keeps_the_order_in_which_producers_are_forgotten() -> None:
    producers = crowd(PRODUCERS_MAX)
    producers.record(first_of(0, PRODUCERS_MAX, sequence=1), Offset(PRODUCERS_MAX), NOW_MS)
    restored = decode_producers("t-0", encode_producers(producers))
    for states_of in (producers, restored):
        for number in range(2):
            at = PRODUCERS_MAX + 1 + number
            states_of.record(first_of(10**9 + number, at), Offset(at), NOW_MS)
    assert encode_producers(restored) == encode_producers(producers)
    assert restored.get(0) is not None
    assert restored.get(1) is None
