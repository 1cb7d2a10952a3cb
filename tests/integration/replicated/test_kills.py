"""Leaders die, hang and are asked to go, again and again, while two kinds of writers write.

Three nodes, three replicas, min ISR 2. Before each fault the raw writer writes to a partition that
the victim leads. Afterwards every acknowledged record is read back at its offset, in order, once;
replicas have the same batches; no epoch had two leaders. How long the raw writer was not served is
told by kind: whether the victim was the active controller too makes a difference. Whole runs of the
long tests must reach the goals of `goals.py`.

`OTTLA_FIGURES=file` keeps the table as JSON.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.proto.ids import TopicPartition
from tests.integration.clusters import ClusterNode, make_cluster
from tests.integration.replicated.figures import Figures
from tests.integration.replicated.goals import kind_of, missed
from tests.integration.replicated.history import Fate
from tests.integration.replicated.stage import (
    DEADLINE_S,
    Stage,
    kill,
    on_stage,
    start_again,
    terminate,
)
from tests.integration.replicated.trace_judge import judge_trace, read_trace
from tests.integration.replicated.wire import create_topic, delete_topic, look
from tests.portion import is_whole, portion

pytestmark = pytest.mark.integration

# Far above the goals, for parts of runs: a busy machine is slow, and these are about safety.
OUTAGE_MAX_S = 20.0
MANY = 1000


def _pause(node: ClusterNode) -> None:
    node.pause()


def _resume(node: ClusterNode) -> None:
    node.resume()
    node.wait_until_ready(DEADLINE_S)


FAULTS = {
    "killed": (kill, start_again),
    "silent": (_pause, _resume),
    "SIGTERM": (terminate, start_again),
}


def _strike_many(stage: Stage, figures: Figures, faults: list[str]) -> None:
    for number, fault in enumerate(faults):
        # Every other victim is the active controller.
        victim = stage.choose(is_active=number % 2 == 1)
        stage.write_where(victim.node_id)
        # Elections may have moved it meanwhile.
        is_active = stage.cluster.active_controller() is victim
        figures.add(stage.strike(kind_of(fault, is_active=is_active), victim, *FAULTS[fault]))


def _require_bounds(figures: Figures) -> None:
    slow = [sample for sample in figures.samples if sample.outage_s > OUTAGE_MAX_S]
    assert not slow, slow


def _require_goals(figures: Figures) -> None:
    _require_bounds(figures)
    if is_whole():
        assert not (problems := missed(figures)), "\n".join(problems)


def test_a_few_kills_hangs_and_farewells_lose_nothing(tmp_path: Path) -> None:
    """What nodes tell of themselves meanwhile fits what their writers were told, too."""
    figures = Figures("a few")
    faults = ["killed", "SIGTERM", "silent", "killed"]
    cluster = make_cluster(
        tmp_path, options_of=lambda node: {"trace.file": str(tmp_path / f"trace-{node}.jsonl")}
    )
    with on_stage(cluster, seed=1) as stage:
        _strike_many(stage, figures, faults)
        figures.tell()
        stage.judge_all()
        lines = read_trace(tmp_path.glob("trace-*.jsonl"))
        raw = [one for one in stage.history.attempts if one.writer == "raw"]
    _require_bounds(figures)
    assert not (problems := judge_trace(lines, raw)), "\n".join(problems)
    events = {line["event"] for line in lines}
    assert events >= {"led", "followed", "isr", "committed", "synced", "isr_proposed"}
    acknowledged = sum(one.fate is Fate.OK for one in raw)
    print(f"{len(lines)} lines of trace, {acknowledged} acknowledgements held beside them")


@pytest.mark.long
@pytest.mark.parametrize(("fault", "count"), [("killed", 50), ("silent", 20), ("SIGTERM", 20)])
def test_leaders_go_again_and_again_and_nothing_acknowledged_is_lost(
    fault: str, count: int, tmp_path: Path
) -> None:
    count = portion(count, least=2)
    figures = Figures(f"{count} times {fault}")
    with on_stage(make_cluster(tmp_path), seed=count) as stage:
        try:
            _strike_many(stage, figures, [fault] * count)
        finally:
            figures.tell(outcomes=stage.history.counts())
        stage.judge_all(twice=True)
        assert stage.watch is not None
        assert stage.watch.answers > count, "nobody looked at who leads: this proved nothing"
        assert stage.foreign is not None
        if fault == "SIGTERM":
            # It hands over before it goes, so a client that retries has nothing to report.
            assert not stage.foreign.undelivered, stage.foreign.undelivered[:5]
    _require_goals(figures)


@pytest.mark.long
@pytest.mark.parametrize(("fault", "count"), [("killed", 20), ("SIGTERM", 20), ("silent", 10)])
def test_a_leader_of_many_partitions_goes(fault: str, count: int, tmp_path: Path) -> None:
    figures = Figures(f"{fault} with {MANY} partitions to lead")
    with on_stage(make_cluster(tmp_path), seed=3, foreign_per_s=0) as stage:
        try:
            for number in range(portion(count, least=2)):
                victim = stage.choose(is_active=number % 2 == 1)
                _strike_leader_of_many(stage, figures, fault, victim, f"many-{number}")
        finally:
            figures.tell(outcomes=stage.history.counts())
        stage.judge_all()
    _require_goals(figures)


def _strike_leader_of_many(
    stage: Stage, figures: Figures, fault: str, victim: ClusterNode, topic: str
) -> None:
    others = [one for one in stage.brokers if one != victim.node_id]
    create_topic(stage.addresses, topic, [[victim.node_id, *others]] * MANY)
    stage.move_to(TopicPartition(topic, stage.dice.randrange(MANY)))
    stage.topics.append(topic)
    stage.wait_whole()
    led = look(stage.addresses, [topic]).values()
    assert sum(seen.leader == victim.node_id for seen in led) == MANY
    is_active = stage.cluster.active_controller() is victim
    figures.add(stage.strike(kind_of(fault, is_active=is_active), victim, *FAULTS[fault]))
    stage.move_to(TopicPartition("raw", 0))
    with stage.only(topic):
        back = stage.judged()
        assert back
        # Soon it is deleted, and whoever judges at the end finds nothing of it.
        stage.require_same_replicas(back)
    delete_topic(stage.addresses, topic)
