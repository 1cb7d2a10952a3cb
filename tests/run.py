"""Runs the checks of `make check` and `make test` and ends in one line that a person can read.

Every step runs even if another one failed, so that one run tells everything. The checks that need
no test, and the tests of Spark, run beside the other tests, and each is told when it ends: one that
passes takes one line; the output of one that fails is shown in full, and so is pytest's own.

Not here: what a step means (`pyproject.toml`, `tests/README.md`), and the targets that need more
than Python (`make interop`, `make containers`, `make crash`).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
BIN: Final = Path(sys.executable).parent
QUICK_FOLDERS: Final = ("tests/tidy", "tests/unit", "tests/scripts")
SPARK_FOLDER: Final = "tests/integration/spark"
# The only other tests that need PySpark; without it they are skipped.
SPARK_SINK: Final = "tests/unit/clients/spark/test_sink.py"
# Half a gigabyte the first time, while the other tests run; then what follows is done by a JVM that
# compiles only quickly: code that runs for seconds does not pay back what the optimiser costs.
_WITH_SPARK: Final = (
    *("bash", "-c"),
    'make --silent spark-install && SPARK_SUBMIT_OPTS=-XX:TieredStopAtLevel=1 exec "$@"',
    "bash",
)
WITHOUT_MORE: Final = "not interop and not long and not containers and not transactions"
_WORKERS_MAX: Final = 6
# Three for each core: tests of clusters wait for much of their time. What each gets: `schedule.py`.
_COUNT_OF_WORKERS: Final = min(_WORKERS_MAX, 3 * (os.cpu_count() or 1))
WORKERS: Final = ("-n", str(_COUNT_OF_WORKERS), "--dist", "loadscope")
# So many files are compiled by each worker before it pays to collect all of them once before.
_FEW: Final = 40
# "812 passed, 3 skipped in 61.20s", at the end of what pytest prints.
_SUMMARY: Final = re.compile(r"(?:\d+ [a-z]+(?:, )?)+ in [0-9.]+s")
_COUNT: Final = re.compile(r"(\d+) (passed|failed|errors?|skipped)")


@dataclass(frozen=True, slots=True)
class Step:
    """One tool, and the words people use for what it checks."""

    name: str
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a step went."""

    step: Step
    passed: bool
    output: str
    seconds: float


def tool(name: str, *arguments: str) -> tuple[str, ...]:
    return (str(BIN / name), *arguments)


STATIC: Final = (
    Step("formatting", tool("ruff", "format", "--check", ".")),
    Step("lint", tool("ruff", "check", ".")),
    Step("types", tool("mypy")),
    Step("layering", tool("lint-imports")),
    Step("generated docs", tool("ottla", "docs", "--check")),
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a target runs: `first`, then `tests` with `beside` next to them."""

    first: tuple[Step, ...]
    tests: Step
    beside: tuple[Step, ...]


def plan_of(target: str) -> Plan:
    """Return the runs of pytest: of the quick folders, or of all that needs nothing but Python."""
    if target == "check":
        quick = [folder for folder in QUICK_FOLDERS if (ROOT / folder).is_dir()]
        return Plan(
            (), Step("tests", tool("pytest", "-q", *WORKERS, "-m", WITHOUT_MORE, *quick)), ()
        )
    chosen = ("-m", WITHOUT_MORE, f"--ignore={SPARK_FOLDER}", f"--ignore={SPARK_SINK}")
    # On a fresh clone every worker would compile every test for itself, all at the same time.
    collection = tool("pytest", "-qq", "--collect-only", *chosen)
    first = (Step("collection", collection),) if count_uncompiled(ROOT / "tests") > _FEW else ()
    # Behind Spark: it gives a Python that it starts ten seconds, also on a busy machine.
    others = ("nice", "-n", "5", *tool("pytest", "-q", *WORKERS, *chosen))
    spark = tool("pytest", "-q", "-n0", "-m", WITHOUT_MORE, SPARK_FOLDER, SPARK_SINK)
    return Plan(first, Step("tests", others), (Step("tests of Spark", _WITH_SPARK + spark),))


def count_uncompiled(folder: Path) -> int:
    """Return how many files of tests have no bytecode of pytest's that is as new as they are."""
    # As pytest names it. If it ever gives it another name, all count, and are collected first.
    ending = f"{sys.implementation.cache_tag}-pytest-{metadata.version('pytest')}.pyc"
    return sum(
        _changed_at(path.parent / "__pycache__" / f"{path.stem}.{ending}") < _changed_at(path)
        for path in folder.rglob("test_*.py")
    )


def _changed_at(path: Path) -> float:
    return path.stat().st_mtime if path.exists() else 0.0


def surroundings() -> dict[str, str]:
    """Return the environment for all steps: bytecode is kept, for every worker and every node."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def run_quietly(step: Step) -> Outcome:
    began = time.monotonic()
    done = subprocess.run(
        step.command,
        cwd=ROOT,
        env=surroundings(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    outcome = Outcome(step, done.returncode == 0, done.stdout, time.monotonic() - began)
    told = f"{step.name:<15} {'ok' if outcome.passed else 'FAILED':<7} {outcome.seconds:5.1f} s\n"
    # Whole: what the tests tell comes in between.
    print(told if outcome.passed else f"{told}{outcome.output}\n", end="", flush=True)
    return outcome


def run_aloud(step: Step) -> Outcome:
    """Run with the output shown as it comes: tests take minutes, and people want to see them."""
    began = time.monotonic()
    lines = list[str]()
    with subprocess.Popen(
        step.command,
        cwd=ROOT,
        env=surroundings(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    return Outcome(step, process.returncode == 0, "".join(lines), time.monotonic() - began)


def counts_in(output: str) -> dict[str, int]:
    """Return what pytest counted: passed, failed, …; empty if it did not get that far."""
    summaries = _SUMMARY.findall(output)
    if not summaries:
        return {}
    return {word: int(number) for number, word in _COUNT.findall(summaries[-1])}


def readable(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def last_line(target: str, outcomes: list[Outcome], seconds: float) -> str:
    counts = sum((Counter(counts_in(outcome.output)) for outcome in outcomes), Counter[str]())
    passed = counts.pop("passed", 0)
    failed = [outcome.step.name for outcome in outcomes if not outcome.passed]
    if failed:
        told = ", ".join(f"{number} {word}" for word, number in counts.items() if word != "skipped")
        detail = f" ({told}, {passed} passed)" if told else ""
        return f"make {target}: FAILED: {', '.join(failed)}{detail} in {readable(seconds)}"
    skipped = f", {counts['skipped']} skipped" if "skipped" in counts else ""
    return f"make {target}: all good: {passed} tests{skipped} in {readable(seconds)}"


def main(target: str) -> int:
    began = time.monotonic()
    plan = plan_of(target)
    with ThreadPoolExecutor(max_workers=1) as checking, ThreadPoolExecutor() as beside:
        checks = [checking.submit(run_quietly, step) for step in STATIC]
        first = [run_quietly(step) for step in plan.first]
        quiet = [beside.submit(run_quietly, step) for step in plan.beside]
        tests = run_aloud(plan.tests)
    outcomes = [*(one.result() for one in checks), *first, tests, *(one.result() for one in quiet)]
    print(last_line(target, outcomes, time.monotonic() - began))
    return 0 if all(outcome.passed for outcome in outcomes) else 1


if __name__ == "__main__":
    if sys.argv[1:] not in (["check"], ["test"]):
        sys.exit("usage: python -m tests.run check|test")
    sys.exit(main(sys.argv[1]))
