from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.controller.delta import encode_delta
from ottla.controller.door import News
from ottla.controller.image import FEATURE_LEVEL, MetadataImage
from ottla.controller.replay import first_state
from ottla.controller.snapshot import encode_image
from ottla.node.following import NOTHING, Following
from ottla.proto.errors import InvariantError, StorageError
from tests.unit.node.doors import CLUSTER, Controllers

HISTORY = 8


def _controllers(offices: int = HISTORY) -> Controllers:
    controllers = Controllers(1)
    while controllers.image.version < offices:
        controllers.elect(1 + controllers.image.version % 3)
    return controllers


def _whole(controllers: Controllers, version: int) -> News:
    return News(encode_image(controllers.images[version]), True, version)


def _delta(controllers: Controllers, version: int) -> News:
    return News(encode_delta(controllers.deltas[version - 1]), False, version)


def _following() -> Following:
    return Following(first_state(CLUSTER).image)


def test_an_image_and_the_deltas_after_it_lead_to_the_newest() -> None:
    async def story() -> None:
        controllers, following = _controllers(), _following()
        seen: list[int] = []

        async def listen(image: MetadataImage) -> None:
            assert following.image is image
            assert following.applied_version < image.version
            seen.append(image.version)

        following.watch(listen)
        assert following.position == NOTHING
        assert not following.has_image
        assert await following.take(_whole(controllers, 3))
        assert following.position == (3, controllers.images[3].digest)
        for version in (4, 5, 6):
            assert await following.take(_delta(controllers, version))
        assert seen == [3, 4, 5, 6]
        assert following.applied_version == 6
        assert following.image == controllers.images[6]

    asyncio.run(story())


def test_the_very_first_image_may_be_of_the_version_one_began_with() -> None:
    async def story() -> None:
        controllers, following = _controllers(), _following()
        await following.take(_whole(controllers, 0))
        assert following.has_image
        assert following.applied_version == 0

    asyncio.run(story())


def test_what_is_older_is_passed_over() -> None:
    async def story() -> None:
        controllers, following = _controllers(), _following()
        await following.take(_whole(controllers, 5))
        for news in (_whole(controllers, 2), _delta(controllers, 3), _delta(controllers, 5)):
            assert await following.take(news)
            assert following.image.version == 5

    asyncio.run(story())


def test_after_a_gap_a_whole_image_is_needed() -> None:
    async def story() -> None:
        controllers, following = _controllers(), _following()
        await following.take(_whole(controllers, 2))
        assert not await following.take(_delta(controllers, 4))
        assert following.position == NOTHING
        assert following.image.version == 2
        await following.take(_whole(controllers, 4))
        assert following.position == (4, controllers.images[4].digest)

    asyncio.run(story())


def test_two_truths_about_one_version_end_it() -> None:
    async def story() -> None:
        controllers, following = _controllers(), _following()
        await following.take(_whole(controllers, 4))
        other = replace(controllers.deltas[4], from_digest=b"other")
        with pytest.raises(InvariantError):
            await following.take(News(encode_delta(other), False, 5))
        forged = replace(controllers.images[4], digest=b"other")
        with pytest.raises(InvariantError):
            await following.take(News(encode_image(forged), True, 4))
        assert following.image == controllers.images[4]

    asyncio.run(story())


def test_the_metadata_of_a_newer_program_is_not_guessed_at() -> None:
    async def story() -> None:
        controllers, following = _controllers(), _following()
        await following.take(_whole(controllers, 4))
        newer = replace(controllers.deltas[4], feature_level=FEATURE_LEVEL + 1)
        with pytest.raises(StorageError, match="Start a newer version"):
            await following.take(News(encode_delta(newer), False, 5))
        assert following.image.version == 4

    asyncio.run(story())


def test_a_new_node_learns_its_cluster_and_then_follows_no_other() -> None:
    async def story() -> None:
        controllers = _controllers()
        following = Following(first_state("").image)
        await following.take(_whole(controllers, 4))
        assert following.image == controllers.images[4]
        other = replace(controllers.images[6], cluster_id="other")
        with pytest.raises(StorageError, match=r"belongs to the cluster test.*cluster other"):
            await following.take(News(encode_image(other), True, 6))
        assert following.image == controllers.images[4]

    asyncio.run(story())


def test_a_listener_that_fails_does_not_stop_the_others_or_the_next_image() -> None:
    async def story() -> None:
        controllers, following = _controllers(), _following()
        seen: list[int] = []
        bugs: list[dict[str, object]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: bugs.append(context))

        async def fail(image: MetadataImage) -> None:
            if image.version == 3:
                raise StorageError("no room")
            if image.version == 4:
                raise KeyError("a mistake")

        async def listen(image: MetadataImage) -> None:
            seen.append(image.version)

        following.watch(fail)
        following.watch(listen)
        troubles: list[str | None] = []
        for news in (_whole(controllers, 3), _delta(controllers, 4), _delta(controllers, 5)):
            await following.take(news)
            troubles.append(following.trouble)
        assert troubles == ["no room", "KeyError('a mistake')", None]
        assert len(bugs) == 1
        assert seen == [3, 4, 5]
        assert following.applied_version == 5

    asyncio.run(story())


def test_who_joins_misses_no_image() -> None:
    async def story() -> None:
        controllers, following = _controllers(), _following()
        await following.take(_whole(controllers, 3))
        begun, seen = asyncio.Event(), list[int]()
        go = asyncio.Event()

        async def begin(image: MetadataImage) -> None:
            begun.set()
            await go.wait()
            seen.append(image.version)

        async def then(image: MetadataImage) -> None:
            seen.append(image.version)

        joining = asyncio.create_task(following.join(begin, then))
        await begun.wait()
        taking = asyncio.create_task(following.take(_delta(controllers, 4)))
        await asyncio.sleep(0)
        assert following.image.version == 3
        go.set()
        await joining
        await taking
        assert seen == [3, 4]

    asyncio.run(story())


def test_who_waits_for_a_version_waits_until_every_listener_has_seen_it() -> None:
    async def story() -> None:
        controllers, following = _controllers(), _following()
        go, told = asyncio.Event(), asyncio.Event()

        async def listen(image: MetadataImage) -> None:
            told.set()
            await go.wait()

        following.watch(listen)
        waiting = asyncio.create_task(following.reached(2))
        taking = asyncio.create_task(following.take(_whole(controllers, 3)))
        await told.wait()
        assert following.is_busy
        assert not waiting.done()
        go.set()
        assert (await waiting).version == 3
        await taking
        await following.idle()
        assert not following.is_busy

    asyncio.run(story())


@given(
    st.lists(
        st.tuples(st.integers(0, HISTORY), st.integers(0, HISTORY), st.booleans()), max_size=12
    )
)
def test_whoever_is_followed_and_however_far_they_are_nothing_goes_back(
    streams: list[tuple[int, int, bool]],
) -> None:
    """Each stream is a controller that is at some version, and gives some news after it."""

    async def story() -> None:
        controllers, following = _controllers(), _following()
        seen: list[int] = []

        async def listen(image: MetadataImage) -> None:
            assert image == controllers.images[image.version]
            seen.append(image.version)

        following.watch(listen)
        for begin, end, knows_us in streams:
            version, _ = following.position
            if version < 0 or version > begin or not knows_us:
                await following.take(_whole(controllers, begin))
                version = begin
            for following_version in range(version + 1, end + 1):
                if not await following.take(_delta(controllers, following_version)):
                    break
        await following.take(_whole(controllers, HISTORY))
        assert seen == sorted(set(seen))
        assert following.applied_version == HISTORY

    asyncio.run(story())


def test_z3_what_could_not_be_obeyed_is_tried_again_and_news_meanwhile_are_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ottla.node.following.AGAIN_S", 0.01)

    async def story() -> None:
        controllers, following = _controllers(), _following()
        calls = list[int]()
        is_trying_again, may_end = asyncio.Event(), asyncio.Event()

        async def listen(image: MetadataImage) -> None:
            calls.append(image.version)
            if len(calls) == 1:
                raise StorageError("no descriptor")
            if len(calls) == 2:
                is_trying_again.set()
                await may_end.wait()

        following.watch(listen)
        await following.take(_whole(controllers, 3))
        assert following.trouble is not None
        async with asyncio.timeout(10):
            await is_trying_again.wait()
            assert following.learn(_delta(controllers, 4))
            may_end.set()
            await following.reached(4)
        assert calls == [3, 3, 4]
        assert following.trouble is None

    asyncio.run(story())


def test_a_delta_that_comes_with_its_bytes_is_not_read_again() -> None:
    async def story() -> None:
        controllers, following = _controllers(), _following()
        await following.take(_whole(controllers, 3))
        news = News(b"nobody reads this", False, 4, controllers.deltas[3])
        assert await following.take(news)
        assert following.image == controllers.images[4]

    asyncio.run(story())
