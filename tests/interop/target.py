"""The node that Kafka's programs are run against: ours, or for a check of the tests Kafka's own.

OTTLA_INTEROP_TARGET=kafka make interop    asks the same of a Kafka broker
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.integration.nodes import running_node
from tests.interop.broker import start_broker


@dataclass(frozen=True, slots=True)
class Target:
    """A running node: where it listens and where it writes."""

    bootstrap: str
    data_dir: Path


def is_kafka() -> bool:
    return os.environ.get("OTTLA_INTEROP_TARGET") == "kafka"


@contextmanager
def start_target(folder: Path) -> Iterator[Target]:
    """Yield a node that answers, and stop it cleanly at the end of the block."""
    if is_kafka():
        with start_broker(folder) as broker:
            yield Target(broker.address, broker.log_dir)
    else:
        with running_node(folder) as node:
            yield Target(node.bootstrap, node.data_dir)
