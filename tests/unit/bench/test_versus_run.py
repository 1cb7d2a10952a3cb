"""Turns that fail are kept with their reason, and the others are taken; a signal ends all of it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from bench.peers.peer import Peer
from bench.peers.table import VARIANTS
from bench.versus.ending import end_tidily
from bench.versus.order import Turn
from bench.versus.results import Figures, Results
from bench.versus.run import Plan, Run
from bench.versus.stage import Clusters, Stage, Watch, become_calm, busy_s
from bench.versus.turns import _spent
from bench.versus.warming import warm_up
from bench.versus.workloads import chosen

# Beyond what Linux gives.
_NO_PID = 2**22 + 1
_HZ = os.sysconf("SC_CLK_TCK")


class FakePeer(Peer):
    """A system of one process that is not its own."""

    name = "fake"
    version = "0"
    settings: Mapping[str, str] = {}
    bootstrap = ""

    def __init__(self, directory: Path, pid: int = 0) -> None:
        super().__init__(directory)
        self.pid = pid
        self.is_ended = False

    @property
    def pids(self) -> Mapping[int, int]:
        return {1: self.pid}

    def spawn(self) -> None: ...
    def stop(self) -> None: ...
    def kill(self, node: int) -> None: ...
    def end(self) -> None:
        self.is_ended = True

    def is_ready(self) -> bool:
        return True

    def data_dir(self, node: int) -> Path:
        return self.directory / str(node)


class BusyPeer(FakePeer):
    """A system that takes a whole core until it has taken so much."""

    def __init__(self, directory: Path, left_s: float) -> None:
        super().__init__(directory)
        self._began = time.perf_counter()
        self._left_s = left_s

    def cpu_s(self) -> float:
        return min(time.perf_counter() - self._began, self._left_s)


class FailingClusters(Clusters):
    """Every cluster fails before it is there, with errors of others."""

    def __init__(self, directory: Path, error: Exception | None) -> None:
        super().__init__(directory)
        self._error = error

    @contextmanager
    def alone(self, variant: str, life: str = "") -> Iterator[Stage | None]:
        if self._error is not None:
            raise self._error
        yield None


class UnremovedStage(Stage):
    """A stage whose cluster does not answer any more."""

    def make(self, name: str, partitions: int, first: int = 1) -> float:
        return 0.0

    def remove(self, name: str) -> None:
        raise AssertionError(f"{name} of a cluster that may be dead was removed")


def _plan(*only: str) -> Plan:
    return Plan(chosen(only), rounds=1, variants=[], warm_gb=0, uncounted=0, budget_s=None)


class FakeClusters(Clusters):
    """Each cluster is a fake one, whose life is told."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.made = list[FakePeer]()

    @property
    def ended(self) -> list[bool]:
        return [peer.is_ended for peer in self.made]

    def _new(self, name: str) -> FakePeer:
        self.made.append(FakePeer(self._directory / f"{name}-{len(self.made)}"))
        return self.made[-1]


def test_turns_of_one_life_are_taken_on_one_cluster(tmp_path: Path) -> None:
    clusters = FakeClusters(tmp_path)
    with clusters.alone("kafka", "start 1") as stage:
        assert stage is not None
        stage.begin()
    with clusters.alone("kafka", "start 1") as again:
        assert again is stage
        assert again.is_begun
        assert clusters.ended == [False]
    with clusters.alone("kafka", "start 2") as other:
        assert other is not stage
        assert clusters.ended == [True, False]
    with clusters.alone("nats", "start 2") as third:
        assert third is not other
    clusters.close()
    assert clusters.ended == [True, True, True]


def test_a_cluster_on_which_a_turn_failed_has_no_further_life(tmp_path: Path) -> None:
    clusters = FakeClusters(tmp_path)
    with pytest.raises(RuntimeError, match="why"), clusters.alone("kafka", "start 1"):
        raise RuntimeError("why")
    with clusters.alone("kafka", "start 1"):
        assert clusters.ended == [True, False]


def test_a_topic_that_is_kept_is_filled_once_in_the_life_of_its_cluster(tmp_path: Path) -> None:
    filled, kept = list[str](), dict[str, str]()
    names = set[str]()
    for _ in range(2):
        stage = UnremovedStage(VARIANTS["kafka"], FakePeer(tmp_path), [], kept)
        names.add(stage.kept_topic("read", 12, filled.append))
    assert list(names) == filled
    other = UnremovedStage(VARIANTS["kafka-flush"], FakePeer(tmp_path), [], kept)
    assert other.kept_topic("read", 12, filled.append) not in names


def test_a_turn_that_failed_once_is_taken_again_at_once(tmp_path: Path) -> None:
    clusters = FailingClusters(tmp_path, None)
    results = Results(tmp_path / "run")
    tries = list[str]()

    def fail_once(turn: Turn) -> bool:
        tries.append(turn.variant)
        return len(tries) != 1

    run = Run(_plan("start"), results, clusters)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "_take", fail_once)
        run.take()
    assert tries == ["ottla-fsync", "ottla-fsync", "kafka", "nats"]


def test_who_takes_the_place_of_a_cluster_that_failed_is_made_as_warm(tmp_path: Path) -> None:
    """Else the rounds after it would be those of a JVM that has seen nothing yet."""
    results = Results(tmp_path / "run")
    plan = replace(_plan("produce-1kb:ottla-pagecache,kafka", "ack-300:kafka"), uncounted=2)
    run = Run(plan, results, FailingClusters(tmp_path, None))
    told, fails = list[str](), "kafka produce-1kb 1"

    def fail_once(turn: Turn) -> bool:
        told.append(f"{turn.variant} {turn.row.name} {turn.number}")
        return told[-1] != fails or told.count(fails) > 1

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "_take", fail_once)
        run.take()
    failed = told.index(fails)
    assert told[failed + 1 : failed + 4] == [
        "kafka produce-1kb -1",
        "kafka produce-1kb 0",
        "kafka produce-1kb 1",
    ]
    assert len(told) == 4 + 3 + 3


@pytest.mark.parametrize(
    "error", [subprocess.TimeoutExpired(["java"], 90), RuntimeError("x" * 9000), KeyError("VmRSS")]
)
def test_a_turn_that_fails_in_any_way_is_kept_and_the_next_is_taken(
    tmp_path: Path, error: Exception
) -> None:
    results = Results(tmp_path / "run")
    clusters = FailingClusters(tmp_path, error)
    assert not Run(_plan("start"), results, clusters).take()
    failures = results.failures()
    assert set(failures) == {"start ottla-fsync-1", "start kafka-1", "start nats-1"}
    assert all(why.startswith(type(error).__name__) for why in failures.values())
    assert all(len(why) <= 300 for why in failures.values())


def test_the_topic_of_a_turn_that_failed_is_left_to_its_cluster(tmp_path: Path) -> None:
    stage = UnremovedStage(VARIANTS["kafka"], FakePeer(tmp_path), [])
    with pytest.raises(RuntimeError, match="first"), stage.topic(1):
        raise RuntimeError("first")


def test_even_a_short_turn_has_its_memory_read(tmp_path: Path) -> None:
    with Watch(FakePeer(tmp_path, os.getpid()), []) as watch:
        pass
    assert watch.rss_peak_mb > 1


def test_a_machine_is_busy_with_all_but_waiting() -> None:
    # user nice system idle iowait irq softirq steal guest guest_nice
    assert busy_s("cpu  100 20 30 9000 500 1 2 47 7 7\ncpu0 1 2 3") == pytest.approx(200 / _HZ)


def test_what_is_spent_elsewhere_is_what_nobody_of_us_spent(tmp_path: Path) -> None:
    watch = Watch(FakePeer(tmp_path), [])
    watch.seconds, watch.busy_s, watch.own_cpu_s = 10.0, 15.0, 0.5
    watch.cpu_s, watch.others_cpu_s = 8.0, 0.5
    assert watch.elsewhere_cores(drivers_cpu_s=4.0) == pytest.approx(0.2)
    # Clocks of the kernel tick a hundred times a second.
    assert watch.elsewhere_cores(drivers_cpu_s=6.1) == 0.0


def test_with_the_kernel_is_with_all_that_nobody_else_spent(tmp_path: Path) -> None:
    watch = Watch(FakePeer(tmp_path), [])
    watch.seconds, watch.busy_s, watch.cpu_s = 2.0, 4.0, 2.4
    figures = _spent(watch, 0.5e9, [{"cpu_s": 1.0}])
    assert figures["cpu_s_per_gb"] == pytest.approx(4.8)
    assert figures["cpu_s_per_gb_with_kernel"] == pytest.approx(6.0)


def test_others_are_waited_for_until_they_are_idle(tmp_path: Path) -> None:
    busy, idle = BusyPeer(tmp_path, left_s=0.05), BusyPeer(tmp_path, left_s=0.0)
    began = time.perf_counter()
    assert become_calm([idle, busy], look_s=0.02)
    assert time.perf_counter() - began > 0.05
    assert become_calm([])


def test_who_does_not_become_idle_is_told(tmp_path: Path) -> None:
    assert not become_calm([BusyPeer(tmp_path, left_s=60)], seconds_max=0.03, look_s=0.01)
    clusters = FailingClusters(tmp_path, None)
    stage = Stage(VARIANTS["kafka"], FakePeer(tmp_path), [])
    stage.is_calm = False
    run = Run(_plan("start"), Results(tmp_path / "run"), clusters)
    (row,) = chosen(["start:kafka"])
    taken = run._taken(lambda *_: {"first_ack_s": 9.0}, stage, row)
    assert taken == {"first_ack_s": 9.0, "is_calm": False, "spent_s": {}}


def test_a_slow_cluster_is_warmed_up_with_as_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*_: object) -> Figures:
        return {"mb_per_s": 50.0, "seconds": 2.0}

    def nothing(*_: object) -> Figures:
        return {}

    monkeypatch.setattr("bench.versus.warming.produce", slow)
    for name in ("consume", "pace"):
        monkeypatch.setattr(f"bench.versus.warming.{name}", nothing)
    stage = Stage(VARIANTS["kafka"], FakePeer(tmp_path), [])
    assert warm_up(stage, 0.25)["curve"] == [[0.1, 50.0], [0.2, 50.0], [0.3, 50.0]]


def test_a_node_that_is_gone_does_not_hide_why_the_turn_failed(tmp_path: Path) -> None:
    peer = FakePeer(tmp_path, os.getpid())
    with pytest.raises(RuntimeError, match="why"), Watch(peer, []):
        _die(peer)


def _die(peer: FakePeer) -> None:
    peer.pid = _NO_PID
    raise RuntimeError("why")


def test_a_signal_leaves_every_block_and_a_second_one_does_not_disturb() -> None:
    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    left = list[str]()
    try:
        # Whoever runs these tests in the background has them ignored.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        end_tidily()
        with pytest.raises(SystemExit, match="asked to end"):
            _interrupted_twice(left)
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
    assert left == ["tidied"]


def test_who_was_told_to_outlive_its_terminal_does() -> None:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {one: signal.getsignal(one) for one in numbers}
    try:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        end_tidily()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _interrupted_twice(left: list[str]) -> None:
    try:
        signal.raise_signal(signal.SIGINT)
    finally:
        signal.raise_signal(signal.SIGTERM)
        left.append("tidied")
