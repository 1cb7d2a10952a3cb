"""The table of scenarios, and what is said about mistakes in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.chaos.nemesis.plan import Target
from ottla.chaos.nemesis.table import KINDS
from ottla.chaos.ports import Means
from ottla.chaos.scenarios import load, read
from ottla.chaos.workload import plan_for
from ottla.proto.errors import ConfigError
from ottla.proto.options import node
from ottla.replication.storage import failpoints

ROW: dict[str, Any] = {
    "id": "X1",
    "title": "something",
    "tier": "pr",
    "limit_s": 60,
    "workload": "W1",
}
# Those that wait for what they need: reassignment, an older build.
NOT_YET = {"C37", "C43"}


def table(**more: Any) -> dict[str, Any]:
    return {"scenario": [{**ROW, **more}]}


def mistakes(told: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        read(told)
    return str(caught.value)


def test_every_scenario_of_the_specification_is_there() -> None:
    wanted = {f"C{number:02}" for number in range(1, 46)} - NOT_YET
    assert wanted <= set(load())


def test_the_quick_set_is_quick() -> None:
    quick = [one for one in load().values() if one.tier == "pr"]
    assert len(quick) >= 9
    assert sum(one.limit_s for one in quick) <= 20 * 60


def test_a_scenario_knows_what_it_takes_of_a_backend() -> None:
    found = load()
    assert found["C01"].means == frozenset()
    assert found["C05"].means == {Means.LINKS}
    assert Means.KILL in found["C41"].means


def test_one_failure_may_take_eight_seconds_and_the_loss_of_most_nodes_twenty() -> None:
    found = load()
    # Nobody has to start when all go on.
    assert {found[name].recovery_s for name in ("C02", "C22", "C27")} == {8.0}
    assert {found[name].recovery_s for name in ("C07", "C11", "C38")} == {20}


def test_options_change_while_two_of_three_are_gone_and_somebody_takes_the_change() -> None:
    changing, gone = load()["C38"], load()["C07B"]
    assert (changing.steps[0].fault, changing.steps[0].target) == ("kill", Target.TWO)
    assert changing.steps[0].target is gone.steps[0].target
    assert changing.steps[0].also[0].fault == "min-isr"
    assert changing.controllers == 3


def test_controllers_die_with_their_snapshots_which_are_taken_often_enough() -> None:
    found = load()["C30"]
    places = {step.facts["place"] for step in found.steps if step.fault == "failpoint"}
    assert {"quorum.snapshot.before", "quorum.snapshot.after"} <= places
    assert places <= failpoints.NAMES
    row = node.BY_NAME["metadata.log.max.record.bytes.between.snapshots"]
    assert int(found.options[row.name]) < row.default


def test_the_long_mix_has_all_loads_at_once_and_each_process_a_name_of_its_own() -> None:
    mix = load()["C44"]
    # The writers of W1 are those of W2 that ask for all acknowledgements.
    assert {"W2", "W3", "W4", "W5", "WC", "WT"} <= set(mix.workload.split("+"))
    plan = plan_for(mix.workload, 1, range(1, mix.nodes + 1), pace=mix.pace)
    names = [one.name for one in plan.processes]
    assert len(names) == len(set(names))
    assert {"restless", "settled"} <= set(plan.groups())


def test_a_row_becomes_a_scenario() -> None:
    fault = {"fault": "pause", "target": "all", "for_s": 2, "times": 3, "apart_s": 0.5}
    found = read(table(fault=[fault], options={"min.insync.replicas": 1}))["X1"]
    (step,) = found.steps
    assert (step.fault, step.target, step.times) == ("pause", Target.ALL, 3)
    assert step.facts == {"apart_s": 0.5}
    assert found.options == {"min.insync.replicas": "1"}


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"teir": "pr"}, "a scenario has no 'teir'"),
        ({"tier": "daily"}, "tier is one of pr, nightly, weekly, judge, not 'daily'."),
        ({"workload": "W1+W9"}, "there is no workload 'W9'"),
        ({"limit_s": "60"}, "limit_s is of the wrong type: '60'."),
        ({"limit_s": True}, "limit_s is of the wrong type: True."),
        ({"steady_s": -1}, "steady_s must not be below 0."),
        ({"backends": ["cloud"]}, "there is no backend 'cloud'"),
        ({"tolerated": [41]}, "tolerated are rows of the judge, from 1 to 40."),
        ({"limits": {"unknwon_max": 0}}, "limits: there is no limit 'unknwon_max'"),
        ({"limits": {"unknown_max": -1}}, "limits: unknown_max is a number that is not below 0"),
        ({"limits": {"unknown_max": 0.5}}, "limits: unknown_max is a whole number, not 0.5."),
        ({"limits": {"isr_sizes": 3}}, "limits: isr_sizes is a list of whole numbers, not 3."),
        ({"fault": [{"fault": "kil"}]}, "fault 1: there is no fault 'kil'"),
        ({"fault": [{}]}, "fault 1: there is no fault None"),
        ({"fault": [{"fault": "kill", "target": "boss"}]}, "fault 1: target is one of leader"),
        ({"fault": [{"fault": "kill", "jump_ms": 5}]}, "fault 1: kill has no 'jump_ms'"),
        (
            {"fault": [{"fault": "kill", "also": [{"fault": "nothing"}]}]},
            "fault 1: also: there is no fault 'nothing'",
        ),
    ],
)
def test_a_mistake_is_told_in_a_sentence(more: dict[str, Any], sentence: str) -> None:
    assert f"the table, X1: {sentence}" in mistakes(table(**more))


def test_what_is_missing_is_told() -> None:
    assert "the table, row 1: id is missing." in mistakes({"scenario": [{}]})


def test_all_mistakes_are_told_at_once() -> None:
    told = mistakes(table(tier="daily", teir="pr"))
    assert "tier is one of" in told
    assert "'teir'" in told


def test_two_of_the_same_name_are_a_mistake() -> None:
    assert "there are two of it" in mistakes({"scenario": [ROW, ROW]})


def test_a_file_of_ones_own_adds_scenarios(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(
        '[[scenario]]\nid = "X1"\ntitle = "t"\ntier = "pr"\nlimit_s = 9\nworkload = "W1"\n'
    )
    assert {"X1", "C01"} <= set(load(mine))
    mine.write_text("[[scenario]")
    with pytest.raises(ConfigError, match="no TOML"):
        load(mine)
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "nowhere.toml")


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_fault_says_what_it_does(kind: Any) -> None:
    assert kind.sentence
    assert not kind.sentence.endswith(".")
