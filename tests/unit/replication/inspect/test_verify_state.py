"""A state that contradicts the batches, and work that a crash interrupted."""

from __future__ import annotations

from ottla.proto.ids import LeaderEpoch, Offset
from ottla.replication.epochs import EpochStart
from ottla.replication.inspect.known import NOT_TOLD_HOW_FAR
from ottla.replication.log.state import (
    Intent,
    Pending,
    decode_producers,
    encode_producers,
    producers_key,
)
from tests.unit.replication.inspect.shelf import NAME, ROOT, Shelf, filled
from tests.unit.replication.log import transactions

FIRST, SECOND, LAST = (f"{base:020d}" for base in (0, 20, 40))


def _change_snapshot(shelf: Shelf, **changes: int) -> None:
    key = producers_key(NAME, Offset(60))
    producers = decode_producers(NAME, shelf.disk[key])
    producer = producers.get(7)
    assert producer is not None
    producer.batches.append(producer.batches.pop()._replace(**changes))  # type: ignore[arg-type]
    shelf.disk[key] = encode_producers(producers)


def test_a_producer_snapshot_with_another_sequence() -> None:
    shelf = filled()
    _change_snapshot(shelf, last_sequence=61)
    assert shelf.problems() == [
        "producer snapshot at 60: producer 7 has sequences 58 to 61 at offsets 58 to 59, "
        "time 1104; the log has sequences 58 to 59 at offsets 58 to 59, time 1104",
    ]


def test_a_marker_that_begins_the_next_epoch_is_seen_in_snapshot_and_log() -> None:
    """Found by `ottla chaos run C46K`: with transaction.version 2 a marker has the next epoch."""
    shelf = Shelf()
    log = shelf.create()
    transactions.write(log, 9, epoch=4)
    transactions.end(log, 9, is_commit=True, epoch=5, is_bumped=True)
    log.checkpoint()
    log.close()
    known = decode_producers(NAME, shelf.disk[producers_key(NAME, Offset(2))]).get(9)
    assert known is not None
    assert known.epoch == 5
    assert shelf.problems() == []


def test_a_producer_snapshot_with_a_batch_that_is_not_there() -> None:
    shelf = filled()
    _change_snapshot(shelf, last_offset=58)
    assert shelf.problems() == [
        "producer snapshot at 60: producer 7 has sequences 58 to 59 at offsets 58 to 58, "
        "time 1104; the log has no such batch",
    ]


def test_a_producer_snapshot_with_a_stranger() -> None:
    shelf = filled()
    key = producers_key(NAME, Offset(60))
    producers = decode_producers(NAME, shelf.disk[key])
    known = producers.get(7)
    assert known is not None
    known.producer_id = type(known.producer_id)(8)
    shelf.disk[key] = encode_producers(producers)
    report = shelf.report()
    assert report.problems == [
        "producer snapshot at 60: producer 8 has sequences 58 to 59 at offsets 58 to 59, "
        "time 1104; the log has nothing of it",
    ]
    assert report.notes == [
        "producer snapshot at 60: producer 7 is not in it, and its last batch is at offset 59; "
        "it may have been forgotten",
    ]


def test_a_producer_snapshot_of_another_epoch() -> None:
    shelf = filled()
    key = producers_key(NAME, Offset(60))
    producers = decode_producers(NAME, shelf.disk[key])
    producer = producers.get(7)
    assert producer is not None
    producer.epoch = type(producer.epoch)(4)
    shelf.disk[key] = encode_producers(producers)
    assert shelf.problems() == [
        "producer snapshot at 60: producer 7 has epoch 4; the log has epoch 0",
    ]


def test_a_producer_snapshot_that_cannot_be_read() -> None:
    shelf = filled()
    shelf.disk[producers_key(NAME, Offset(60))] = b"\x01"
    (problem,) = shelf.problems()
    assert problem.startswith("a producer snapshot of t-0 cannot be read: ")


def test_a_recovery_point_inside_a_batch() -> None:
    shelf = filled()
    shelf.change_state(recovery_position=900)
    assert shelf.problems() == [
        f"the recovery point 60 is said to be at 900 of {LAST}.log, where no batch begins",
    ]


def test_a_recovery_point_at_another_batch() -> None:
    shelf = filled()
    shelf.change_state(recovery_position=873)
    assert shelf.problems() == [
        f"the recovery point 60 is said to be at 873 of {LAST}.log, where offset 58 is due",
    ]


def test_a_high_watermark_above_the_end() -> None:
    shelf = filled()
    shelf.change_state(high_watermark=Offset(61))
    assert shelf.problems() == ["the log ends at 60, below its high watermark 61"]


def test_a_start_above_the_end() -> None:
    shelf = filled()
    shelf.change_state(start_offset=Offset(99))
    assert "the log ends at 60, below its start 99" in shelf.problems()


def test_a_log_that_the_state_store_does_not_know() -> None:
    shelf = filled()
    shelf.disk.clear()
    assert shelf.problems() == ["the state store does not know t-0"]


def test_an_empty_log_that_the_state_store_does_not_know_was_just_being_made() -> None:
    shelf = Shelf()
    shelf.create()
    shelf.disk.clear()
    report = shelf.report()
    assert (report.problems, report.notes) == ([], ["the state store does not know t-0"])


def test_an_empty_directory_that_the_state_store_does_not_know_was_just_being_made() -> None:
    shelf = Shelf()
    shelf.files.make_dir(f"{ROOT}/{NAME}")
    report = shelf.report()
    assert (report.problems, report.notes) == ([], ["the state store does not know t-0"])


def test_a_directory_with_other_things_in_it_that_the_state_store_does_not_know() -> None:
    shelf = Shelf()
    shelf.files.make_dir(f"{ROOT}/{NAME}")
    shelf.write("holiday.jpg", b"")
    assert shelf.problems() == ["the state store does not know t-0"]


def test_a_state_store_that_is_gone_is_a_problem_of_the_directory() -> None:
    shelf = filled()
    shelf.files.remove_dir(f"{ROOT}/state")
    shelf.files.open(f"{ROOT}/meta.properties", create=True)
    report = shelf.verify()
    assert report.problems == [
        f"the state store {ROOT}/state is missing; if it is elsewhere, --state says where"
    ]
    assert [part.notes for part in report.partitions] == [[NOT_TOLD_HOW_FAR]]


def test_a_node_that_came_no_further_than_its_identity_has_no_problem() -> None:
    shelf = Shelf()
    shelf.files.remove_dir(f"{ROOT}/state")
    shelf.files.open(f"{ROOT}/meta.properties", create=True)
    assert shelf.verify().ok


def test_an_epoch_that_begins_above_the_end_is_a_note() -> None:
    shelf = filled()
    shelf.change_state(epochs=(*shelf.state.epochs, EpochStart(LeaderEpoch(9), Offset(70))))
    report = shelf.report()
    assert (report.problems, report.notes) == (
        [],
        ["epoch 9 begins above the end: forgotten at start"],
    )


# -- intents ---------------------------------------------------------------------------------------


def test_a_swap_that_was_begun_is_seen_as_the_next_start_will_finish_it() -> None:
    shelf = filled()
    shelf.write(f"{FIRST}.log.cleaned", shelf.read(f"{FIRST}.log") + shelf.read(f"{SECOND}.log"))
    sources = (Offset(0), Offset(20))
    shelf.change_state(pending=Pending(intent=Intent.SWAP, offset=Offset(0), sources=sources))
    report = shelf.report()
    assert (report.problems, report.batches, report.end_offset) == ([], 30, 60)
    assert report.notes == [
        "a cleaned segment at 0 is being swapped in; the next start finishes it"
    ]


def test_a_reset_that_was_begun_leaves_an_empty_log() -> None:
    shelf = filled()
    at = Offset(500)
    del shelf.disk[producers_key(NAME, Offset(60))]
    shelf.change_state(
        pending=Pending(intent=Intent.RESET, offset=at),
        recovery_point=at,
        recovery_base=at,
        recovery_position=0,
        start_offset=at,
        high_watermark=at,
        epochs=(),
    )
    report = shelf.report()
    assert (report.problems, report.end_offset) == ([], 500)
    assert report.notes[0] == "the log is being started anew at 500; the next start finishes it"


def test_a_deletion_that_was_begun_is_told() -> None:
    shelf = filled()
    shelf.change_state(pending=Pending(intent=Intent.DELETE))
    report = shelf.report()
    assert (report.problems, report.notes) == (
        [],
        ["the partition is being deleted; the next start finishes it"],
    )


def test_files_that_are_not_of_a_log_are_told() -> None:
    shelf = filled()
    shelf.write("holiday.jpg", b"")
    shelf.write(f"{FIRST}.log.deleted", b"")
    assert shelf.report().notes == [
        f"the next start removes 1 file, the first is {FIRST}.log.deleted",
        "holiday.jpg is not a file of a log",
    ]
