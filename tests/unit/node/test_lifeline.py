from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from ottla.controller.broker_life import State
from ottla.controller.commands import FenceBroker
from ottla.controller.door import News
from tests.unit.node.doors import (
    Controllers,
    FakeDoor,
    registration,
    until,
)
from tests.unit.node.lifelines import CLOCK, OTHER, US, broker

# ── Coming and going ──────────────────────────────────────────────────────────────────────────


def test_a_broker_registers_recovers_and_is_unfenced() -> None:
    async def story() -> None:
        controllers = Controllers(1, 2, 3)
        async with broker(controllers) as one:
            image = await one.line.first_image()
            assert image.cluster_id == "test"
            epoch = await one.line.register()
            assert controllers.image.brokers[US].broker_epoch == epoch
            await until(lambda: len(controllers.doors[1].lines[0].beats) > 3)
            assert one.line.facts().is_fenced
            assert controllers.image.brokers[US].is_fenced
            one.line.recovered({})
            await one.line.unfenced()
            assert one.is_heard()
            assert not one.metadata.image.brokers[US].is_fenced
            assert one.line.broker_epoch == epoch

    asyncio.run(story())


def test_what_the_disk_lacks_is_told_with_the_recovery() -> None:
    async def story() -> None:
        controllers = Controllers(1)
        async with broker(controllers) as one:
            await one.line.register()
            topic = registration().directory_id
            one.line.recovered({topic: (0, 2)})
            await one.line.unfenced()
            beats = controllers.doors[1].lines[0].beats
            assert {topic: (0, 2)} in [beat.damaged for beat in beats if beat.is_recovered]

    asyncio.run(story())


def test_an_answer_to_a_registration_that_is_lost_is_asked_for_again() -> None:
    async def story() -> None:
        controllers = Controllers(1, 2)
        controllers.doors[1].losses = 2
        async with broker(controllers) as one:
            epoch = await one.up()
            assert controllers.doors[1].registrations == 3
            assert controllers.image.brokers[US].broker_epoch == epoch
            assert sum(1 for image in controllers.images if image.version == epoch) == 1

    asyncio.run(story())


def test_a_broker_waits_for_controllers_that_come_later() -> None:
    async def story() -> None:
        controllers = Controllers(1, 2, 3)
        controllers.elect(None)
        controllers.doors[1].is_closed = True
        async with broker(controllers) as one:
            registering = asyncio.create_task(one.line.register())
            await until(lambda: controllers.doors[3].registrations > 2)
            controllers.elect(3)
            await registering
            assert one.line.active_controller == 3

    asyncio.run(story())


def test_a_shutdown_waits_until_everybody_has_followed_it() -> None:
    async def story() -> None:
        controllers = Controllers(1)
        async with (
            broker(controllers) as one,
            broker(controllers, registration(OTHER)) as other,
        ):
            await one.up()
            await other.up()
            assert await one.line.shut_down(5_000)
            info = controllers.image.brokers[US]
            assert info.shutdown_version is not None
            assert other.metadata.applied_version >= info.shutdown_version
            assert one.state() is State.MAY_EXIT
        assert controllers.doors[1].lines[0].goodbye is True

    asyncio.run(story())


def test_a_shutdown_without_controllers_ends_with_its_time() -> None:
    async def story() -> None:
        controllers = Controllers(1)
        async with broker(controllers) as one:
            await one.up()
            controllers.elect(None)
            assert not await one.line.shut_down(100)

    asyncio.run(story())


def test_rule_48_a_broker_whose_disk_failed_is_fenced_and_stays_so() -> None:
    async def story() -> None:
        controllers = Controllers(1, 2)
        async with broker(controllers) as one:
            await one.up()
            one.line.want_fence("the disk is full")
            one.line.want_fence("and more")
            await until(
                lambda: controllers.image.brokers[US].is_fenced and one.line.facts().is_fenced
            )
            assert one.line.facts().fence_reason == "the disk is full"
            assert not one.is_heard()
            # Also for the next controller, and however long it beats.
            controllers.elect(2)
            await until(lambda: bool(controllers.doors[2].lines))
            await until(lambda: len(controllers.doors[2].lines[-1].beats) > 5)
            assert controllers.image.brokers[US].is_fenced
            assert one.state() is State.FENCED
            assert await one.line.shut_down(5_000)

    asyncio.run(story())


def test_rule_48_a_disk_that_fails_while_a_node_starts_keeps_it_fenced() -> None:
    async def story() -> None:
        controllers = Controllers(1)
        async with broker(controllers) as one:
            one.line.want_fence("the disk is full")
            await one.line.register()
            one.line.recovered({})
            unfenced = asyncio.ensure_future(one.line.unfenced())
            await until(lambda: len(controllers.doors[1].lines[0].beats) > 5)
            assert not unfenced.done()
            unfenced.cancel()

    asyncio.run(story())


def test_who_never_registered_shuts_down_at_once() -> None:
    async def story() -> None:
        controllers = Controllers(1)
        async with broker(controllers) as one:
            assert await one.line.shut_down(1_000)

    asyncio.run(story())


# ── Controllers come and go ───────────────────────────────────────────────────────────────────


def test_a_broker_turns_to_the_next_controller_when_the_active_one_dies() -> None:
    async def story() -> None:
        controllers = Controllers(1, 2, 3)
        async with broker(controllers) as one:
            epoch = await one.up()
            controllers.doors[1].close()
            controllers.elect(None)
            await until(lambda: one.line.source != 1)
            controllers.elect(3)
            await until(lambda: one.line.active_controller == 3 and one.is_heard())
            assert one.line.broker_epoch == epoch
            assert one.state() is State.UNFENCED
            assert not controllers.image.brokers[US].is_fenced

    asyncio.run(story())


def test_a_controller_that_hangs_is_left_within_the_session() -> None:
    async def story() -> None:
        controllers = Controllers(1, 2, 3)
        async with broker(controllers) as one:
            await one.up()
            controllers.doors[1].held_in = asyncio.Event()
            controllers.elect(2)
            await until(
                lambda: one.line.active_controller == 2 and bool(controllers.doors[2].lines)
            )
            await until(one.is_heard)

    asyncio.run(story())


def test_a_broker_that_no_controller_answers_is_not_heard_after_a_session() -> None:
    async def story() -> None:
        controllers = Controllers(1, 2)
        async with broker(controllers) as one:
            await one.up()
            assert one.is_heard()
            controllers.elect(None)
            began_ms = CLOCK.monotonic_ms()
            await until(lambda: not one.is_heard())
            assert CLOCK.monotonic_ms() - began_ms <= 2 * controllers.session_ms
            controllers.elect(2)
            await until(one.is_heard)

    asyncio.run(story())


def test_a_broker_that_was_fenced_by_mistake_is_unfenced_by_its_next_beat() -> None:
    async def story() -> None:
        controllers = Controllers(1)
        async with broker(controllers) as one:
            epoch = await one.up()
            controllers.do(FenceBroker(US, epoch))
            assert controllers.image.brokers[US].is_fenced
            await until(lambda: not controllers.image.brokers[US].is_fenced)
            await one.line.unfenced()
            assert one.line.broker_epoch == epoch
            assert one.deaths == []

    asyncio.run(story())


def test_metadata_never_go_back_when_controllers_of_different_progress_are_followed() -> None:
    async def story() -> None:
        controllers = Controllers(1, 2, 3)
        async with broker(controllers) as one:
            await one.up()
            for _ in range(5):
                controllers.elect(1)
            await until(lambda: one.metadata.applied_version == controllers.image.version)
            seen = one.metadata.applied_version
            controllers.doors[2].limit(3)
            controllers.doors[3].limit(seen - 1)
            controllers.doors[1].close()
            controllers.elect(2)
            await until(lambda: len(controllers.doors[2].follows) > 0)
            assert one.metadata.image.version == seen
            controllers.doors[2].limit(None)
            await until(lambda: one.metadata.applied_version == controllers.image.version)
            assert one.versions == sorted(set(one.versions))

    asyncio.run(story())


def test_a_source_that_is_cut_off_and_falls_behind_is_left_for_the_active_controller() -> None:
    async def story() -> None:
        controllers = Controllers(1, 2)
        async with broker(controllers) as one:
            await one.up()
            assert one.line.source == 1
            controllers.doors[1].is_cut_off = True
            controllers.doors[1].limit(controllers.image.version)
            controllers.elect(2)
            await until(lambda: one.metadata.applied_version == controllers.image.version)
            assert one.line.source == 2

    asyncio.run(story())


def test_the_controller_in_the_same_process_is_followed_first() -> None:
    async def story() -> None:
        controllers = Controllers(1, 2, 3)
        async with broker(controllers, registration(3)) as one:
            await one.up()
            assert one.line.source == 3
            assert one.line.active_controller == 1

    asyncio.run(story())


class LeapingDoor(FakeDoor):
    """A door that forgets to give some news."""

    async def follow(self, version: int, digest: bytes) -> AsyncIterator[News]:
        leaps = version >= 0
        async for news in super().follow(version, digest):
            if not leaps or news.version % 2:
                yield news


def test_after_a_gap_the_broker_asks_for_everything() -> None:
    async def story() -> None:
        controllers = Controllers(1)
        controllers.doors[1] = LeapingDoor(controllers, 1)
        async with broker(controllers) as one:
            await one.up()
            door = controllers.doors[1]
            door.limit(controllers.image.version)
            for _ in range(4):
                controllers.elect(1)
            # The stream breaks once, and the next one has gaps.
            door.is_closed = True
            controllers.wake()
            await until(lambda: door.follows[-1] > 0)
            door.is_closed = False
            door.limit(None)
            await until(lambda: one.metadata.applied_version == controllers.image.version)
            assert -1 in door.follows[1:]
            assert one.versions == sorted(set(one.versions))

    asyncio.run(story())
