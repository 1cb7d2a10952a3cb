"""What a panel of a dashboard is, and the words in which its queries are put.

A query is written once. Grafana runs it, the tests run it while a cluster is under load, and
the pictures in docs/pictures are drawn from it.

Not here: the panels, Grafana's format (`grafana.py`), when to worry (compose/prometheus/rules.yml).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

# Grafana puts in as much as a rate needs at the resolution it draws; and the node that was chosen.
RATE: Final = "$__rate_interval"
INSTANCE: Final = "$instance"


class Query(NamedTuple):
    """What is asked of Prometheus, and what its lines are called."""

    expression: str
    legend: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture: lines over time."""

    title: str
    # As Grafana names them: bytes, Bps, s, ms, percentunit, ops, short.
    unit: str
    doc: str
    queries: tuple[Query, ...]


@dataclass(frozen=True, slots=True)
class Board:
    """One dashboard."""

    name: str
    title: str
    panels: tuple[Panel, ...]
    # There is a choice of the node above it.
    is_of_one_node: bool = False


def rate(metric: str, selector: str = "") -> str:
    """Return how fast a counter grows, by the second."""
    return f"rate({metric}{selector}[{RATE}])"


def quantiles(metric: str, selector: str = "") -> tuple[Query, ...]:
    """Return the middle and the slow end of a histogram over all nodes."""
    summed = f"sum by (le) ({rate(f'{metric}_bucket', selector)})"
    return tuple(
        Query(f"histogram_quantile({quantile}, {summed})", name)
        for quantile, name in (("0.5", "half"), ("0.99", "99 %"))
    )


BROKER_TOPICS: Final = "kafka_server_brokertopicmetrics_"
REPLICAS: Final = "kafka_server_replicamanager_"
CONTROLLER: Final = "kafka_controller_kafkacontroller_"
STATS: Final = "kafka_controller_controllerstats_"
REQUESTS: Final = "kafka_network_requestmetrics_"
RAFT: Final = "kafka_server_raft_metrics_"
# The series over all topics have no such label.
ALL: Final = '{topic=""}'
EACH: Final = '{topic!=""}'
HERE: Final = f'{{instance="{INSTANCE}"}}'
ALL_HERE: Final = f'{{instance="{INSTANCE}",topic=""}}'
OURS: Final = f'{{job="ottla",instance="{INSTANCE}"}}'
