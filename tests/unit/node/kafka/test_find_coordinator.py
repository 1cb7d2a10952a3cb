"""FindCoordinator while the coordinator is gone, and nobody has said so yet."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

import pytest

from ottla.node.kafka import groups as requests_of_groups
from ottla.proto.errors import ErrorCode, RequestError
from ottla.proto.kafka import apis
from tests.unit.node.kafka.desk import Desk, Place, open_desk

GROUP: Final = "g"


@pytest.fixture
def desk() -> Iterator[Desk]:
    with open_desk(Place(), offsets_topic_num_partitions="2") as opened:
        # The topic of groups is made.
        opened.ask(apis.FIND_COORDINATOR, 6, key_type=0, coordinator_keys=[GROUP])
        yield opened


def test_who_asks_for_a_coordinator_that_is_gone_waits_for_the_next_one(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests_of_groups, "PATIENCE_S", 60.0)
    gone = {desk.broker.node_id}
    desk.broker.is_out_of_reach = gone.__contains__

    async def run() -> None:
        fields = {"key_type": 0, "coordinator_keys": [GROUP]}
        asking = asyncio.create_task(desk.asked(apis.FIND_COORDINATOR, 6, **fields))
        done, _ = await asyncio.wait([asking], timeout=0.1)
        assert not done
        gone.clear()
        async with asyncio.timeout(10):
            (told,) = (await asking)["coordinators"]
        assert (told["error_code"], told["node_id"]) == (0, desk.broker.node_id)

    desk.run(run())


def test_a_coordinator_that_stays_away_is_told_all_the_same_and_nobody_waits_twice(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests_of_groups, "PATIENCE_S", 0.05)
    desk.broker.is_out_of_reach = lambda _: True
    fields = {"key_type": 0, "coordinator_keys": [f"{GROUP}{number}" for number in range(1000)]}

    async def run() -> None:
        # One after the other they would take 50 s.
        async with asyncio.timeout(10):
            told = (await desk.asked(apis.FIND_COORDINATOR, 6, **fields))["coordinators"]
        assert {one["node_id"] for one in told} == {desk.broker.node_id}

    desk.run(run())


@pytest.mark.parametrize("is_slow", [False, True], ids=["refused at once", "no answer"])
def test_a_topic_of_groups_that_cannot_be_made_is_tried_once_for_all_keys(
    monkeypatch: pytest.MonkeyPatch, is_slow: bool
) -> None:
    monkeypatch.setattr(requests_of_groups, "PATIENCE_S", 0.05)
    keys = [*(f"{GROUP}{number}" for number in range(100)), "x" * 1001]
    tries = 0
    with open_desk(Place(), offsets_topic_num_partitions="2") as desk:

        async def refuse(*_: object, **__: object) -> list[RequestError]:
            nonlocal tries
            tries += 1
            if is_slow:
                await asyncio.Event().wait()
            return [RequestError(ErrorCode.POLICY_VIOLATION)]

        async def run() -> None:
            fields = {"key_type": 0, "coordinator_keys": keys}
            async with asyncio.timeout(10):
                told = (await desk.asked(apis.FIND_COORDINATOR, 6, **fields))["coordinators"]
            codes = [one["error_code"] for one in told]
            assert codes[-1] == ErrorCode.INVALID_GROUP_ID
            assert set(codes[:-1]) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}

        with monkeypatch.context() as patch:
            patch.setattr(desk.broker.controller, "create_topics", refuse)
            desk.run(run())
    assert tries == 1
