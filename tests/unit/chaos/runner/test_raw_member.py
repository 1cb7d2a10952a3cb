"""A member that speaks the protocol itself: what it writes down of a group that a test plays."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable

import pytest

from ottla.chaos.history import Kind, Operation, Place, from_lines, operations
from ottla.chaos.payload import encode_payload
from ottla.chaos.runner import raw_member
from ottla.chaos.runner.book import LeaderBook
from ottla.chaos.runner.group_reader import read_groups
from ottla.chaos.runner.raw_member import RawMember
from ottla.chaos.runner.recorder import Recorder
from ottla.chaos.workload import Client, Ending, Life, ProcessPlan
from ottla.proto.errors import ErrorCode
from ottla.proto.records.build import build_batch
from ottla.proto.records.record import Record
from tests.unit.chaos.runner.fake_cluster import HANG_UP, FakeCluster, Log, fake_cluster

HERE = Place("orders", 0)
DEADLINE_S = 30.0
PLAN = ProcessPlan(
    name="gr1", client=Client.RAW_MEMBER, seed="1", places=(HERE,), per_s=500.0, group="g"
)


class Table:
    """One member, its history, and an end that comes when a condition holds."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.pen = io.StringIO()
        self.recorder = Recorder(self.pen)
        cluster.lead(HERE, node=1, epoch=1)
        log = cluster.logs[HERE] = Log()
        values = [encode_payload(HERE, f"w-{number}") for number in (1, 2, 3)]
        log.add(0, build_batch([Record(at, 0, None, one, ()) for at, one in enumerate(values)]), 3)

    def of(self, function: str) -> list[Operation]:
        told = operations(from_lines(self.pen.getvalue().splitlines()))
        return [one for one in told if one.begin.function == function and one.end]

    async def live(self, is_over: Callable[[], bool]) -> None:
        book = LeaderBook(self.cluster.addresses, ["orders"], self.recorder)
        watching = asyncio.ensure_future(book.watch())
        member = RawMember(PLAN, self.cluster.addresses, book, self.recorder, is_over)
        try:
            async with asyncio.timeout(DEADLINE_S):
                await member.live()
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)


def lived(monkeypatch: pytest.MonkeyPatch, ending: Ending, seconds: float = 0.0) -> None:
    """Have every life end so, after so long at least."""
    monkeypatch.setattr(raw_member, "lives", lambda plan: iter([Life(seconds, ending)] * 1000))
    monkeypatch.setattr(raw_member, "_HANG_S", 0.2)


def test_it_owns_reads_commits_and_leaves() -> None:
    async def story() -> None:
        async with fake_cluster(1) as cluster:
            table = Table(cluster)
            await table.live(lambda: bool(table.of("commit")))
            (owns,) = table.of("owns")
            assert owns.end is not None
            assert (owns.end.generation, owns.end.rebalanced) == (1, (HERE,))
            looks = [one.end.offsets for one in table.of("committed") if one.end]
            assert looks == [((HERE, -1),)], "nothing was committed when it came"
            first = table.of("commit")[0]
            assert (first.kind, first.begin.value) == (Kind.OK, "g")
            assert (first.begin.offsets, first.begin.generation) == (((HERE, 3),), 1)
            assert cluster.group.committed == {HERE: 3}
            assert cluster.group.left == 1
            shown = [one.end for one in table.of("poll") if one.end and one.end.shown]
            assert [one.value for one in shown[0].shown] == ["w-1", "w-2", "w-3"]
            assert shown[0].rebalanced == (HERE,)

    asyncio.run(story())


@pytest.mark.parametrize(
    ("answer", "kind", "error"),
    [
        (int(ErrorCode.ILLEGAL_GENERATION), Kind.FAIL, "ILLEGAL_GENERATION"),
        (int(ErrorCode.NOT_COORDINATOR), Kind.UNKNOWN, "NOT_COORDINATOR"),
        (HANG_UP, Kind.UNKNOWN, "ClosedByPeer"),
    ],
)
def test_a_commit_is_written_down_for_what_its_answer_is_worth(
    answer: int | str, kind: Kind, error: str
) -> None:
    async def story() -> None:
        async with fake_cluster(1) as cluster:
            cluster.group.commit_answers = [answer]
            table = Table(cluster)
            await table.live(lambda: bool(table.of("commit")))
            first = table.of("commit")[0]
            assert first.end is not None
            assert (first.kind, first.end.error) == (kind, error)

    asyncio.run(story())


def test_a_member_that_was_thrown_out_begins_where_the_group_has_committed() -> None:
    async def story() -> None:
        async with fake_cluster(1) as cluster:
            cluster.group.commit_answers = [int(ErrorCode.UNKNOWN_MEMBER_ID)]
            cluster.group.committed = {HERE: 1}
            table = Table(cluster)
            await table.live(lambda: len(table.of("owns")) > 1 and len(table.of("commit")) > 1)
            shown = [one.end for one in table.of("poll") if one.end and one.end.shown]
            assert [one.shown[0].offset for one in shown[:2]] == [1, 1], "the same again"

    asyncio.run(story())


def test_a_member_that_hangs_commits_what_it_knows_when_it_is_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lived(monkeypatch, Ending.HANG, seconds=1.0)

    async def story() -> None:
        async with fake_cluster(1) as cluster:
            table = Table(cluster)

            def late() -> list[Operation]:
                """Return commits right before a crash, which is when a member is late."""
                crashes = {one.index for one in table.of("crash")}
                return [one for one in table.of("commit") if one.index + 2 in crashes]

            await table.live(lambda: bool(late()))
            assert late()[0].begin.offsets == ((HERE, 3),)

    asyncio.run(story())


def test_what_groups_have_committed_is_read_at_the_end() -> None:
    async def story() -> None:
        async with fake_cluster(1, 2) as cluster:
            cluster.group.committed = {HERE: 7}
            table = Table(cluster)
            await read_groups(cluster.addresses, {"g": (HERE,)}, table.recorder, DEADLINE_S)
            await cluster.down(1)
            await read_groups({2: cluster.addresses[2]}, {"g": (HERE,)}, table.recorder, 0.1)
            first, second = table.of("committed")
            assert first.end is not None
            assert (first.kind, first.end.offsets) == (Kind.OK, ((HERE, 7),))
            assert (second.kind, second.begin.phase) == (Kind.FAIL, "final")

    asyncio.run(story())
