"""Spark's own Kafka connector, unchanged, as a client of a node: batches, streams, both ways."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from bench.spark_peer import get_peer, missing_tools
from ottla.clients.admin.answers import NewTopic
from ottla.clients.admin.blocking import Admin

pytestmark = [pytest.mark.integration, pytest.mark.long]
PROGRAM = Path(__file__).with_name("connector_program.py")
DEADLINE_S = 400


def test_the_kafka_connector_of_spark_reads_and_writes_in_batches_and_streams(
    bootstrap: str, admin: Admin, tmp_path: Path
) -> None:
    missing = missing_tools()
    if missing is not None:
        pytest.skip(missing)
    peer = get_peer()
    admin.create_topics([NewTopic(name, 3) for name in ("connector-in", "connector-out")])
    command = [str(peer.python), str(PROGRAM), bootstrap, ",".join(peer.jars), str(tmp_path)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        env=peer.environment(),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads([line for line in done.stdout.splitlines() if line.startswith("{")][-1])
    wanted = sorted((n % 3, f"v{n}", str(n)) for n in range(99))
    assert sorted((p, value, header) for p, _, value, header in told["read"]) == wanted
    assert sorted((p, offset) for p, offset, _, _ in told["read"]) == [
        (p, offset) for p in range(3) for offset in range(33)
    ]
    assert sum(told["sizes"]) == 99
    assert max(told["sizes"]) <= 40
    assert told["more"] == [9]
    assert told["copied"] == sorted([f"V{n}" for n in range(99)] + [f"V{n}" for n in range(9)])
    assert told["some"] == [*([0, n] for n in range(30, 36)), *([1, n] for n in range(36))]
    assert told["none"] == 0
