"""Markers on their way, while brokers die, lead and forget."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from io import StringIO

import pytest

from ottla.controller.image import MetadataImage, PartitionInfo, TopicInfo
from ottla.node import logs
from ottla.node.clock import Clock
from ottla.node.logs import Sink
from ottla.node.transactions.markers import _AT_ONCE, Duty, Markers
from ottla.node.transactions.peers import Outcomes, PeerAwayError, WantedMarker
from ottla.node.transactions.words import Place
from ottla.proto.errors import ErrorCode
from ottla.proto.ids import BrokerId, LeaderEpoch
from ottla.proto.kafka.uuids import UUID
from ottla.proto.records.control import EndMarker, Marker

DEADLINE_S = 20.0
END = EndMarker(7, 1, Marker(is_commit=True, coordinator_epoch=3))
PLACES: tuple[Place, ...] = (("t", 0), ("t", 1), ("t", 2))


class Brokers:
    """All brokers, and who leads what, as the test says."""

    def __init__(self) -> None:
        self.leaders: list[int | None] = [1, 2, 1]
        self.has_topic = True
        # What each broker answers: away, or a code for everything.
        self.answers: dict[int, ErrorCode | None] = {1: ErrorCode.NONE, 2: ErrorCode.NONE}
        self.calls: list[tuple[int, tuple[Place, ...]]] = []
        self.busy: dict[int, int] = {1: 0, 2: 0}
        self.at_once = 0

    def image(self) -> MetadataImage:
        partitions = tuple(
            PartitionInfo(
                replicas=(BrokerId(1), BrokerId(2)),
                isr=(BrokerId(1), BrokerId(2)),
                leader=None if one is None else BrokerId(one),
                leader_epoch=LeaderEpoch(1),
                partition_epoch=1,
            )
            for one in self.leaders
        )
        topics = {"t": TopicInfo("t", UUID(int=5), partitions, {})} if self.has_topic else {}
        return MetadataImage(1, "c", BrokerId(1), {}, topics)

    async def send(self, to: BrokerId, wanted: Sequence[WantedMarker]) -> list[Outcomes]:
        self.busy[to] += 1
        self.at_once = max(self.at_once, self.busy[to])
        await asyncio.sleep(0)
        self.busy[to] -= 1
        self.calls += [(to, one.places) for one in wanted]
        code = self.answers[to]
        if code is None:
            raise PeerAwayError("it is away")
        return [dict.fromkeys(one.places, code) for one in wanted]


class Post:
    """One postman, and what was delivered."""

    def __init__(self) -> None:
        self.brokers = Brokers()
        self.markers = Markers(self.brokers.image, self.brokers.send)
        self.done = 0
        self.is_wanted = True

    def add(self, places: Sequence[Place] = PLACES) -> None:
        self.markers.add(Duty(END, places, is_wanted=lambda: self.is_wanted, done=self._done))

    def _done(self) -> None:
        self.done += 1


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not holds():  # noqa: ASYNC110  # what changes is in other tasks
            await asyncio.sleep(0.001)


def run(story: Callable[[Post], Awaitable[None]]) -> Post:
    async def within() -> Post:
        post = Post()
        await story(post)
        await post.markers.stop()
        return post

    return asyncio.run(within())


def test_every_partition_gets_its_marker_and_that_is_told_once() -> None:
    async def story(post: Post) -> None:
        post.add()
        await until(lambda: post.done == 1)

    post = run(story)
    assert sorted(post.brokers.calls) == [(1, (("t", 0), ("t", 2))), (2, (("t", 1),))]
    assert (post.done, post.markers.waiting) == (1, 0)


def test_a_transaction_without_partitions_is_done_at_once() -> None:
    async def story(post: Post) -> None:
        post.add(())
        assert post.done == 1

    run(story)


def test_a_broker_that_is_away_is_tried_until_another_one_leads() -> None:
    async def story(post: Post) -> None:
        post.brokers.answers[2] = None
        post.add()
        await until(lambda: len([one for one in post.brokers.calls if one[0] == 2]) >= 3)
        assert (post.done, post.markers.waiting) == (0, 1)
        post.brokers.leaders[1] = 1
        await until(lambda: post.done == 1)

    run(story)


def test_nobody_waits_in_line_at_a_broker_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = StringIO()
    sink = Sink(lines, Clock(), "text", "info")
    monkeypatch.setattr(logs._current, "sink", sink)

    async def story(post: Post) -> None:
        brokers = post.brokers
        brokers.answers[1] = None
        for _ in range(_AT_ONCE + 1):
            post.add([PLACES[0]])
        await until(lambda: len(brokers.calls) == _AT_ONCE)
        brokers.leaders[0] = 2
        await until(lambda: post.done == _AT_ONCE + 1)
        # The last one was never sent there.
        assert sum(to == 1 for to, _ in brokers.calls) == _AT_ONCE
        brokers.leaders[0] = 1
        for _ in range(3):
            post.add([PLACES[0]])
        await until(lambda: len(brokers.calls) > 2 * _AT_ONCE + 1 + 6)
        brokers.answers[1] = ErrorCode.NONE
        await until(lambda: post.markers.waiting == 0)

    run(story)
    assert lines.getvalue().count("markers_not_sent") == 1


def test_a_refusal_is_tried_again_and_no_leader_is_waited_for() -> None:
    async def story(post: Post) -> None:
        post.brokers.answers[1] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        post.brokers.leaders[1] = None
        post.add()
        await until(lambda: len(post.brokers.calls) >= 3)
        assert post.done == 0
        post.brokers.answers[1] = ErrorCode.NONE
        post.brokers.leaders[1] = 2
        await until(lambda: post.done == 1)

    run(story)


def test_a_topic_that_is_gone_needs_no_marker() -> None:
    async def story(post: Post) -> None:
        post.brokers.answers[1] = post.brokers.answers[2] = None
        post.add()
        await until(lambda: len(post.brokers.calls) >= 2)
        post.brokers.has_topic = False
        await until(lambda: post.done == 1)

    run(story)


def test_what_takes_no_marker_needs_none() -> None:
    async def story(post: Post) -> None:
        post.brokers.answers[2] = ErrorCode.INVALID_TOPIC_EXCEPTION
        post.add()
        await until(lambda: post.done == 1)
        assert post.markers.waiting == 0

    run(story)


def test_who_coordinates_no_more_sends_nothing_and_completes_nothing() -> None:
    async def story(post: Post) -> None:
        post.brokers.answers[1] = post.brokers.answers[2] = None
        post.add()
        await until(lambda: len(post.brokers.calls) >= 2)
        post.is_wanted = False
        post.brokers.answers = {1: ErrorCode.NONE, 2: ErrorCode.NONE}
        await until(lambda: post.markers.waiting == 0)
        assert post.done == 0

    run(story)


def test_what_waits_in_line_is_not_sent_when_another_one_coordinates() -> None:
    async def story(post: Post) -> None:
        brokers = post.brokers
        for _ in range(_AT_ONCE):
            post.add([PLACES[0]])
        # Behind the first call.
        post.add([PLACES[2]])
        await asyncio.sleep(0)
        assert brokers.busy[1] == 1
        post.is_wanted = False
        await until(lambda: post.markers.waiting == 0)
        assert (1, (PLACES[2],)) not in brokers.calls
        assert post.done == 0

    run(story)


def test_many_go_to_one_broker_in_one_call_at_a_time() -> None:
    async def story(post: Post) -> None:
        for _ in range(1_200):
            post.add((("t", 0),))
        await until(lambda: post.done == 1_200)

    post = run(story)
    assert post.brokers.at_once == 1
