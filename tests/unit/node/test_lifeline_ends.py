from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from ottla.controller.broker_life import State
from ottla.controller.commands import ForgetBroker
from ottla.controller.delta import encode_delta
from ottla.controller.door import BeatAnswer, News, OtherClusterError, Registration
from ottla.controller.image import FEATURE_LEVEL, MetadataImage
from ottla.controller.sightings import Verdict
from ottla.proto.errors import ConfigError, ErrorCode, InvariantError, StorageError
from tests.unit.node.doors import (
    Controllers,
    FakeDoor,
    registration,
    until,
)
from tests.unit.node.lifelines import US, broker


def test_a_new_process_waits_until_the_old_one_is_gone() -> None:
    async def story() -> None:
        controllers = Controllers(1)
        async with broker(controllers) as old:
            epoch = await old.up()
        controllers.verdict = Verdict.SILENCE
        async with broker(controllers, registration(incarnation=2)) as new:
            assert await new.up() > epoch
            assert controllers.doors[1].registrations > 2

    asyncio.run(story())


def test_a_second_process_with_the_same_id_ends_with_a_sentence_that_says_what_to_do() -> None:
    async def story() -> None:
        controllers = Controllers(1)
        async with broker(controllers) as first:
            await first.up()
            async with broker(controllers, registration(incarnation=2)) as second:
                with pytest.raises(ConfigError, match=r"another node\.id"):
                    await second.line.register()
                assert second.state() is State.DEAD
                assert len(second.deaths) == 1
            assert first.state() is State.UNFENCED

    asyncio.run(story())


def test_a_broker_of_another_cluster_is_told_so_at_once() -> None:
    async def story() -> None:
        controllers = Controllers(1)
        wanted = replace(registration(), cluster_id="other")
        async with broker(controllers, wanted) as one:
            with pytest.raises(ConfigError, match="another cluster"):
                await one.line.register()
            assert not await one.line.shut_down(1_000)

    asyncio.run(story())


def test_a_broker_whose_id_was_taken_ends() -> None:
    async def story() -> None:
        controllers = Controllers(1)
        async with broker(controllers) as one:
            await one.up()
            controllers.usurp(registration(incarnation=2))
            await until(lambda: one.state() is State.DEAD)
            assert len(one.deaths) == 1
            assert "Another process has registered as broker 7" in one.deaths[0]
            with pytest.raises(ConfigError):
                await one.line.unfenced()

    asyncio.run(story())


def test_a_stale_epoch_from_a_controller_that_is_wrong_costs_nothing_but_a_question() -> None:
    async def story() -> None:
        controllers = Controllers(1)
        async with broker(controllers) as one:
            epoch = await one.up()
            controllers.doors[1].beat_answers = [BeatAnswer(ErrorCode.STALE_BROKER_EPOCH)]
            await until(lambda: controllers.doors[1].registrations == 2)
            await one.line.unfenced()
            assert one.line.broker_epoch == epoch

    asyncio.run(story())


def test_a_broker_that_was_forgotten_is_a_new_one() -> None:
    async def story() -> None:
        controllers = Controllers(1)
        async with broker(controllers) as one:
            epoch = await one.line.register()
            await until(lambda: bool(controllers.doors[1].lines))
            outcome = controllers.do(ForgetBroker(US, epoch))
            assert outcome.refusal is None
            await until(lambda: one.line.broker_epoch not in (None, epoch))
            assert one.deaths == []

    asyncio.run(story())


def test_two_truths_are_a_bug_that_the_process_hears_of() -> None:
    async def story() -> None:
        controllers = Controllers(1)
        bugs: list[object] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: bugs.append(context.get("exception")))
        async with broker(controllers) as one:
            await one.up()
            await until(lambda: one.metadata.applied_version == controllers.image.version)
            controllers.elect(1)
            controllers.deltas[-1] = replace(controllers.deltas[-1], from_digest=b"other")
            await until(lambda: bool(bugs))
            assert isinstance(bugs[0], InvariantError)

    asyncio.run(story())


def test_the_metadata_of_a_newer_program_ends_the_broker_with_a_reason() -> None:
    async def story() -> None:
        controllers = Controllers(1)
        async with broker(controllers) as one:
            await one.up()
            await until(lambda: one.metadata.applied_version == controllers.image.version)
            controllers.elect(1)
            newer = replace(controllers.deltas[-1], feature_level=FEATURE_LEVEL + 1)
            assert encode_delta(newer)
            controllers.deltas[-1] = newer
            await until(lambda: bool(one.deaths))
            assert "Start a newer version" in one.deaths[0]

    asyncio.run(story())


class StrangeDoor(FakeDoor):
    """The door of a controller of another cluster."""

    async def follow(self, version: int, digest: bytes) -> AsyncIterator[News]:
        if version >= 0:
            yield self._whole()
        raise OtherClusterError("This is the cluster 'other', and 'test' was meant.")


def test_a_broker_whose_controllers_are_of_another_cluster_ends() -> None:
    async def story() -> None:
        controllers = Controllers(1, 2, 3)
        for node_id in (1, 2):
            controllers.doors[node_id] = StrangeDoor(controllers, node_id)
        async with broker(controllers) as one:
            with pytest.raises(ConfigError, match=r"Correct controller\.quorum\.voters"):
                await one.line.first_image()
            assert "'other'" in one.deaths[0]

    asyncio.run(story())


def test_one_controller_of_another_cluster_is_passed_over() -> None:
    async def story() -> None:
        controllers = Controllers(3, 1, 2)
        controllers.doors[1] = StrangeDoor(controllers, 1)
        async with broker(controllers) as one:
            await one.up()
            assert one.deaths == []

    asyncio.run(story())


class ClumsyDoor(FakeDoor):
    """A door with mistakes in it."""

    async def register(self, wanted: Registration) -> object:  # type: ignore[override]
        if self.registrations < 2:
            self.registrations += 1
            raise KeyError("a mistake")
        return await super().register(wanted)

    async def follow(self, version: int, digest: bytes) -> AsyncIterator[News]:
        if len(self.follows) < 2:
            self.follows.append(version)
            raise ValueError("another")
        async for news in super().follow(version, digest):
            yield news


def test_a_mistake_behind_a_door_is_told_of_and_taken_for_silence() -> None:
    async def story() -> None:
        controllers = Controllers(1)
        controllers.doors[1] = ClumsyDoor(controllers, 1)
        bugs: list[object] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: bugs.append(context.get("exception")))
        async with broker(controllers) as one:
            await one.up()
            kinds = sorted(type(bug).__name__ for bug in bugs)
            assert kinds == ["KeyError", "KeyError", "ValueError", "ValueError"]

    asyncio.run(story())


def test_a_stop_lets_the_node_finish_what_it_obeys() -> None:
    async def story() -> None:
        controllers = Controllers(1)
        go, done = asyncio.Event(), list[int]()
        async with broker(controllers) as one:
            await one.line.first_image()

            async def listen(image: MetadataImage) -> None:
                await go.wait()
                done.append(image.version)
                raise StorageError("no room")

            one.metadata.watch(listen)
            controllers.elect(1)
            await until(lambda: one.metadata.following.is_busy)
            stopping = asyncio.create_task(one.line.stop())
            await asyncio.sleep(0.01)
            assert not stopping.done()
            go.set()
            await stopping
        assert done == [controllers.image.version]

    asyncio.run(story())
