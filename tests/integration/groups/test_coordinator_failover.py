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
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.node.groups.places import OFFSETS_TOPIC, partition_of
from tests.integration.clusters import RunningCluster, running_cluster
from tests.integration.groups.conftest import OPTIONS
from tests.integration.groups.crew import (
    Confluent,
    Errand,
    Readings,
    committed,
    share_out,
    until,
)

pytestmark = pytest.mark.integration

GROUP: Final = "steady"
TOPIC: Final = "steady-topic"
PARTITIONS: Final = 3
_PAUSE_S: Final = 0.02


# Who reads can only go on when there is something new: the writer tries again soon, where
# librdkafka by itself waits up to a second between two tries.
_SOON: Final = {
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 100,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
}


class Stream(Errand):
    """Writes all the time, and remembers how much was acknowledged, and when."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, **_SOON}
        )
        self._marked_s = 0.0
        # The first acknowledgement of a record of each partition that was written since the mark.
        self._again_s: dict[int, float] = {}
        self.ends: dict[int, int] = dict.fromkeys(range(PARTITIONS), 0)

    def work(self) -> None:
        number = 0
        while not self._ends.wait(_PAUSE_S):
            partition = number % PARTITIONS
            told = partial(self._told, time.monotonic())
            self._producer.produce(
                TOPIC, str(number).encode(), partition=partition, on_delivery=told
            )
            self._producer.poll(0)
            number += 1

    def _told(self, written_s: float, error: object, record: object) -> None:
        if error is None:
            partition, offset = record.partition(), record.offset()  # type: ignore[attr-defined]
            self.ends[partition] = max(self.ends[partition], offset + 1)
            if written_s > self._marked_s:
                self._again_s.setdefault(partition, time.monotonic())

    def mark(self) -> None:
        self._marked_s = time.monotonic()
        self._again_s = {}

    @property
    def resumed_s(self) -> float:
        """Return when the last partition had a record that was written since the mark."""
        return max(self._again_s.values(), default=self._marked_s)

    def stop(self) -> None:
        super().stop()
        assert self._producer.flush(60) == 0


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
    """How a kill was survived."""

    # From the kill until the first record of each partition.
    partitions_s: dict[int, float]
    # From the kill until each partition was written to again, by another client.
    writing_s: float
    # From the kill until a member has heard that what it read since then is committed.
    commits_s: dict[int, float]
    led: list[int]
    was_controller: bool

    @property
    def reading_s(self) -> float:
        return max(self.partitions_s.values())

    @property
    def committing_s(self) -> float:
        return max(self.commits_s.values())

    def __str__(self) -> str:
        each = ", ".join(f"{one:.2f}" for _, one in sorted(self.partitions_s.items()))
        also = ", the active controller too" if self.was_controller else ""
        return (
            f"{self.reading_s:.2f} s (partitions {each}; it led {self.led}{also}); writes "
            f"{self.writing_s:.2f} s, commits {self.committing_s:.2f} s"
        )


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
            readings.mark()
            stream.mark()
            until(lambda: len(readings.resumed_s()) == PARTITIONS, "reading goes on")
            until(lambda: len(readings.committed_s()) == PARTITIONS, "commits go on")
            again_s = {one: when - killed_s for (_, one), when in readings.resumed_s().items()}
            commits_s = {one: when - killed_s for (_, one), when in readings.committed_s().items()}
            until(partial(_is_further, cluster, before), "commits are told")
            # The second was asked for after the first was told.
            watch.hear(2)
            writing_s = stream.resumed_s - killed_s
            is_controller = known.controller_id == node.node_id
            after(Resumed(again_s, writing_s, commits_s, led, is_controller))
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
RESUMES_S: Final = 2.0


@pytest.mark.long
def test_the_coordinator_is_killed_twenty_times(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kills = list[Resumed]()
    _steady(tmp_path, 20, kills.append)
    reading_s = sorted(one.reading_s for one in kills)
    committing_s = sorted(one.committing_s for one in kills)
    with capsys.disabled():
        print("", *kills, sep="\n")
        print()
        for what, times in (("reading", reading_s), ("committing", committing_s)):
            p50, p99 = times[len(times) // 2], times[-1]
            print(f"{what} went on after p50 {p50:.2f} s, p99 {p99:.2f} s ({len(times)} kills)")
    # The p99 of twenty is the worst of them.
    assert reading_s[-1] <= RESUMES_S
    assert committing_s[-1] <= RESUMES_S


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
