"""How much is asked for, and how much of an answer is kept."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.clients.cluster import ClusterClient
from ottla.clients.consumer.fetching import Fetcher, kept
from ottla.clients.consumer.positions import PORTION, Bookmarks, Chunk
from ottla.clients.options import Role, read_options
from ottla.proto.ids import TopicPartition
from ottla.proto.records.build import build_batch
from ottla.proto.records.record import Record

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


class Asking(Fetcher):
    """Says what it would ask for, and asks nobody."""

    def __init__(self, bookmarks: Bookmarks, max_bytes: int) -> None:
        options = read_options(
            Role.CONSUMER, {"bootstrap.servers": "localhost:1", "fetch.max.bytes": max_bytes}
        )
        # Node 7 leads everything.
        metadata = SimpleNamespace(leader_of=lambda *_: SimpleNamespace(leader=7))
        cluster = SimpleNamespace(options=options, metadata=metadata)
        super().__init__(
            cast("ClusterClient", cluster),
            bookmarks,
            arrived=lambda: None,
            lost=lambda *_: None,
            failed=lambda _: None,
        )
        self.budgets: list[int] = []

    def _begin(self, node_id: int, found: Any, wait_ms: int, budget: int) -> None:
        self.budgets.append(budget)


def _opened() -> tuple[Bookmarks, int]:
    """Return bookmarks with a chunk of A0 half given out, and how many bytes that has."""
    bookmarks = Bookmarks(check_crcs=True)
    for one in bookmarks.add([A0, A1]):
        one.move(0)
    data = b"".join(
        build_batch(
            [Record(offset, 1, None, b"v") for offset in range(first, first + PORTION)],
            base_offset=first,
        )
        for first in (0, PORTION)
    )
    bookmark = bookmarks.of(A0)
    bookmark.fetched(Chunk(memoryview(data)), bookmark.turn)
    assert len(bookmarks.take(1)) == 1
    return bookmarks, len(data)


def test_what_is_opened_leaves_less_room_to_ask_for() -> None:
    bookmarks, size = _opened()
    fetcher = Asking(bookmarks, size + 100)
    fetcher.pump()
    assert fetcher.budgets == [100]


@pytest.mark.parametrize("is_paused", [False, True])
def test_a_paused_partition_that_fills_the_room_does_not_stop_the_others(is_paused: bool) -> None:
    bookmarks, size = _opened()
    bookmarks.of(A0).paused = is_paused
    fetcher = Asking(bookmarks, size)
    fetcher.pump()
    assert fetcher.budgets == ([1] if is_paused else []), "what is there is given out first"


def test_a_small_piece_of_an_answer_does_not_keep_the_answer() -> None:
    answer = bytes(range(256)) * 4
    piece = kept(memoryview(answer)[100:200])
    assert piece == answer[100:200]
    assert piece.obj is not answer
    most = memoryview(answer)[100:]
    assert kept(most) is most
