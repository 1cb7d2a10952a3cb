"""Commits of which nobody hears any more, or too late: the program is told, and no more."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from ottla.clients.consumer import committing
from ottla.clients.consumer.assignors import assignors_of
from ottla.clients.consumer.committing import Committer
from ottla.clients.consumer.coordinator import Coordinator, commit_error
from ottla.clients.consumer.errors import CommitError
from ottla.clients.consumer.group import GroupMember
from ottla.clients.consumer.membership import Member, Membership
from ottla.clients.consumer.positions import Bookmarks
from ottla.clients.metrics import Metrics
from ottla.clients.options import Role, read_options
from ottla.proto.errors import ErrorCode, OttlaError
from ottla.proto.ids import TopicPartition

HERE = TopicPartition("orders", 0)
DEADLINE_S = 10.0


class SilentCoordinator:
    """Takes commits, and answers when it is told to."""

    group_id = "g"

    def __init__(self) -> None:
        self.answer = asyncio.Event()
        self.code = ErrorCode.NONE
        self.asked = asyncio.Event()

    async def commit_once(self, identity: Any, offsets: Any) -> ErrorCode:
        self.asked.set()
        await self.answer.wait()
        return self.code

    async def commit(self, identity: Any, offsets: Any, timeout_s: float) -> None:
        code = await self.commit_once(identity, offsets)
        if code is not ErrorCode.NONE:
            raise commit_error(code)


class SettledMember:
    """A member in generation 5, which remembers what it was told to react to."""

    def __init__(self) -> None:
        self.core = Membership(
            group_id="g",
            instance_id=None,
            assignors=assignors_of(["range"]),
            session_timeout_ms=1,
            rebalance_timeout_ms=1,
        )
        self.core.member = Member("m", 5)
        self.reactions: list[ErrorCode] = []

    def react(self, code: ErrorCode, request: str) -> None:
        self.reactions.append(code)


def committer_of(coordinator: SilentCoordinator) -> Committer:
    options = read_options(Role.CONSUMER, {"bootstrap.servers": "localhost:1", "group.id": "g"})
    return Committer(
        options, Bookmarks(check_crcs=True), cast("Coordinator", coordinator), Metrics()
    )


async def closed_with_a_commit_under_way(*, is_answered: bool) -> list[OttlaError | None]:
    """Return what callbacks were told; raise if anything still runs."""
    coordinator, told = SilentCoordinator(), list[OttlaError | None]()
    committer = committer_of(coordinator)
    for offset in (5, 6):
        await committer.commit(
            {HERE: offset},
            DEADLINE_S,
            asynchronous=True,
            callback=lambda _, error: told.append(error),
        )
    if is_answered:
        coordinator.answer.set()
    async with asyncio.timeout(DEADLINE_S):
        await committer.close()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    return told


def test_a_commit_that_is_under_way_at_the_end_is_waited_for() -> None:
    assert asyncio.run(closed_with_a_commit_under_way(is_answered=True)) == [None, None]


def test_a_commit_that_is_never_answered_is_told_when_the_consumer_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(committing, "_REVOCATION_TIMEOUT_S", 0.01)
    told = asyncio.run(closed_with_a_commit_under_way(is_answered=False))
    assert [type(one) for one in told] == [CommitError, CommitError]
    assert all("may be committed all the same" in str(one) for one in told)


async def refused_commit(*, asynchronous: bool, joins_meanwhile: bool) -> list[ErrorCode]:
    """Return what the member was told to react to when a commit of generation 5 was refused."""
    coordinator, member, told = SilentCoordinator(), SettledMember(), list[OttlaError | None]()
    committer = committer_of(coordinator)
    committer.start(cast("GroupMember", member))
    coordinator.code = ErrorCode.ILLEGAL_GENERATION
    heard = asyncio.Event()

    def hear(_: object, error: OttlaError | None) -> None:
        told.append(error)
        heard.set()

    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as tasks:
        tasks.create_task(committer.commit({HERE: 5}, DEADLINE_S, asynchronous, hear))
        await coordinator.asked.wait()
        if joins_meanwhile:
            member.core.member = Member("m", 6)
        coordinator.answer.set()
        await heard.wait()
    await committer.close()
    assert [type(one) for one in told] == [CommitError]
    return member.reactions


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_late_refusal_does_not_throw_out_a_member_that_has_joined_since(
    asynchronous: bool,
) -> None:
    late = refused_commit(asynchronous=asynchronous, joins_meanwhile=True)
    assert asyncio.run(late) == []


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_refusal_of_the_generation_at_hand_is_acted_on(asynchronous: bool) -> None:
    prompt = refused_commit(asynchronous=asynchronous, joins_meanwhile=False)
    assert asyncio.run(prompt) == [ErrorCode.ILLEGAL_GENERATION]
