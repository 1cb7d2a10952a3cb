"""What a node says of how its syncs are done."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.node import wiring
from ottla.node.clock import Clock
from ottla.node.config import load_node_options
from ottla.node.data import open_data
from ottla.node.metrics import Metrics
from ottla.node.options import NodeOptions
from ottla.replication.storage.kernel_aio import open_kernel_aio
from tests.unit.node.internal.stage import listen_to_logs


def said_at_start(root: Path) -> str:
    """Open the logs of an empty directory, close them, and return what was logged."""
    flags = {"log.dirs": str(root)}
    options = NodeOptions(load_node_options(path=None, environment={}, flags=flags))
    said = listen_to_logs()
    data = open_data(options, {})
    try:
        wiring.open_logs(options, data, clock=Clock(), metrics=Metrics(version="test")).close(
            broker_epoch=None
        )
    finally:
        data.close()
    return said.getvalue()


def test_a_node_whose_syncs_are_left_to_threads_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wiring, "open_kernel_aio", lambda: None)
    assert "syncs_by_threads" in said_at_start(tmp_path / "data")


def test_a_node_whose_kernel_syncs_says_nothing(tmp_path: Path) -> None:
    door = open_kernel_aio()
    if door is not None:
        door.close()
    is_said = "syncs_by_threads" in said_at_start(tmp_path / "data")
    assert is_said == (door is None)
