"""The metadata for everybody who follows it: deltas while they are kept, else a whole image."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from ottla.controller.commands import TakeProducerIds
from ottla.controller.delta import NotFollowed, decode_delta, follow, follow_whole
from ottla.controller.door import DoorClosedError, News
from ottla.controller.feed import MetadataFeed
from ottla.controller.image import MetadataImage
from ottla.controller.replay import first_state
from ottla.controller.snapshot import decode_image
from ottla.proto.errors import InvariantError
from tests.unit.controller.cluster import CLUSTER_ID, Cluster
from tests.unit.controller.virtual import play


class Stage:
    """A member whose every command reaches a feed."""

    def __init__(self, size: int = 0, *, deltas_max: int = 100, bytes_max: int = 1 << 20) -> None:
        self.told: list[str] = []
        self.feed = MetadataFeed(
            first_state(CLUSTER_ID).image,
            tell=lambda event, _: self.told.append(event),
            deltas_max=deltas_max,
            bytes_max=bytes_max,
        )
        self.cluster = Cluster(size)
        self.feed.publish(self.cluster.image, None)

    def change(self, times: int = 1) -> None:
        for _ in range(times):
            self.cluster.ok(TakeProducerIds(1))
            self.feed.publish(self.cluster.image, self.cluster.machine.last_delta)

    def follow(self, image: MetadataImage | None = None) -> Follower:
        return Follower(self.feed, image)


class Follower:
    """A broker that follows, as `delta.py` says."""

    def __init__(self, feed: MetadataFeed, image: MetadataImage | None) -> None:
        self.image = image
        version, digest = (-1, b"") if image is None else (image.version, image.digest)
        self.stream: AsyncIterator[News] = feed.follow(version, digest)
        self.images = 0

    async def next(self) -> None:
        async with asyncio.timeout(1):
            news = await anext(self.stream)
        if news.is_image:
            self.images += 1
            whole = decode_image(news.data)
            found = whole if self.image is None else follow_whole(self.image, whole)
        else:
            assert self.image is not None
            found = follow(self.image, decode_delta(news.data))
        assert not isinstance(found, NotFollowed), found
        assert found.version == news.version
        self.image = found

    async def has_nothing(self) -> bool:
        waiting = asyncio.ensure_future(anext(self.stream))
        await asyncio.sleep(1)
        is_waiting = not waiting.done()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        return is_waiting


def test_whoever_has_nothing_is_given_an_image_and_then_deltas() -> None:
    async def story() -> None:
        stage = Stage(3)
        follower = stage.follow()
        await follower.next()
        stage.change(3)
        for _ in range(3):
            await follower.next()
        assert follower.image == stage.feed.image
        assert follower.images == 1
        assert await follower.has_nothing()

    play(story)


def test_whoever_comes_back_is_given_the_deltas_that_it_lacks() -> None:
    async def story() -> None:
        stage = Stage(3)
        before = stage.feed.image
        stage.change(5)
        follower = stage.follow(before)
        for _ in range(5):
            await follower.next()
        assert follower.image == stage.feed.image
        assert follower.images == 0

    play(story)


@pytest.mark.parametrize(("deltas_max", "bytes_max"), [(4, 1 << 20), (100, 400)])
def test_a_follower_that_lags_too_far_is_given_an_image_anew(
    deltas_max: int, bytes_max: int
) -> None:
    async def story() -> None:
        stage = Stage(3, deltas_max=deltas_max, bytes_max=bytes_max)
        follower = stage.follow()
        await follower.next()
        stage.change(50)
        await follower.next()
        assert follower.image == stage.feed.image
        assert follower.images == 2
        stage.change()
        await follower.next()
        assert (follower.image, follower.images) == (stage.feed.image, 2)

    play(story)


def test_a_hundred_followers_share_the_bytes() -> None:
    async def story() -> None:
        stage = Stage(3)
        streams = [stage.feed.follow(-1, b"") for _ in range(100)]
        first = [await anext(stream) for stream in streams]
        assert all(news.data is first[0].data for news in first)
        stage.change()
        second = [await anext(stream) for stream in streams]
        assert all(news.data is second[0].data for news in second)

    play(story)


def test_after_a_snapshot_everybody_is_given_an_image() -> None:
    async def story() -> None:
        stage = Stage()
        follower = stage.follow()
        await follower.next()
        stage.cluster.ok(TakeProducerIds(1))
        stage.cluster.ok(TakeProducerIds(1))
        stage.feed.publish(stage.cluster.image, None)
        await follower.next()
        assert follower.image == stage.feed.image
        assert follower.images == 2

    play(story)


def test_whoever_is_ahead_waits_until_this_controller_has_come_as_far() -> None:
    async def story() -> None:
        ahead = Stage(3)
        stage = Stage(3)
        ahead.change(2)
        follower = stage.follow(ahead.feed.image)
        assert await follower.has_nothing()
        follower = stage.follow(ahead.feed.image)
        stage.change(3)
        await follower.next()
        assert follower.image == stage.feed.image
        assert (follower.images, stage.told) == (0, [])

    play(story)


@pytest.mark.parametrize("behind", [0, 1, 7])
def test_rule_68_whoever_knows_another_truth_about_a_version_finds_out(behind: int) -> None:
    async def story() -> None:
        stage = Stage(3)
        other = replace(stage.feed.image, digest=b"\1" * 16)
        stage.change(behind)
        follower = stage.follow(other)
        with pytest.raises(InvariantError, match="the same wherever it comes from"):
            await follower.next()
        assert stage.told == ["metadata_contradicted"]

    play(story)


def test_rule_68_whoever_is_ahead_with_another_truth_finds_out_later() -> None:
    async def story() -> None:
        stage = Stage(3)
        image = stage.feed.image
        follower = stage.follow(replace(image, version=image.version + 2, digest=b"\1" * 16))
        stage.change(2)
        with pytest.raises(InvariantError, match="the same wherever it comes from"):
            await follower.next()

    play(story)


def test_a_version_can_be_waited_for() -> None:
    async def story() -> None:
        stage = Stage()
        version = stage.feed.image.version
        assert (await stage.feed.reached(version)).version == version
        waiting = asyncio.ensure_future(stage.feed.reached(version + 2))
        await asyncio.sleep(1)
        stage.change()
        await asyncio.sleep(1)
        assert not waiting.done()
        stage.change()
        assert (await waiting).version == version + 2

    play(story)


def test_who_watches_is_told_before_who_follows() -> None:
    async def story() -> None:
        stage = Stage()
        seen: list[int] = []
        stage.feed.watch(lambda image: seen.append(image.version))
        stage.change(2)
        assert seen == [stage.feed.image.version - 1, stage.feed.image.version]

    play(story)


def test_when_it_is_closed_everybody_is_let_go() -> None:
    async def story() -> None:
        stage = Stage()
        following = asyncio.ensure_future(anext(stage.feed.follow(99, b"")))
        waiting = asyncio.ensure_future(stage.feed.reached(99))
        await asyncio.sleep(1)
        stage.feed.close()
        for task in (following, waiting):
            with pytest.raises(DoorClosedError, match="is stopping"):
                await task
        with pytest.raises(DoorClosedError):
            await anext(stage.feed.follow(-1, b""))

    play(story)


def test_the_metadata_neither_goes_back_nor_leaps() -> None:
    async def story() -> None:
        stage = Stage()
        before = stage.feed.image
        stage.change()
        with pytest.raises(InvariantError):
            stage.feed.publish(before, None)
        with pytest.raises(InvariantError):
            stage.feed.publish(stage.cluster.image, stage.cluster.machine.last_delta)

    play(story)


def test_only_the_newest_delta_is_handed_out_with_what_its_bytes_say() -> None:
    async def story() -> None:
        stage = Stage()
        version, digest = stage.cluster.image.version, stage.cluster.image.digest
        stage.change(2)
        stream = stage.feed.follow(version, digest)
        older, newest = await anext(stream), await anext(stream)
        assert older.delta is None
        assert newest.delta == decode_delta(newest.data)

    play(story)
