"""A node that runs is broken from outside, by two signals, if its environment asks for it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.integration.nodes import NodeFailedError, RunningNode, running_node, wait_until

pytestmark = pytest.mark.integration

DEADLINE_S = 30.0
CUT = 137


def _end_with(node: RunningNode, number: signal.Signals) -> None:
    os.kill(node.pid, number)
    wait_until(lambda: not node.is_running, DEADLINE_S, "the node ends")


def _create(node: RunningNode) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    topic = NewTopic("orders", 1, 1, config={"min.insync.replicas": "1"})
    admin.create_topics([topic])["orders"].result(DEADLINE_S)


def _write(node: RunningNode, text: str) -> bool:
    """Return whether a record was acknowledged."""
    told = list[KafkaError | None]()

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        told.append(error)

    producer = Producer({"bootstrap.servers": node.bootstrap, "log_level": 0})
    producer.produce("orders", text.encode(), on_delivery=on_delivery)
    producer.flush(DEADLINE_S)
    return told == [None]


def _live_until_the_plug_is_pulled(root: Path) -> None:
    with running_node(root, environment={"OTTLA_FAULTS": "style=drop;seed=1"}) as node:
        _create(node)
        assert _write(node, "kept")
        _end_with(node, signal.SIGUSR2)


def test_a_plug_is_pulled_and_what_was_acknowledged_is_kept(tmp_path: Path) -> None:
    with pytest.raises(NodeFailedError, match=f"ended by itself with {CUT}"):
        _live_until_the_plug_is_pulled(tmp_path)
    with running_node(tmp_path) as node:
        assert _write(node, "more")
    log = tmp_path / "data" / "orders-0" / f"{0:020}.log"
    assert b"kept" in log.read_bytes()
    assert b"more" in log.read_bytes()


def test_a_disk_is_broken_while_it_is_used_and_mended_again(tmp_path: Path) -> None:
    faults = tmp_path / "faults"
    environment = {"OTTLA_FAULTS": "style=drop", "OTTLA_FAULTS_FILE": str(faults)}

    def set_faults(node: RunningNode, text: str) -> None:
        obeyed = faults.with_name("faults.obeyed")
        obeyed.unlink(missing_ok=True)
        faults.write_text(text)
        os.kill(node.pid, signal.SIGUSR1)
        wait_until(obeyed.exists, DEADLINE_S, "the node obeys")
        assert obeyed.read_text() == text

    with running_node(tmp_path, environment=environment) as node:
        _create(node)
        set_faults(node, "slow_sync_ms=1500;clock_ms=60000")
        began_s = time.monotonic()
        assert _write(node, "slow")
        assert time.monotonic() - began_s >= 1.5
        set_faults(node, "")
        assert _write(node, "quick")


def test_without_its_variables_a_node_is_not_broken_politely(tmp_path: Path) -> None:
    # Nobody listens for the signal: it is what it always was.
    with (
        pytest.raises(NodeFailedError, match=f"ended by itself with {-signal.SIGUSR2}"),
        running_node(tmp_path) as node,
    ):
        _end_with(node, signal.SIGUSR2)
