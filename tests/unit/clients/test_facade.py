"""`from ottla import Producer` works, and `import ottla` alone loads next to nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import ottla
from ottla.clients.cli.perf import Figures
from ottla.clients.producer.batch import Report, State
from tests.tidy.tree import ROOT


@pytest.mark.parametrize("name", sorted(ottla._WHERE))
def test_clients_and_their_errors_are_taken_from_the_top(name: str) -> None:
    assert getattr(ottla, name).__name__ == name
    assert name in dir(ottla)


def test_people_who_check_types_see_the_same_names() -> None:
    place = Path(ottla.__file__)
    told = re.findall(r"^    from ([\w.]+) import (\w+) as \2$", place.read_text(), re.MULTILINE)
    assert {name: module for module, name in told} == ottla._WHERE
    assert (place.parent / "py.typed").exists(), "without it mypy takes everything for Any"


def test_every_error_that_the_tour_names_can_be_caught_by_its_name() -> None:
    tour = (ROOT / "clients" / "README.md").read_text().partition("## Five minutes")[2]
    named = set(re.findall(r"`(\w+Error)`", tour))
    assert named
    assert named <= set(ottla._WHERE)


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
