"""Controllers that are cut off again and again, and brokers that go on asking."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from ottla.controller.active import ActiveController
from ottla.controller.commands import TakeProducerIds
from ottla.controller.door import (
    BeatAnswer,
    Denied,
    DoorClosedError,
    NotActive,
    Registered,
    Unresolved,
)
from ottla.controller.outcome import Outcome
from ottla.controller.sightings import Verdict
from ottla.proto.errors import ErrorCode
from tests.unit.controller.controllers import Broker, Controllers, told

STORM_S = 10.0
ANSWER_S = 15.0


class Storm:
    """Three brokers that never give up, and a network that often does."""

    def __init__(self, stage: Controllers, seed: int) -> None:
        self.stage = stage
        self.dice = Random(seed)
        self.taken: list[range] = []
        self.answers: set[str] = set()

    def any_door(self) -> ActiveController:
        return self.dice.choice(list(self.stage.controllers.values()))

    async def breaks(self) -> None:
        cluster = self.stage.cluster
        while True:
            await asyncio.sleep(self.dice.uniform(0.1, 2))
            victim = self.dice.choice(cluster.voters)
            cluster.cut_off(victim)
            self.stage.verdicts[victim] = self.dice.choice(list(Verdict))
            await asyncio.sleep(self.dice.uniform(0.1, 2))
            cluster.heal()

    async def broker(self, number: int) -> None:
        life = 0
        while True:
            life += 1
            broker = Broker(number, self.any_door(), incarnation=1000 * number + life)
            if not await self.registered(broker):
                continue
            for _ in range(self.dice.randrange(1, 30)):
                await self.beat(broker)
                if self.dice.random() < 0.3:
                    await self.take_ids(broker)
                await asyncio.sleep(self.dice.uniform(0, 0.3))
            await broker.line.close(is_goodbye=self.dice.random() < 0.5)

    async def registered(self, broker: Broker) -> bool:
        for _ in range(50):
            async with asyncio.timeout(ANSWER_S):
                answer = await self.any_door().register(broker.wanted)
            self.answers.add(type(answer).__name__)
            if isinstance(answer, Registered):
                broker.epoch = answer.broker_epoch
                broker.renumber()
                return True
            if isinstance(answer, Denied):
                assert answer.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
            await asyncio.sleep(0.1)
        return False

    async def beat(self, broker: Broker) -> None:
        try:
            async with asyncio.timeout(ANSWER_S):
                answer = await broker.beat(applied=self.stage.image.version)
        except DoorClosedError:
            answer = NotActive(None)
        self.answers.add(type(answer).__name__)
        if isinstance(answer, NotActive):
            await broker.line.close(is_goodbye=True)
            broker.door = self.any_door()
            broker.line = broker.door.open_line()

    async def take_ids(self, broker: Broker) -> None:
        request = broker.request(TakeProducerIds(10))
        for _ in range(100):
            async with asyncio.timeout(ANSWER_S):
                door = self.any_door()
                answer = await door.forward(request, client="c", caller=broker.number)
            self.answers.add(type(answer).__name__)
            assert not isinstance(answer, Denied), answer
            if isinstance(answer, Outcome):
                if answer.producer_ids is not None:
                    self.taken.append(answer.producer_ids)
                else:
                    assert answer.is_unknown
                return
            assert isinstance(answer, NotActive | Unresolved)
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("seed", range(6))
def test_every_question_is_answered_and_nothing_is_done_twice(seed: int) -> None:
    async def story(stage: Controllers) -> None:
        storm = Storm(stage, seed)
        tasks = [asyncio.ensure_future(storm.breaks())]
        tasks += [asyncio.ensure_future(storm.broker(number)) for number in (1, 2, 3)]
        done, _ = await asyncio.wait(tasks, timeout=STORM_S, return_when=asyncio.FIRST_EXCEPTION)
        for task in tasks:
            task.cancel()
        for task in done:
            task.result()
        stage.cluster.heal()
        # One that was cut off may think for a while that it leads.
        await asyncio.sleep(3)
        # Afterwards all is well again.
        door = await stage.active()
        last = Broker(9, door)
        await last.start()
        assert isinstance(await last.beat(), BeatAnswer)
        ids = [number for some in storm.taken for number in some]
        assert len(ids) == len(set(ids))
        assert len(ids) <= stage.image.next_producer_id
        assert storm.taken
        epochs = [facts["epoch"] for facts in stage.events("controller_elected")]
        assert len(epochs) == len(set(epochs))
        await stage.until(lambda: len({one.image.version for one in stage.feeds.values()}) == 1)
        assert len({one.image.digest for one in stage.feeds.values()}) == 1

    told(story, 3)
