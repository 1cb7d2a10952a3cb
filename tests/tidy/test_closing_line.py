"""The last line of `make test` says what happened, and never says more."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from _pytest.assertion.rewrite import PYC_TAIL

from tests.run import (
    ROOT,
    SPARK_FOLDER,
    SPARK_SINK,
    Outcome,
    Step,
    count_uncompiled,
    counts_in,
    last_line,
    plan_of,
    readable,
    surroundings,
)


def _outcome(name: str, *, passed: bool, output: str = "") -> Outcome:
    return Outcome(Step(name, ()), passed, output, 1.0)


def test_counts_are_read_from_the_last_line_of_pytest() -> None:
    told = "tests/x.py ....\n2 failed, 809 passed, 3 skipped in 61.20s (0:01:01)\n"
    assert counts_in(told) == {"failed": 2, "passed": 809, "skipped": 3}


def test_a_run_that_did_not_get_that_far_has_no_counts() -> None:
    assert counts_in("ERROR: usage\n") == {}


def test_success_is_one_line_with_the_number_of_tests() -> None:
    tests = _outcome("tests", passed=True, output="812 passed in 200.00s")
    assert last_line("test", [tests], 200.4) == "make test: all good: 812 tests in 3 min 20 s"


def test_skipped_tests_are_not_hidden() -> None:
    tests = _outcome("tests", passed=True, output="10 passed, 2 skipped in 1.00s")
    assert last_line("test", [tests], 3) == "make test: all good: 10 tests, 2 skipped in 3 s"


def test_tests_of_several_runs_are_counted_together() -> None:
    tests = _outcome("tests", passed=True, output="10 passed, 2 skipped in 1.00s")
    alone = _outcome("tests of Spark", passed=True, output="5 passed in 1.00s")
    assert last_line("test", [tests, alone], 3) == "make test: all good: 15 tests, 2 skipped in 3 s"


def test_failure_names_the_steps_and_the_counts() -> None:
    tests = _outcome("tests", passed=False, output="2 failed, 5 passed in 1.00s")
    told = last_line("check", [_outcome("lint", passed=False), tests], 9)
    assert told == "make check: FAILED: lint, tests (2 failed, 5 passed) in 9 s"


def test_a_failed_step_is_told_even_if_all_tests_passed() -> None:
    tests = _outcome("tests", passed=True, output="5 passed in 1.00s")
    told = last_line("test", [_outcome("types", passed=False), tests], 60)
    assert told == "make test: FAILED: types in 1 min 0 s"


def test_durations_are_readable() -> None:
    assert (readable(59.4), readable(60), readable(3601)) == ("59 s", "1 min 0 s", "60 min 1 s")


def test_bytecode_is_kept_whatever_the_shell_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    assert "PYTHONDONTWRITEBYTECODE" not in surroundings()


def test_a_test_counts_as_uncompiled_until_pytest_has_compiled_it_as_it_is(tmp_path: Path) -> None:
    test, compiled = tmp_path / "test_new.py", tmp_path / "__pycache__" / f"test_new{PYC_TAIL}"
    test.touch()
    (tmp_path / "builders.py").touch()
    assert count_uncompiled(tmp_path) == 1
    compiled.parent.mkdir()
    compiled.touch()
    os.utime(test, (0, compiled.stat().st_mtime))
    assert count_uncompiled(tmp_path) == 0
    os.utime(test, (0, compiled.stat().st_mtime + 1))
    assert count_uncompiled(tmp_path) == 1


def test_spark_goes_before_the_tests_that_run_beside_it() -> None:
    plan = plan_of("test")
    (spark,) = plan.beside
    assert plan.tests.command[:3] == ("nice", "-n", "5")
    assert spark.command[0] != "nice"


def test_spark_is_installed_while_the_other_tests_run_and_none_of_its_own_among_them() -> None:
    plan = plan_of("test")
    (spark,) = plan.beside
    assert "make --silent spark-install" in spark.command[2]
    for name in (SPARK_FOLDER, SPARK_SINK):
        assert (ROOT / name).exists()
        assert name in spark.command
        assert f"--ignore={name}" in plan.tests.command
