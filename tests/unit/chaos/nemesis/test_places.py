"""Named places of the code: which reason brings a node there, and that everything is mended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from ottla.chaos.nemesis.driver import Driver
from ottla.chaos.nemesis.places import PLACES
from ottla.chaos.nemesis.plan import Step, Target
from ottla.chaos.ports import WHOLE, LinkFault
from tests.unit.chaos.nemesis.fakes import FakeBackend, FakeScene


class _Passing(FakeBackend):
    """Nodes that come to some places only when they are joined again, or when another is gone."""

    def set_link(self, source: int, target: int, fault: LinkFault) -> None:
        was_cut = (source, target) in self.cut
        super().set_link(source, target, fault)
        if was_cut and fault == WHOLE:
            self._pass(source, "log.truncate.")

    def kill(self, nodes: Sequence[int]) -> None:
        super().kill(nodes)
        for node in set(self.nodes) - set(nodes):
            for begin in ("isr.", "leader.lead.", "log.epoch."):
                self._pass(node, begin)

    def begin(self, node: int, environment: Mapping[str, str] | None = None) -> None:
        super().begin(node, environment)
        # Nothing is armed in a new life.
        self.faults.pop(node, None)

    def set_faults(self, node: int, clauses: Sequence[str]) -> int:
        met = super().set_faults(node, clauses)
        for begin in ("log.append.", "log.sync."):
            self._pass(node, begin)
        return met

    def _pass(self, node: int, begin: str) -> None:
        armed = self.faults.get(node, [])
        if node not in self.down and any(one.startswith(f"failpoint={begin}") for one in armed):
            self.down.add(node)


@pytest.fixture
def told(tmp_path: Path) -> dict[str, bool]:
    """Return of every place whether somebody died there."""
    backend = _Passing(tmp_path)
    scene = FakeScene(backend)
    Driver(scene).run([Step(fault="each-failpoint", target=Target.LEADER, for_s=0.0)])
    assert not backend.links
    assert not backend.down
    notes = [one for one in scene.told if one.fault == "failpoint" and one.step == "note"]
    return {one.facts["place"]: one.facts["is_reached"] for one in notes}


def test_every_place_is_tried_and_told_of(told: dict[str, bool]) -> None:
    assert [*told] == [*PLACES]


def test_a_place_that_is_passed_all_the_time_needs_no_reason(told: dict[str, bool]) -> None:
    assert told["log.append.before"]
    assert told["log.sync.after"]


def test_who_comes_back_after_a_cut_comes_to_where_logs_are_cut(told: dict[str, bool]) -> None:
    assert all(is_reached for place, is_reached in told.items() if "truncate" in place)


def test_who_loses_another_comes_to_where_it_leads_and_where_sets_change(
    told: dict[str, bool],
) -> None:
    begins = ("isr.", "leader.lead.", "log.epoch.")
    assert all(told[place] for place in PLACES if place.startswith(begins))


def test_a_place_that_nobody_came_to_is_told_as_not_reached(told: dict[str, bool]) -> None:
    assert not told["follower.claim"]
