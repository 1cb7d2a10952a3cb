"""J5: a leader that comes back, and asks what the members have of what came meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

import pytest

from ottla.clients.cluster import ClusterClient
from ottla.clients.consumer.assignors import assignors_of
from ottla.clients.consumer.coordinator import Coordinator
from ottla.clients.consumer.group import GroupMember, Hooks
from ottla.clients.consumer.membership import Membership
from ottla.clients.consumer.positions import Bookmarks
from ottla.clients.consumer.protocol import Subscription, encode_assignment, encode_subscription
from ottla.clients.errors import AnswerTimeoutError, NoCommonVersionError
from ottla.clients.metadata import PartitionInfo, TopicInfo
from ottla.clients.options import Role, read_options
from ottla.clients.retrying import Backoff
from ottla.proto.errors import ErrorCode, OttlaError
from ottla.proto.ids import TopicPartition
from ottla.proto.kafka.apis import DESCRIBE_GROUPS, HEARTBEAT, JOIN_GROUP, SYNC_GROUP, ApiRow
from ottla.proto.kafka.message import Message
from ottla.proto.kafka.uuids import UUID

TOPIC = "orders"
DEADLINE_S = 10.0
MINE = encode_assignment([TopicPartition(TOPIC, 0)])
OTHERS = encode_assignment([TopicPartition(TOPIC, 1)])
# What is answered when it is asked what the members have; None: nothing, ever.
Told = Message | OttlaError | None


def described(*hands: bytes, code: ErrorCode = ErrorCode.NONE, state: str = "Stable") -> Message:
    members = [Message({"member_assignment": hand}) for hand in hands]
    group = Message({"error_code": int(code), "group_state": state, "members": members})
    return Message({"groups": [group]})


class ReturningCoordinator:
    """Lets the leader go on with what it had, and tells what the members have as it is told to."""

    group_id = "g"

    def __init__(self, *told: Told) -> None:
        self._told = list(told)
        self.joins = list[str]()
        self.looks = 0
        self.times_lost = 0

    def backoff(self) -> Backoff:
        return Backoff(1, 1)

    def lost(self) -> None:
        self.times_lost += 1

    async def ask(
        self, row: ApiRow, fields: Mapping[str, Any], *, timeout_s: float | None = None
    ) -> Message:
        answer = {
            JOIN_GROUP: self._join,
            SYNC_GROUP: self._sync,
            DESCRIBE_GROUPS: self._describe,
            HEARTBEAT: self._beat,
        }[row]
        return await answer(fields)

    async def _join(self, fields: Mapping[str, Any]) -> Message:
        self.joins.append(fields["reason"])
        metadata = encode_subscription(Subscription((TOPIC,)))
        member = {"member_id": "m", "group_instance_id": "desk", "metadata": metadata}
        return Message(
            {
                "error_code": 0,
                "member_id": "m",
                "leader": "m",
                "generation_id": len(self.joins),
                "protocol_name": "range",
                "members": [Message(member)],
                # Only who comes back is not to share out.
                "skip_assignment": len(self.joins) == 1,
            }
        )

    async def _sync(self, fields: Mapping[str, Any]) -> Message:
        return Message({"error_code": 0, "assignment": MINE})

    async def _beat(self, fields: Mapping[str, Any]) -> Message:
        return Message({"error_code": 0})

    async def _describe(self, fields: Mapping[str, Any]) -> Message:
        self.looks += 1
        told = self._told.pop(0)
        if isinstance(told, OttlaError):
            raise told
        if told is None:
            await asyncio.Event().wait()
        assert told is not None
        return told


def member_of(coordinator: ReturningCoordinator) -> GroupMember:
    chosen = {"bootstrap.servers": "localhost:1", "group.id": "g", "group.instance.id": "desk"}
    cluster = ClusterClient(read_options(Role.CONSUMER, chosen))
    partitions = tuple(PartitionInfo(TOPIC, number, 1, 0) for number in range(2))
    cluster.metadata.topics[TOPIC] = TopicInfo(TOPIC, UUID(int=1), partitions)
    core = Membership(
        group_id="g",
        instance_id="desk",
        assignors=assignors_of(["range"]),
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
    )

    async def nothing(*_: object) -> None: ...

    hooks = Hooks(
        topics=lambda: frozenset({TOPIC}),
        commit=nothing,
        assigned=nothing,
        revoked=nothing,
        lost=nothing,
        begin=lambda _: None,
        changed=lambda: None,
        failed=_fail,
    )
    bookmarks = Bookmarks(check_crcs=True)
    return GroupMember(cluster, cast("Coordinator", coordinator), core, bookmarks, hooks)


def _fail(error: OttlaError) -> None:
    raise error


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not is_so():  # noqa: ASYNC110  # what changes is in other tasks
            await asyncio.sleep(0.001)


def returned(
    coordinator: ReturningCoordinator, story: Callable[[GroupMember], Awaitable[None]]
) -> None:
    """Run what happens after a leader has come back."""

    async def whole() -> None:
        member = member_of(coordinator)
        member.start()
        member.entered()
        try:
            await story(member)
        finally:
            await member.stop("the test is over")

    asyncio.run(whole())


def test_it_stays_if_each_partition_is_somebodys() -> None:
    coordinator = ReturningCoordinator(described(MINE, OTHERS))

    async def story(member: GroupMember) -> None:
        await until(lambda: coordinator.looks == 1 and not member._is_share_open)
        assert member.core.join_reason is None

    returned(coordinator, story)
    assert len(coordinator.joins) == 1


def test_it_joins_again_if_a_partition_is_nobodys() -> None:
    coordinator = ReturningCoordinator(described(MINE))

    async def story(member: GroupMember) -> None:
        await until(lambda: len(coordinator.joins) == 2)

    returned(coordinator, story)
    assert coordinator.joins[1] == "partitions have no owner: 1"


@pytest.mark.parametrize(
    ("first", "times_lost"),
    [
        (described(code=ErrorCode.NOT_COORDINATOR, state=""), 1),
        (described(code=ErrorCode.COORDINATOR_NOT_AVAILABLE, state=""), 1),
        (described(code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, state=""), 0),
        (described(MINE, state="PreparingRebalance"), 0),
        (described(MINE, b"", state="CompletingRebalance"), 0),
        (described(state="Dead"), 0),
        # Whoever notices that it does not answer has found out that it is lost.
        (AnswerTimeoutError("nobody answered"), 0),
    ],
)
@pytest.mark.parametrize("is_new", [False, True])
def test_what_is_not_told_is_no_reason_to_join_and_is_asked_again(
    first: Told, times_lost: int, is_new: bool
) -> None:
    then = described(MINE) if is_new else described(MINE, OTHERS)
    coordinator = ReturningCoordinator(first, then)

    async def story(member: GroupMember) -> None:
        await until(lambda: coordinator.looks == 2 and not member._is_share_open)
        await until(lambda: len(coordinator.joins) == 1 + is_new)
        await until(lambda: member.core.join_reason is None)

    returned(coordinator, story)
    assert coordinator.joins[1:] == ["partitions have no owner: 1"] * is_new
    assert coordinator.times_lost == times_lost


@pytest.mark.parametrize(
    "refusal",
    [
        described(code=ErrorCode.GROUP_AUTHORIZATION_FAILED, state=""),
        NoCommonVersionError("DescribeGroups is not spoken there"),
    ],
)
def test_who_will_never_be_told_joins_again_once(refusal: Told) -> None:
    coordinator = ReturningCoordinator(refusal)

    async def story(member: GroupMember) -> None:
        await until(lambda: len(coordinator.joins) == 2 and member.core.join_reason is None)

    returned(coordinator, story)
    assert coordinator.joins[1].startswith("what the members have is not told: ")
    assert coordinator.looks == 1


def test_a_coordinator_that_does_not_tell_delays_no_other_join() -> None:
    coordinator = ReturningCoordinator(None)

    async def story(member: GroupMember) -> None:
        await until(lambda: coordinator.looks == 1)
        member.subscription_changed()
        await until(lambda: len(coordinator.joins) == 2 and member.core.join_reason is None)

    returned(coordinator, story)
    assert coordinator.joins[1] == "the subscription has changed"
