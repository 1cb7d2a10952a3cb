"""`ottla chaos`: what it lists, what it refuses, and the codes that it leaves with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ottla.__main__ import main
from ottla.chaos import cli
from ottla.chaos.cli import EXIT_CODES, worst_of
from ottla.chaos.evidence import Evidence, Outcome
from ottla.chaos.history import to_line
from ottla.chaos.run_folder import RunFolder
from tests.unit.chaos.nemesis.fakes import FakeBackend
from tests.unit.chaos.story import Story


def _ottla(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["chaos", *arguments])


def _written(path: Path, evidence: Evidence, *failures: str) -> str:
    folder = RunFolder(path)
    folder.write_facts(evidence.facts)
    with folder.open_history() as history:
        history.writelines(f"{to_line(one)}\n" for one in evidence.events)
    folder.add_finals(evidence.finals)
    folder.write_harness(failures)
    return str(path)


def _good() -> Evidence:
    return Story().sent("w-0", 0).polled({0: "w-0"}).read({0: "w-0"}).evidence


def test_scenarios_are_listed_for_people_and_for_programs() -> None:
    told = _ottla("list")
    assert told.exit_code == 0
    assert "C02" in told.output
    rows = json.loads(_ottla("list", "--json", "--tier", "pr").output)
    assert {row["tier"] for row in rows} == {"pr"}
    assert len(rows) >= 5


def test_a_table_of_ones_own_is_listed_too(tmp_path: Path) -> None:
    table = tmp_path / "own.toml"
    row = 'id = "X1"\ntitle = "mine"\ntier = "weekly"\nlimit_s = 5\nworkload = "W1"\n'
    table.write_text(f"[[scenario]]\n{row}", encoding="utf-8")
    assert "mine" in _ottla("list", "--table", str(table)).output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run",), "Say which scenarios"),
        (("run", "C02", "--tier", "pr"), "not both"),
        (("run", "C99"), "There is no scenario 'C99'"),
        (("run", "C05", "--backend", "kafka"), "C05 runs on"),
        (("run", "C02", "--backend", "abacus"), "abacus"),
        (("check", "/nowhere/at/all"), "does not exist"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(arguments: tuple[str, ...], said: str) -> None:
    told = _ottla(*arguments)
    assert told.exit_code == 2
    assert said in told.output


def test_a_run_is_judged_again_from_its_folder(tmp_path: Path) -> None:
    folder = _written(tmp_path / "run", _good())
    told = _ottla("check", folder)
    assert told.exit_code == 0, told.output
    assert "PASSED" in told.output
    assert not RunFolder(tmp_path / "run").report_path.exists()
    assert json.loads(_ottla("check", "--json", folder).output)["outcome"] == "passed"


def test_a_broken_promise_a_harness_that_failed_and_too_little_have_codes_of_their_own(
    tmp_path: Path,
) -> None:
    lost = Story().sent("w-0", 0).read({}, end=0).evidence
    little = Story(ok_min=100).sent("w-0", 0).polled({0: "w-0"}).read({0: "w-0"}).evidence
    folders = {
        1: _written(tmp_path / "lost", lost),
        3: _written(tmp_path / "little", little),
        4: _written(tmp_path / "harness", _good(), "the wire was cut by a mouse"),
    }
    for code, folder in folders.items():
        assert _ottla("check", folder).exit_code == code
    assert _ottla("check", *folders.values()).exit_code == 1


def test_the_page_is_written_anew(tmp_path: Path) -> None:
    folder = _written(tmp_path / "run", _good())
    told = _ottla("report", folder)
    assert told.exit_code == 0
    assert RunFolder(tmp_path / "run").report_path.exists()


def test_of_several_runs_a_broken_promise_matters_most_and_no_run_is_no_pass() -> None:
    assert worst_of([Outcome.PASSED, Outcome.HARNESS, Outcome.FAILED]) is Outcome.FAILED
    assert worst_of([Outcome.PASSED, Outcome.INCONCLUSIVE]) is Outcome.INCONCLUSIVE
    assert worst_of([Outcome.INCONCLUSIVE, Outcome.HARNESS]) is Outcome.HARNESS
    assert worst_of([]) is Outcome.INCONCLUSIVE
    assert set(EXIT_CODES) == set(Outcome)


def test_what_was_asked_for_by_its_name_and_skipped_is_not_green(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C05 cuts links, which this cluster has not; C01 breaks nothing and would run."""
    poor = FakeBackend(tmp_path)
    poor.means = frozenset()
    monkeypatch.setattr(cli, "open_backend", lambda *_, **__: poor)
    told = _ottla("run", "C05", "--out", str(tmp_path))
    assert "C05 skipped" in told.output
    assert told.exit_code == EXIT_CODES[Outcome.INCONCLUSIVE]
    assert cli.outcomes_of([None, Outcome.PASSED], is_by_name=True).count(Outcome.INCONCLUSIVE) == 1
    assert cli.outcomes_of([None, Outcome.PASSED], is_by_name=False) == [Outcome.PASSED]
