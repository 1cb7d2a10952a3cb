"""Threads that wait for the disk: W1 and W2."""

from __future__ import annotations

from threading import Event, get_ident

import pytest

from ottla.proto.errors import InvariantError
from ottla.replication.log.sync_threads import SyncThreads


def test_w1_work_is_done_in_its_order_and_side_by_side() -> None:
    threads, done = SyncThreads(2), list[int]()
    first_may_end, second_is_done = Event(), Event()

    def first() -> None:
        assert first_may_end.wait(10)
        done.append(1)

    def second() -> None:
        done.append(2)
        second_is_done.set()

    threads.submit(first)
    threads.submit(second)
    assert second_is_done.wait(10)
    first_may_end.set()
    threads.shutdown()
    assert done == [2, 1]


def test_w2_all_that_was_handed_over_is_done_before_the_end() -> None:
    threads, done = SyncThreads(3), list[int]()
    idents = set[int]()

    def work(number: int) -> None:
        idents.add(get_ident())
        done.append(number)

    for number in range(100):
        threads.submit(lambda number=number: work(number))  # type: ignore[misc]
    threads.shutdown()
    assert sorted(done) == list(range(100))
    assert len(idents) <= 3
    with pytest.raises(InvariantError):
        threads.submit(lambda: None)
