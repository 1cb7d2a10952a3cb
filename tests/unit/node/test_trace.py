"""The trace: what is told of replicas and of the metadata, how often, and when it cannot be."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from ottla.controller.image import BrokerInfo, MetadataImage, PartitionInfo, TopicInfo
from ottla.node.clock import Clock
from ottla.node.isr import IsrListener
from ottla.node.trace import LIMIT_MS, TellsBoth, Trace, TraceFile
from ottla.proto.errors import ErrorCode, StorageError
from ottla.proto.ids import BrokerId, LeaderEpoch, Offset, TopicPartition
from ottla.replication.leader import IsrProposal, PartitionView
from ottla.replication.log.log import Log
from ottla.replication.replica import Replica
from ottla.replication.surroundings import Surroundings
from tests.builders import NOW_MS, OneLog, produced, small_settings
from tests.tidy.tree import ROOT

ME, OTHER = BrokerId(1), BrokerId(2)
VIEW = PartitionView(
    leader_epoch=LeaderEpoch(5),
    partition_epoch=9,
    replicas=(ME,),
    isr=(ME,),
    min_isr=1,
    broker_epochs={ME: 3},
    active={ME},
)
PARTITION = PartitionInfo((ME, OTHER), (ME, OTHER), ME, LeaderEpoch(5), 9)
TOPIC = TopicInfo("t", UUID(int=7), (PARTITION, PARTITION), {})
IMAGE = MetadataImage(
    version=10,
    cluster_id="c",
    controller_id=ME,
    brokers={
        ME: BrokerInfo(ME, "localhost", 9092, broker_epoch=3),
        OTHER: BrokerInfo(OTHER, "localhost", 9093, broker_epoch=4),
    },
    topics={"t": TOPIC},
    topic_names={TOPIC.topic_id: "t"},
)


class Watch(Clock):
    """A clock that the test sets."""

    __slots__ = ("us",)

    def __init__(self) -> None:
        self.us = 1_000_000

    def monotonic_us(self) -> int:
        return self.us

    def now_ms(self) -> int:
        return NOW_MS


class AtOnce:
    """Syncs that are done when they are asked for."""

    def __init__(
        self,
        log: Log,
        on_synced: Callable[[Offset], None],
        on_failed: Callable[[StorageError], None],
    ) -> None:
        self._log, self._on_synced = log, on_synced

    def request(self) -> None:
        self._log.sync()
        self._on_synced(self._log.synced_offset)

    async def close(self) -> None: ...


class Scene:
    """One replica and the trace of its node."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.watch = Watch()
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.file = TraceFile(str(path))
        self.trace = Trace(ME, self.file, self.watch, self._later)
        around = Surroundings(
            me=ME,
            now_ms=lambda: self.watch.us // 1000,
            wall_ms=self.watch.now_ms,
            lag_ms=lambda: 10_000,
            make_syncs=AtOnce,
            events=self.trace,
        )
        log = OneLog(small_settings()).create()
        self.replica = Replica(TopicPartition("t", 0), log, around)

    def _later(self, delay_s: float, work: Callable[[], None]) -> None:
        self.timers.append((delay_s, work))

    def pass_ms(self, time_ms: int) -> None:
        self.watch.us += time_ms * 1000

    def ring(self) -> None:
        ((_, work),) = self.timers
        self.timers.clear()
        work()

    def append(self) -> None:
        self.replica.append([produced(b"x")], now_ms=NOW_MS)

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path.read_text().splitlines()]

    def told(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.lines() if line["event"] == event]

    def events(self) -> list[str]:
        return [line["event"] for line in self.lines()]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path / "trace.jsonl")


# ── Replicas ──────────────────────────────────────────────────────────────────────────────────


def test_every_line_has_a_time_a_node_and_an_event(scene: Scene) -> None:
    scene.replica.lead(VIEW)
    for line in scene.lines():
        assert line["t_ns"] == 1_000_000_000
        assert line["wall_ms"] == NOW_MS
        assert line["node"] == 1
    started = scene.lines()[0]
    assert (started["event"], started["format"], started["pid"]) == ("started", 1, os.getpid())


def test_a_leader_is_told_once_an_epoch_and_its_in_sync_sets_after_that(scene: Scene) -> None:
    scene.replica.lead(VIEW)
    scene.replica.lead(VIEW)
    wider = replace(VIEW, partition_epoch=10, replicas=(ME, OTHER), isr=(ME, OTHER), min_isr=2)
    scene.replica.lead(wider)
    # Somebody else's broker epoch is no news of the partition.
    scene.replica.lead(replace(wider, broker_epochs={ME: 3, OTHER: 8}))
    assert scene.events()[1:] == ["led", "isr"]
    led, isr = scene.lines()[1:]
    assert (led["topic"], led["partition"], led["leader_epoch"]) == ("t", 0, 5)
    assert (led["isr"], led["elr"], led["min_isr"], led["partition_epoch"]) == ([1], [], 1, 9)
    assert (led["epoch_start"], led["end_offset"], led["high_watermark"]) == (0, 0, 0)
    assert (isr["isr"], isr["min_isr"], isr["partition_epoch"]) == ([1, 2], 2, 10)


def test_who_follows_whom_is_told_and_a_return_to_lead_is_told_again(scene: Scene) -> None:
    scene.replica.lead(VIEW)
    scene.replica.follow(LeaderEpoch(6), OTHER)
    scene.replica.follow(LeaderEpoch(7), None)
    scene.replica.lead(replace(VIEW, leader_epoch=LeaderEpoch(8)))
    assert [(one["event"], one["leader_epoch"]) for one in scene.lines()[1:]] == [
        ("led", 5),
        ("followed", 6),
        ("followed", 7),
        ("led", 8),
    ]
    assert [one["leader"] for one in scene.told("followed")] == [2, None]


def test_of_many_moves_the_first_and_the_last_are_told(scene: Scene) -> None:
    scene.replica.lead(VIEW)
    scene.append()
    scene.pass_ms(1)
    scene.append()
    scene.pass_ms(1)
    scene.append()
    assert [one["high_watermark"] for one in scene.told("committed")] == [1]
    assert [delay_s for delay_s, _ in scene.timers] == [LIMIT_MS / 1000]
    scene.pass_ms(8)
    scene.ring()
    first, last = scene.told("committed")
    assert (last["high_watermark"], last["t_ns"] - first["t_ns"]) == (3, 2_000_000)
    assert [one["synced_offset"] for one in scene.told("synced")] == [1, 3]
    # The time of the next ones begins with what was written last.
    scene.pass_ms(LIMIT_MS - 1)
    scene.append()
    assert len(scene.told("committed")) == 2
    scene.pass_ms(1)
    scene.append()
    assert [one["high_watermark"] for one in scene.told("committed")] == [1, 3, 4, 5]
    scene.ring()
    assert len(scene.told("committed")) == 4


def test_a_loop_that_was_held_up_still_tells_what_was_so_before(scene: Scene) -> None:
    scene.replica.lead(VIEW)
    scene.append()
    scene.pass_ms(1)
    scene.append()
    # Whoever wrote the second record has its acknowledgement, and the timer is 40 ms late.
    scene.pass_ms(50)
    scene.append()
    told = scene.told("committed")
    assert [one["high_watermark"] for one in told] == [1, 2, 3]
    assert [one["t_ns"] - told[0]["t_ns"] for one in told] == [0, 1_000_000, 51_000_000]
    scene.ring()
    assert len(scene.told("committed")) == 3


def test_what_was_held_back_stands_before_what_happens_next(scene: Scene) -> None:
    scene.replica.lead(VIEW)
    scene.append()
    scene.append()
    scene.replica.follow(LeaderEpoch(6), OTHER)
    assert scene.events()[-3:] == ["synced", "committed", "followed"]
    assert scene.told("committed")[-1]["high_watermark"] == 2
    scene.ring()
    assert scene.events()[-1] == "followed"


def test_the_end_of_a_node_is_told_after_all_that_was_held_back(scene: Scene) -> None:
    scene.replica.lead(VIEW)
    scene.append()
    scene.append()
    scene.trace.close()
    assert scene.events()[-3:] == ["synced", "committed", "stopped"]
    assert scene.told("committed")[-1]["high_watermark"] == 2


def test_cuts_failures_and_proposals_are_told(scene: Scene) -> None:
    scene.replica.lead(VIEW)
    scene.trace.cut(scene.replica, Offset(7), is_reset=True)
    scene.replica.fail("it lacks what was committed")
    proposal = IsrProposal(LeaderEpoch(5), 9, ((ME, 3), (OTHER, 4)), is_synced=True)
    both = TellsBoth(IsrListener(), scene.trace)
    both.isr_proposed(scene.replica, proposal)
    both.isr_answered(scene.replica, proposal, ErrorCode.INELIGIBLE_REPLICA)
    cut, failed, proposed, answered = scene.lines()[2:]
    assert (cut["old_end_offset"], cut["end_offset"], cut["is_reset"]) == (7, 0, True)
    assert failed["why"] == "it lacks what was committed"
    assert (proposed["event"], proposed["isr"], proposed["broker_epochs"]) == (
        "isr_proposed",
        [1, 2],
        [3, 4],
    )
    assert (answered["partition_epoch"], answered["code"]) == (9, "INELIGIBLE_REPLICA")


# ── Metadata ──────────────────────────────────────────────────────────────────────────────────


def test_the_first_metadata_are_told_whole_and_the_same_again_not_at_all(scene: Scene) -> None:
    scene.trace.metadata(IMAGE)
    scene.trace.metadata(IMAGE)
    assert scene.events()[1:] == ["metadata", "registered", "registered", "partition", "partition"]
    partition = scene.told("partition")[1]
    assert (partition["topic"], partition["partition"], partition["version"]) == ("t", 1, 10)
    assert (partition["leader"], partition["isr"], partition["min_isr"]) == (1, [1, 2], 2)


def test_only_what_changed_is_told(scene: Scene) -> None:
    scene.trace.metadata(IMAGE)
    before = len(scene.lines())
    shrunk = replace(PARTITION, isr=(ME,), elr=(OTHER,), partition_epoch=10)
    topic = replace(TOPIC, partitions=(PARTITION, shrunk))
    fenced = {**IMAGE.brokers, OTHER: replace(IMAGE.brokers[OTHER], is_fenced=True)}
    scene.trace.metadata(replace(IMAGE, version=11, brokers=fenced, topics={"t": topic}))
    metadata, broker, partition = scene.lines()[before:]
    assert metadata["version"] == 11
    assert (broker["event"], broker["broker"], broker["broker_epoch"]) == ("fenced", 2, 4)
    assert (partition["partition"], partition["isr"], partition["elr"]) == (1, [1], [2])


@pytest.mark.parametrize(
    ("changes", "event"),
    [
        ({"broker_epoch": 12, "is_fenced": True}, "registered"),
        ({"is_fenced": True}, "fenced"),
        ({"shutdown_version": 12}, "leaving"),
        (None, "unregistered"),
    ],
)
def test_what_becomes_of_brokers_is_told(
    scene: Scene, changes: dict[str, Any] | None, event: str
) -> None:
    scene.trace.metadata(IMAGE)
    brokers = dict(IMAGE.brokers)
    gone = brokers.pop(OTHER)
    if changes is not None:
        brokers[OTHER] = replace(gone, **changes)
    scene.trace.metadata(replace(IMAGE, version=12, brokers=brokers))
    assert scene.events()[-2:] == ["metadata", event]
    scene.trace.metadata(replace(IMAGE, version=13))
    back = {"fenced": ["unfenced"], "leaving": []}.get(event, ["registered"])
    assert scene.events()[-1 - len(back) :] == ["metadata", *back]


def test_another_minimum_is_told_for_all_partitions_of_the_topic(scene: Scene) -> None:
    scene.trace.metadata(IMAGE)
    topic = replace(TOPIC, configs={"min.insync.replicas": "1"})
    scene.trace.metadata(replace(IMAGE, version=12, topics={"t": topic}))
    assert [one["min_isr"] for one in scene.told("partition")] == [2, 2, 1, 1]


def test_a_topic_that_goes_is_told_and_nothing_is_kept_of_it(scene: Scene) -> None:
    scene.trace.metadata(IMAGE)
    scene.replica.lead(VIEW)
    scene.append()
    scene.append()
    other = replace(TOPIC, topic_id=UUID(int=8))
    scene.trace.metadata(replace(IMAGE, version=11, topics={"t": other}))
    assert scene.events()[-4:] == ["metadata", "deleted", "partition", "partition"]
    scene.ring()
    assert scene.events()[-1] == "partition"
    scene.trace.metadata(replace(IMAGE, version=12, topics={}))
    assert [one["topic_id"][-1] for one in scene.told("deleted")] == ["7", "8"]


# ── The file ──────────────────────────────────────────────────────────────────────────────────


def test_nothing_is_told_after_the_end(scene: Scene) -> None:
    scene.trace.close()
    scene.replica.lead(VIEW)
    scene.trace.close()
    assert scene.events() == ["started", "stopped"]


def test_a_trace_is_added_to_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    for _ in range(2):
        Scene(path).trace.close()
    events = [json.loads(line)["event"] for line in path.read_text().splitlines()]
    assert events == ["started", "stopped", "started", "stopped"]


def test_a_file_that_cannot_be_written_disturbs_nobody_and_is_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scene = Scene(tmp_path / "not there" / "trace.jsonl")
    scene.replica.lead(VIEW)
    scene.append()
    assert scene.file.lost_count == 4
    assert capsys.readouterr().err.count("trace_not_written") <= 1
    scene.path.parent.mkdir()
    scene.replica.follow(LeaderEpoch(6), OTHER)
    scene.replica.follow(LeaderEpoch(7), OTHER)
    first, second = scene.lines()
    assert (first["event"], first["lines_lost"]) == ("followed", 4)
    assert "lines_lost" not in second


def test_a_pipe_that_nobody_reads_holds_nobody_up(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    scene = Scene(path)
    assert scene.file.lost_count == 1
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        for _ in range(2_000):
            scene.trace.cut(scene.replica, Offset(7), is_reset=False)
        assert scene.file.lost_count > 0
        held = os.read(reader, 1 << 20)
        scene.trace.cut(scene.replica, Offset(8), is_reset=False)
        after = os.read(reader, 1 << 20)
    finally:
        os.close(reader)
        scene.trace.close()
    whole = held + after
    good = [line for line in whole.split(b"\n") if line.startswith(b"{") and line.endswith(b"}")]
    assert json.loads(good[-1])["old_end_offset"] == 8
    assert json.loads(good[-1])["lines_lost"] > 0


def test_the_page_about_it_names_every_event() -> None:
    files = (ROOT / "node").glob("trace*.py")
    source = "".join(file.read_text() for file in files)
    page = (ROOT / "docs" / "trace.md").read_text()
    names = {line.split("`")[1] for line in page.splitlines() if line.startswith("| `")}
    for name in names:
        assert f'"{name}"' in source, name
    told = {"started", "led", "isr", "followed", "committed", "synced", "cut", "isr_proposed"}
    told |= {"isr_answered", "failed", "metadata", "partition", "registered", "unfenced", "fenced"}
    assert told | {"leaving", "unregistered", "stopped", "deleted"} == names
