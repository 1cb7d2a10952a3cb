"""The coordinator of a group is killed, again and again, while its members read and commit.

Committed offsets never go back, no record is skipped, and reading and committing go on soon.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

import ottla
from ottla.clients.producer.batch import Report
from ottla.node.groups.places import OFFSETS_TOPIC, partition_of
from tests.integration.clusters import RunningCluster, running_cluster
from tests.integration.groups.conftest import OPTIONS
from tests.integration.groups.crew import (
    DEADLINE_S,
    Confluent,
    Errand,
    Place,
    Readings,
    committed,
    share_out,
    until,
)
from tests.portion import portion

pytestmark = pytest.mark.integration

GROUP: Final = "steady"
TOPIC: Final = "steady-topic"
PARTITIONS: Final = 3
_PAUSE_S: Final = 0.02


# Who reads can only go on when there is something new: the writer is ours, and tries again soon,
# where librdkafka looks for a new leader once a second.
_SOON: Final = {"linger.ms": 0, "retry.backoff.ms": 20, "retry.backoff.max.ms": 100}


class Stream(Errand):
    """Writes all the time, and remembers how much was acknowledged, and when."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self._producer = ottla.Producer({"bootstrap.servers": bootstrap, **_SOON})
        self._marked_s = 0.0
        # Of each partition the first record that was written since the mark: its offset, and when
        # it was acknowledged.
        self.firsts: dict[int, tuple[int, float]] = {}
        self.ends: dict[int, int] = dict.fromkeys(range(PARTITIONS), 0)

    def work(self) -> None:
        number = 0
        with self._producer:
            while not self._ends.wait(_PAUSE_S):
                told = partial(self._told, time.monotonic())
                partition = number % PARTITIONS
                self._producer.send(
                    TOPIC, str(number).encode(), partition=partition, on_delivery=told
                )
                number += 1
            self._producer.flush(DEADLINE_S)

    def _told(self, written_s: float, report: Report) -> None:
        partition, offset = report.partition, report.offset
        if not report.is_ok or offset is None:
            return
        self.ends[partition] = max(self.ends[partition], offset + 1)
        if written_s > self._marked_s:
            self.firsts.setdefault(partition, (offset, time.monotonic()))

    def mark(self) -> None:
        self._marked_s = time.monotonic()
        self.firsts = {}


class Watch(Errand):
    """Asks for the committed offsets all the time: they must not go back."""

    def __init__(self, ask: Callable[[], dict[int, int] | None]) -> None:
        super().__init__()
        self.newest: dict[int, int] = {}
        self.went_back: list[str] = []
        # How many answers it has judged: without any it has shown nothing.
        self.answers = 0
        self._ask = ask

    def work(self) -> None:
        while not self._ends.wait(0.2):
            told = self._ask()
            if told is not None:
                self._judge(told)
                self.answers += 1

    def _judge(self, told: dict[int, int]) -> None:
        for partition, offset in told.items():
            before = self.newest.get(partition, offset)
            if offset < before:
                self.went_back.append(f"{partition}: {before} to {offset}")
            self.newest[partition] = max(before, offset)

    def hear(self, count: int) -> None:
        """Wait until it has judged so many more answers; where it fails meanwhile, so does this."""
        wanted = self.answers + count
        until(lambda: self.answers >= wanted or self.failure is not None, "offsets are told")
        if self.failure is not None:
            raise self.failure


class Resumed(NamedTuple):
    """How a kill was survived: times from the kill, by partition, of what was written after it."""

    # Until the first record was acknowledged.
    writes_s: dict[int, float]
    # Until it was read.
    reads_s: dict[int, float]
    # Until the member that read it was told that this is committed.
    commits_s: dict[int, float]
    led: list[int]
    was_controller: bool

    def __str__(self) -> str:
        also = ", the active controller too" if self.was_controller else ""
        return (
            f"written after {_each(self.writes_s)}, read after {_each(self.reads_s)}, committed "
            f"after {_each(self.commits_s)} s; it led {self.led}{also}"
        )


def _each(times_s: dict[int, float]) -> str:
    return " ".join(f"{one:.2f}" for _, one in sorted(times_s.items()))


def _resumed(
    readings: Readings, stream: Stream, killed_s: float
) -> tuple[dict[int, float], dict[int, float], dict[int, float]]:
    """Wait until all goes on; return when each partition was written, read and committed."""
    until(lambda: len(stream.firsts) == PARTITIONS, "writing goes on")
    firsts = dict(stream.firsts)
    writes_s = {one: when - killed_s for one, (_, when) in firsts.items()}
    reads_s, commits_s = dict[int, float](), dict[int, float]()

    def holds(told: Callable[[Place, int], float | None], into: dict[int, float]) -> bool:
        for one, (offset, _) in firsts.items():
            when = told((TOPIC, one), offset)
            if when is not None:
                into[one] = when - killed_s
        return len(into) == PARTITIONS

    until(partial(holds, readings.read_s, reads_s), "reading goes on")
    until(partial(holds, readings.committed_s, commits_s), "commits go on")
    return writes_s, reads_s, commits_s


def _coordinator(cluster: RunningCluster) -> int:
    """Return the node that leads the group's partition; waits until there is one."""
    found: list[int] = []

    def holds() -> bool:
        consumer = Consumer(
            {"bootstrap.servers": cluster.bootstrap, "group.id": "x", "log_level": 0}
        )
        try:
            topic = consumer.list_topics(OFFSETS_TOPIC, timeout=5).topics[OFFSETS_TOPIC]
            leader = topic.partitions[partition_of(GROUP, len(topic.partitions))].leader
        except (KafkaException, KeyError):
            return False
        finally:
            consumer.close()
        found[:] = [leader]
        return leader in cluster.nodes and cluster[leader].is_running

    until(holds, "the group has a coordinator")
    return found[0]


def _steady(directory: Path, kills: int, after: Callable[[Resumed], None]) -> None:
    with running_cluster(directory, options=OPTIONS) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        for made in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)]).values():
            made.result(30)
        readings, stream = Readings(), Stream(cluster.bootstrap)
        stream.start()
        members = [Confluent(cluster.bootstrap, GROUP, TOPIC, readings) for _ in range(2)]
        for member in members:
            member.start()
        share_out(list(members), PARTITIONS, TOPIC)
        watch = Watch(partial(committed, cluster.bootstrap, GROUP, TOPIC, PARTITIONS))
        watch.start()
        watch.hear(1)
        for _ in range(kills):
            node = cluster[_coordinator(cluster)]
            known = admin.list_topics(timeout=10)
            led = [
                index
                for index, one in known.topics[TOPIC].partitions.items()
                if one.leader == node.node_id
            ]
            before = committed(cluster.bootstrap, GROUP, TOPIC, PARTITIONS)
            killed_s = time.monotonic()
            node.kill()
            stream.mark()
            times_s = _resumed(readings, stream, killed_s)
            until(partial(_is_further, cluster, before), "commits are told")
            # The second was asked for after the first was told.
            watch.hear(2)
            after(Resumed(*times_s, led, known.controller_id == node.node_id))
            node.start()
            node.wait_until_ready()
        stream.stop()
        until(lambda: readings.has_all(TOPIC, stream.ends), "every acknowledged record is read")
        watch.stop()
        assert watch.went_back == []
        for member in members:
            member.stop()


def _is_further(cluster: RunningCluster, before: dict[int, int] | None) -> bool:
    now = committed(cluster.bootstrap, GROUP, TOPIC, PARTITIONS)
    if now is None:
        return False
    return before is None or all(now[one] > offset for one, offset in before.items())


def test_reading_goes_on_when_the_coordinator_dies(tmp_path: Path) -> None:
    _steady(tmp_path, 2, lambda resumed: None)


# What the worst of twenty kills may take: reading, and commits that are acknowledged.
KILLS: Final = 20
RESUMES_S: Final = 2.0


@pytest.mark.long
def test_the_coordinator_is_killed_twenty_times(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kills = list[Resumed]()
    _steady(tmp_path, portion(KILLS), kills.append)
    times = {
        "writing": sorted(max(one.writes_s.values()) for one in kills),
        "reading": sorted(max(one.reads_s.values()) for one in kills),
        "committing": sorted(max(one.commits_s.values()) for one in kills),
    }
    with capsys.disabled():
        print("", *kills, "", sep="\n")
        for what, took_s in times.items():
            p50, p99 = took_s[len(took_s) // 2], took_s[-1]
            print(f"{what} went on after p50 {p50:.2f} s, p99 {p99:.2f} s ({len(took_s)} kills)")
    if len(kills) < KILLS:
        # A part of the run, beside whatever else CI does: nothing was lost, but it has no p99.
        return
    # The p99 of twenty is the worst of them.
    assert times["reading"][-1] <= RESUMES_S
    assert times["committing"][-1] <= RESUMES_S


def test_a_watch_that_cannot_ask_fails_its_test() -> None:
    def ask() -> dict[int, int]:
        raise ConnectionError("nobody is there")

    watch = Watch(ask)
    watch.start()
    with pytest.raises(ConnectionError, match="nobody is there"):
        watch.hear(1)
    with pytest.raises(ConnectionError, match="nobody is there"):
        watch.stop()


def test_a_watch_tells_of_offsets_that_go_back() -> None:
    told: Iterator[dict[int, int]] = iter([{0: 4, 1: 7}, {0: 5, 1: 6}])
    watch = Watch(partial(next, told, None))
    watch.start()
    watch.hear(2)
    watch.stop()
    assert watch.went_back == ["1: 7 to 6"]
