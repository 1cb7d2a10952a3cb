"""What the next call of a consumer has to raise."""

from __future__ import annotations

import pytest

from ottla.clients.consumer.errors import NoOffsetError
from ottla.clients.consumer.positions import Bookmarks
from ottla.clients.consumer.troubles import Troubles
from ottla.proto.errors import OttlaError
from ottla.proto.ids import TopicPartition

HERE, THERE = TopicPartition("t", 0), TopicPartition("t", 1)


def test_each_is_raised_once_in_order() -> None:
    troubles = Troubles(Bookmarks(check_crcs=True))
    troubles.append(OttlaError("one"))
    troubles.append(OttlaError("two"))
    for told in ("one", "two"):
        assert troubles.waiting
        with pytest.raises(OttlaError, match=told):
            troubles.raise_next()
    assert not troubles.waiting
    troubles.raise_next()


def test_a_partition_that_has_a_position_by_now_is_no_trouble() -> None:
    bookmarks = Bookmarks(check_crcs=True)
    sought, lost = bookmarks.add([HERE, THERE])
    troubles = Troubles(bookmarks)
    for one in (sought, lost):
        troubles.append(NoOffsetError(one.partition, "nothing is committed"))
    sought.move(7)
    with pytest.raises(NoOffsetError) as raised:
        troubles.raise_next()
    assert raised.value.partition == THERE
    troubles.append(NoOffsetError(THERE, "nothing is committed"))
    bookmarks.remove([THERE])
    troubles.raise_next()
