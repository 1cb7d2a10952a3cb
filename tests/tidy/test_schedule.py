"""Workers get the long files first, and what shares nodes together (`schedule.py`)."""

from __future__ import annotations

from tests.schedule import SHARING, scope_of, turn_of
from tests.tidy.tree import ROOT

SEEDS = "tests/sim/test_log_sim.py::test_no_promise_is_broken[jobs-9]"
PROPERTY = "tests/unit/proto/kafka/test_codec_properties.py::test_what_is_written_is_read"
UNIT = "tests/unit/proto/records/test_header.py::test_a_header_is_read"


def test_a_file_is_handed_out_as_a_whole() -> None:
    assert scope_of(UNIT) == "tests/unit/proto/records/test_header.py"


def test_a_folder_that_shares_a_node_is_handed_out_as_a_whole() -> None:
    assert scope_of("tests/hostile/test_fetch.py::test_a_code[a b::c]") == "tests/hostile"


def test_seeds_and_processes_come_before_properties_and_those_before_the_rest() -> None:
    turns = [turn_of(one) for one in (SEEDS, "tests/hostile/test_fetch.py::x", PROPERTY, UNIT)]
    assert turns == sorted(set(turns))


def test_every_folder_that_shares_is_there() -> None:
    assert all((ROOT / folder / "conftest.py").is_file() for folder in SHARING)
