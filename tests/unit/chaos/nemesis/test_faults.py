"""Faults: what they do to a cluster, whom they hit, and that they are mended whatever happens."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import islice
from math import inf
from pathlib import Path
from random import Random

import pytest

from ottla.chaos.checkers.happened import left_undone
from ottla.chaos.nemesis import scripts
from ottla.chaos.nemesis.driver import Driver
from ottla.chaos.nemesis.files import SORTS, cut_short, flip_bit
from ottla.chaos.nemesis.hostile import garbled, questions
from ottla.chaos.nemesis.mix import rounds
from ottla.chaos.nemesis.networks import between, ring
from ottla.chaos.nemesis.plan import Round, Step, Target
from ottla.chaos.nemesis.scene import HEAL, INJECT
from ottla.chaos.nemesis.table import KINDS
from ottla.chaos.ports import HarnessError, LinkFault, Means
from tests.unit.chaos.nemesis.fakes import FakeBackend, FakeScene
from tests.unit.chaos.story import Story

# Faults that wait in real time by their nature, or need a node that answers.
NOT_ON_PAPER = {"crowd", "fuzz", "greedy", "clock", "client-resets", "min-isr", "dark"}


@pytest.fixture
def backend(tmp_path: Path) -> FakeBackend:
    made = FakeBackend(tmp_path)
    for node in made.nodes:
        partition = tmp_path / str(node) / "a-0"
        partition.mkdir(parents=True)
        for offset in (0, 100):
            (partition / f"{offset:020}.log").write_bytes(b"x" * 5000)
            (partition / f"{offset:020}.index").write_bytes(b"y" * 80)
        for name in ("state", "quorum"):
            (tmp_path / str(node) / name).mkdir()
            (tmp_path / str(node) / name / "data.mdb").write_bytes(b"z" * 4096)
    return made


def run(backend: FakeBackend, *steps: Step) -> FakeScene:
    scene = FakeScene(backend)
    Driver(scene).run(steps)
    return scene


@pytest.mark.parametrize("name", sorted(set(KINDS) - NOT_ON_PAPER))
def test_every_fault_is_mended_when_it_is_over(
    backend: FakeBackend, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nobody leaves or joins a set on paper.
    monkeypatch.setattr(scripts, "_SHRINK_S", 0.05)
    backend.controllers = backend.nodes
    target = Target.PAIR if name in ("one-way", "power-then-kill") else Target.LEADER
    scene = run(backend, Step(fault=name, target=target, for_s=0.01))
    assert not backend.down
    assert not backend.links
    assert not backend.unplugged
    assert not any(backend.faults.values())
    assert not scene.paused
    injected = sorted((fault, who) for fault, step, who in scene.story if step == INJECT)
    healed = sorted((fault, who) for fault, step, who in scene.story if step == HEAL)
    assert injected == healed != []


def test_a_fault_lasts_as_long_as_it_should_and_as_often(backend: FakeBackend) -> None:
    scene = run(backend, Step(fault="kill", for_s=7.0, calm_s=2.0, times=3))
    assert scene.lasted == [7.0, 2.0] * 3
    assert [call[0] for call in backend.calls] == ["kill", "begin"] * 3


def test_each_means_one_after_the_other(backend: FakeBackend) -> None:
    run(backend, Step(fault="kill", target=Target.EACH))
    assert [call for call in backend.calls if call[0] == "kill"] == [("kill", n) for n in (1, 2, 3)]


def test_faults_that_are_there_together_are_mended_in_the_other_order(backend: FakeBackend) -> None:
    also = (Step(fault="pause", target=Target.CONTROLLER),)
    scene = run(backend, Step(fault="isolate", target=Target.CONTROLLER, also=also))
    assert [(fault, step) for fault, step, _ in scene.story] == [
        ("isolate", INJECT),
        ("pause", INJECT),
        ("pause", HEAL),
        ("isolate", HEAL),
    ]


def test_what_was_broken_is_mended_also_when_something_else_fails(backend: FakeBackend) -> None:
    class Impatient(FakeScene):
        def last(self, seconds: float) -> None:
            raise HarnessError("no time")

    scene = Impatient(backend)
    with pytest.raises(HarnessError, match="no time"):
        Driver(scene).run([Step(fault="isolate", target=Target.LEADER)])
    assert not backend.links


def test_heal_all_leaves_nothing_broken(backend: FakeBackend) -> None:
    scene = FakeScene(backend)
    backend.links[1, 2] = LinkFault(is_cut=True)
    backend.client_links[1] = (LinkFault(is_cut=True), LinkFault(is_cut=True))
    backend.down.add(3)
    backend.unplugged.add(2)
    scene.paused.add(2)
    Driver(scene).heal_all()
    assert (backend.links, backend.client_links) == ({}, {})
    assert (backend.down, scene.paused, backend.unplugged) == (set(), set(), set())


def test_isolating_cuts_both_ways_and_nothing_else(backend: FakeBackend) -> None:
    scene = FakeScene(backend)
    doing = KINDS["isolate"].act(scene, (2,), Step(fault="isolate"))
    next(doing)
    assert backend.cut == {(2, 1), (1, 2), (2, 3), (3, 2)}


def test_a_node_that_is_unplugged_runs_on_and_is_put_back(backend: FakeBackend) -> None:
    doing = KINDS["unplug"].act(FakeScene(backend), (2,), Step(fault="unplug"))
    next(doing)
    assert (backend.unplugged, backend.down) == ({2}, set())
    next(doing, None)
    assert backend.calls == [("unplug", 2), ("plug_in", 2)]


def test_copies_that_could_not_sync_lose_power_and_are_back_before_the_leader(
    backend: FakeBackend,
) -> None:
    scene = run(backend, Step(fault="failing-then-dark", for_s=1.0))
    (failed,) = (who for fault, step, who in scene.story if (fault, step) == ("disk-error", INJECT))
    (leader,) = set(backend.nodes) - set(failed)
    broken = [("faults", node, "eio=sync:*.log:1+") for node in failed]
    mended = [("faults", node) for node in failed]
    begun = [("begin", node) for node in failed]
    told = [call for call in backend.calls if call[0] != "ready"]
    cut = [("power", *backend.nodes)]
    assert told == [*broken, *mended, *cut, *begun, *mended, ("begin", leader)]
    met = [one.facts["times"] for one in scene.told if one.fault == "met"]
    assert met == [2]


@pytest.mark.parametrize(("back", "way"), [(False, (1, 2)), (True, (2, 1))])
def test_one_way_is_one_way(backend: FakeBackend, back: bool, way: tuple[int, int]) -> None:
    step = Step(fault="one-way", facts={"back": back})
    next(KINDS["one-way"].act(FakeScene(backend), (1, 2), step))
    assert backend.cut == {way}


def test_in_a_ring_everybody_reaches_a_majority_and_no_two_the_same(backend: FakeBackend) -> None:
    nodes = (1, 2, 3, 4, 5)
    cut = set(ring(nodes))
    reached = [frozenset(b for b in nodes if (a, b) not in cut) for a in nodes]
    assert all(len(one) == 3 for one in reached)
    assert len(set(reached)) == 5
    assert all((b, a) in cut for a, b in cut)


def test_between_is_both_ways_and_each_once() -> None:
    assert between([1], [1, 2]) == [(1, 2), (2, 1)]
    assert sorted(between([1, 2], [1, 2])) == [(1, 2), (2, 1)]


@pytest.mark.parametrize(("met", "undone"), [(0, ["nodes 1, 2, 3 never met weather"]), (2, [])])
def test_weather_that_nobody_met_is_told_and_counts_as_not_done(
    backend: FakeBackend, met: int, undone: list[str]
) -> None:
    backend.met = met
    scene = run(backend, Step(fault="weather", target=Target.ALL))
    (note,) = (one for one in scene.told if one.fault == "met")
    ways = 6 if met else 0
    assert note.facts == {"what": "weather", "times": met * 6, "on": f"{ways} of 6 ways"}
    assert left_undone(replace(Story().evidence, faults=scene.told)) == undone


def test_whom_a_fault_hits(backend: FakeBackend) -> None:
    scene = FakeScene(backend)
    leader, follower = scene.choose(Target.PAIR)
    assert leader != follower
    assert scene.choose(Target.CONTROLLER) == (1,)
    assert scene.choose(Target.OTHER_CONTROLLER)[0] in (2, 3)
    assert scene.choose(Target.ALL) == (1, 2, 3)
    backend.down |= {1, 2}
    assert scene.choose(Target.LEADER) == (3,)
    with pytest.raises(HarnessError, match="follower"):
        scene.choose(Target.FOLLOWER)
    for target in (Target.COORDINATOR, Target.TRANSACTIONS):
        with pytest.raises(HarnessError, match="nothing to coordinate"):
            scene.choose(target)


def test_one_bit_is_flipped(backend: FakeBackend) -> None:
    (path, *_) = SORTS["active"](backend.data_dir(1))
    assert path.name.startswith("00000000000000000100")
    before = path.read_bytes()
    at = flip_bit(path, Random(3), is_tail=True)
    after = path.read_bytes()
    changed = [i for i in range(len(before)) if before[i] != after[i]]
    assert changed == [at]
    assert (before[at] ^ after[at]).bit_count() == 1
    assert at >= 5000 - 4096


def test_sealed_segments_are_all_but_the_last(backend: FakeBackend) -> None:
    assert [path.name for path in SORTS["sealed"](backend.data_dir(1))] == [f"{0:020}.log"]


def test_a_file_loses_its_end_and_nothing_else(backend: FakeBackend) -> None:
    (path, *_) = SORTS["active"](backend.data_dir(1))
    path.write_bytes(bytes(range(256)) * 16)
    before = path.read_bytes()
    taken = cut_short(path, Random(1))
    assert taken > 0
    assert path.read_bytes() == before[:-taken]


def test_a_mix_repeats_itself_from_its_seed_and_has_calm_in_it() -> None:
    first = list(islice(rounds(7, frozenset(Means)), 200))
    assert first == list(islice(rounds(7, frozenset(Means)), 200))
    assert first != list(islice(rounds(8, frozenset(Means)), 200))
    calm = sum(not one.steps for one in first)
    assert 25 <= calm <= 75
    assert {step.fault for one in first for step in one.steps} > {"kill", "isolate", "weather"}


@pytest.mark.parametrize("seed", [1, 7, 9401, 9402, 9403])
def test_in_an_hour_of_a_mix_every_violent_fault_meets_leaders_and_coordinators(seed: int) -> None:
    # An hour has some 260 of them.
    mixed = rounds(seed, frozenset(Means), has_transactions=True)
    steps = list(islice((step for one in mixed for step in one.steps), 260))
    met = Counter((step.fault, step.target) for step in steps)
    for fault in ("kill", "pause", "isolate", "power"):
        for target in (Target.LEADER, Target.TRANSACTIONS):
            assert met[fault, target] >= 3, (fault, target, met)
    assert {Target.FOLLOWER, Target.ANY, Target.CONTROLLER} <= {target for _, target in met}


def test_a_mix_without_transactions_looks_for_no_coordinator_of_them() -> None:
    steps = [step for one in islice(rounds(7, frozenset(Means)), 200) for step in one.steps]
    assert Target.TRANSACTIONS not in {step.target for step in steps}


def test_a_mix_holds_only_what_a_backend_can_do() -> None:
    means = frozenset({Means.KILL, Means.PAUSE})
    found = {step.fault for one in islice(rounds(7, means), 100) for step in one.steps}
    assert found == {"kill", "pause"}


def test_garbled_frames_that_name_a_topic_are_still_questions() -> None:
    dice, frames = Random(5), questions(["orders"])
    kept = {frame[4:6] for frame in frames}
    named = [one for one in (garbled(dice, frames) for _ in range(500)) if b"orders" in one]
    assert len(named) > 50
    assert {frame[4:6] for frame in named} <= kept


def test_every_kind_is_in_the_table_under_its_own_name() -> None:
    assert all(name == kind.name for name, kind in KINDS.items())


def test_whom_a_round_hits_is_known_before_anything_is_broken(backend: FakeBackend) -> None:
    scene = FakeScene(backend)
    first = Step(fault="pause", target=Target.ALL)
    second = Step(fault="isolate", target=Target.CONTROLLER)
    backend.active_controller = lambda: None if scene.paused else 1  # type: ignore[method-assign]
    Driver(scene).run_rounds([Round((first, second), 1.0)], end_s=inf)
    assert ("isolate", INJECT, (1,)) in scene.story
    roles = [one.facts["role"] for one in scene.told if one.step == INJECT]
    assert roles == ["all", "controller"]
    assert not scene.paused


def test_a_fault_of_a_mix_that_finds_nobody_is_left_out_and_told(backend: FakeBackend) -> None:
    scene = FakeScene(backend)

    def nobody(target: Target) -> tuple[int, ...]:
        raise HarnessError(f"nobody is {target.value}")

    scene.choose = nobody  # type: ignore[method-assign]
    Driver(scene).run_rounds([Round((Step(fault="kill"),), 1.0)], end_s=inf)
    assert scene.story == []
    assert [one.facts for one in scene.told if one.fault == "left out"] == [
        {"what": "kill", "why": "nobody is any"}
    ]


@pytest.mark.parametrize("fault", ["truncate", "bit-flip"])
def test_a_file_that_is_not_there_is_told(backend: FakeBackend, fault: str) -> None:
    step = Step(fault=fault, target=Target.ANY, facts={"sort": "sealed"})
    assert "nothing to damage" not in {one.fault for one in run(backend, step).told}
    for path in backend.root.glob("*/*/*.log"):
        path.write_bytes(b"")
    assert "nothing to damage" in {one.fault for one in run(backend, step).told}


@pytest.mark.parametrize("fault", ["disk-full", "disk-error", "disk-slow", "clock"])
@pytest.mark.parametrize("met", [0, 1])
def test_a_fault_below_a_node_tells_how_often_it_was_met(
    fault: str, met: int, tmp_path: Path
) -> None:
    backend = FakeBackend(tmp_path)
    backend.met = met
    scene = FakeScene(backend)
    Driver(scene).run([Step(fault=fault, target=Target.ANY, for_s=0.0)])
    (note,) = (one for one in scene.told if one.fault == "met")
    assert note.facts["what"] == fault
    assert bool(note.facts["times"]) is bool(met)


def test_a_node_that_ended_of_its_disk_has_met_the_fault(tmp_path: Path) -> None:
    backend = FakeBackend(tmp_path)
    backend.met = 0
    scene = FakeScene(backend)
    step = Step(fault="disk-error", for_s=0.0)
    doing = KINDS["disk-error"].act(scene, (2,), step)
    next(doing)
    backend.down.add(2)
    next(doing, None)
    (note,) = (one for one in scene.told if one.fault == "met")
    assert note.facts["times"] == 1
