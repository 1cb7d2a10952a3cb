"""Members that elect and commit over real gRPC."""

from __future__ import annotations

import asyncio
import time
from random import Random
from typing import Any
from uuid import uuid4

import pytest

from ottla.controller.quorum.messages import Envelope, Vote
from ottla.controller.quorum.port import Committed
from ottla.controller.sightings import Verdict
from ottla.node.internal import receiver
from ottla.node.internal.channels import Channels
from ottla.node.internal.identity import WhoIAm
from ottla.node.internal.probe import Probe
from ottla.node.internal.raft import RaftTransport
from ottla.node.internal.sender import RAFT, Call
from ottla.proto.options.endpoints import Address
from tests.unit.node.internal.stage import PATIENT, Peers, listen_to_logs, quorum, run, until


def test_three_members_elect_commit_and_follow() -> None:
    async def story() -> None:
        async with quorum(3) as peers:
            leader = await peers.leader()
            told = await asyncio.gather(
                *(leader.member.propose(b"%d" % n, 5_000) for n in range(200))
            )
            assert [o.answer for o in told if isinstance(o, Committed)] == list(range(1, 201))
            await until(lambda: all(len(p.machine.commands) == 200 for p in peers.alive))
            assert not any(peer.transport.counts for peer in peers.alive)

    run(story)


def test_large_commands_pass() -> None:
    async def story() -> None:
        async with quorum(3) as peers:
            leader = await peers.leader()
            told = await asyncio.gather(
                *(leader.member.propose(b"%02d" % n * 16_000, 10_000) for n in range(50))
            )
            assert all(isinstance(outcome, Committed) for outcome in told)
            await until(lambda: all(len(p.machine.commands) == 50 for p in peers.alive))

    run(story)


def test_voters_may_be_given_by_name() -> None:
    async def story() -> None:
        peers = Peers(2)
        await peers.start(host="localhost")
        leader = await peers.leader()
        assert isinstance(await leader.member.propose(b"on", 5_000), Committed)
        await peers.stop()

    run(story)


def test_voters_given_by_name_are_reached_through_the_gates_of_those_names() -> None:
    async def story() -> None:
        peers = Peers(3, timing=PATIENT)
        await peers.start(host="no-such-host.invalid", has_detours=True)
        leader = await peers.leader()
        assert isinstance(await leader.member.propose(b"on", 5_000), Committed)
        # They look whether it is dead through the gates as well.
        began = time.monotonic()
        await leader.die()
        assert await peers.leader() is not leader
        assert time.monotonic() - began < PATIENT.election_min_ms / 1000 / 2
        await peers.stop()

    run(story)


def test_a_voter_whose_name_is_not_known_is_told_and_tried_again() -> None:
    async def story() -> None:
        log = listen_to_logs()
        peers = Peers(2)
        await peers.start(host="no-such-host.invalid")
        await until(lambda: 'peer_unreachable peer=2 why="Its name is not known' in log.getvalue())
        assert peers.peers[1].transport.connected == frozenset()
        await peers.stop()

    run(story)


def test_a_leader_whose_process_ends_is_replaced_long_before_the_time_out() -> None:
    async def story() -> None:
        async with quorum(3, timing=PATIENT) as peers:
            leader = await peers.leader()
            assert isinstance(await leader.member.propose(b"before", 5_000), Committed)
            began = time.monotonic()
            await leader.die()
            new = await peers.leader()
            assert time.monotonic() - began < PATIENT.election_min_ms / 1000 / 2
            assert new is not leader
            assert isinstance(await new.member.propose(b"after", 5_000), Committed)

    run(story)


def test_a_probe_that_met_a_dying_leader_is_repeated_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    look, were_reset = Probe.__call__, set[Probe]()

    async def reset_at_first(probe: Probe, *where: Any, **whom: Any) -> Verdict:
        if probe not in were_reset:
            were_reset.add(probe)
            return Verdict.SILENCE
        return await look(probe, *where, **whom)

    monkeypatch.setattr(Probe, "__call__", reset_at_first)

    async def story() -> None:
        async with quorum(3, timing=PATIENT) as peers:
            leader = await peers.leader()
            began = time.monotonic()
            await leader.die()
            assert await peers.leader() is not leader
            assert time.monotonic() - began < PATIENT.election_min_ms / 1000 / 2
            assert len(were_reset) >= 2

    run(story)


def test_a_member_that_starts_again_is_found_at_once_and_catches_up() -> None:
    async def story() -> None:
        async with quorum(3) as peers:
            leader = await peers.leader()
            follower = next(peer for peer in peers.alive if peer is not leader)
            await follower.die()
            assert isinstance(await leader.member.propose(b"meanwhile", 5_000), Committed)
            began = time.monotonic()
            again = await peers.restart(follower.node_id)
            await until(lambda: again.machine.commands == [b"meanwhile"])
            # No more than the longest pause between two dials, and what an entry takes.
            assert time.monotonic() - began < 3
            # Its own dials may take a moment longer than theirs.
            await until(lambda: len(again.transport.connected) == 2)

    run(story)


def test_a_peer_that_is_away_costs_one_line() -> None:
    async def story() -> None:
        log = listen_to_logs()
        async with quorum(3) as peers:
            leader = await peers.leader()
            follower = next(peer for peer in peers.alive if peer is not leader)
            await follower.die()
            sender = leader.transport._senders[follower.node_id]
            failures = sender._failures
            await until(lambda: sender._failures >= failures + 5)
            lines = log.getvalue().splitlines()
            away = f"peer_unreachable peer={follower.node_id} "
            told = [line for line in lines if away in line]
            # One of each of the two that dial it.
            assert len(told) == 2
            assert all("Connection refused" in line for line in told)

    run(story)


def test_members_of_two_clusters_refuse_one_another_and_say_why() -> None:
    async def story() -> None:
        log = listen_to_logs()
        async with quorum(2, clusters={1: "mine", 2: "yours"}) as peers:
            told = (
                'peer_refused peer=2 why="Node 1 is of the cluster mine, and node 2 of the '
                'cluster yours."'
            )
            await until(lambda: told in log.getvalue())
            await until(lambda: peers.peers[2].transport.counts["refused"] >= 3)
            assert log.getvalue().count(told) == 1
            assert not peers.peers[1].transport.connected

    run(story)


def test_a_member_that_was_stopped_lets_nobody_in() -> None:
    async def story() -> None:
        log = listen_to_logs()
        async with quorum(2) as peers:
            await peers.leader()
            peers.peers[2].member.stop()
            # As a process that starts again would.
            await peers.peers[1].die()
            await peers.restart(1)
            told = "Node 2 does not take part in the quorum at the moment."
            await until(lambda: told in log.getvalue())

    run(story)


def test_a_stream_without_a_hello_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver, "HELLO_S", 0.05)

    async def story() -> None:
        log = listen_to_logs()
        async with quorum(1) as peers:
            channel = Channels(None).fresh(1, peers.peers[1].address)
            call: Call = channel.stream_stream(RAFT)()
            async with asyncio.timeout(5):
                assert (await call.code()).name == "DEADLINE_EXCEEDED"
            assert "No Hello came in time." in log.getvalue()
            await channel.close()

    run(story)


def test_what_is_sent_while_there_is_no_way_is_refused() -> None:
    async def story() -> None:
        channels = Channels(None)
        transport = RaftTransport(
            me=WhoIAm(1, uuid4(), "c"),
            directory_id="d",
            voters={1: Address("127.0.0.1", 1), 2: Address("127.0.0.1", 1)},
            channels=channels,
            probe=Probe(channels),
            dice=Random(0),
        )
        envelope = Envelope("c", 1, 2, "d", "stream", 1, 1, Vote(1))
        assert not transport.send(envelope)
        await transport.stop()
        assert not transport.send(envelope)

    run(story)


def test_a_quorum_can_be_started_and_stopped_again_and_again() -> None:
    async def story() -> None:
        for _ in range(5):
            peers = Peers(3)
            await peers.start()
            async with asyncio.timeout(10):
                await peers.stop()
        # Nothing of ours goes on.
        await until(lambda: len(asyncio.all_tasks()) <= 2)

    run(story)
