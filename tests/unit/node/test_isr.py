"""In-sync sets on their way to the controller: K1 and K2, and many partitions in few commands."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from ottla.controller.commands import AlterPartitions, Command
from ottla.controller.outcome import Outcome, PartitionResult, Refusal
from ottla.node.isr import CHANGES_MAX, IsrKeeper, IsrListener
from ottla.proto.errors import ErrorCode, RequestError, StorageError
from ottla.proto.ids import BrokerId, LeaderEpoch, Offset, TopicPartition
from ottla.replication.leader import IsrProposal
from ottla.replication.log.log import Log
from ottla.replication.progress import FetchClaim
from ottla.replication.replica import Replica
from ottla.replication.surroundings import ReplicaEvents, Surroundings, Syncs
from tests.builders import NOW_MS, OneLog, produced, small_settings
from tests.scripts.replication.led import EPOCH, view
from tests.unit.node.doors import until

LAG_MS = 1000


class NoSyncs:
    def request(self) -> None: ...

    async def close(self) -> None: ...


class Controller:
    """Grants everything, unless the test has put another answer here."""

    def __init__(self) -> None:
        self.commands: list[AlterPartitions] = []
        self.answers: list[ErrorCode | RequestError] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def commit(self, command: Command, *, client: str, deadline_ms: int) -> Outcome:
        assert isinstance(command, AlterPartitions)
        self.commands.append(command)
        await self.may_answer.wait()
        answer = self.answers.pop(0) if self.answers else ErrorCode.NONE
        if isinstance(answer, RequestError):
            raise answer
        refusal = None if answer is ErrorCode.NONE else Refusal(answer, "")
        return Outcome(
            results=tuple(
                PartitionResult(one.topic_id, one.partition, refusal) for one in command.changes
            )
        )


class Told(IsrListener):
    def __init__(self) -> None:
        self.answered: list[ErrorCode] = []

    def isr_answered(self, replica: Replica, proposal: IsrProposal, code: ErrorCode) -> None:
        self.answered.append(code)


class Scene(ReplicaEvents):
    """A broker that leads partitions, in which broker 3 is not in sync yet."""

    def __init__(self, count: int = 1) -> None:
        self.now_ms = 0
        self.controller = Controller()
        self.told = Told()
        self.keeper = IsrKeeper(
            BrokerId(1),
            self.controller,
            broker_epoch=lambda: 11,
            now_ms=lambda: self.now_ms,
            replicas=lambda: self.replicas,
            lag_ms=lambda: LAG_MS,
            listener=self.told,
        )
        self.replicas = [self.replica(number) for number in range(count)]

    def isr_wanted(self, replica: Replica) -> None:
        self.keeper.wanted(replica)

    def replica(self, number: int) -> Replica:
        def no_syncs(
            log: Log, on_synced: Callable[[Offset], None], on_failed: Callable[[StorageError], None]
        ) -> Syncs:
            return NoSyncs()

        around = Surroundings(
            me=BrokerId(1),
            now_ms=lambda: self.now_ms,
            wall_ms=lambda: NOW_MS,
            lag_ms=lambda: LAG_MS,
            make_syncs=no_syncs,
            events=self,
        )
        replica = Replica(
            TopicPartition("t", number), OneLog(small_settings(fsync=False)).create(), around
        )
        replica.lead(view(1, 2))
        return replica

    def catches_up(self, replica: Replica, broker: int = 3) -> None:
        claim = FetchClaim(LeaderEpoch(EPOCH), Offset(0), Offset(0), LeaderEpoch(-1))
        replica.fetched(BrokerId(broker), 10 + broker, claim)


def play(story: Callable[[Scene], Awaitable[None]], count: int = 1) -> None:
    async def played() -> None:
        scene = Scene(count)
        scene.keeper.start()
        try:
            await story(scene)
        finally:
            await scene.keeper.stop()

    asyncio.run(played())


def test_rule_37_a_follower_that_has_caught_up_is_proposed_with_its_broker_epoch() -> None:
    async def story(scene: Scene) -> None:
        scene.catches_up(scene.replicas[0])
        await until(lambda: bool(scene.told.answered))
        (command,) = scene.controller.commands
        assert (command.broker_id, command.broker_epoch) == (1, 11)
        (change,) = command.changes
        assert change.isr == ((1, 11), (2, -1), (3, 13))
        assert scene.told.answered == [ErrorCode.NONE]

    play(story)


def test_k1_k2_what_nobody_answered_is_pending_and_is_sent_again() -> None:
    async def story(scene: Scene) -> None:
        lost = RequestError(ErrorCode.REQUEST_TIMED_OUT, "Nobody knows.")
        scene.controller.answers = [lost]
        replica = scene.replicas[0]
        scene.catches_up(replica)
        await until(lambda: len(scene.told.answered) == 2)
        first, second = scene.controller.commands
        assert first.changes == second.changes
        assert scene.told.answered == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NONE]
        assert replica.leader is not None
        assert replica.leader.maximal_isr == {1, 2, 3}

    play(story)


def test_rule_38_a_refusal_takes_the_proposal_back() -> None:
    async def story(scene: Scene) -> None:
        scene.controller.answers = [ErrorCode.INELIGIBLE_REPLICA]
        replica = scene.replicas[0]
        scene.catches_up(replica)
        await until(lambda: bool(scene.told.answered))
        assert replica.leader is not None
        assert replica.leader.maximal_isr == {1, 2}

    play(story)


def test_many_partitions_need_few_commands_one_after_another() -> None:
    count = CHANGES_MAX + 50

    async def story(scene: Scene) -> None:
        scene.controller.may_answer.clear()
        for replica in scene.replicas:
            scene.catches_up(replica)
        await until(lambda: len(scene.controller.commands) == 1)
        scene.controller.may_answer.set()
        await until(lambda: len(scene.told.answered) == count)
        assert [len(one.changes) for one in scene.controller.commands] == [CHANGES_MAX, 50]

    play(story, count)


def test_rule_36_who_lags_is_found_by_looking_around() -> None:
    async def story(scene: Scene) -> None:
        replica = scene.replicas[0]
        replica.lead(replace(view(1, 2, 3), partition_epoch=2))
        for broker in (2, 3):
            scene.catches_up(replica, broker)
        replica.append([produced(b"a")], now_ms=NOW_MS)
        scene.now_ms = LAG_MS + 1
        await until(lambda: bool(scene.controller.commands))
        (change,) = scene.controller.commands[0].changes
        assert [member for member, _ in change.isr] == [1]

    play(story)


def test_a_resigned_leader_proposes_nothing() -> None:
    async def story(scene: Scene) -> None:
        replica = scene.replicas[0]
        scene.catches_up(replica)
        replica.follow(LeaderEpoch(EPOCH + 1), BrokerId(2))
        other = scene.replicas[1]
        scene.catches_up(other)
        await until(lambda: bool(scene.told.answered))
        (command,) = scene.controller.commands
        assert [one.partition for one in command.changes] == [1]

    play(story, 2)
