"""Members in threads of their own, on real time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from random import Random

import pytest

from ottla.controller.quorum.journal import create_journal
from ottla.controller.quorum.member import QuorumMember
from ottla.controller.quorum.membership import Membership, Standing
from ottla.controller.quorum.messages import Envelope
from ottla.controller.quorum.port import Committed, Outcome, QuorumStatus, Refused, Unknown, Why
from ottla.controller.quorum.runner import IDLE_TICK_S, RunningMember, Watcher
from ottla.controller.quorum.seam import Timing
from ottla.replication.storage.faults import FaultPlan, FaultRule, FaultyStore, Power
from ottla.replication.storage.memory import MemoryStateStore
from tests.unit.controller.quorum.cluster import CLUSTER_ID, Notes, voter

QUICK = Timing(heartbeat_ms=20, election_min_ms=100, election_max_ms=200)
DEADLINE_S = 10


class Running:
    """Voters in threads, joined by calls from one to the other."""

    def __init__(self, size: int, watcher: Watcher | None = None) -> None:
        self.machines = {node_id: Notes() for node_id in range(1, size + 1)}
        self.plans = {node_id: FaultPlan() for node_id in self.machines}
        self.seen: list[QuorumStatus] = []
        self._watcher = watcher or self.seen.append
        self.members = {n: self._member(voter(n, size)) for n in self.machines}
        for member in self.members.values():
            member.start()
        for one in self.members.values():
            for other in self.members.values():
                if one is not other:
                    self._join(one, other)

    def lose_disk(self, node_id: int) -> str:
        """Let a member come back with nothing but a new directory, whose id is returned."""
        self.members[node_id].stop()
        formed = voter(node_id, len(self.members)).voters
        blank = Membership(Standing.JOINING, CLUSTER_ID, node_id, "new", formed)
        self.machines[node_id] = Notes()
        joiner = self.members[node_id] = self._member(blank)
        joiner.start()
        for other in self.members.values():
            if other is not joiner:
                self._join(joiner, other)
                self._join(other, joiner)
        return blank.directory_id

    def _member(self, membership: Membership) -> RunningMember:
        node_id = membership.node_id
        store = FaultyStore(MemoryStateStore(), Power(), self.plans[node_id])
        member = QuorumMember(
            journal=create_journal(store, membership),
            machine=self.machines[node_id],
            link=self,
            now_ms=lambda: time.monotonic_ns() // 1_000_000,
            dice=Random(node_id),
            timing=QUICK,
        )
        return RunningMember(member, self._watcher)

    @staticmethod
    def _join(one: RunningMember, other: RunningMember) -> None:
        one.open_stream(other.node_id, lambda stream: _accept(other, one.node_id, stream))

    def send(self, envelope: Envelope) -> bool:
        return self.members[envelope.receiver].deliver(envelope)

    def stop(self) -> None:
        for member in self.members.values():
            member.stop()

    async def leader(self) -> RunningMember:
        return self.members[await until(self._agreed)]

    def _agreed(self) -> int | None:
        well = [member for member in self.members.values() if not member.status().halted]
        leaders = {member.leader for member in well}
        return leaders.pop() if len(leaders) == 1 and leaders <= {m.node_id for m in well} else None


def _accept(member: RunningMember, peer: int, stream: str) -> None:
    member.accept_stream(peer, stream)


async def until(condition: Callable[[], int | None]) -> int:
    async with asyncio.timeout(DEADLINE_S):
        while (found := condition()) is None:  # noqa: ASYNC110  # what changes is in other threads
            await asyncio.sleep(0.005)
    return found


@pytest.fixture
def three() -> Iterator[Running]:
    running = Running(3)
    yield running
    running.stop()


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def within() -> None:
        async with asyncio.timeout(3 * DEADLINE_S):
            await story()

    asyncio.run(within())


def test_three_threads_elect_commit_and_read(three: Running) -> None:
    async def story() -> None:
        leader = await three.leader()
        told = await asyncio.gather(*(leader.propose(b"%d" % n, 5_000) for n in range(100)))
        assert [o.answer for o in told if isinstance(o, Committed)] == list(range(1, 101))
        assert isinstance(await leader.read(5_000), Committed)
        follower = next(m for m in three.members.values() if m is not leader)
        assert await follower.propose(b"no", 5_000) == Refused(Why.NOT_LEADER, leader.node_id)
        await until(lambda: 1 if len(three.machines[follower.node_id].commands) == 100 else None)
        assert any(status.leader == leader.node_id for status in three.seen)

    run(story)


def test_a_member_that_halts_answers_everybody_and_the_others_go_on(three: Running) -> None:
    async def story() -> None:
        leader = await three.leader()
        three.plans[leader.node_id].rules.append(FaultRule("commit", "*"))
        told: list[Outcome] = await asyncio.gather(
            *(leader.propose(b"%d" % n, 5_000) for n in range(5))
        )
        assert all(isinstance(outcome, Unknown | Refused) for outcome in told)
        assert Unknown(Why.HALTED) in told
        late = await leader.propose(b"late", 5_000)
        assert late in (Refused(Why.HALTED), Unknown(Why.HALTED))
        assert "failed to commit" in str(leader.status().halted)
        assert any(status.halted for status in three.seen)
        new_leader = await three.leader()
        assert new_leader is not leader
        assert isinstance(await new_leader.propose(b"on", 5_000), Committed)

    run(story)


def test_one_that_joins_is_admitted_through_the_door_and_the_watcher_hears_it(
    three: Running,
) -> None:
    async def story() -> None:
        leader = await three.leader()
        assert isinstance(await leader.propose(b"one", 5_000), Committed)
        lost = next(n for n in three.members if n != leader.node_id)
        directory_id = three.lose_disk(lost)
        told: list[Outcome] = []

        def is_admitted() -> int | None:
            # The shells say it as long as the joiner does, whoever leads.
            for member in three.members.values():
                assert member.admit(lost, directory_id, told.append)
            seen = [status.standing for status in three.seen if status.node_id == lost]
            return 1 if seen[-2:] == [Standing.JOINING, Standing.VOTER] else None

        await until(is_admitted)
        assert any(isinstance(outcome, Committed) for outcome in told)
        for member in three.members.values():
            assert member.status().admitted[lost] == directory_id
        await until(lambda: 1 if three.machines[lost].commands == [b"one"] else None)
        leader.stop()
        assert not leader.admit(lost, directory_id)

    run(story)


def test_after_a_stop_nothing_is_taken(three: Running) -> None:
    async def story() -> None:
        leader = await three.leader()
        leader.stop()
        assert await leader.propose(b"late", 5_000) == Refused(Why.HALTED)
        assert not leader.close_stream(1)

    run(story)


def test_a_watcher_that_raises_halts_the_member_and_does_not_leave_it_half_alive() -> None:
    def watch(_: QuorumStatus) -> None:
        raise ValueError("no")

    running = Running(1, watch)

    async def story() -> None:
        await until(lambda: 1 if running.members[1].status().halted else None)
        assert running.members[1].status().halted == "ValueError: no"
        assert await running.members[1].propose(b"late", 5_000) == Refused(Why.HALTED)

    run(story)
    running.stop()


class Deaf:
    """A link to nobody."""

    def send(self, _: Envelope) -> bool:
        return False


class Counted(QuorumMember):
    """Counts its ticks."""

    ticks = 0

    def tick(self) -> None:
        self.ticks += 1
        super().tick()


def test_a_member_with_nothing_to_do_ticks_seldom_and_at_once_when_somebody_comes() -> None:
    patient = Timing(heartbeat_ms=1_000, election_min_ms=60_000, election_max_ms=120_000)
    member = Counted(
        journal=create_journal(MemoryStateStore(), voter(1, 3)),
        machine=Notes(),
        link=Deaf(),
        now_ms=lambda: time.monotonic_ns() // 1_000_000,
        dice=Random(1),
        timing=patient,
    )
    running = RunningMember(member)

    async def story() -> None:
        begin, ticks = time.monotonic(), member.ticks
        await until(lambda: 1 if member.ticks >= ticks + 5 else None)
        # However slow the machine is, it cannot be quicker than this.
        assert time.monotonic() - begin > 3 * IDLE_TICK_S
        # With nobody else there is no leader, and that is said without waiting for anything.
        assert isinstance(await running.propose(b"no", 60_000), Refused)

    running.start()
    try:
        run(story)
    finally:
        running.stop()
