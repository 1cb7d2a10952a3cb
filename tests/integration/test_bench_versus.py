"""The bench of peers does what it says, with Ottla alone and few records: no figure is judged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bench.versus.driving import DriverError, Drivers
from bench.versus.lives import outage
from bench.versus.stage import Clusters
from bench.versus.turns import LOADS
from bench.versus.workloads import WORKLOADS

pytestmark = pytest.mark.integration


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[Clusters]:
    with Clusters(tmp_path) as found:
        yield found


def test_loads_are_taken_one_after_another_on_one_cluster(clusters: Clusters) -> None:
    stage = clusters.shared("ottla-pagecache")
    assert stage is not None
    few = {
        "produce-1kb": {"records": 2000, "partitions": 2},
        "consume-warm": {"records": 2000, "partitions": 2},
        "together": {"records": 2000, "partitions": 2},
        "flow-300": {"records": 60},
    }
    for name, smaller in few.items():
        row = replace(WORKLOADS[name], **smaller)  # type: ignore[arg-type]
        figures = LOADS[row.kind](stage, row)
        assert figures[row.figure] > 0, name


def test_a_leader_dies_and_the_gap_is_told(clusters: Clusters) -> None:
    with clusters.alone("ottla-fsync") as stage:
        assert stage is not None
        figures = outage(stage, WORKLOADS["outage"])
        assert figures["victim"] not in stage.peer.pids
        assert len(stage.peer.pids) == 2
    assert 0 < figures["gap_s"] < 60
    assert figures["failed_records"] == 0


def test_a_driver_that_fails_says_why() -> None:
    options = {"to": "127.0.0.1:1", "topic": "t", "partitions": 1, "count": 1}
    with Drivers(30.0) as drivers:
        driver = drivers.add("bench.versus.drive_kafka", "no-such-command", options)
        with pytest.raises(DriverError, match="no-such-command"):
            driver.wait_ready()
