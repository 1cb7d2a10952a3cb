"""The follower's end of replication streams, over real sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any
from uuid import uuid4

import pytest

from ottla.node.internal import replication_stream
from ottla.node.internal.cable import Buffer
from ottla.node.internal.replication_stream import ReplicationStream, Whereabouts
from ottla.node.internal.two_way import Voice
from ottla.proto.options.endpoints import Address
from tests.unit.node.internal.certificates import Authority
from tests.unit.node.internal.link import (
    GARBAGE,
    LEADER,
    Leader,
    NotedPuller,
    following,
    leader,
    now_ms,
    pulling,
    run,
    until,
)
from tests.unit.node.internal.stage import listen_to_logs


def free_address() -> Address:
    """Return an address at which nobody listens."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return Address("127.0.0.1", found.getsockname()[1])


def test_asks_and_answers_take_turns() -> None:
    async def story() -> None:
        log = listen_to_logs()
        async with leader() as node, pulling(node.where) as (stream, puller):
            feeder = await node.fed()
            for number in range(1, 51):
                feeder.tell(b"%d" % number)
                await until(lambda: not feeder.news)
            await until(lambda: len(feeder.heard) == 51)
            assert puller.answers == [b"=%d" % number for number in range(1, 51)]
            assert feeder.heard == [b"ask %d" % number for number in range(1, puller.asked + 1)]
            assert stream.is_connected
            assert puller.connections == 1
            assert log.getvalue().count("leader_connected") == 1

    run(story)


def test_a_leader_that_is_given_by_name_is_reached_through_the_gate_of_that_name() -> None:
    async def story() -> None:
        told = Address("no-such-host.invalid", 9093)
        async with leader() as node:
            follower = following(detours={told: node.address})
            where = Whereabouts(told, node.me.incarnation)
            async with pulling(where, follower) as (_, puller):
                (await node.fed()).tell(b"news")
                await until(lambda: puller.answers)

    run(story)


def test_a_leader_that_was_not_there_is_found_when_it_is() -> None:
    async def story() -> None:
        log, address = listen_to_logs(), free_address()
        async with pulling(Whereabouts(address, uuid4())) as (stream, puller):
            await until(lambda: "leader_unreachable" in log.getvalue())
            assert not stream.is_connected
            # It was never there.
            assert stream.lost_for_s is None
            assert puller.connections == 0
            await asyncio.sleep(3 * replication_stream.PAUSE_MIN_S)
            async with leader(address=address) as node:
                (await node.fed()).tell(b"news")
                await until(lambda: puller.answers)
        assert log.getvalue().count("leader_unreachable") == 1

    run(story)


def test_a_leader_that_starts_again_gets_a_new_stream_on_which_all_is_said_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replication_stream, "STEADY_S", 0.0)

    async def story() -> None:
        log = listen_to_logs()
        node = Leader()
        await node.start()
        async with pulling(node.where) as (stream, puller):
            (await node.fed()).tell(b"before")
            await until(lambda: puller.answers)
            assert stream.lost_for_s is None
            await node.stop()
            await until(lambda: stream.lost_for_s is not None)
            assert not stream.is_connected
            async with leader(address=node.address) as again:
                (await again.fed()).tell(b"after")
                await until(lambda: puller.answers == [b"=before", b"=after"])
                assert stream.lost_for_s is None
            assert puller.connections == 2
        assert "This broker is stopping." in log.getvalue()

    run(story)


def test_a_leader_whose_stream_flaps_does_not_count_as_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Longer than the story may take: clients must not be told for ever that nobody leads.
    monkeypatch.setattr(replication_stream, "STEADY_S", 600.0)

    async def story() -> None:
        log = listen_to_logs()
        node = Leader()
        await node.start()
        async with pulling(node.where) as (stream, puller):
            (await node.fed()).tell(b"a word")
            await until(lambda: puller.answers)
            await node.stop()
            # It is told before it is noted, and both in one go.
            await until(lambda: "leader_lost" in log.getvalue())
            assert stream.lost_for_s is None

    run(story)


def test_a_leader_that_has_moved_is_dialled_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # Longer than the story may take.
    monkeypatch.setattr(replication_stream, "PAUSE_MIN_S", 600.0)

    async def story() -> None:
        async with leader() as node, pulling(Whereabouts(free_address(), uuid4())) as pulled:
            stream, puller = pulled
            await until(lambda: stream._failures)
            began = perf_counter()
            stream.point_at(node.where)
            await until(lambda: puller.connections)
            print(f"dialled {1000 * (perf_counter() - began):.1f} ms after it was known where")

    run(story)


def test_a_stream_to_an_earlier_process_ends_when_it_is_known_to_be_one() -> None:
    async def story() -> None:
        async with leader() as node, pulling(node.where) as (stream, puller):
            await node.fed()
            stream.point_at(node.where)
            stream.point_at(Whereabouts(node.address, uuid4()))
            await node.fed(1)
            assert puller.connections == 2
            assert node.feeders[0].closings == 1

    run(story)


def test_answers_may_be_as_large_as_the_follower_allows() -> None:
    async def story() -> None:
        log = listen_to_logs()
        async with (
            leader() as node,
            pulling(node.where, following(receive_bytes_max=8 << 20)) as (_, puller),
        ):
            (await node.fed()).tell(bytes((8 << 20) - 1))
            await until(lambda: [len(answer) for answer in puller.answers] == [8 << 20])
            node.feeders[0].tell(bytes(8 << 20))
            (await node.fed(1)).tell(b"small")
            await until(lambda: len(puller.answers) == 2)
            assert puller.connections == 2
        assert "larger than max" in log.getvalue()

    run(story)


def test_what_is_no_answer_ends_the_stream_and_another_begins() -> None:
    async def story() -> None:
        log = listen_to_logs()
        async with leader() as node, pulling(node.where) as (_, puller):
            for number in range(3):
                (await node.fed(number)).tell(GARBAGE)
            (await node.fed(3)).tell(b"news")
            await until(lambda: puller.answers == [b"=news"])
        assert "This is no answer." in log.getvalue()

    run(story)


def test_with_certificates_another_node_at_the_address_is_not_pulled_from(tmp_path: Path) -> None:
    async def story() -> None:
        log, authority = listen_to_logs(), Authority(tmp_path)
        own = following(tls=authority.tls(2))
        async with leader(tls=authority.tls(3)) as other, pulling(other.where, own) as pulled:
            await until(lambda: "leader_unreachable" in log.getvalue())
            assert pulled[1].connections == 0
            assert not other.feeders

    run(story)


def test_who_is_refused_says_so_once_and_goes_on_trying() -> None:
    async def story() -> None:
        log = listen_to_logs()
        async with leader() as node:
            node.known.clear()
            async with pulling(node.where) as (stream, puller):
                await until(lambda: stream._failures >= 3)
                node.known.add(following().me.node_id)  # type: ignore[arg-type]
                (await node.fed()).tell(b"news")
                await until(lambda: puller.answers)
        assert log.getvalue().count("leader_refused") == 1

    run(story)


def test_d4_a_leader_that_falls_silent_is_given_up_and_one_that_beats_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replication_stream, "SILENT_S", 0.4)
    monkeypatch.setattr(replication_stream, "_LOOK_S", 0.05)

    async def story() -> None:
        log = listen_to_logs()
        async with leader(beat_ms=50) as node, pulling(node.where) as (stream, puller):
            (await node.fed()).tell(b"news")
            await until(lambda: puller.answers)
            # Much longer than it may be silent, and nothing is said but that somebody is there.
            await asyncio.sleep(1)
            assert puller.connections == 1
            assert stream.is_connected
        async with leader(beat_ms=60_000) as mute, pulling(mute.where) as (_, puller):
            await mute.fed(1)
            assert puller.connections >= 2
        assert "Nothing was heard of it for 0.4 s." in log.getvalue()

    run(story)


def test_a_ticket_that_makes_no_sense_is_no_answer() -> None:
    async def story() -> None:
        log = listen_to_logs()
        async with leader() as node, pulling(node.where) as (stream, _):
            await node.fed()
            node.entrance_address = Address("nonsense/", 1)
            stream.point_at(Whereabouts(node.address, uuid4()))
            await until(lambda: stream._failures)
        assert "It gave no ticket, but something else." in log.getvalue()

    run(story)


class BrokenPuller(NotedPuller):
    """Has a bug in its first answer."""

    bug: Exception = AssertionError("a bug")

    def take(self, answer: Buffer) -> None:
        super().take(answer)
        if len(self.answers) == 1:
            raise self.bug


# The second is also what a broken connection raises, and that one is no bug.
@pytest.mark.parametrize("bug", [AssertionError("a bug"), OSError("a bug")])
def test_a_bug_behind_a_stream_is_reported_and_the_stream_begins_anew(bug: Exception) -> None:
    reported: list[Any] = []

    async def story() -> None:
        loop = asyncio.get_running_loop()
        async with leader() as node:
            loop.set_exception_handler(lambda _, what: reported.append(what["exception"]))
            stream, puller = ReplicationStream(LEADER, following()), BrokenPuller()
            puller.bug = bug
            stream.point_at(node.where)
            task = loop.create_task(stream.run(puller))
            (await node.fed()).tell(b"news")
            (await node.fed(1)).tell(b"news")
            await until(lambda: len(puller.answers) == 2)
            task.cancel()
            await asyncio.wait([task])

    run(story)
    assert [str(error) for error in reported] == ["a bug"]


# ── What both ends share ──────────────────────────────────────────────────────────────────────


class Tube:
    """Takes frames, or not yet."""

    def __init__(self) -> None:
        self.is_busy = False
        self.frames: list[bytes] = []

    def send(self, pieces: Sequence[Buffer]) -> None:
        self.frames.append(b"".join(pieces))


def no_bug(error: Exception) -> None:
    raise AssertionError from error


def test_a_voice_asks_once_a_turn_and_when_time_has_come() -> None:
    asked: list[int] = []
    due: list[int | None] = [None]

    def next_frames() -> list[list[bytes]]:
        asked.append(now_ms())
        return []

    async def story() -> None:
        voice = Voice(Tube(), next_frames, due_ms=lambda: due[0], now_ms=now_ms, on_bug=no_bug)
        for _ in range(3):
            voice.wake()
        assert not asked
        await until(lambda: asked)
        await asyncio.sleep(0)
        assert len(asked) == 1
        wanted = due[0] = now_ms() + 40
        voice.look()
        voice.look()
        await until(lambda: len(asked) >= 2)
        assert asked[0] < wanted <= asked[1]
        # A side that is overdue for ever is asked again and again, and the loop goes on.
        due[0] = 0
        voice.wake()
        await until(lambda: len(asked) > 20)
        assert asked[20] - asked[5] >= 10
        voice.stop()
        count = len(asked)
        voice.wake()
        await asyncio.sleep(0.02)
        assert len(asked) == count

    run(story)


def test_a_side_that_hears_is_asked_at_once_and_wakes_nobody_for_it() -> None:
    frames: list[list[list[bytes]]] = []
    asked_in: list[str] = []
    now = ["nobody"]

    def next_frames() -> list[list[bytes]]:
        asked_in.append(now[0])
        return frames.pop(0) if frames else []

    async def story() -> None:
        tube = Tube()
        voice = Voice(tube, next_frames, due_ms=lambda: None, now_ms=now_ms, on_bug=no_bug)

        def take(frame: memoryview) -> None:
            frames.append([[bytes(frame), b"!"], [b"and more"]])
            voice.wake()
            voice.look()

        now[0] = "hear"
        voice.hear(take, memoryview(b"first"))
        assert tube.frames == [b"first!", b"and more"]
        now[0] = "turn"
        for _ in range(5):
            await asyncio.sleep(0)
        assert "turn" not in asked_in
        voice.wake()
        await until(lambda: "turn" in asked_in)
        voice.stop()

    run(story)


def test_v2_who_is_busy_is_not_asked_until_what_was_said_has_left() -> None:
    news = [[[b"a"]], [[b"b"]]]

    async def story() -> None:
        tube = Tube()
        voice = Voice(
            tube,
            lambda: news.pop(0) if news else [],
            due_ms=lambda: now_ms() + 1,
            now_ms=now_ms,
            on_bug=no_bug,
        )
        tube.is_busy = True
        voice.wake()
        await asyncio.sleep(0.02)
        assert tube.frames == []
        tube.is_busy = False
        voice.say()
        assert tube.frames == [b"a", b"b"]
        voice.stop()

    run(story)
