"""What Kafka's programs are run against: our nodes, or for a check of the tests Kafka's own broker.

OTTLA_INTEROP_TARGET=kafka make interop    asks the same of a Kafka broker
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.integration.clusters import RunningCluster, running_cluster
from tests.interop.broker import start_broker

_OPTIONS: Final = {
    # Most tests write, and only what has one replica can be written to yet.
    "default.replication.factor": "1",
    # Leaders move back when a test says so, and not before.
    "leader.imbalance.check.interval.seconds": "3600",
}


@dataclass(frozen=True, slots=True)
class Target:
    """Running brokers, by their ids: where they listen and where they write."""

    addresses: Mapping[int, str]
    data_dirs: Mapping[int, Path]
    # None where it is Kafka.
    ours: RunningCluster | None = None

    @property
    def bootstrap(self) -> str:
        return ",".join(self.addresses.values())

    @property
    def ids(self) -> list[str]:
        """Return the brokers as programs name them, in ascending order."""
        return [str(one) for one in sorted(self.addresses)]

    @property
    def cluster(self) -> RunningCluster:
        """Return our nodes, to do something to them."""
        assert self.ours is not None, "this is asked of our nodes only"
        return self.ours


def is_kafka() -> bool:
    return os.environ.get("OTTLA_INTEROP_TARGET") == "kafka"


@contextmanager
def start_target(folder: Path, *, nodes: int = 3) -> Iterator[Target]:
    """Yield brokers that answer, and stop them cleanly at the end of the block.

    Kafka is one broker, however many nodes are wanted.
    """
    if is_kafka():
        with start_broker(folder) as broker:
            yield Target({1: broker.address}, {1: broker.log_dir})
    else:
        with running_cluster(folder, nodes, options=_OPTIONS) as cluster:
            members = cluster.nodes.items()
            yield Target(
                {key: node.bootstrap for key, node in members},
                {key: node.data_dir for key, node in members},
                cluster,
            )
