"""The coordinator of a group is killed, again and again, while its members read and commit.

Committed offsets never go back, no record is skipped, and reading goes on soon.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
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


class Stream:
    """Writes all the time, and remembers how much was acknowledged, and when."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, **_SOON}
        )
        self._marked_s = 0.0
        # The first acknowledgement of a record of each partition that was written since the mark.
        self._again_s: dict[int, float] = {}
        self._ends = threading.Event()
        self.ends: dict[int, int] = dict.fromkeys(range(PARTITIONS), 0)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
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

    def stop(self) -> dict[int, int]:
        self._ends.set()
        self._thread.join()
        assert self._producer.flush(60) == 0
        return self.ends


class Watch:
    """Asks for the committed offsets all the time: they must not go back."""

    def __init__(self, bootstrap: str) -> None:
        self.newest: dict[int, int] = {}
        self.went_back: list[str] = []
        self._bootstrap = bootstrap
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ends.wait(0.2):
            told = committed(self._bootstrap, GROUP, TOPIC, PARTITIONS)
            for partition, offset in (told or {}).items():
                before = self.newest.get(partition, offset)
                if offset < before:
                    self.went_back.append(f"{partition}: {before} to {offset}")
                self.newest[partition] = max(before, offset)

    def stop(self) -> None:
        self._ends.set()
        self._thread.join(30)


class Resumed(NamedTuple):
    """How a kill was survived."""

    # From the kill until the first record of each partition.
    partitions_s: dict[int, float]
    # From the kill until each partition was written to again, by another client.
    writing_s: float
    # From the kill until offsets of all partitions were committed that were not before.
    commits_s: float
    led: list[int]
    was_controller: bool

    @property
    def reading_s(self) -> float:
        return max(self.partitions_s.values())

    def __str__(self) -> str:
        each = ", ".join(f"{one:.2f}" for _, one in sorted(self.partitions_s.items()))
        also = ", the active controller too" if self.was_controller else ""
        return (
            f"{self.reading_s:.2f} s (partitions {each}; it led {self.led}{also}); writes "
            f"{self.writing_s:.2f} s, commits {self.commits_s:.2f} s"
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
        members = [Confluent(cluster.bootstrap, GROUP, TOPIC, readings) for _ in range(2)]
        for member in members:
            member.start()
        share_out(list(members), PARTITIONS, TOPIC)
        watch = Watch(cluster.bootstrap)
        for _ in range(kills):
            node = cluster[_coordinator(cluster)]
            known = admin.list_topics(timeout=10)
            led = [
                index
                for index, one in known.topics[TOPIC].partitions.items()
                if one.leader == node.node_id
            ]
            before = committed(cluster.bootstrap, GROUP, TOPIC, PARTITIONS)
            node.kill()
            killed_s = time.monotonic()
            readings.mark()
            stream.mark()
            until(lambda: len(readings.resumed_s()) == PARTITIONS, "reading goes on")
            until(partial(_is_further, cluster, before), "commits go on")
            again_s = {one: when - killed_s for one, when in readings.resumed_s().items()}
            commits_s = time.monotonic() - killed_s
            writing_s = stream.resumed_s - killed_s
            is_controller = known.controller_id == node.node_id
            after(Resumed(again_s, writing_s, commits_s, led, is_controller))
            node.start()
            node.wait_until_ready()
        ends = stream.stop()
        until(lambda: readings.has_all(ends), "every acknowledged record is read")
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


HANGS_S = 10.0


@pytest.mark.long
def test_the_coordinator_is_killed_twenty_times(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kills = list[Resumed]()
    _steady(tmp_path, 20, kills.append)
    times = sorted(one.reading_s for one in kills)
    p50, p99 = times[len(times) // 2], times[-1]
    with capsys.disabled():
        print("", *kills, sep="\n")
        print(f"\nreading went on after p50 {p50:.2f} s, p99 {p99:.2f} s ({len(times)} kills)")
    # A figure, which docs/EVIDENCE.md has; the bound only says that nothing hung.
    assert p99 < HANGS_S
