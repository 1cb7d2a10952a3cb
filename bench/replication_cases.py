"""One turn at one load: a topic is made, driven by librdkafka, read back and removed.

    side         what takes the load
    RF 3         three copies, two of which must hold a record before it is acknowledged
    RF 1         the same cluster, one copy: what is left is what replication costs
    bare         the hot path of RF 3 alone (`bare_replication.py`): what the promises cost
    limit        a loop that keeps no promise (`limit_broker.py`): what the driver can do

E1  every record of a turn was acknowledged, and all of them were read back
E2  a turn in which a copy fell out of sync says so: its figure is not that of three copies

Not here: in which order turns are taken, and how they are shown (`replication.py`).
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from filecmp import cmp
from pathlib import Path
from statistics import median
from typing import Any, Final, Protocol

from bench.measure import warm_memory
from bench.node_servers import TOP, Durability, bare_command, limit_command, running
from bench.replication_cluster import Cluster, CpuTime, MemoryPeak, cpu_of

MIN_IN_SYNC: Final = 2
_TURN_S_MAX: Final = 120


@dataclass(frozen=True, slots=True)
class Load:
    """What is asked of a side in one turn."""

    durability: Durability
    size: int
    partitions: int
    count: int
    # Records/s; None: as fast as it goes, and then everything is read back.
    rate: int | None = None

    @property
    def name(self) -> str:
        size = "1 KB" if self.size == 1024 else f"{self.size} B"
        plural = "s" if self.partitions > 1 else ""
        pace = "" if self.rate is None else f", {self.rate:,}/s"
        return f"{size}, {self.partitions} partition{plural}, {self.durability}{pace}"

    @property
    def megabytes(self) -> float:
        return self.size * self.count / 1e6


@dataclass(frozen=True, slots=True)
class Turn:
    """What one turn took. Processor time is that of all nodes together."""

    seconds: float
    cpu: CpuTime
    driver_cores: float
    # Of the node that had most.
    rss_mb: float
    anon_mb: float
    # Of single writes, sorted; and how many were sent late, by the driver's own fault.
    times_us: Sequence[int] = ()
    late: int = 0
    # How long it took to read all of it back.
    consume_s: float | None = None
    all_in_sync: bool = True


class Side(Protocol):
    """Something that takes the load."""

    @property
    def name(self) -> str: ...

    async def take(self, load: Load) -> Turn: ...


async def driven(command: str, bootstrap: str, topic: str, load: Load) -> dict[str, Any]:
    """Return what the driver says about one command."""
    line = [sys.executable, "-m", "bench.replication_drive", command, "--to", bootstrap]
    line += ["--topic", topic, "--partitions", str(load.partitions), "--size", str(load.size)]
    line += ["--count", str(load.count)]
    if load.rate is not None:
        line += ["--rate", str(load.rate)]
    process = await asyncio.create_subprocess_exec(*line, cwd=TOP, stdout=asyncio.subprocess.PIPE)
    try:
        async with asyncio.timeout(_TURN_S_MAX):
            output, _ = await process.communicate()
    except BaseException:
        process.kill()
        raise
    if process.returncode:
        raise SystemExit(f"the driver failed at: {command}, {load.name}")
    told: dict[str, Any] = json.loads(output)
    return told


async def _measured(pids: Sequence[int], bootstrap: str, topic: str, load: Load) -> Turn:
    command = "produce" if load.rate is None else "pace"
    before = cpu_of(pids)
    async with MemoryPeak(pids) as memory:
        told = await driven(command, bootstrap, topic, load)
        spent = cpu_of(pids).since(before)
        consumed = None
        if load.rate is None:
            consumed = (await driven("consume", bootstrap, topic, load))["seconds"]
    return Turn(
        seconds=told["seconds"],
        # The driver warms up as well, and the nodes work for that too.
        cpu=spent.times(told["count"] / told["all_count"]),
        driver_cores=told["cpu_s"] / told["seconds"],
        rss_mb=memory.rss_mb,
        anon_mb=memory.anon_mb,
        times_us=told.get("times_us", ()),
        late=told.get("late", 0),
        consume_s=consumed,
    )


class ClusterSide:
    """Topics with so many copies in a cluster."""

    def __init__(self, name: str, cluster: Cluster, copies: int) -> None:
        self.name: Final = name
        self.cluster: Final = cluster
        self._copies: Final = copies
        self._turns = 0

    async def take(self, load: Load) -> Turn:
        self._turns += 1
        topic = f"copies-{self._copies}-turn-{self._turns}"
        wanted = load.partitions * self._copies
        configs = {
            "ottla.durability": load.durability,
            "min.insync.replicas": str(min(MIN_IN_SYNC, self._copies)),
        }
        cluster = self.cluster
        await cluster.create(
            topic, partitions=load.partitions, copies=self._copies, configs=configs
        )
        if load.rate is None:
            cluster.warm(int(load.megabytes * 1e6) * self._copies)
        turn = await _measured(cluster.pids, cluster.bootstrap, topic, load)
        in_sync = await cluster.in_sync(topic, load.partitions)
        await cluster.delete(topic)
        return turn if in_sync == wanted else _with_note(turn)


def _with_note(turn: Turn) -> Turn:
    # dataclasses.replace would copy the times.
    return Turn(
        turn.seconds,
        turn.cpu,
        turn.driver_cores,
        turn.rss_mb,
        turn.anon_mb,
        turn.times_us,
        turn.late,
        turn.consume_s,
        all_in_sync=False,
    )


class LimitSide:
    """A new limit broker in an empty directory for every turn; or one that has two followers."""

    def __init__(self, directory: Path, *, bare: bool = False) -> None:
        self.name: Final = "bare" if bare else "limit"
        self._place: Final = directory / self.name
        self._command: Final = bare_command if bare else limit_command

    async def take(self, load: Load) -> Turn:
        command = self._command(self._place, load.durability)
        command += ["--partitions", str(load.partitions)]
        with running(self.name, self._place, command) as server:
            pids = [server.process.pid, *self._followers()]
            if load.rate is None:
                warm_memory(str(self._place.parent), int(load.megabytes * 1e6) * len(pids))
            turn = await _measured(pids, server.address, "t", load)
        self._compare(load.partitions)
        shutil.rmtree(self._place)
        return turn

    def _compare(self, partitions: int) -> None:
        """Followers, if there are any, have what the leader has, byte for byte."""
        for copies in self._place.glob("follower-*"):
            for number in range(partitions):
                if not cmp(self._place / f"t-{number}", copies / str(number), shallow=False):
                    raise SystemExit(f"{self.name}: a copy of partition {number} differs")

    def _followers(self) -> list[int]:
        told = self._place / "followers"
        return [int(pid) for pid in told.read_text().split()] if told.exists() else []


@dataclass(frozen=True, slots=True)
class Figure:
    """All turns of one side at one load, the warm-up left out."""

    load: Load
    side: str
    turns: list[Turn]

    @property
    def megabytes_per_s(self) -> list[float]:
        return [self.load.megabytes / turn.seconds for turn in self.turns]

    @property
    def records_per_s(self) -> float:
        return median(self.load.count / turn.seconds for turn in self.turns)

    @property
    def consumed_megabytes_per_s(self) -> float:
        return median(self.load.megabytes / (turn.consume_s or 1e9) for turn in self.turns)

    @property
    def cpu_s_per_gb(self) -> float:
        return median(turn.cpu.all_s for turn in self.turns) / self.load.megabytes * 1000

    @property
    def system_share(self) -> float:
        spent = sum(turn.cpu.all_s for turn in self.turns)
        return sum(turn.cpu.system_s for turn in self.turns) / spent if spent else 0.0

    @property
    def cpu_us_per_record(self) -> float:
        return median(turn.cpu.all_s for turn in self.turns) / self.load.count * 1e6

    @property
    def cores(self) -> float:
        return median(turn.cpu.all_s / turn.seconds for turn in self.turns)

    @property
    def out_of_sync(self) -> int:
        return sum(not turn.all_in_sync for turn in self.turns)

    def latency_us(self, share: float) -> list[int]:
        """Return for each turn the time within which that share of its writes was answered."""
        return [at_share(turn.times_us, share) for turn in self.turns]

    def facts(self) -> dict[str, object]:
        facts: dict[str, object] = {
            "load": self.load.name,
            "side": self.side,
            "seconds": [round(turn.seconds, 4) for turn in self.turns],
            "mb_per_s": [round(speed, 1) for speed in self.megabytes_per_s],
            "records_per_s": round(self.records_per_s),
            "cpu_s_per_gb": round(self.cpu_s_per_gb, 3),
            "cpu_us_per_record": round(self.cpu_us_per_record, 1),
            "system_share": round(self.system_share, 3),
            "driver_cores": round(median(turn.driver_cores for turn in self.turns), 2),
            "rss_mb": round(max(turn.rss_mb for turn in self.turns), 1),
            "anon_mb": round(max(turn.anon_mb for turn in self.turns), 1),
            "turns_out_of_sync": self.out_of_sync,
        }
        if self.load.rate is None:
            facts["consume_mb_per_s"] = round(self.consumed_megabytes_per_s, 1)
        else:
            facts["latency_us"] = {
                f"p{share:g}": self.latency_us(share / 100) for share in (50, 99, 99.9, 100)
            }
            facts["sent_late"] = [turn.late for turn in self.turns]
        return facts


def at_share(times_us: Sequence[int], share: float) -> int:
    """Return the least time that is not exceeded by that share of sorted times."""
    place = max(0, -int(-share * len(times_us) // 1) - 1)
    return times_us[min(place, len(times_us) - 1)]
