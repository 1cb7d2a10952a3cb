"""One suite for everything that claims to be a `Quorum`: Raft behind its seam, and the fake."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Protocol

import pytest

from ottla.controller.quorum.entries import COMMAND_BYTES_MAX
from ottla.controller.quorum.fake import FakeCluster
from ottla.controller.quorum.port import (
    ApplyFailed,
    Committed,
    Outcome,
    Quorum,
    Refused,
    Role,
    Unknown,
    Why,
)
from tests.unit.controller.quorum.cluster import Cluster, Notes

STEP_MS = 10


class Members(Protocol):
    """What the suite needs to do to members, however they are made."""

    size: int

    def quorum(self, node_id: int) -> Quorum: ...

    def commands(self, node_id: int) -> list[bytes]: ...

    def step(self) -> None: ...

    def crash(self, node_id: int) -> None: ...

    def restart(self, node_id: int) -> None: ...

    def cut_off(self, node_id: int) -> None: ...

    def heal(self) -> None: ...


class RaftMembers:
    """Real members over the network in memory."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._cluster = Cluster(size)

    def quorum(self, node_id: int) -> Quorum:
        return self._cluster.members[node_id]

    def commands(self, node_id: int) -> list[bytes]:
        return self._cluster.machines[node_id].commands

    def step(self) -> None:
        self._cluster.step()

    def crash(self, node_id: int) -> None:
        self._cluster.kill(node_id)

    def restart(self, node_id: int) -> None:
        self._cluster.start(node_id)

    def cut_off(self, node_id: int) -> None:
        self._cluster.network.cut_off(node_id)

    def heal(self) -> None:
        self._cluster.network.heal()


class FakeMembers:
    """Members of the fake."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._now_ms = 0
        self._fake = FakeCluster(size, now_ms=lambda: self._now_ms, dice=Random(7))
        self._machines: dict[int, Notes] = {}
        for node_id in range(1, size + 1):
            self.restart(node_id)

    def quorum(self, node_id: int) -> Quorum:
        return self._fake.members[node_id]

    def commands(self, node_id: int) -> list[bytes]:
        return self._machines[node_id].commands

    def step(self) -> None:
        self._now_ms += STEP_MS
        self._fake.tick()

    def crash(self, node_id: int) -> None:
        self._fake.crash(node_id)

    def restart(self, node_id: int) -> None:
        self._machines[node_id] = Notes()
        self._fake.start(node_id, self._machines[node_id])

    def cut_off(self, node_id: int) -> None:
        self._fake.cut_off(node_id)

    def heal(self) -> None:
        self._fake.heal()


@pytest.fixture(params=[RaftMembers, FakeMembers])
def three(request: pytest.FixtureRequest) -> Members:
    found: Members = request.param(3)
    return found


@pytest.fixture(params=[RaftMembers, FakeMembers])
def single(request: pytest.FixtureRequest) -> Members:
    found: Members = request.param(1)
    return found


def until(members: Members, condition: Callable[[], object], within_ms: int = 10_000) -> None:
    for _ in range(within_ms // STEP_MS):
        if condition():
            return
        members.step()
    raise AssertionError(f"not within {within_ms} ms")


def leader_among(members: Members, *node_ids: int) -> int:
    found: list[int] = []

    def is_agreed() -> bool:
        leaders = {members.quorum(node_id).leader for node_id in node_ids}
        found[:] = [leader for leader in leaders if leader in node_ids]
        return len(leaders) == 1 and bool(found)

    until(members, is_agreed)
    return found[0]


def propose(
    members: Members, node_id: int, command: bytes, timeout_ms: int = 3_000
) -> list[Outcome]:
    found: list[Outcome] = []
    members.quorum(node_id).propose(command, timeout_ms, found.append)
    return found


def commit(members: Members, node_id: int, command: bytes) -> Committed:
    found = propose(members, node_id, command)
    until(members, lambda: found)
    assert isinstance(found[0], Committed)
    return found[0]


def run(members: Members, milliseconds: int) -> None:
    for _ in range(milliseconds // STEP_MS):
        members.step()


def test_one_is_elected_and_all_know_it(three: Members) -> None:
    leader = leader_among(three, 1, 2, 3)
    status = three.quorum(leader).status()
    assert status.role is Role.LEADER
    assert status.voters == (1, 2, 3)
    assert status.leader == leader
    assert status.term > 0
    assert status.halted is None


def test_a_single_voter_leads_at_once(single: Members) -> None:
    run(single, 20)
    assert single.quorum(1).leader == 1
    assert commit(single, 1, b"one").answer == 1


def test_commands_are_applied_by_all_in_one_order_and_answered_once(three: Members) -> None:
    leader = leader_among(three, 1, 2, 3)
    commands = [b"%d" % number for number in range(20)]
    found = [propose(three, leader, command) for command in commands]
    until(three, lambda: all(found))
    run(three, 500)
    outcomes = [outcome for (outcome,) in found]
    assert [outcome.answer for outcome in outcomes if isinstance(outcome, Committed)] == list(
        range(1, 21)
    )
    indexes = [outcome.index for outcome in outcomes if isinstance(outcome, Committed)]
    assert indexes == sorted(set(indexes))
    for node_id in (1, 2, 3):
        assert three.commands(node_id) == commands


def test_a_follower_refuses_and_names_the_leader(three: Members) -> None:
    leader = leader_among(three, 1, 2, 3)
    follower = next(n for n in (1, 2, 3) if n != leader)
    assert propose(three, follower, b"one") == [Refused(Why.NOT_LEADER, leader)]
    found: list[Outcome] = []
    three.quorum(follower).read(1_000, found.append)
    assert found == [Refused(Why.NOT_LEADER, leader)]
    run(three, 500)
    assert three.commands(leader) == []


def test_a_command_that_is_too_large_is_refused(three: Members) -> None:
    leader = leader_among(three, 1, 2, 3)
    assert propose(three, leader, bytes(COMMAND_BYTES_MAX + 1)) == [Refused(Why.TOO_LARGE)]
    assert isinstance(commit(three, leader, bytes(COMMAND_BYTES_MAX)), Committed)


def test_a_command_that_raises_is_answered_and_the_next_one_is_applied(three: Members) -> None:
    leader = leader_among(three, 1, 2, 3)
    assert commit(three, leader, b"raise it").answer == ApplyFailed("ValueError: raise it")
    assert commit(three, leader, b"next").answer == 1


def test_a_read_comes_after_everything_that_was_committed_before_it(three: Members) -> None:
    leader = leader_among(three, 1, 2, 3)
    commit(three, leader, b"one")
    found: list[Outcome] = []
    three.quorum(leader).read(3_000, found.append)
    three.quorum(leader).read(3_000, found.append)
    until(three, lambda: len(found) == 2)
    assert all(isinstance(outcome, Committed) for outcome in found)
    assert three.commands(leader) == [b"one"]


def test_a_leader_that_is_cut_off_answers_unknown_and_then_refuses(three: Members) -> None:
    leader = leader_among(three, 1, 2, 3)
    commit(three, leader, b"before")
    three.cut_off(leader)
    write = propose(three, leader, b"lost")
    read: list[Outcome] = []
    three.quorum(leader).read(3_000, read.append)
    others = [n for n in (1, 2, 3) if n != leader]
    new_leader = leader_among(three, *others)
    commit(three, new_leader, b"after")
    until(three, lambda: write and read)
    assert write == read == [Unknown(Why.TIMED_OUT)]
    (refused,) = propose(three, leader, b"too late")
    assert isinstance(refused, Refused)
    assert refused.why is Why.NOT_LEADER
    three.heal()
    until(three, lambda: three.commands(leader)[-1:] == [b"after"])
    for node_id in (1, 2, 3):
        assert b"before" in three.commands(node_id)
        assert b"too late" not in three.commands(node_id)


def test_without_a_majority_nothing_is_committed(three: Members) -> None:
    leader = leader_among(three, 1, 2, 3)
    for node_id in (1, 2, 3):
        if node_id != leader:
            three.crash(node_id)
    found = propose(three, leader, b"alone", timeout_ms=500)
    run(three, 3_000)
    assert found == [Unknown(Why.TIMED_OUT)]
    assert three.commands(leader) == []
    assert three.quorum(leader).leader is None


def test_what_was_acknowledged_survives_every_leader(three: Members) -> None:
    acknowledged = []
    for number in range(6):
        leader = leader_among(three, 1, 2, 3)
        command = b"%d" % number
        commit(three, leader, command)
        acknowledged.append(command)
        propose(three, leader, b"perhaps %d" % number)
        three.crash(leader)
        leader_among(three, *(n for n in (1, 2, 3) if n != leader))
        three.restart(leader)
    leader = leader_among(three, 1, 2, 3)
    commit(three, leader, b"end")
    until(three, lambda: all(three.commands(n)[-1:] == [b"end"] for n in (1, 2, 3)))
    for node_id in (1, 2, 3):
        kept = [c for c in three.commands(node_id) if not c.startswith(b"perhaps")]
        assert kept == [*acknowledged, b"end"]
        assert three.commands(node_id) == three.commands(leader)


def test_a_single_voter_finds_everything_again(single: Members) -> None:
    run(single, 20)
    commit(single, 1, b"one")
    single.crash(1)
    single.restart(1)
    until(single, lambda: single.commands(1) == [b"one"])
    assert commit(single, 1, b"two").answer == 2
