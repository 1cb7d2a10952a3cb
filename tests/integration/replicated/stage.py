"""A cluster with two topics, both kinds of writers, and a watch; and what is done to its nodes.

`raw` has a partition for each node, led by it at first; the raw writer writes to one of them at a
time: to one that is led by the next victim. `librdkafka` writes to all partitions of `foreign`.

Faults wait for conditions: for acknowledged writes before them, so that their moment is drawn from
the dice and not from a clock, and for acknowledged writes after them.

Not here: which faults, how many (`test_*.py`).
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from ottla.proto.ids import TopicPartition
from tests.integration.clusters import ClusterNode, RunningCluster, living
from tests.integration.nodes import wait_until
from tests.integration.replicated.figures import Sample
from tests.integration.replicated.foreign_writer import FOREIGN, ForeignWriter
from tests.integration.replicated.history import Fate, History
from tests.integration.replicated.judge import Found, judge, vanished
from tests.integration.replicated.live_reader import LiveReader
from tests.integration.replicated.raw_writer import RAW, RawWriter
from tests.integration.replicated.reader import ReadBack, read_all
from tests.integration.replicated.replicas import differences, unsound
from tests.integration.replicated.watch import LeaderWatch
from tests.integration.replicated.wire import (
    PartitionSeen,
    create_topic,
    elect_preferred,
    look,
)

RAW_TOPIC: Final = "raw"
FOREIGN_TOPIC: Final = "foreign"
# Of every partition, one on each broker.
REPLICAS: Final = 3
DEADLINE_S: Final = 60.0
# Acknowledged after a fault: then writes go on.
RESUMED: Final = 20
# What the process leaves with when the fault seam cuts its power.
CUT: Final = 137
CUT_STYLES: Final = ("drop", "torn", "reorder", "mixed")
# Said by a node that met a bug.
_ALARMS: Final = ("Traceback", "InvariantError", "this is a bug", "CRITICAL")
# The last words of a node without power.
_NO_ALARM: Final = "PowerCutError"


@dataclass(slots=True)
class Stage:
    """Everything of one run."""

    cluster: RunningCluster
    dice: Random
    history: History = field(default_factory=History)
    topics: list[str] = field(default_factory=list)
    raw: RawWriter | None = None
    foreign: ForeignWriter | None = None
    watch: LeaderWatch | None = None
    reader: LiveReader | None = None
    # The nodes that are brokers.
    brokers: list[int] = field(default_factory=list)

    @property
    def addresses(self) -> dict[int, str]:
        return {node_id: self.cluster[node_id].bootstrap for node_id in self.brokers}

    @property
    def data_dirs(self) -> dict[int, Path]:
        return {node_id: self.cluster[node_id].data_dir for node_id in self.brokers}

    # -- how it is -------------------------------------------------------------------------------

    def view(self) -> Mapping[TopicPartition, PartitionSeen]:
        running = {
            node_id: address
            for node_id, address in self.addresses.items()
            if self.cluster[node_id].is_running
        }
        return look(running, self.topics)

    def leader_of(self, place: TopicPartition) -> int:
        seen = self.view().get(place)
        return -1 if seen is None else seen.leader

    def wait_whole(self, deadline_s: float = DEADLINE_S) -> None:
        """Wait until every partition has a leader and all its replicas are in sync."""
        last = list[Mapping[TopicPartition, PartitionSeen]]()

        def holds() -> bool:
            self.require_sound()
            last[:] = [self.view()]
            return bool(last[0]) and all(seen.is_whole for seen in last[0].values())

        try:
            wait_until(holds, deadline_s, "all replicas are in sync")
        except TimeoutError as error:
            broken = {str(k): v for k, v in last[0].items() if not v.is_whole}
            raise TimeoutError(f"{error}; they are {dict(list(broken.items())[:5])}") from None

    def require_sound(self) -> None:
        for one in (self.raw, self.foreign, self.watch, self.reader):
            if one is not None:
                one.require_sound()

    def wait_acknowledged(
        self, count: int, since_s: float | None = None, deadline_s: float = DEADLINE_S
    ) -> float:
        """Wait for so many writes of the raw writer after a moment; return the time."""
        since = time.monotonic() if since_s is None else since_s

        def holds() -> bool:
            self.require_sound()
            return self.history.acknowledged_since(RAW, since) >= count

        try:
            wait_until(holds, deadline_s, f"{count} writes are acknowledged")
        except TimeoutError as error:
            told = self.history.since(RAW, since)[-5:]
            raise TimeoutError(f"{error}; the last attempts: {told}; {self.view()}") from None
        return time.monotonic()

    def _last_to_acknowledge(self) -> int | None:
        kept = (one for one in reversed(self.history.attempts) if one.writer == RAW)
        return next(one.node for one in kept if one.fate is Fate.OK)

    # -- where it writes -------------------------------------------------------------------------

    def write_where(self, victim: int) -> TopicPartition:
        """Let the raw writer write to a partition that this node leads."""
        place = TopicPartition(RAW_TOPIC, self.brokers.index(victim))
        led = [one for one, seen in self.view().items() if seen.leader == victim]
        mine = [one for one in led if one.topic == RAW_TOPIC]
        if mine:
            place = mine[0]
        else:
            elect_preferred(self.addresses, RAW_TOPIC, [place.partition])
            wait_until(lambda: self.leader_of(place) == victim, DEADLINE_S, f"it leads {place}")
        self.move_to(place)
        return place

    def move_to(self, place: TopicPartition) -> None:
        assert self.raw is not None
        self.raw.move_to(place)

        def holds() -> bool:
            self.require_sound()
            latest = self.history.since(RAW, began_s)
            return any(one.place == place and one.fate is Fate.OK for one in latest)

        began_s = time.monotonic()
        wait_until(holds, DEADLINE_S, f"it writes to {place}")

    def choose(self, is_active: bool) -> ClusterNode:
        """Return the active controller, or by lot one that is not."""
        active = self.cluster.active_controller()
        if is_active:
            return active
        others = [one for one in self.brokers if one != active.node_id]
        return self.cluster[self.dice.choice(others)]

    # -- what is done to it ----------------------------------------------------------------------

    def strike(
        self,
        kind: str,
        victim: ClusterNode,
        fault: Callable[[ClusterNode], None],
        mend: Callable[[ClusterNode], None],
    ) -> Sample:
        """Do something to a node at a moment of the dice, mend it; return what a writer saw."""
        self.wait_acknowledged(self.dice.randint(5, 60))
        assert self._last_to_acknowledge() == victim.node_id, f"node {victim.node_id} did not lead"
        began_s = time.monotonic()
        fault(victim)
        resumed_s = self.wait_acknowledged(RESUMED, since_s=began_s)
        assert self._last_to_acknowledge() != victim.node_id, "it acknowledged from the grave"
        outage_s = self.history.longest_gap(RAW, began_s, resumed_s)
        mend(victim)
        self.wait_whole()
        whole_s = self.wait_acknowledged(1)
        return Sample(kind, outage_s, self.history.longest_gap(RAW, resumed_s, whole_s))

    # -- the end ---------------------------------------------------------------------------------

    def end_writers(self) -> None:
        for one in (self.foreign, self.raw, self.watch, self.reader):
            if one is not None:
                one.stop()
        self.foreign_fatal()

    def foreign_fatal(self) -> None:
        if self.foreign is not None:
            assert not self.foreign.fatal, self.foreign.fatal

    def judged(self) -> dict[TopicPartition, ReadBack]:
        """Read the topics back and raise unless they follow from what was answered.

        Only of topics to which nobody writes any more.
        """
        tried = [one for one in self.history.attempts if one.place.topic in self.topics]
        ends = dict[TopicPartition, int]()
        for one in tried:
            ends[one.place] = max(ends.get(one.place, 0), one.offset + 1)
        back = read_all(self.addresses, sorted(ends, key=str), ends=ends)
        logs: dict[TopicPartition, Sequence[Found]] = {
            place: one.records for place, one in back.items()
        }
        problems = judge(tried, logs, self.history.leaders, ordered=[FOREIGN])
        for place, seen in ({} if self.reader is None else self.reader.seen).items():
            if place in logs:
                problems += vanished(place, seen, logs[place])
        assert not problems, "\n".join([*problems, *self.new_epochs()])
        return back

    def new_epochs(self) -> list[str]:
        """Return why librdkafka began new producer epochs, in its own words."""
        return [] if self.foreign is None else self.foreign.new_epochs

    def require_same_replicas(self, back: Mapping[TopicPartition, ReadBack]) -> None:
        """Raise unless each of three nodes has the same batches as far as they were read back.

        Only of partitions that are whole and to which nobody writes any more.
        """
        assert len(self.data_dirs) == REPLICAS
        high_watermarks = {place: one.high_watermark for place, one in back.items()}
        problems = differences(self.data_dirs, high_watermarks)
        assert not problems, "\n".join(problems)

    @contextmanager
    def only(self, topic: str) -> Iterator[None]:
        """Look at nothing but this topic, and then at it no more."""
        others = [one for one in self.topics if one != topic]
        self.topics = [topic]
        yield
        self.topics = others

    def judge_all(self, *, twice: bool = False) -> None:
        """End the writers; judge what is read, the files of the stopped nodes, and the logs."""
        self.end_writers()
        self.wait_whole()
        back = self.judged()
        for node in self.cluster.running:
            node.is_expected = False
            node.ask_to_stop()
        codes = {node.node_id: node.wait_stopped() for node in self.cluster.nodes.values()}
        assert set(codes.values()) == {0}, codes
        self.require_same_replicas(back)
        assert not (problems := unsound(self.data_dirs)), "\n".join(problems)
        assert not (alarms := self.alarms()), alarms
        if twice:
            self.cluster.start()
            self.cluster.wait_until_ready()
            assert self.judged() == back, "a restart changed what is read"
        seen = 0 if self.reader is None else sum(map(len, self.reader.seen.values()))
        assert seen, "nobody read along"
        print(f"outcomes: {self.history.counts()}; {seen} records were read along")

    def alarms(self) -> list[str]:
        return [
            f"node {node.node_id}: {line}"
            for node in self.cluster.nodes.values()
            for line in node.log_path.read_text(errors="replace").splitlines()
            if any(word in line for word in _ALARMS) and _NO_ALARM not in line
        ]


# -- faults and their mending --------------------------------------------------------------------


def kill(node: ClusterNode) -> None:
    node.kill()


def terminate(node: ClusterNode) -> None:
    code = node.stop()
    assert code == 0, node.failure(f"it ended with {code} after SIGTERM")


def cut_power(node: ClusterNode) -> None:
    pull_plug(node)
    assert node.process.wait(DEADLINE_S) == CUT, node.failure(f"it left with {node.exit_code}")


def pull_plug(node: ClusterNode) -> None:
    node.is_expected = False
    node.process.send_signal(signal.SIGUSR2)


def start_again(node: ClusterNode) -> None:
    node.start()
    node.wait_until_ready(DEADLINE_S)


class PoweredNode(ClusterNode):
    """A node with a plug that can be pulled."""

    program = "tests.integration.replicated.powered"


def draw_faults(node: ClusterNode, dice: Random) -> None:
    """Choose what a cut does at the end of the next life of a node."""
    faults = f"style={dice.choice(CUT_STYLES)};seed={dice.randrange(1000)}"
    node.environment["OTTLA_FAULTS"] = faults


def powered(cluster: RunningCluster) -> RunningCluster:
    """Return the same cluster of nodes that can lose their power."""
    made = dict[int, ClusterNode]()
    for node in cluster.nodes.values():
        made[node.node_id] = PoweredNode(
            node.node_id, node.directory, node.options, node.environment, node.ports
        )
    return RunningCluster(made)


# -- putting it up -------------------------------------------------------------------------------


def rotations(nodes: Sequence[int]) -> list[list[int]]:
    """Return the nodes in every turn, so that each comes first once."""
    return [[*nodes[at:], *nodes[:at]] for at in range(len(nodes))]


@contextmanager
def on_stage(
    cluster: RunningCluster,
    seed: int,
    *,
    brokers: Sequence[int] | None = None,
    foreign_per_s: int = 200,
    timeout_ms: int = 10_000,
) -> Iterator[Stage]:
    """Start a cluster and the writers; end them all after the block."""
    chosen = sorted(cluster.nodes) if brokers is None else list(brokers)
    stage = Stage(cluster, Random(seed), brokers=chosen)
    with living(cluster), ExitStack() as stack:
        cluster.start()
        cluster.wait_until_ready(deadline_s=DEADLINE_S)
        stage.topics = [RAW_TOPIC, FOREIGN_TOPIC] if foreign_per_s else [RAW_TOPIC]
        for name in stage.topics:
            create_topic(stage.addresses, name, rotations(chosen), {"min.insync.replicas": "2"})
        first = TopicPartition(RAW_TOPIC, 0)
        stage.raw = RawWriter(stage.addresses, first, stage.history, timeout_ms=timeout_ms)
        stack.enter_context(stage.raw)
        if foreign_per_s:
            bootstrap = ",".join(stage.addresses.values())
            stage.foreign = ForeignWriter(
                bootstrap, FOREIGN_TOPIC, len(chosen), stage.history, per_s=foreign_per_s
            )
            stack.enter_context(stage.foreign)
        stage.watch = LeaderWatch(stage.addresses, tuple(stage.topics), stage.history)
        stack.enter_context(stage.watch)
        stage.reader = LiveReader(stage.addresses, list(stage.view()))
        stack.enter_context(stage.reader)
        stage.wait_acknowledged(RESUMED)
        yield stage
