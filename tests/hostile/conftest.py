"""One node for all the lists, and what must hold after each of its rows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hostile.stage import GROWTH_MAX, GROWTH_MAX_IN_ALL, Bystander, Target, target


@pytest.fixture(scope="package")
def hostile_target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with target(tmp_path_factory.mktemp("hostile")) as found:
        yield found


@pytest.fixture(scope="package")
def bystander(hostile_target: Target) -> Iterator[Bystander]:
    someone = Bystander(hostile_target.node.bootstrap)
    yield someone
    someone.close()


@pytest.fixture
def attacked(hostile_target: Target, bystander: Bystander) -> Iterator[Target]:
    """The node; when the test is over, nobody else has noticed."""
    before = hostile_target.memory
    yield hostile_target
    assert hostile_target.node.is_running
    bystander.is_served()
    hostile_target.settles(GROWTH_MAX, since=before)
    hostile_target.settles(GROWTH_MAX_IN_ALL)
