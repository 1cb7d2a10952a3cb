"""Clients that send once: what they write down of what they were answered."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from ottla.chaos.history import Kind, Operation, Place, from_lines, operations
from ottla.chaos.payload import LIFE_MARK, encode_payload
from ottla.chaos.runner import final_reader
from ottla.chaos.runner.book import LeaderBook
from ottla.chaos.runner.churn import AdminChurn, _Topic
from ottla.chaos.runner.final_reader import read_partitions
from ottla.chaos.runner.raw_consumer import RawConsumer
from ottla.chaos.runner.raw_producer import RawProducer
from ottla.chaos.runner.recorder import Recorder
from ottla.chaos.runner.requests import Seen
from ottla.chaos.workload import Client, ProcessPlan
from ottla.proto.errors import ErrorCode
from ottla.proto.kafka.uuids import UUID
from ottla.proto.records.build import build_batch
from ottla.proto.records.record import Record
from tests.unit.chaos.runner.fake_cluster import (
    HANG_UP,
    SAY_NOTHING,
    Answer,
    FakeCluster,
    Log,
    fake_cluster,
)

HERE = Place("orders", 0)
DEADLINE_S = 10.0
WRITER = ProcessPlan(name="w1", client=Client.RAW_PRODUCER, seed="1", places=(HERE,), per_s=1000.0)
# Of this seed the first 60 polls do not go back.
READER = replace(WRITER, name="c1", client=Client.RAW_CONSUMER, seed="3")


class Desk:
    """One client, its recorder, and an end that comes when a condition holds."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.pen = io.StringIO()
        self.recorder = Recorder(self.pen)
        self.book = LeaderBook(cluster.addresses, ["orders"], self.recorder)

    def done(self) -> list[Operation]:
        return operations(from_lines(self.pen.getvalue().splitlines()))

    def of(self, function: str) -> list[Operation]:
        return [one for one in self.done() if one.begin.function == function and one.end]

    async def watch(self, work: Awaitable[None]) -> None:
        watching = asyncio.ensure_future(self.book.watch())
        try:
            async with asyncio.timeout(DEADLINE_S):
                await work
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def write(
        self, writes: int, plan: ProcessPlan = WRITER, *, until: Callable[[], bool] | None = None
    ) -> list[Operation]:
        """Let a producer live until so many writes have ended."""

        def is_over() -> bool:
            return until() if until is not None else len(self.of("send")) >= writes

        producer = RawProducer(plan, self.cluster.addresses, self.book, self.recorder, is_over)
        await self.watch(producer.live())
        return self.of("send")

    async def read(self, is_over: Callable[[], bool]) -> list[Operation]:
        consumer = RawConsumer(READER, self.cluster.addresses, self.book, self.recorder, is_over)
        await self.watch(consumer.live())
        return self.of("poll")


def _end(one: Operation) -> tuple[Kind, int | None, str | None]:
    assert one.end is not None
    return one.end.kind, one.end.offset, one.end.error


@pytest.mark.parametrize(
    ("answer", "kind", "offset", "error"),
    [
        (Answer(offset=12), Kind.OK, 12, None),
        # An error path that forgot the offset.
        (Answer(offset=-1), Kind.UNKNOWN, None, None),
        (Answer(code=ErrorCode.NOT_ENOUGH_REPLICAS), Kind.FAIL, None, "NOT_ENOUGH_REPLICAS"),
        (Answer(code=ErrorCode.REQUEST_TIMED_OUT), Kind.UNKNOWN, None, "REQUEST_TIMED_OUT"),
        (
            Answer(code=ErrorCode.NOT_LEADER_OR_FOLLOWER),
            Kind.UNKNOWN,
            None,
            "NOT_LEADER_OR_FOLLOWER",
        ),
        (
            Answer(code=ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, offset=3),
            Kind.UNKNOWN,
            None,
            "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        ),
        (HANG_UP, Kind.UNKNOWN, None, "ClosedByPeer"),
    ],
)
def test_an_answer_is_written_down_for_what_it_is_worth(
    answer: Answer, kind: Kind, offset: int | None, error: str | None
) -> None:
    async def story() -> None:
        async with fake_cluster(1) as cluster:
            cluster.lead(HERE, node=1, epoch=1)
            cluster.answers[1] = [answer]
            first, *_ = await Desk(cluster).write(1)
            assert _end(first) == (kind, offset, error)
            assert (first.begin.value, first.begin.place, first.begin.acks) == ("w1-1", HERE, -1)

    asyncio.run(story())


def test_nobody_at_the_address_means_that_nothing_was_sent() -> None:
    async def story() -> None:
        async with fake_cluster(1, 2) as cluster:
            cluster.lead(HERE, node=2, epoch=1)
            await cluster.down(2)
            first, *_ = await Desk(cluster).write(1)
            assert _end(first) == (Kind.FAIL, None, "NOT_SENT")
            assert cluster.writes == []

    asyncio.run(story())


def test_without_acks_nobody_knows() -> None:
    async def story() -> None:
        async with fake_cluster(1) as cluster:
            cluster.lead(HERE, node=1, epoch=1)
            first, *_ = await Desk(cluster).write(1, replace(WRITER, acks=(0,)))
            assert _end(first) == (Kind.UNKNOWN, None, None)

    asyncio.run(story())


@pytest.mark.parametrize("is_stubborn", [False, True])
def test_a_refusal_that_names_another_leader_is_followed(is_stubborn: bool) -> None:
    async def story() -> None:
        async with fake_cluster(1, 2) as cluster:
            cluster.lead(HERE, node=1, epoch=1)
            refusal = Answer(code=ErrorCode.NOT_LEADER_OR_FOLLOWER, hint=Seen(2, 2))
            cluster.answers[1] = [refusal]
            desk = Desk(cluster)
            await desk.write(2, replace(WRITER, is_stubborn=is_stubborn))
            assert [node for node, _ in cluster.writes[:2]] == [1, 2]
            assert (HERE, 2, 2) in [told[1:] for told in desk.recorder.leaders()]

    asyncio.run(story())


def test_a_write_whose_leader_was_replaced_is_given_up_and_sent_to_nobody_else() -> None:
    async def story() -> None:
        async with fake_cluster(1, 2) as cluster:
            cluster.lead(HERE, node=1, epoch=1)
            cluster.answers[1] = [SAY_NOTHING]
            desk = Desk(cluster)
            writing = asyncio.ensure_future(desk.write(2))
            await cluster.was_asked.wait()
            cluster.lead(HERE, node=2, epoch=2)
            first, second, *_ = await writing
            assert _end(first)[0] is Kind.UNKNOWN
            assert _end(second)[0] is Kind.OK
            assert second.begin.value == "w1-2"

    asyncio.run(story())


def test_a_stubborn_producer_stays_with_a_leader_that_says_it_leads() -> None:
    async def story() -> None:
        async with fake_cluster(1, 2) as cluster:
            cluster.lead(HERE, node=1, epoch=1)
            desk = Desk(cluster)
            plan = replace(WRITER, is_stubborn=True)

            def until() -> bool:
                if len(cluster.writes) == 5:
                    # Everybody but the producer hears of it.
                    cluster.lead(HERE, node=2, epoch=2)
                return desk.book.leader(HERE) == Seen(2, 2)

            await desk.write(0, plan, until=until)
            assert {node for node, _ in cluster.writes} == {1}

    asyncio.run(story())


# ── Readers ───────────────────────────────────────────────────────────────────────────────────


def _batch(at: int, *values: str, last: int | None = None) -> bytes:
    records = [
        Record(at + step, 0, None, encode_payload(HERE, value)) for step, value in enumerate(values)
    ]
    return build_batch(records, base_offset=at, last_offset=last, leader_epoch=3)


def _log(*batches: tuple[int, bytes, int]) -> Log:
    log = Log()
    for at, batch, end in batches:
        log.add(at, batch, end)
    return log


def test_a_consumer_writes_down_what_it_was_shown_and_goes_on_behind_it() -> None:
    async def story() -> None:
        async with fake_cluster(1) as cluster:
            cluster.lead(HERE, node=1, epoch=1)
            cluster.logs[HERE] = _log((0, _batch(0, "w1-1", "w1-2"), 2))
            desk = Desk(cluster)

            def is_over() -> bool:
                polls = desk.of("poll")
                if len(polls) == 1:
                    cluster.logs[HERE].high_watermark = 2
                    cluster.logs[HERE].add(2, _batch(2, "w1-3"), 3)
                return len(polls) >= 3

            polls = await desk.read(is_over)
            shown = [one for poll in polls if poll.end for one in poll.end.shown]
            assert [(one.offset, one.value, one.leader_epoch) for one in shown[:3]] == [
                (0, "w1-1", 3),
                (1, "w1-2", 3),
                (2, "w1-3", 3),
            ]
            (assign,) = desk.of("assign")[:1]
            assert assign.begin.offset == 0

    asyncio.run(story())


def test_a_record_that_is_none_of_ours_is_shown_without_a_value() -> None:
    async def story() -> None:
        async with fake_cluster(1) as cluster:
            cluster.lead(HERE, node=1, epoch=1)
            stranger = build_batch([Record(0, 0, None, b"who knows")])
            cluster.logs[HERE] = _log((0, stranger, 1))
            desk = Desk(cluster)
            first, *_ = await desk.read(lambda: bool(desk.of("poll")))
            assert first.end is not None
            assert [one.value for one in first.end.shown] == [None]

    asyncio.run(story())


def test_a_consumer_behind_the_start_of_a_log_begins_again_and_says_so() -> None:
    async def story() -> None:
        async with fake_cluster(1) as cluster:
            cluster.lead(HERE, node=1, epoch=1)
            cluster.logs[HERE] = _log((5, _batch(5, "w1-6"), 6))
            cluster.logs[HERE].start = 5
            desk = Desk(cluster)
            polls = await desk.read(
                lambda: any(one.end and one.end.shown for one in desk.of("poll"))
            )
            assert _end(polls[0]) == (Kind.FAIL, None, "OFFSET_OUT_OF_RANGE")
            assert [one.begin.offset for one in desk.of("assign")][:2] == [0, 5]

    asyncio.run(story())


# ── The last read ─────────────────────────────────────────────────────────────────────────────


def test_the_last_read_goes_past_what_a_cleaner_took() -> None:
    async def story() -> None:
        async with fake_cluster(1) as cluster:
            cluster.lead(HERE, node=1, epoch=1)
            batches = ((2, _batch(2, "l1-2", last=6), 7), (7, _batch(7, "l1-3"), 8))
            cluster.logs[HERE] = _log(*batches)
            (read,) = await read_partitions(cluster.addresses, {HERE: 8}, 1, DEADLINE_S)
            assert [(one.offset, one.value) for one in read.records] == [(2, "l1-2"), (7, "l1-3")]
            assert (read.high_watermark, read.turn, read.source) == (8, 1, "leader")

    asyncio.run(story())


def test_the_last_read_waits_until_the_leader_knows_how_far_it_is() -> None:
    async def story() -> None:
        async with fake_cluster(1) as cluster:
            cluster.lead(HERE, node=1, epoch=1)
            cluster.logs[HERE] = _log((0, _batch(0, "w1-1"), 1))
            reading = asyncio.ensure_future(
                read_partitions(cluster.addresses, {HERE: 2}, 1, DEADLINE_S)
            )
            await asyncio.sleep(0)
            cluster.logs[HERE].add(1, _batch(1, "w1-2"), 2)
            (read,) = await reading
            assert [one.value for one in read.records] == ["w1-1", "w1-2"]

    asyncio.run(story())


def test_a_partition_that_nobody_leads_is_reported_as_unreadable() -> None:
    async def story() -> None:
        async with fake_cluster(1) as cluster:
            cluster.lead(HERE, node=-1, epoch=1)
            (read,) = await read_partitions(cluster.addresses, {HERE: 1}, 2, 0.2)
            assert (read.high_watermark, read.records) == (-1, ())

    asyncio.run(story())


def test_a_topic_that_no_node_knows_any_more_is_reported_as_unreadable() -> None:
    async def story() -> None:
        async with fake_cluster(1) as cluster:
            cluster.lead(Place("another", 0), node=1, epoch=1)
            (read,) = await read_partitions(cluster.addresses, {HERE: 1}, 2, 0.2)
            assert (read.place, read.turn, read.high_watermark) == (HERE, 2, -1)

    asyncio.run(story())


def test_an_answer_that_brings_nothing_new_gives_the_last_read_no_more_time() -> None:
    batch = _batch(0, "w1-1")
    reading = final_reader._Reading(HERE, 5)
    assert final_reader._take(reading, batch, 1, ())
    assert not final_reader._take(reading, batch, 1, ())
    assert (reading.position, len(reading.records)) == (1, 1)
    assert final_reader._take(reading, _batch(1, "w1-2"), 2, ())


def test_what_outlived_its_story_is_named_with_all_its_partitions() -> None:
    plan = ProcessPlan(name="a1", client=Client.ADMIN, seed="1")
    churn = AdminChurn(plan, {1: "nowhere:1"}, Recorder(io.StringIO()), lambda: True)
    churn._keep(_Topic("churn-a1-1", 2, UUID(int=7), 3))
    assert churn.places() == [Place(f"churn-a1-1{LIFE_MARK}2", number) for number in range(3)]
