"""The queue between the quorum's thread and the loop."""

from __future__ import annotations

from ottla.node.internal.outgoing import Outgoing


def test_frames_come_out_once_and_in_order() -> None:
    queue = Outgoing()
    queue.open("s")
    assert all(queue.put("s", b"%d" % n) for n in range(3))
    assert [queue.take("s") for _ in range(4)] == [b"0", b"1", b"2", None]


def test_nothing_is_taken_for_a_stream_that_is_not_open() -> None:
    queue = Outgoing()
    assert not queue.put("s", b"x")
    queue.open("s")
    assert not queue.put("t", b"x")
    queue.close()
    assert not queue.put("s", b"x")


def test_what_waited_when_a_stream_broke_is_never_handed_out() -> None:
    queue = Outgoing()
    queue.open("s")
    assert queue.put("s", b"old")
    queue.close()
    queue.open("t")
    assert queue.take("t") is None
    assert queue.put("t", b"new")
    assert queue.take("s") is None
    assert queue.take("t") == b"new"


def test_a_full_queue_takes_nothing_until_something_left() -> None:
    queue = Outgoing(frames_max=2, bytes_max=10)
    queue.open("s")
    assert queue.put("s", b"12345")
    assert not queue.put("s", b"123456")
    assert queue.put("s", b"12345")
    assert not queue.put("s", b"")
    assert queue.take("s") == b"12345"
    assert queue.put("s", b"")
    assert not queue.put("s", b"")
