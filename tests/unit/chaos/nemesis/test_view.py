"""What several nodes tell of a partition, put together: the newest epoch, who names its leader."""

from __future__ import annotations

import pytest

from ottla.chaos.history import Place
from ottla.chaos.nemesis.view import Seen, newest

HERE = Place("orders", 0)


def seen(leader: int, epoch: int, *isr: int) -> Seen:
    return Seen(leader, epoch, (1, 2, 3), isr or (1, 2, 3))


@pytest.mark.parametrize(
    ("told", "best"),
    [
        ({1: seen(1, 4), 3: seen(2, 5)}, seen(2, 5)),
        ({3: seen(2, 5), 1: seen(1, 4)}, seen(2, 5)),
        ({3: seen(2, 5), 1: seen(-1, 6)}, seen(-1, 6)),
        # A node that has just lost the leader of an epoch names nobody.
        ({1: seen(-1, 5), 3: seen(2, 5)}, seen(2, 5)),
        ({3: seen(2, 5), 1: seen(-1, 5)}, seen(2, 5)),
        # The leader itself knows best who is in sync.
        ({3: seen(2, 5), 2: seen(2, 5, 2)}, seen(2, 5, 2)),
    ],
)
def test_the_newest_epoch_counts_and_whoever_names_its_leader(
    told: dict[int, Seen], best: Seen
) -> None:
    assert newest({node: {HERE: one} for node, one in told.items()}) == {HERE: best}
