"""Strangers at the door: crowds that say nothing, frames that never end, bytes that mean nothing.

They come while the usual clients work, and past the links: what they do to a node is the question.

Not here: clients (`runner/`).

T1  nothing that strangers send can be a write, or a change, that a node should accept
T2  a crowd is bounded, and gone when the fault is healed
"""

from __future__ import annotations

import asyncio
import resource
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from random import Random
from typing import Any, Final

from ottla.chaos.nemesis.kind import Kind
from ottla.chaos.nemesis.nodes import mend
from ottla.chaos.nemesis.plan import Step
from ottla.chaos.nemesis.scene import NOTE, Scene
from ottla.proto.kafka.apis import API_VERSIONS, FETCH, LIST_OFFSETS, METADATA
from ottla.proto.kafka.encode import encode_request
from ottla.proto.kafka.framing import request_frame
from ottla.proto.kafka.uuids import ZERO_UUID

_DIAL_S: Final = 5.0
_JOIN_S: Final = 20.0
_AT_ONCE: Final = 50
# Descriptors that are left for everybody else.
_SPARED: Final = 500
_KEYS_MAX: Final = 80
_FRAME_BYTES_MAX: Final = 4096
_BIG: Final = 50 << 20


class Crowd:
    """Strangers in a thread with a loop of its own, from `start` to `stop`."""

    def __init__(self, work: Work, address: str) -> None:
        self.over: Final = threading.Event()
        # What they did, counted.
        self.counts: Final = dict[str, int]()
        self._work: Final = work
        self._address: Final = address
        self._thread: Final = threading.Thread(target=self._run, name="strangers", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.over.set()
        self._thread.join(_JOIN_S)

    def count(self, what: str, more: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + more

    def _run(self) -> None:
        with suppress(OSError):
            asyncio.run(self._work(self, self._address))


Work = Callable[[Crowd, str], Coroutine[Any, Any, None]]


async def _dial(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(_DIAL_S):
            return await asyncio.open_connection(host, int(port))
    except OSError:
        return None


def _places_left() -> int:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return max(0, hard - _SPARED)


# ── What they send ────────────────────────────────────────────────────────────────────────────


def questions(topics: list[str]) -> list[bytes]:
    """Return requests that ask and change nothing, as whole frames."""
    metadata = {
        "topics": [{"name": name, "topic_id": ZERO_UUID} for name in topics],
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": False,
    }
    versions = {"client_software_name": "stranger", "client_software_version": "1"}
    return [
        request_frame(row, version, 1, "stranger", encode_request(row, version, fields))
        for row, version, fields in (
            (API_VERSIONS, 3, versions),
            (METADATA, 12, metadata),
            (FETCH, 12, fetch_of(topics, _FRAME_BYTES_MAX)),
            (LIST_OFFSETS, 7, _offsets_of(topics)),
        )
    ]


def fetch_of(topics: list[str], bytes_max: int) -> dict[str, Any]:
    part = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": bytes_max,
    }
    return {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 0,
        "max_bytes": bytes_max,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": name, "topic_id": ZERO_UUID, "partitions": [part]} for name in topics],
        "forgotten_topics_data": [],
        "rack_id": "",
    }


def _offsets_of(topics: list[str]) -> dict[str, Any]:
    part = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
    return {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": [{"name": name, "partitions": [part]} for name in topics],
    }


def garbled(dice: Random, frames: list[bytes]) -> bytes:
    """Return something like a frame: noise, or a question with some of it wrong."""
    match dice.randrange(5):
        case 0:
            return dice.randbytes(dice.randint(1, _FRAME_BYTES_MAX))
        case 1:
            # A length that lies.
            size = dice.choice((-1, 0, 1, 3, 7, 1 << 20, 1 << 30, (1 << 31) - 1))
            return size.to_bytes(4, "big", signed=True) + dice.randbytes(dice.randint(0, 64))
        case 2:
            # Any API, any version, and a body of noise.
            body = dice.randbytes(dice.randint(0, 200))
            head = dice.randrange(_KEYS_MAX).to_bytes(2, "big") + dice.randrange(20).to_bytes(
                2, "big"
            )
            return (len(head) + len(body)).to_bytes(4, "big") + head + body
        case 3:
            frame = bytearray(dice.choice(frames))
            for _ in range(dice.randint(1, 8)):
                # Not the API key: a question must not become a change.
                frame[dice.randrange(6, len(frame))] = dice.randrange(256)
            return bytes(frame)
        case _:
            frame = bytearray(dice.choice(frames))
            return bytes(frame[: dice.randrange(1, len(frame))])


# ── What they do ──────────────────────────────────────────────────────────────────────────────


def _attack(scene: Scene, targets: tuple[int, ...], work: Work) -> Iterator[None]:
    crowds = [Crowd(work, scene.backend.inside(node)) for node in targets]
    for crowd in crowds:
        crowd.start()
    yield
    for node, crowd in zip(targets, crowds, strict=True):
        crowd.stop()
        used = scene.backend.resources().get(node, {})
        scene.tell("strangers", NOTE, (node,), **crowd.counts, **used)
    mend(scene, targets)


def crowd_in(scene: Scene, targets: tuple[int, ...], step: Step) -> Iterator[None]:
    idle = min(int(step.facts.get("idle", 5000)), _places_left())
    halves = int(step.facts.get("halves", 10_000))
    frames = questions(scene.topics)

    async def work(crowd: Crowd, address: str) -> None:
        lines = list[asyncio.StreamWriter]()
        for _ in range(0, idle, _AT_ONCE):
            if crowd.over.is_set():
                break
            made = await asyncio.gather(*(_dial(address) for _ in range(_AT_ONCE)))
            lines += [one[1] for one in made if one is not None]
        crowd.count("idle connections", len(lines))
        # Some of those who wait send a byte of a frame now and then.
        slow, at = lines[:200], 0
        while not crowd.over.is_set():
            if crowd.counts.get("half frames", 0) < halves:
                await _send_halves(crowd, address, frames)
            for one in slow:
                if not one.is_closing():
                    one.write(frames[1][at % len(frames[1]) :][:1])
            at += 1
            await asyncio.sleep(0.2)
        for one in lines:
            one.transport.abort()

    return _attack(scene, targets, work)


async def _send_halves(crowd: Crowd, address: str, frames: list[bytes]) -> None:
    made = await asyncio.gather(*(_dial(address) for _ in range(_AT_ONCE)))
    for number, one in enumerate(filter(None, made)):
        frame = frames[number % len(frames)]
        one[1].write(frame[: len(frame) // 2])
        one[1].close()
        crowd.count("half frames")


def fuzz(scene: Scene, targets: tuple[int, ...], step: Step) -> Iterator[None]:
    seed, frames = scene.dice.randrange(1 << 32), questions(scene.topics)

    async def work(crowd: Crowd, address: str) -> None:
        dice = Random(seed)
        while not crowd.over.is_set():
            line = await _dial(address)
            if line is None:
                await asyncio.sleep(0.1)
                continue
            reader, writer = line
            with suppress(OSError, TimeoutError):
                for _ in range(dice.randint(1, 4)):
                    writer.write(garbled(dice, frames))
                    crowd.count("garbled frames")
                async with asyncio.timeout(0.05):
                    await reader.read(1 << 16)
            writer.transport.abort()

    return _attack(scene, targets, work)


def greedy(scene: Scene, targets: tuple[int, ...], step: Step) -> Iterator[None]:
    """Ask for much, many times over, and read nothing of it."""
    count = int(step.facts.get("readers", 100))
    body = encode_request(FETCH, 12, fetch_of(scene.topics, _BIG))
    frame = request_frame(FETCH, 12, 1, "stranger", body)
    limit = step.facts.get("more_bytes")
    if limit is not None:
        for node in targets:
            scene.backend.limit_memory(node, int(limit))

    async def work(crowd: Crowd, address: str) -> None:
        made = await asyncio.gather(*(_dial(address) for _ in range(count)))
        lines = [one for one in made if one is not None]
        for reader, writer in lines:
            # The stream reads a little by itself; from then on nothing.
            reader._transport.pause_reading()  # type: ignore[attr-defined]  # no public name
            writer.write(frame * 20)
            crowd.count("unread fetches", 20)
        await asyncio.to_thread(crowd.over.wait)
        for _, writer in lines:
            writer.transport.abort()

    yield from _attack(scene, targets, work)
    if limit is not None:
        for node in targets:
            if scene.backend.is_running(node):
                scene.backend.limit_memory(node, None)


_NOTHING: Final = frozenset[Any]()
KINDS: Final = (
    Kind(
        "crowd",
        "thousands of idle connections, slow senders, frames that end half-way",
        _NOTHING,
        crowd_in,
        (("idle", 5000), ("halves", 10_000)),
    ),
    Kind("fuzz", "bytes that are nearly requests", _NOTHING, fuzz),
    Kind(
        "greedy",
        "large fetches that nobody reads; with `more_bytes`, little memory for them",
        _NOTHING,
        greedy,
        (("readers", 100), ("more_bytes", None)),
    ),
)
