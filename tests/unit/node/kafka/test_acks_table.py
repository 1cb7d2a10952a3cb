"""docs/acks.md, played: every row of its tables is a test, and what the page says is expected.

A real broker leads a partition with three replicas. Its disk is in memory, its clients have real
connections, and its followers are played: they fetch when the story says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from ottla.proto.errors import ErrorCode
from ottla.proto.kafka import apis
from ottla.proto.kafka.message import Message
from ottla.replication.storage.failpoints import arm, disarm_all
from tests.unit.node.kafka.asking_for_records import (
    Scene,
    question,
    topic_id,
    until,
    wish,
    written,
)
from tests.unit.node.kafka.desk import Desk, Place, open_desk
from tests.unit.node.kafka.guest import settled

PAGE: Final = Path(__file__).parents[4] / "docs" / "acks.md"
ACKS: Final = {"all": -1, "1": 1, "0": 0}
NO_ANSWER: Final = "none"
PATIENT_MS: Final = 60_000
# Long enough for what happens to happen, nearly always: too late, the answer is the same.
LATE_MS: Final = 300


class Row(NamedTuple):
    """What is so when a record is written, and what becomes of it."""

    acks: str
    in_sync: int
    minimum: int
    answer: str
    written: str
    readable: str


class LaterRow(NamedTuple):
    """What happens after a record was written, and what becomes of it."""

    event: str
    answer: str
    readable: str


def cells(first: str) -> list[list[str]]:
    """Return the rows of the table on the page whose first column has this name."""
    lines = iter(PAGE.read_text().splitlines())
    assert any(line.startswith(f"| {first} ") for line in lines), "the table is there"
    next(lines)
    rows = []
    for line in lines:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def rows() -> list[Row]:
    return [
        Row(acks, int(in_sync), int(minimum), *rest)
        for acks, in_sync, minimum, *rest in cells("acks")
    ]


def later_rows() -> list[LaterRow]:
    return [LaterRow(*row) for row in cells("what happens")]


@contextmanager
def leader(in_sync: int, minimum: int) -> Iterator[Desk]:
    """Open broker 1 of three, which leads "t" with so many in sync."""
    place = Place()
    for number in (1, 2, 3):
        place.cluster.start(number)
    with open_desk(place) as desk:
        cluster = desk.cluster
        cluster.create((1, 2, 3), configs={"min.insync.replicas": str(minimum)})
        if in_sync < 3:
            assert cluster.alter_one(1, cluster.change(range(1, in_sync + 1))) is None
        desk.tell()
        yield desk


class Producer:
    """Has sent one batch, and waits for the answer."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.answer = asyncio.ensure_future(scene.read(apis.PRODUCE, 13))

    @classmethod
    async def sends(cls, desk: Desk, acks: str, timeout_ms: int = PATIENT_MS) -> Producer:
        scene = Scene(desk)
        fields = wish(ACKS[acks], "t", topic_id(desk, "t"), timeout_ms=timeout_ms)
        await scene.send(apis.PRODUCE, 13, fields)
        return cls(scene)

    async def told(self) -> str:
        return ErrorCode(written(await self.answer)[0]).name

    async def leaves(self) -> None:
        self.answer.cancel()
        await asyncio.gather(self.answer, return_exceptions=True)
        self.scene.close()


async def is_readable(desk: Desk) -> bool:
    """Ask as a consumer does."""
    scene = Scene(desk)
    try:
        await scene.send(apis.FETCH, 17, question(desk, "t"))
        answer = await scene.read(apis.FETCH, 17)
        assert isinstance(answer, Message)
        return bool(answer.responses[0].partitions[0].records)
    finally:
        scene.close()


def yes_or_no(value: bool) -> str:
    return "yes" if value else "no"


# ── At the moment of the write ────────────────────────────────────────────────────────────────


def test_the_page_has_every_combination_once() -> None:
    found = [(row.acks, row.in_sync, row.minimum) for row in rows()]
    assert found == list(product(ACKS, (3, 2, 1), (1, 2, 3)))


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row.acks}-{row.in_sync}-{row.minimum}")
def test_what_is_answered_written_and_read(row: Row) -> None:
    async def story(desk: Desk) -> Row:
        log = desk.replica("t").log
        producer = await Producer.sends(desk, row.acks)
        try:
            await until(lambda: producer.answer.done() or log.held_offset == 1)
            is_written = log.end_offset == 1
            if row.acks == "1":
                # No follower has copied anything.
                await producer.told()
            await settled()
            others = range(2, row.in_sync + 1)
            if others and is_written:
                assert producer.answer.done() == (row.acks == "1")
                assert not await is_readable(desk)
            desk.copy("t", *others)
            told = NO_ANSWER if row.acks == "0" else await producer.told()
            await settled()
            assert producer.answer.done() == (row.acks != "0")
            readable = yes_or_no(await is_readable(desk))
            return row._replace(answer=told, written=yes_or_no(is_written), readable=readable)
        finally:
            await producer.leaves()

    with leader(row.in_sync, row.minimum) as desk:
        assert desk.run(story(desk)) == row


# ── After the write ───────────────────────────────────────────────────────────────────────────


async def one_is_slow(desk: Desk) -> None:
    desk.copy("t", 2)


async def the_slow_one_leaves(desk: Desk) -> None:
    desk.copy("t", 2)
    await becomes_in_sync(desk, 1, 2)


async def both_leave(desk: Desk) -> None:
    await becomes_in_sync(desk, 1)


async def becomes_in_sync(desk: Desk, *brokers: int) -> None:
    assert desk.cluster.alter_one(1, desk.cluster.change(brokers)) is None
    await desk.tell_soon()


async def more_are_needed(desk: Desk) -> None:
    desk.cluster.configure(min__insync__replicas=3)
    await becomes_in_sync(desk, 1, 2)
    desk.copy("t", 2)


async def another_leads(desk: Desk) -> None:
    desk.cluster.shut_down(1)
    await desk.tell_soon()


async def all_fall_silent(desk: Desk) -> None:
    # The last thing that is heard of the followers is that they have copied it.
    desk.broker.is_heard = lambda: False
    desk.copy("t", 2, 3)


async def the_disk_fails(_: Desk) -> None:
    """Nothing more is to be done: it was told to fail at the first sync."""


EVENTS: Final[dict[str, Callable[[Desk], Awaitable[None]]]] = {
    "a follower in sync does not copy it in time": one_is_slow,
    "that follower leaves the in-sync set": the_slow_one_leaves,
    "both followers leave the in-sync set": both_leave,
    "the minimum rises to more than are in sync": more_are_needed,
    "another replica becomes the leader": another_leads,
    "the controllers and the followers fall silent": all_fall_silent,
    "the leader's disk fails": the_disk_fails,
}


def test_the_page_has_every_event_once() -> None:
    assert [row.event for row in later_rows()] == list(EVENTS)


@pytest.mark.parametrize("row", later_rows(), ids=lambda row: row.event)
def test_what_is_answered_and_read_after_something_has_happened(row: LaterRow) -> None:
    async def story(desk: Desk) -> LaterRow:
        log = desk.replica("t").log
        is_disk_bad = EVENTS[row.event] is the_disk_fails
        if is_disk_bad:
            arm("log.sync.before", "error(EIO)")
        is_late = row.answer in (
            ErrorCode.REQUEST_TIMED_OUT.name,
            ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND.name,
        )
        producer = await Producer.sends(desk, "all", LATE_MS if is_late else PATIENT_MS)
        try:
            if not is_disk_bad:
                await until(lambda: log.held_offset == 1)
                assert not producer.answer.done()
            await EVENTS[row.event](desk)
            told = await producer.told()
            return row._replace(answer=told, readable=yes_or_no(await is_readable(desk)))
        finally:
            await producer.leaves()

    try:
        with leader(3, 2) as desk:
            assert desk.run(story(desk)) == row
    finally:
        disarm_all()
