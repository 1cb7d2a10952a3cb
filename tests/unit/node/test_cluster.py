from __future__ import annotations

import asyncio

import pytest

from ottla.controller.commands import (
    BeginShutdown,
)
from ottla.controller.door import Denied, Unresolved
from ottla.controller.image import MetadataImage, TopicInfo
from ottla.controller.port import Controller, NewTopic
from ottla.node.asking import SPAN_MAX, Session
from ottla.proto.errors import ErrorCode, RequestError, StorageError
from tests.unit.node.cluster_stage import US, Stage, code_of, run
from tests.unit.node.doors import Controllers, follower, until

# ── Done means seen here ──────────────────────────────────────────────────────────────────────


def test_what_was_created_is_here_when_it_is_answered() -> None:
    async def story(one: Stage) -> None:
        controller: Controller = one.broker
        seen: list[int] = []

        async def listen(image: MetadataImage) -> None:
            seen.append(image.version)

        controller.watch(listen)
        wanted = [NewTopic("a", 3, 1), NewTopic("b", configs={"x": "1"})]
        made = await controller.create_topics(wanted, validate_only=False, client="h/c")
        assert made == [one.broker.image.topics["a"], one.broker.image.topics["b"]]
        assert len(one.broker.image.topics["a"].partitions) == 3
        assert seen[-1] == controller.applied_version == one.controllers.image.version
        assert one.controllers.clients == ["h/c", "h/c"]

    run(story)


def test_success_is_not_told_before_this_node_has_followed() -> None:
    async def story(one: Stage) -> None:
        one.hold_back(one.controllers.image.version)
        creating = asyncio.create_task(one.create("a"))
        await until(lambda: "a" in one.controllers.image.topics)
        await asyncio.sleep(0.02)
        assert not creating.done()
        one.hold_back(None)
        (made,) = await creating
        assert made == one.broker.image.topics["a"]

    run(story)


def test_what_is_committed_and_not_followed_in_time_is_called_unknown() -> None:
    async def story(one: Stage) -> None:
        one.hold_back(one.controllers.image.version)
        (made,) = await one.create("a")
        assert code_of(made) is ErrorCode.REQUEST_TIMED_OUT
        assert "It is done" in str(made)
        assert "a" in one.controllers.image.topics
        # Whoever must look first has done nothing.
        (deleted,) = await one.broker.delete_topics(["a"])
        assert code_of(deleted) is ErrorCode.NOT_CONTROLLER

    run(story, timeout_ms=100)


def test_a_listener_that_could_not_follow_is_told_of() -> None:
    async def story(one: Stage) -> None:
        async def fail(image: MetadataImage) -> None:
            if "a" in image.topics and "b" not in image.topics:
                raise StorageError("no room")

        one.broker.watch(fail)
        made = await one.create("a")
        assert code_of(made[0]) is ErrorCode.KAFKA_STORAGE_ERROR
        assert "no room" in str(made[0])
        made = await one.create("b")
        assert isinstance(made[0], TopicInfo)

    run(story)


# ── Once, whatever is lost ────────────────────────────────────────────────────────────────────


def test_an_answer_that_is_lost_after_the_commit_is_asked_for_again_and_nothing_is_done_twice() -> (
    None
):
    async def story(one: Stage) -> None:
        one.controllers.doors[1].losses = 3
        made = await one.create("a", "b")
        assert [code_of(answer) for answer in made] == [None, None]
        one.controllers.doors[1].losses = 2
        ids = await one.broker.take_producer_ids()
        assert ids == range(1000)
        one.controllers.doors[1].losses = 1
        assert await one.broker.take_producer_ids() == range(1000, 2000)
        assert one.controllers.image.next_producer_id == 2000
        # They were committed more than once, and obeyed once.
        assert max(one.controllers.fed.values()) > 1

    run(story)


def test_a_controller_dies_after_the_commit_and_the_next_one_gives_the_answer() -> None:
    async def story(one: Stage) -> None:
        first, second = one.controllers.doors[1], one.controllers.doors[2]
        first.held_out = asyncio.Event()
        creating = asyncio.create_task(one.create("a"))
        await until(lambda: "a" in one.controllers.image.topics)
        one.controllers.active = None
        first.close()
        first.losses = 1
        first.held_out.set()
        second.named = 3
        one.controllers.doors[3].named = 2
        await until(lambda: one.line.active_controller != 1)
        second.named = one.controllers.doors[3].named = None
        one.controllers.elect(2)
        (made,) = await creating
        assert made == one.broker.image.topics["a"]
        assert one.broker.asking.believed == 2

    run(story)


def test_a_controller_that_cannot_tell_is_asked_again_with_the_same_bytes() -> None:
    async def story(one: Stage) -> None:
        one.controllers.doors[1].answers = [Unresolved("It was slow."), Unresolved("Again.")]
        (made,) = await one.create("a")
        assert isinstance(made, TopicInfo)

    run(story)


def test_a_refusal_by_the_active_controller_is_an_answer() -> None:
    async def story(one: Stage) -> None:
        busy = Denied(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "Too much at once.")
        one.controllers.doors[1].answers = [busy]
        (made,) = await one.create("a")
        assert code_of(made) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
        # After an attempt whose fate is unknown it says nothing about that one.
        one.controllers.doors[1].answers = [Unresolved("It was slow."), busy]
        (made,) = await one.create("a")
        assert code_of(made) is ErrorCode.REQUEST_TIMED_OUT

    run(story)


def test_without_an_active_controller_nothing_is_done_and_that_is_what_is_said() -> None:
    async def story(one: Stage) -> None:
        one.controllers.elect(None)
        (made,) = await one.create("a")
        assert code_of(made) is ErrorCode.NOT_CONTROLLER
        assert "Nothing was done" in str(made)
        with pytest.raises(RequestError) as raised:
            await one.broker.take_producer_ids()
        assert raised.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        with pytest.raises(RequestError) as raised:
            await one.broker.describe_quorum()
        assert raised.value.code is ErrorCode.NOT_CONTROLLER
        assert await one.broker.elect_leaders("preferred", [("a", 0)]) != []

    run(story, timeout_ms=150)


def test_whoever_looks_at_the_quorum_hears_soon_that_nobody_leads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ottla.node.cluster._LOOK_MS", 100)

    async def story(one: Stage) -> None:
        one.controllers.elect(None)
        # Much less than whoever wants something done is given.
        async with asyncio.timeout(20):
            with pytest.raises(RequestError) as raised:
                await one.broker.describe_quorum()
        assert raised.value.code is ErrorCode.NOT_CONTROLLER

    run(story, timeout_ms=60_000)


def test_when_no_controller_can_be_reached_the_outcome_is_unknown() -> None:
    async def story(one: Stage) -> None:
        for door in one.controllers.doors.values():
            door.close()
        (made,) = await one.create("a")
        assert code_of(made) is ErrorCode.REQUEST_TIMED_OUT
        assert "may or may not" in str(made)

    run(story, timeout_ms=150)


def test_a_broker_that_is_not_registered_asks_for_nothing() -> None:
    async def story() -> None:
        broker = follower(Controllers(1), timeout_ms=50)
        (made,) = await broker.create_topics([NewTopic("a")], validate_only=False)
        assert code_of(made) is ErrorCode.NOT_CONTROLLER
        assert "not registered" in str(made)

    asyncio.run(story())


def test_what_was_asked_in_an_earlier_life_is_unknown() -> None:
    async def story(one: Stage) -> None:
        door = one.controllers.doors[1]
        door.held_in = asyncio.Event()
        creating = asyncio.create_task(one.create("a"))
        await until(lambda: door.proposals > 0)
        one.broker.begin_session(999)
        door.answers = [Unresolved("It was slow.")]
        door.held_in.set()
        (made,) = await creating
        assert code_of(made) is ErrorCode.REQUEST_TIMED_OUT
        # Nobody knows a session 999.
        (made,) = await one.create("b")
        assert code_of(made) is ErrorCode.REQUEST_TIMED_OUT
        assert "b" not in one.controllers.image.topics

    run(story)


def test_the_same_registration_again_goes_on_with_the_same_numbers() -> None:
    async def story(one: Stage) -> None:
        assert one.line.broker_epoch is not None
        for name in ("a", "b", "c"):
            one.broker.begin_session(one.line.broker_epoch)
            (made,) = await one.create(name)
            assert isinstance(made, TopicInfo)
            assert made.name == name
        assert set(one.controllers.image.topics) == {"a", "b", "c"}

    run(story)


def test_many_wishes_are_answered_in_order_and_not_all_of_them_are_under_way_at_once() -> None:
    async def story(one: Stage) -> None:
        door = one.controllers.doors[1]
        names = [f"t{number}" for number in range(300)]
        calls = [one.create(*names[at : at + 100]) for at in range(0, 300, 100)]
        answers = [made for call in await asyncio.gather(*calls) for made in call]
        assert [made.name for made in answers if isinstance(made, TopicInfo)] == names
        assert 1 < door.proposals_max <= 3 * 64

    run(story)


def test_numbers_under_way_stay_within_the_span_that_the_quorum_remembers() -> None:
    async def story(one: Stage) -> None:
        door = one.controllers.doors[1]
        names = [f"t{number}" for number in range(500)]
        door.held_in = asyncio.Event()
        creating = asyncio.gather(*(one.create(name) for name in names))
        await until(lambda: door.proposals >= SPAN_MAX)
        await asyncio.sleep(0)
        assert door.proposals_max == SPAN_MAX
        door.held_in.set()
        door.held_in = None
        assert all(isinstance(made, TopicInfo) for (made,) in await creating)

    run(story)


def test_one_number_that_is_not_answered_holds_the_later_ones_back() -> None:
    async def story() -> None:
        session = Session(US, 40)
        command = BeginShutdown(US, 40)
        first, _ = session.number(command)
        for _ in range(SPAN_MAX - 1):
            number, _ = session.number(command)
            session.settle(number)
        assert not session.has_room
        session.settle(first)
        assert session.has_room

    asyncio.run(story())


def test_a_caller_that_goes_away_does_not_stop_its_call() -> None:
    async def story(one: Stage) -> None:
        door = one.controllers.doors[1]
        door.held_in = asyncio.Event()
        creating = asyncio.create_task(one.create("a", "b"))
        await until(lambda: door.proposals == 2)
        creating.cancel()
        with pytest.raises(asyncio.CancelledError):
            await creating
        door.held_in.set()
        await until(lambda: set(one.broker.image.topics) == {"a", "b"})

    run(story)
