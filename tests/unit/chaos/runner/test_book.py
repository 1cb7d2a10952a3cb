"""What clients of chaos know of leaders: the newest epoch counts; of one epoch, who names one."""

from __future__ import annotations

import asyncio
import io

import pytest

from ottla.chaos.history import Place
from ottla.chaos.runner.book import LeaderBook
from ottla.chaos.runner.recorder import Recorder
from ottla.chaos.runner.requests import Seen

HERE = Place("orders", 0)


@pytest.mark.parametrize(
    ("heard", "leader"),
    [
        ([Seen(1, 4), Seen(2, 5)], 2),
        ([Seen(2, 5), Seen(1, 4)], 2),
        ([Seen(2, 5), Seen(-1, 6)], None),
        # A broker that has just lost the leader of an epoch names nobody.
        ([Seen(-1, 5), Seen(2, 5)], 2),
        ([Seen(2, 5), Seen(-1, 5)], 2),
    ],
)
def test_who_leads_is_what_the_newest_epoch_names(heard: list[Seen], leader: int | None) -> None:
    async def story() -> Seen | None:
        book = LeaderBook({1: "127.0.0.1:1"}, ["orders"], Recorder(io.StringIO()))
        for seen in heard:
            book.learn(HERE, seen)
        return book.leader(HERE)

    known = asyncio.run(story())
    assert (None if known is None else known.leader) == leader
