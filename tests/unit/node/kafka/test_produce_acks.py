"""What docs/acks.md does not tell: repeats, sentences, time, and several partitions at once."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import pytest

from ottla.node.kafka.produce_waiting import Waiting
from ottla.proto.errors import ErrorCode
from ottla.proto.kafka import apis
from ottla.proto.kafka.message import Message
from tests.builders import produced
from tests.unit.node.kafka.asking_for_records import Scene, read, topic_id, until, wish
from tests.unit.node.kafka.desk import Desk, Place, open_desk
from tests.unit.node.kafka.guest import settled

T = TypeVar("T")
ALL, LEADER = -1, 1
PATIENT_MS = 60_000
# Of one producer, as it sends it once and again.
NUMBERED = produced(b"v", producer_id=7)


@pytest.fixture
def desk() -> Iterator[Desk]:
    """Node 1 of two, which leads "t" with a minimum of two, and "alone" with two partitions."""
    place = Place()
    for number in (1, 2):
        place.cluster.start(number)
    with open_desk(place) as opened:
        place.cluster.create((1, 2), configs={"min.insync.replicas": "2"})
        place.cluster.create((1,), (1,), name="alone")
        opened.tell()
        yield opened


def play(desk: Desk, story: Callable[[Scene], Awaitable[T]]) -> T:
    async def run() -> T:
        scene = Scene(desk)
        try:
            return await story(scene)
        finally:
            scene.close()

    return desk.run(run())


async def send(
    scene: Scene, desk: Desk, acks: int, batch: bytes = NUMBERED, timeout_ms: int = PATIENT_MS
) -> None:
    fields = wish(acks, "t", topic_id(desk, "t"), batch=batch, timeout_ms=timeout_ms)
    await scene.send(apis.PRODUCE, 13, fields)


async def told(scene: Scene) -> Message:
    """Return the answer for the only partition."""
    answer = await scene.read(apis.PRODUCE, 13)
    assert isinstance(answer, Message)
    one: Message = answer.responses[0].partition_responses[0]
    return one


def shrink(desk: Desk, *left: int) -> None:
    assert desk.cluster.alter_one(1, desk.cluster.change(left)) is None
    desk.tell()


def test_who_is_refused_hears_how_many_are_in_sync_and_how_many_are_needed(desk: Desk) -> None:
    shrink(desk, 1)

    async def story(scene: Scene) -> Message:
        await send(scene, desk, ALL)
        return await told(scene)

    answer = play(desk, story)
    assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert answer.error_message == (
        "1 of 2 replicas of t-0 is in sync, and acks=all needs 2: nothing was written."
    )
    assert answer.base_offset == -1


# ── Rule 61: a batch that is sent again ───────────────────────────────────────────────────────


def test_rule_61_a_repeat_is_refused_like_the_first_one_while_too_few_are_in_sync(
    desk: Desk,
) -> None:
    async def once(scene: Scene) -> Message:
        await send(scene, desk, LEADER)
        return await told(scene)

    assert play(desk, once).error_code == 0
    shrink(desk, 1)

    async def again(scene: Scene) -> Message:
        await send(scene, desk, ALL)
        return await told(scene)

    assert play(desk, again).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert desk.replica("t").log.end_offset == 1


def test_rule_61_a_repeat_is_acknowledged_when_the_first_one_is_committed(desk: Desk) -> None:
    async def story(scene: Scene) -> tuple[Message, Message]:
        await send(scene, desk, LEADER)
        first = await told(scene)
        await send(scene, desk, ALL)
        answer = asyncio.ensure_future(told(scene))
        await until(lambda: desk.replica("t").waiting_count == 1)
        await settled()
        assert not answer.done()
        desk.copy("t", 2)
        return first, await answer

    first, again = play(desk, story)
    assert (again.error_code, again.base_offset) == (0, first.base_offset) == (0, 0)
    assert desk.replica("t").log.end_offset == 1


def test_what_is_already_known_to_one_partition_does_not_answer_for_another(desk: Desk) -> None:
    # A checkpoint has synced what is sent again to partition 0, and its leader has not heard of it
    # yet: it hears while it is asked. Partition 1 still waits for the disk then.
    first = desk.write_only("alone", NUMBERED)
    first.log.sync()
    second = desk.replica("alone", 1)

    async def story(scene: Scene) -> Any:
        fields = wish(ALL, "alone", topic_id(desk, "alone"), batch=NUMBERED, timeout_ms=PATIENT_MS)
        fields["topic_data"][0]["partition_data"].append({"index": 1, "records": produced(b"v")})
        await scene.send(apis.PRODUCE, 13, fields)
        answer = await scene.read(apis.PRODUCE, 13)
        assert isinstance(answer, Message)
        # It was the only answer: the next request gets its own.
        await scene.send(apis.PRODUCE, 13, fields)
        assert isinstance(await scene.read(apis.PRODUCE, 13), Message)
        return [one.error_code for one in answer.responses[0].partition_responses]

    assert play(desk, story) == [0, 0]
    assert (first.log.high_watermark, second.log.high_watermark) == (1, 2)
    assert desk.broker.metrics.waiting_produces == 0


# ── Time ──────────────────────────────────────────────────────────────────────────────────────


def test_what_is_committed_after_the_time_was_up_is_not_answered_again(desk: Desk) -> None:
    async def story(scene: Scene) -> list[int]:
        await send(scene, desk, ALL, timeout_ms=1)
        late = await told(scene)
        desk.copy("t", 2)
        await send(scene, desk, LEADER)
        return [late.error_code, (await told(scene)).error_code]

    assert play(desk, story) == [ErrorCode.REQUEST_TIMED_OUT, 0]
    # It is committed all the same.
    answer = read(desk, "t")
    assert isinstance(answer, Message)
    assert answer.responses[0].partitions[0].high_watermark == 1


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_who_has_no_time_at_all_still_hears_that_it_is_committed(
    desk: Desk, timeout_ms: int
) -> None:
    # Our own disk is always waited for, and here nobody else is.
    async def story(scene: Scene) -> int:
        wanted = wish(ALL, "alone", topic_id(desk, "alone"), timeout_ms=timeout_ms)
        await scene.send(apis.PRODUCE, 13, wanted)
        code: int = (await told(scene)).error_code
        return code

    assert play(desk, story) == 0


@pytest.mark.parametrize("timeout_ms", [500, PATIENT_MS])
def test_what_was_answered_is_gone_without_the_collector(desk: Desk, timeout_ms: int) -> None:
    """A circle for each request made it stop everything for 3 ms, once in a thousand records."""

    async def story(scene: Scene) -> int:
        await send(scene, desk, ALL, timeout_ms=timeout_ms)
        await until(lambda: desk.replica("t").waiting_count == 1)
        assert count_waiting() == 1
        desk.copy("t", 2)
        code: int = (await told(scene)).error_code
        await settled()
        return code

    gc.collect()
    gc.disable()
    try:
        assert play(desk, story) == 0
        assert count_waiting() == 0
    finally:
        gc.enable()


def count_waiting() -> int:
    return sum(type(one) is Waiting for one in gc.get_objects())


def test_whose_time_is_up_is_not_kept_by_the_replica(desk: Desk) -> None:
    async def story(scene: Scene) -> weakref.ref[Scene]:
        await send(scene, desk, ALL, timeout_ms=1)
        await told(scene)
        # Its connection knows it, and would be kept by its request.
        return weakref.ref(scene)

    gone = play(desk, story)
    gc.collect()
    assert desk.replica("t").waiting_count == 1
    assert gone() is None


def test_who_waits_is_told_once_when_leader_and_time_are_gone(desk: Desk) -> None:
    async def story(scene: Scene) -> list[int]:
        await send(scene, desk, ALL)
        await until(lambda: desk.replica("t").waiting_count == 1)
        desk.cluster.shut_down(1)
        await desk.tell_soon()
        moved = await told(scene)
        await send(scene, desk, LEADER)
        return [moved.error_code, moved.current_leader.leader_id, (await told(scene)).error_code]

    not_leader = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert play(desk, story) == [not_leader, 2, not_leader]
    assert desk.replica("t").waiting_count == 0
