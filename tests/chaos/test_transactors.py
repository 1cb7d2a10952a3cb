"""Transactions on one node: every kind of client commits, aborts and reads, and can be judged.

pytest -m long tests/chaos/test_transactors.py
"""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path

import pytest

from ottla.chaos.checkers.judge import judge
from ottla.chaos.evidence import Evidence, Ruling
from ottla.chaos.history import Event, Kind, from_lines
from ottla.chaos.runner.recorder import Recorder
from ottla.chaos.runner.runner import Runner
from ottla.chaos.workload import plan_for
from tests.integration.clusters import running_cluster
from tests.integration.nodes import wait_until
from tests.unit.chaos.story import FACTS

pytestmark = [pytest.mark.integration, pytest.mark.long]
OPTIONS = {"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2"}
DEADLINE_S = 120.0
ROWS = {22, *range(28, 35)}


def test_producers_of_transactions_leave_a_history_that_can_be_judged(tmp_path: Path) -> None:
    plan = plan_for("WT", 1, (1,))
    pen = io.StringIO()

    def events() -> list[Event]:
        return list(from_lines(pen.getvalue().splitlines()))

    def have_worked() -> bool:
        done = Counter(
            (one.process, one.function)
            for one in events()
            if one.kind is not Kind.INVOKE and (one.shown or one.function != "poll")
        )
        wanted = [(name, "commit-txn") for name in plan.transactors()]
        wanted += [(name, "poll") for name in ("tr1", "tr2", "tx1", "tx2", "tp2")]
        wanted += [(name, "prepare-txn") for name in ("tp1", "tp2")]
        by_operator = done["tp1.operator", "commit-txn"] + done["tp2.operator", "commit-txn"]
        is_rare = done["to1", "late-end"] > 0 and by_operator > 0
        return all(done[one] > 2 for one in wanted) and is_rare

    with running_cluster(tmp_path, nodes=1, options=OPTIONS) as cluster:
        runner = Runner({1: cluster[1].bootstrap}, plan, Recorder(pen))
        try:
            runner.start()
            wait_until(have_worked, DEADLINE_S, "every kind has committed and read")
            runner.stop_writers()
            finals = runner.final_reads(None, 1)
        finally:
            runner.close()
    assert not runner.failures()
    late = {one.error for one in events() if one.function == "late-end" and one.error}
    assert late == {"PRODUCER_FENCED"}
    verdicts = judge(Evidence(facts=FACTS, events=events(), finals=finals))
    told = [(one.row, one.sentence) for one in verdicts if one.ruling is Ruling.BROKEN]
    assert not [one for one in told if one[0] != 24]
    assert {one.row for one in verdicts if one.ruling in (Ruling.HELD, Ruling.COUNTED)} >= ROWS
