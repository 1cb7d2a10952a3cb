"""What comes behind a refused batch is refused like it; a true gap is out of order (rule 61)."""

from __future__ import annotations

import pytest

from ottla.proto.errors import ErrorCode, RequestError
from ottla.proto.ids import INT32_MAX, Offset
from ottla.proto.records.header import read_header
from ottla.replication.behind import AGAIN, QUEUES_MAX, UNKNOWN_MAX, Behind
from ottla.replication.producers import BATCHES_MAX, ProducerStates
from tests.builders import NOW_MS, produced

HERE, ELSEWHERE = ("orders", 0), ("orders", 1)
PRODUCER = 7
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
TOO_FEW = ErrorCode.NOT_ENOUGH_REPLICAS


def batch(sequence: int, *, count: int = 1, epoch: int = 0, producer: int = PRODUCER) -> memoryview:
    values = [b"x"] * count
    raw = produced(*values, producer_id=producer, producer_epoch=epoch, sequence=sequence)
    return memoryview(raw)


def written(*batches: memoryview) -> ProducerStates:
    """Return what a log with these batches remembers."""
    producers = ProducerStates()
    for number, one in enumerate(batches):
        producers.record(read_header(one), Offset(number), NOW_MS)
    return producers


def refused(*batches: memoryview, code: ErrorCode = NOT_LEADER) -> Behind:
    behind = Behind()
    for one in batches:
        behind.refused(HERE, one, code)
    return behind


def told(behind: Behind, one: memoryview, producers: ProducerStates) -> ErrorCode | None:
    """Return why a batch is refused, and remember it; None: the log decides."""
    try:
        behind.check(HERE, one, producers)
    except RequestError as refusal:
        behind.refused(HERE, one, refusal.code)
        return refusal.code
    return None


@pytest.mark.parametrize("code", sorted(AGAIN))
def test_rule_61_what_is_behind_a_refused_batch_is_told_the_same(code: ErrorCode) -> None:
    behind = refused(batch(10, count=3), code=code)
    log = written(batch(0, count=10))
    assert [told(behind, batch(n), log) for n in (13, 14, 15)] == [code] * 3


def test_rule_62_what_is_behind_the_first_batch_of_a_new_producer_is_not_taken_before_it() -> None:
    behind = refused(batch(0))
    assert told(behind, batch(1), written()) is NOT_LEADER
    assert told(behind, batch(0), written()) is None


def test_rule_61_the_same_in_a_new_epoch_which_begins_with_zero() -> None:
    behind = refused(batch(0, epoch=1))
    log = written(batch(0, count=10))
    assert told(behind, batch(1, epoch=1), log) is NOT_LEADER
    # Of the epoch before: that one is over, whatever was refused.
    assert told(refused(batch(10)), batch(11), written(batch(0, epoch=1))) is None


def test_a_repeat_that_was_refused_keeps_nothing_back() -> None:
    log = written(batch(0), batch(1))
    behind = refused(batch(1))
    assert told(behind, batch(2), log) is None
    # The one behind it is new, and is missing.
    behind = refused(batch(1), batch(2))
    assert told(behind, batch(3), log) is NOT_LEADER


def test_z1_a_gap_that_was_not_refused_here_is_left_to_the_log() -> None:
    log = written(batch(0))
    assert told(Behind(), batch(2), log) is None
    # 1 never came.
    assert told(refused(batch(2)), batch(3), log) is None
    # 2 never came.
    assert told(refused(batch(1)), batch(3), log) is None
    assert told(refused(batch(1, epoch=1)), batch(2), log) is None


def test_z1_what_will_not_be_sent_again_keeps_nothing_back() -> None:
    for code in ErrorCode:
        if code not in AGAIN:
            assert told(refused(batch(1), code=code), batch(2), written(batch(0))) is None


def test_z1_partitions_and_producers_are_judged_by_their_own() -> None:
    behind, log = refused(batch(1)), written(batch(0))
    behind.check(ELSEWHERE, batch(2), log)
    behind.check(HERE, batch(2, producer=8), written(batch(0, producer=8)))
    assert told(behind, batch(2), log) is NOT_LEADER


def test_z2_a_batch_is_told_so_once() -> None:
    behind, log = refused(batch(1)), written(batch(0))
    assert told(behind, batch(2), log) is NOT_LEADER
    assert told(behind, batch(2), log) is None


def test_z2_when_the_first_one_is_refused_again_so_are_those_behind_it() -> None:
    behind, log = refused(batch(1)), written(batch(0))
    assert told(behind, batch(2), log) is NOT_LEADER
    behind.refused(HERE, batch(1), TOO_FEW)
    assert told(behind, batch(2), log) is TOO_FEW


def test_z3_five_are_on_their_way_at_once_and_no_more() -> None:
    behind, log = refused(batch(1)), written(batch(0))
    answers = [told(behind, batch(1 + n), log) for n in range(1, BATCHES_MAX + 1)]
    assert answers == [NOT_LEADER] * (BATCHES_MAX - 1) + [None]


def test_what_is_in_the_log_is_behind_nothing_and_the_rest_still_is() -> None:
    behind, log = refused(batch(1), batch(2)), written(batch(0), batch(1))
    behind.taken(HERE, batch(1))
    # It was sent before anybody could know that 2 was refused.
    assert told(behind, batch(3), log) is NOT_LEADER
    behind.taken(HERE, batch(2))
    behind.taken(HERE, batch(3))
    assert len(behind) == 0


@pytest.mark.parametrize(
    ("one", "left"),
    [
        pytest.param(batch(0), 1, id="a-repeat-of-what-was-before-it"),
        pytest.param(batch(1, count=2), 0, id="all-of-it-in-another-shape"),
        pytest.param(batch(1, count=3), 0, id="more-than-all-of-it"),
        pytest.param(batch(2), 0, id="its-second-alone"),
        pytest.param(batch(0, epoch=1), 0, id="another-epoch"),
        pytest.param(batch(1, producer=8), 1, id="another-producer"),
    ],
)
def test_a_queue_is_forgotten_when_its_producer_goes_on_without_it(
    one: memoryview, left: int
) -> None:
    behind = refused(batch(1), batch(2))
    behind.taken(HERE, one)
    assert len(behind) == left


def test_sequences_wrap_to_zero() -> None:
    log = written(batch(INT32_MAX - 1))
    behind = refused(batch(INT32_MAX, count=2))
    assert told(behind, batch(1), log) is NOT_LEADER
    assert told(behind, batch(2), log) is NOT_LEADER
    # A producer whose epoch is over has no next sequence, not even at the end of all.
    over = written(batch(0, epoch=1))
    assert told(refused(batch(INT32_MAX)), batch(0), over) is None


def test_z4_of_too_many_the_one_that_grew_longest_ago_is_forgotten() -> None:
    behind = Behind()
    for producer in range(QUEUES_MAX + 1):
        behind.refused(HERE, batch(1, producer=producer), NOT_LEADER)
        if producer == 1:
            behind.refused(HERE, batch(2, producer=0), NOT_LEADER)
    assert len(behind) == QUEUES_MAX
    assert told(behind, batch(3, producer=0), written()) is NOT_LEADER
    assert told(behind, batch(2, producer=1), written()) is None


def test_z4_who_asks_for_topics_that_nobody_knows_displaces_nobody_else() -> None:
    behind, log = refused(batch(1)), written(batch(0))
    for partition in range(UNKNOWN_MAX + 1):
        place = ("nowhere", partition)
        behind.refused(place, batch(0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert len(behind) == UNKNOWN_MAX + 1
    assert told(behind, batch(2), log) is NOT_LEADER


def test_z5_a_late_batch_of_an_older_epoch_leaves_a_queue_alone() -> None:
    log = written(batch(0))
    for happens in ("taken", "refused"):
        behind = refused(batch(0, epoch=1))
        if happens == "taken":
            behind.taken(HERE, batch(1))
        else:
            behind.refused(HERE, batch(1), TOO_FEW)
        assert told(behind, batch(1, epoch=1), log) is NOT_LEADER, happens


def test_z5_a_queue_ends_when_the_log_is_past_it() -> None:
    behind = refused(batch(1), batch(2))
    # Another leader has taken them, and this one leads again.
    assert told(behind, batch(3), written(batch(0, count=3))) is None
    assert len(behind) == 0


def test_z3_also_if_a_refused_batch_comes_again_in_pieces() -> None:
    behind = refused(batch(1, count=20))
    for sequence in range(1, 15):
        behind.taken(HERE, batch(sequence))
    log = written(batch(0, count=15))
    answers = [told(behind, batch(n), log) for n in range(21, 30)]
    assert answers.count(NOT_LEADER) == BATCHES_MAX - 1


def test_who_has_no_producer_id_and_what_is_no_batch_is_not_remembered() -> None:
    behind = refused(memoryview(produced(b"x")), memoryview(b"short"))
    behind.refused(HERE, None, NOT_LEADER)
    assert len(behind) == 0
    behind = refused(batch(0))
    behind.check(HERE, memoryview(b"short"), written())
    behind.taken(HERE, memoryview(b"short"))
    assert len(behind) == 1
