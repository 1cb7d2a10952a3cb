"""`from ottla import Producer` works, and `import ottla` alone loads next to nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

import ottla
from ottla.clients.cli.perf import Figures
from ottla.clients.producer.batch import Report, State


@pytest.mark.parametrize(
    "name", ["Producer", "AsyncProducer", "Admin", "AsyncAdmin", "NewTopic", "TopicPartition"]
)
def test_clients_are_taken_from_the_top(name: str) -> None:
    assert getattr(ottla, name).__name__ == name
    assert name in dir(ottla)


def test_a_name_that_is_not_there_is_told() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Prodoucer'"):
        _ = ottla.Prodoucer


def test_importing_ottla_loads_no_client() -> None:
    program = (
        "import sys, ottla\n"
        "loaded = [name for name in sys.modules if name.startswith('ottla.')]\n"
        "assert not loaded and 'asyncio' not in sys.modules, loaded\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_figures_of_perf_have_rates_and_percentiles() -> None:
    figures = Figures(began_ms=0.0)
    figures.moved(100_000, 1000)
    ok = Report(State.OK, "t", 0, 0, 0, None)
    for wait in range(1, 101):
        figures.take(1000.0 - wait, lambda: 1000.0, ok)
    told = figures.told(2000.0)
    assert (told["records_per_s"], told["mb_per_s"]) == (500.0, 0.05)
    assert (told["p50_ms"], told["p99_ms"], told["p99.9_ms"]) == (51.0, 100.0, 100.0)
    assert figures.line(2000.0).startswith("1,000 records, 500 records/s, 0.1 MB/s, p50 51.0 ms")
