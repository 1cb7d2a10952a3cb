"""Where turns are taken: the clusters that run, and what a turn needs of them.

    shared   one cluster of each peer, warmed up, for all turns that only load it
    alone    a new cluster for one turn, or for turns that share a life; with no other beside it

G1  clusters that run beside the one that is measured are idle: what they still do for an earlier
    turn is waited for (`wait_calm`), and what they cost is told
G2  whatever is started here is ended here

Not here: what a turn does (`turns.py`).
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from bench.measure import say, warm_memory
from bench.peers import topics
from bench.peers.nats import NatsPeer
from bench.peers.peer import MissingError, Peer
from bench.peers.table import PEERS, VARIANTS, Variant

_SAMPLE_S: Final = 0.1
# A cluster is idle that takes less than this over so long. Kafka's takes up to 0.2.
_CALM_CORES: Final = 0.25
_CALM_LOOK_S: Final = 0.3
_CALM_S_MAX: Final = 10.0
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
# More of it would be written back before it is used.
_TOUCH_BYTES_MAX: Final = 2 << 30


def busy_s(stat: str) -> float:
    """Return for how long the cores were busy since the machine started, by its /proc/stat."""
    # user nice system idle iowait irq softirq steal; what follows is in the first two already.
    ticks = [int(word) for word in stat.split("\n", 1)[0].split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / _TICKS_PER_S


def become_calm(
    peers: Sequence[Peer], seconds_max: float = _CALM_S_MAX, look_s: float = _CALM_LOOK_S
) -> bool:
    """Wait until each of them is idle; return whether they were in the end."""
    end = time.perf_counter() + seconds_max
    while peers:
        began, before = time.perf_counter(), [one.cpu_s() for one in peers]
        time.sleep(look_s)
        allowed_s = _CALM_CORES * (time.perf_counter() - began)
        if all(one.cpu_s() - then < allowed_s for one, then in zip(peers, before, strict=True)):
            return True
        if time.perf_counter() > end:
            return False
    return True


class Watch:
    """What a cluster spends while a block runs: memory at its peak, and processor time."""

    def __init__(self, peer: Peer, others: list[Peer]) -> None:
        self._peer: Final = peer
        self._others: Final = others
        self._over: Final = threading.Event()
        self._thread: Final = threading.Thread(target=self._look, daemon=True)
        # Of the node that had most.
        self.rss_peak_mb = 0.0
        self.cpu_s = 0.0
        self.seconds = 0.0
        self.others_cpu_s = 0.0
        # Of the whole machine, what the host took included; and of this process.
        self.busy_s = 0.0
        self.own_cpu_s = 0.0

    def __enter__(self) -> Self:
        self.seconds = -time.perf_counter()
        self.busy_s = -busy_s(Path("/proc/stat").read_text(encoding="ascii"))
        self.own_cpu_s = -time.process_time()
        self.cpu_s = -self._peer.cpu_s()
        self.others_cpu_s = -sum(one.cpu_s() for one in self._others)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()
        # Who failed may have no node left that could be asked.
        if error is None:
            self._look_once()
            self.cpu_s += self._peer.cpu_s()
            self.others_cpu_s += sum(one.cpu_s() for one in self._others)
            self.own_cpu_s += time.process_time()
            self.busy_s += busy_s(Path("/proc/stat").read_text(encoding="ascii"))
            self.seconds += time.perf_counter()

    def elsewhere_cores(self, drivers_cpu_s: float) -> float:
        """Return how many cores were busy with what is not ours, and not asked for by us.

        Those are other programs, other machines on the same host, and threads of the kernel.
        """
        ours_s = self.cpu_s + self.others_cpu_s + self.own_cpu_s + drivers_cpu_s
        return max(0.0, self.busy_s - ours_s) / self.seconds

    def _look(self) -> None:
        while not self._over.wait(_SAMPLE_S):
            try:
                self._look_once()
            except (OSError, KeyError):
                # A node is gone, or a process without memory: the turn finds out by itself.
                return

    def _look_once(self) -> None:
        self.rss_peak_mb = max(self.rss_peak_mb, *self._peer.rss_mb().values())


class Stage:
    """One peer in one variant, on which a turn is taken."""

    def __init__(
        self, variant: Variant, peer: Peer, others: list[Peer], kept: dict[str, str] | None = None
    ) -> None:
        self.variant: Final = variant
        self.peer: Final = peer
        self._others: Final = others
        # What it is for → the topic that lasts as long as the cluster.
        self._kept: Final = {} if kept is None else kept
        self._topics = 0
        # Of a cluster that is given before it is started: whether an earlier turn began it.
        self.is_begun = False
        # Whether the others were idle when the clock last began to run.
        self.is_calm = True
        # What a turn spends its time with; over when the turn is.
        self.spent_s: Final = defaultdict[str, float](float)

    @property
    def driver(self) -> str:
        name = "kafka" if self.variant.speaks_kafka else "nats"
        return f"bench.versus.drive_{name}"

    def begin(self) -> None:
        """Begin the processes of a cluster that is not begun."""
        self.peer.spawn()
        self.is_begun = True

    @contextmanager
    def lap(self, what: str) -> Iterator[None]:
        """Count what the block takes as time for that."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.spent_s[what] += time.perf_counter() - start

    @contextmanager
    def watch(self) -> Iterator[Watch]:
        with self.lap("load"), Watch(self.peer, self._others) as watch:
            yield watch

    def wait_calm(self) -> None:
        """Wait until clusters that are not asked are done with what an earlier turn left."""
        with self.lap("calm"):
            self.is_calm = become_calm(self._others)

    def warm(self, payload_bytes: int) -> None:
        """Touch as much memory as is about to be written: it may be ten times dearer otherwise."""
        with self.lap("memory"):
            warm_memory(str(self.peer.directory.parent), min(3 * payload_bytes, _TOUCH_BYTES_MAX))

    @contextmanager
    def topic(self, partitions: int, first: int = 1) -> Iterator[str]:
        """Give a new topic, or stream, and remove it after the block."""
        name = self._new_name()
        with self.lap("topic"):
            self.make(name, partitions, first)
        yield name
        # Not if the turn failed: its cluster goes as a whole, and may not answer any more.
        with self.lap("topic"):
            self.remove(name)

    def _new_name(self) -> str:
        self._topics += 1
        return f"turn-{self._topics}-{time.time_ns() % 10**9}"

    def kept_topic(self, use: str, partitions: int, fill: Callable[[str], None]) -> str:
        """Return the topic of that use, which lasts as long as its cluster; it is filled once."""
        key = f"{self.variant.name} {use}"
        if key not in self._kept:
            with self.lap("fill"):
                name = self._new_name()
                self.make(name, partitions)
                fill(name)
            self._kept[key] = name
        return self._kept[key]

    def make(self, name: str, partitions: int, first: int = 1) -> float:
        """Return how long it took until all copies were in sync."""
        start = time.perf_counter()
        if isinstance(self.peer, NatsPeer):
            self.peer.create_stream(name)
            return time.perf_counter() - start
        configs = {"min.insync.replicas": "2", **self.variant.topic_configs}
        spread = topics.spread(partitions, first)
        took_s = topics.create(self.peer.bootstrap, name, spread, configs)
        topics.require_configs(self.peer.bootstrap, name, configs)
        return took_s

    def remove(self, name: str) -> None:
        if isinstance(self.peer, NatsPeer):
            self.peer.delete_stream(name)
        else:
            topics.delete(self.peer.bootstrap, name)


class Clusters:
    """The clusters that run now; closed with the block."""

    def __init__(self, directory: Path) -> None:
        self._directory: Final = directory
        self._shared: Final = dict[str, Peer]()
        # Peer → topics that last as long as its shared cluster.
        self._kept: Final = dict[str, dict[str, str]]()
        # The cluster that was taken alone and may be needed again, with the life it has.
        self._last: tuple[str, Stage] | None = None
        # Peer → why it is left out.
        self.missing: Final = dict[str, str]()
        self.seen: Final = dict[str, Peer]()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all clusters."""
        for name in list(self._shared):
            self.drop(name)
        self._end_last()

    def _end_last(self) -> None:
        if self._last is not None:
            _, stage = self._last
            self._last = None
            self._remove(stage.peer)

    def _remove(self, peer: Peer) -> None:
        peer.end()
        shutil.rmtree(peer.directory, ignore_errors=True)

    def drop(self, name: str) -> None:
        """End a shared cluster; the next turn gets a new one."""
        self._kept.pop(name, None)
        peer = self._shared.pop(name, None)
        if peer is not None:
            self._remove(peer)

    def is_running(self, name: str) -> bool:
        return name in self._shared

    def shared(self, variant: str) -> Stage | None:
        """Return a stage on the shared cluster, started if need be; None: it is missing here."""
        self._end_last()
        row = VARIANTS[variant]
        peer = self._shared.get(row.peer) or self._new(row.peer)
        if peer is None:
            return None
        if row.peer not in self._shared:
            self._shared[row.peer] = peer
            say(f"starting {peer.version}")
            peer.start()
        others = [one for one in self._shared.values() if one is not peer]
        return Stage(row, peer, others, self._kept.setdefault(row.peer, {}))

    @contextmanager
    def alone(self, variant: str, life: str = "") -> Iterator[Stage | None]:
        """Give a stage on a cluster that is prepared and not started; nothing else runs.

        If the turn before was in the same life, it is the cluster of that turn, as it was left.
        """
        key = f"{variant} {life}"
        if life and self._last is not None and self._last[0] == key:
            _, stage = self._last
            self._last = None
        else:
            self.close()
            row = VARIANTS[variant]
            peer = self._new(row.peer)
            if peer is None:
                yield None
                return
            stage = Stage(row, peer, [])
        is_kept = False
        stage.spent_s.clear()
        try:
            if not stage.is_begun:
                with stage.lap("prepare"):
                    stage.peer.prepare()
            yield stage
            is_kept = bool(life)
        finally:
            if is_kept:
                self._last = (key, stage)
            else:
                self._remove(stage.peer)

    def _new(self, name: str) -> Peer | None:
        if name in self.missing:
            return None
        directory = self._directory / f"{name}-{time.time_ns()}"
        try:
            peer = PEERS[name](directory)
            # Asked now: who is missing says so here.
            version = peer.version
        except MissingError as error:
            self.missing[name] = str(error)
            say(str(error))
            return None
        assert version
        self.seen[name] = peer
        directory.mkdir(parents=True)
        return peer
