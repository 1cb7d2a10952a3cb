"""Groups on one node: members of every kind join, read, commit and end, and the judge can follow.

pytest -m long tests/chaos/test_members.py
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
from ottla.chaos.workload import Client, plan_for
from tests.integration.clusters import running_cluster
from tests.integration.nodes import wait_until
from tests.unit.chaos.story import FACTS

pytestmark = [pytest.mark.integration, pytest.mark.long]
OPTIONS = {"group.min.session.timeout.ms": "1000", "offsets.topic.num.partitions": "3"}
DEADLINE_S = 240.0
GROUP_ROWS = {21, 25, 26, 27}


def test_members_of_every_kind_leave_a_history_that_can_be_judged(tmp_path: Path) -> None:
    plan = plan_for("W3", 1, (1,), pace=0.5)
    members = {one.name: one.client for one in plan.processes if one.group}
    pen = io.StringIO()

    def events() -> list[Event]:
        return list(from_lines(pen.getvalue().splitlines()))

    def have_worked() -> bool:
        done = Counter(
            (members[one.process], one.function)
            for one in events()
            if one.process in members and one.kind is Kind.OK
        )
        wanted = [
            (client, what) for client in set(members.values()) for what in ("commit", "leave")
        ]
        return all(map(done.get, [*wanted, (Client.RAW_MEMBER, "crash")]))

    with running_cluster(tmp_path, nodes=1, options=OPTIONS) as cluster:
        runner = Runner({1: cluster[1].bootstrap}, plan, Recorder(pen))
        try:
            runner.start()
            wait_until(have_worked, DEADLINE_S, "every kind has committed and ended")
            runner.stop_writers()
            finals = runner.final_reads(None, 1)
        finally:
            runner.close()
    assert not runner.failures()
    verdicts = judge(Evidence(facts=FACTS, events=events(), finals=finals))
    told = [(one.row, one.sentence) for one in verdicts if one.ruling is Ruling.BROKEN]
    assert not [one for one in told if one[0] != 24]
    assert {one.row for one in verdicts if one.ruling is Ruling.HELD} >= GROUP_ROWS
