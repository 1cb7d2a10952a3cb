"""A cluster under load with a Prometheus beside it: a node dies and comes back, and all is seen.

Not here: what is made of it (`test_scraped.py`, `draw.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.integration.clusters import ClusterNode, RunningCluster, running_cluster
from tests.integration.nodes import wait_until
from tests.observed.load import admin_of, create, load_on
from tests.observed.prometheus import Prometheus, running_prometheus
from tests.observed.rules import RULES

DEADLINE_S: Final = 60.0
TOPIC: Final = "orders"
ROTATIONS: Final = ((1, 2, 3), (2, 3, 1), (3, 1, 2))
# Between two things that are done to it: some seconds.
RECORDS: Final = 300
_RECORDS_IN: Final = 'sum(kafka_server_brokertopicmetrics_messagesin_total{topic=""})'
_UNDER: Final = "sum(kafka_server_replicamanager_underreplicatedpartitions)"
_UP: Final = 'sum(up{job="ottla"})'


@dataclass(slots=True)
class Observed:
    """Both of them."""

    cluster: RunningCluster
    prometheus: Prometheus
    # The node that died and came back.
    lost: ClusterNode | None = None

    def wait_for(self, expression: str, wanted: float, what: str) -> None:
        """Wait until Prometheus has seen so much."""
        wait_until(lambda: self.prometheus.value(expression) == wanted, DEADLINE_S, what)

    def wait_more_records(self, count: int) -> None:
        seen = self.prometheus.value(_RECORDS_IN) or 0.0
        wait_until(
            lambda: (self.prometheus.value(_RECORDS_IN) or 0.0) >= seen + count,
            DEADLINE_S,
            f"{count} records more were written",
        )

    def lose_one(self, records: int) -> None:
        """Kill the node that is no controller at the moment, and bring it back."""
        active = self.cluster.active_controller().node_id
        victim = next(node for one, node in self.cluster.nodes.items() if one != active)
        self.lost = victim
        victim.kill()
        self.wait_for(_UP, 2, "two nodes are up")
        self.wait_more_records(records)
        victim.start()
        victim.wait_until_ready()
        self.wait_for(_UP, 3, "three nodes are up")
        self.wait_for(_UNDER, 0, "all replicas are in sync")


@contextmanager
def observed(directory: Path, records: int = RECORDS) -> Iterator[Observed]:
    """Yield a cluster under load that has lost a node and has it back, after so many records."""
    with (
        running_cluster(directory / "nodes") as cluster,
        running_prometheus(directory / "prometheus", RULES.read_text("utf-8")) as prometheus,
    ):
        create(admin_of(cluster.bootstrap), TOPIC, ROTATIONS, min_insync_replicas="2")
        prometheus.scrape(*(node.http for node in cluster.nodes.values()))
        stage = Observed(cluster, prometheus)
        stage.wait_for(_UP, 3, "three nodes are up")
        clients = [node.bootstrap for node in cluster.nodes.values()]
        with load_on(cluster.bootstrap, TOPIC, len(ROTATIONS), blunders_at=clients):
            stage.wait_more_records(3 * records)
            stage.lose_one(records)
            stage.wait_more_records(3 * records)
            yield stage
