"""The broker that a module of tests talks to: a fresh node, or one that the environment names.

With `TEST_BOOTSTRAP=host:port` the tests ask that broker, to see what Kafka itself does with them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.integration.nodes import RunningNode, running_node

# Those that run now, so that the report of a failed test can show their logs.
RUNNING: Final[list[RunningNode]] = []


@contextmanager
def broker(folder: Path, options: Mapping[str, str] | None = None) -> Iterator[str]:
    """Yield the address of the broker."""
    named = os.environ.get("TEST_BOOTSTRAP")
    if named:
        yield named
        return
    with running_node(folder, options=options) as node:
        RUNNING.append(node)
        try:
            yield node.bootstrap
        finally:
            RUNNING.remove(node)
