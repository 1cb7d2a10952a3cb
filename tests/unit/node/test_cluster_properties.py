"""Wishes while controllers lose answers, break, hang, and follow each other in office.

Whatever happens on the way: nothing is obeyed twice, what was told as done is there, and what was
told as not done is not.
"""

from __future__ import annotations

import asyncio
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.controller.image import TopicInfo
from ottla.controller.port import NewTopic
from ottla.node.clock import Clock
from ottla.node.lifeline import Lifeline
from ottla.proto.errors import ErrorCode, RequestError
from ottla.proto.ids import BrokerId
from tests.unit.node.doors import BEAT_MS, Controllers, follower, registration

UNKNOWN = frozenset({ErrorCode.REQUEST_TIMED_OUT})
NOTHING_DONE = frozenset({ErrorCode.NOT_CONTROLLER})


async def _trouble(controllers: Controllers, dice: Random) -> None:
    """Make trouble for a while, and leave everything whole."""
    doors = list(controllers.doors.values())
    for _ in range(25):
        door = dice.choice(doors)
        match dice.randrange(6):
            case 0:
                door.losses += dice.randrange(3)
            case 1:
                controllers.elect(dice.choice([None, 1, 2, 3]))
            case 2:
                door.close()
            case 3:
                door.is_closed = False
            case 4:
                door.limit(dice.randrange(controllers.image.version + 1))
            case _:
                door.limit(None)
        await asyncio.sleep(dice.random() * 0.005)
    for door in doors:
        door.is_closed, door.losses = False, 0
        door.limit(None)
    controllers.elect(dice.choice([1, 2, 3]))


async def _story(seed: int) -> None:
    dice = Random(seed)
    controllers = Controllers(1, 2, 3, session_ms=200)
    broker = follower(controllers, timeout_ms=dice.choice([30, 3_000]))
    line = Lifeline(
        registration=registration(),
        doors=controllers.doors,
        clock=Clock(),
        session_ms=lambda: 200,
        heartbeat_ms=lambda: BEAT_MS,
        follower=broker,
    )
    await line.start()
    await line.register()
    line.recovered({})
    await line.unfenced()
    names = [f"t{number}" for number in range(12)]
    trouble = asyncio.create_task(_trouble(controllers, dice))
    creating = [
        asyncio.create_task(broker.create_topics([NewTopic(name)], validate_only=False))
        for name in names
    ]
    taking = [asyncio.create_task(broker.take_producer_ids()) for _ in range(8)]
    await trouble
    created = [answer for (answer,) in await asyncio.gather(*creating)]
    taken = await asyncio.gather(*taking, return_exceptions=True)
    await line.stop()
    await broker.close()
    image = controllers.image
    for name, answer in zip(names, created, strict=True):
        if isinstance(answer, TopicInfo):
            assert image.topics[name].topic_id == answer.topic_id
        elif answer.code in NOTHING_DONE:
            assert name not in image.topics
        else:
            # It was made once, so it was never there already.
            assert answer.code in UNKNOWN, answer
    given_away = [one for one in taken if isinstance(one, range)]
    assert len({one.start for one in given_away}) == len(given_away)
    assert all(isinstance(one, range | RequestError) for one in taken)
    assert 1000 * len(given_away) <= image.next_producer_id <= 1000 * len(taken)
    assert image.brokers[BrokerId(7)].broker_epoch == line.broker_epoch


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32))
def test_what_is_told_is_true_whatever_is_lost_on_the_way(seed: int) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await _story(seed)

    asyncio.run(bounded())
