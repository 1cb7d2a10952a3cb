"""What a leader sent, held against the leader epoch in which it was fetched (rule 45)."""

from __future__ import annotations

import pytest

from ottla.proto.errors import CorruptionError
from ottla.proto.ids import NO_EPOCH, LeaderEpoch, Offset
from ottla.replication.log.incoming import checked_headers
from tests.builders import NOW_MS, OneLog, produced
from tests.sim.material import stamped


def sent(*epochs: int) -> memoryview:
    """Return batches of one record each, written in these epochs."""
    batches = [stamped(produced(b"x"), offset, epoch) for offset, epoch in enumerate(epochs)]
    return memoryview(b"".join(batches))


def count(batches: memoryview, leader_epoch: int | None) -> int:
    headers = checked_headers(
        batches,
        end_offset=Offset(0),
        epoch=NO_EPOCH,
        gaps_allowed=False,
        leader_epoch=None if leader_epoch is None else LeaderEpoch(leader_epoch),
    )
    return len(headers)


def test_o1_batches_up_to_the_leaders_epoch_are_taken() -> None:
    assert count(sent(1, 3, 5), 5) == 3


def test_o1_a_batch_of_a_later_epoch_than_the_leaders_is_damage() -> None:
    with pytest.raises(CorruptionError, match="from a leader of epoch 4"):
        count(sent(1, 3, 5), 4)


def test_without_a_leader_epoch_batches_may_be_of_any() -> None:
    assert count(sent(1, 3, 5), None) == 3


def test_o2_with_a_batch_of_a_later_epoch_nothing_is_appended() -> None:
    log = OneLog().create()
    with pytest.raises(CorruptionError):
        log.append_as_follower(sent(1, 2), now_ms=NOW_MS, leader_epoch=LeaderEpoch(1))
    assert (log.end_offset, log.offline) == (0, None)
    assert log.append_as_follower(sent(1, 1), now_ms=NOW_MS, leader_epoch=LeaderEpoch(1)) == 2
