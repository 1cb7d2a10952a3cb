"""Every program in `examples/` does what it says, on our nodes and on Apache Kafka."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.integration.clients_own.transacting import Cluster
from tests.tidy.tree import ROOT

pytestmark = pytest.mark.integration
DEADLINE_S = 120.0
LAST_LINES = {
    "producer": "102 records written",
    "consumer_group": "300 records read and committed",
    "async_clients": "the sum of 1000 numbers is 499500",
    "retries": "given up after 3 tries: to nobody",
    "administration": "readers is 7 records behind",
}


# The same, on clusters with transactions.
TRANSACTIONAL = {"transactions": "100 orders became 100 invoices over 14850"}


@pytest.mark.parametrize("name", LAST_LINES)
def test_an_example_runs_and_says_so(bootstrap: str, name: str) -> None:
    _run(bootstrap, name, LAST_LINES[name])


@pytest.mark.transactions
@pytest.mark.parametrize("name", TRANSACTIONAL)
def test_an_example_with_transactions_runs_and_says_so(transactional: Cluster, name: str) -> None:
    _run(transactional.bootstrap, name, TRANSACTIONAL[name])


def _run(bootstrap: str, name: str, last_line: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", f"examples.{name}", bootstrap],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        env={**os.environ, "PYTHONWARNINGS": "error"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1].endswith(last_line)


def test_every_example_is_run_here() -> None:
    there = {path.stem for path in (ROOT / "examples").glob("*.py")} - {"__init__"}
    assert there == {*LAST_LINES, *TRANSACTIONAL}
