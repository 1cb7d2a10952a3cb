"""A run on disk: one folder that holds everything a checker needs, and what it said.

    run.json  history.jsonl  nemesis.jsonl  leaders.jsonl  finals.jsonl  replicas.jsonl
    uses.jsonl  offline.json  harness.json  trace/*.jsonl  logs/node-N.log
    verdict.json  report.html  junit.xml

Files of the first two lines are evidence; a file that is not there is evidence that was not taken.
They are added to while the run goes on, so that a run that is cut short can be judged as far as it
came.

Not here: what the files mean (`evidence.py`), judging (`checkers/`), pages (`report/`).

R1  `read` returns what was written; it needs run.json and history.jsonl, and nothing else
R2  harness.json is written last: a run without it was cut short, and is no pass
R3  only the last line of a file may be torn, and is left out then. Of a trace any line may be: a
    full disk tears them
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TextIO, TypeVar

from ottla.chaos.evidence import (
    Evidence,
    FaultEvent,
    FinalRead,
    Load,
    ReplicaPrint,
    RunFacts,
    Uses,
)
from ottla.chaos.evidence_lines import (
    facts_from,
    facts_to,
    fault_from,
    fault_to,
    final_from,
    final_to,
    leader_from,
    line_of,
    read_line,
    replica_from,
    replica_to,
)
from ottla.chaos.history import BadHistoryError, Place, from_lines

T = TypeVar("T")
_LOG_NAME: Final = "node-"
_CUT_SHORT: Final = "the run was cut short: harness.json, which is written last, is not there"


class RunFolder:
    """The folder of one run; it is made when something is written to it."""

    def __init__(self, path: Path) -> None:
        self.path: Final = path
        self.history_path: Final = path / "history.jsonl"
        self.verdict_path: Final = path / "verdict.json"
        self.report_path: Final = path / "report.html"
        self.junit_path: Final = path / "junit.xml"
        self.trace_dir: Final = path / "trace"
        self.logs_dir: Final = path / "logs"

    # -- writing -----------------------------------------------------------------------------------

    def write_facts(self, facts: RunFacts) -> None:
        self._write("run.json", facts_to(facts))

    def open_history(self) -> TextIO:
        """Return the file that events are added to, line by line; whoever opened it closes it."""
        self.path.mkdir(parents=True, exist_ok=True)
        return self.history_path.open("a", encoding="utf-8")

    def add_fault(self, event: FaultEvent) -> None:
        self._add("nemesis.jsonl", [fault_to(event)])

    def add_leaders(self, seen: Iterable[tuple[int, Place, int, int]]) -> None:
        self._add("leaders.jsonl", ([moment, [*at], *who] for moment, at, *who in seen))

    def add_finals(self, reads: Iterable[FinalRead]) -> None:
        self._add("finals.jsonl", map(final_to, reads))

    def add_replicas(self, replicas: Iterable[ReplicaPrint]) -> None:
        self._add("replicas.jsonl", map(replica_to, replicas))

    def add_uses(self, uses: Iterable[Uses]) -> None:
        self._add("uses.jsonl", (list(one) for one in uses))

    def add_load(self, load: Load) -> None:
        self._add("loads.jsonl", [list(load)])

    def write_offline(self, problems: Mapping[int, Sequence[str]]) -> None:
        self._write("offline.json", {str(node): list(told) for node, told in problems.items()})

    def write_harness(self, failures: Sequence[str]) -> None:
        """Write what went wrong with the harness itself, in place of what was written before."""
        self._write("harness.json", list(failures))

    def keep_trace(self, files: Iterable[Path]) -> None:
        """Copy the traces of nodes; without any, an empty folder says that nobody told anything."""
        self.trace_dir.mkdir(parents=True, exist_ok=True)
        for number, file in enumerate(files, 1):
            if file.exists():
                shutil.copyfile(file, self.trace_dir / f"{_LOG_NAME}{number}.jsonl")

    def keep_logs(self, logs: Mapping[int, Iterable[tuple[int, str]]]) -> None:
        self.logs_dir.mkdir(parents=True, exist_ok=True)
        for node, lines in logs.items():
            text = "".join(f"{line}\n" for _, line in lines)
            path = self.logs_dir / f"{_LOG_NAME}{node}.log"
            path.write_text(text, encoding="utf-8")

    def _write(self, name: str, told: object) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / name).write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")

    def _add(self, name: str, rows: Iterable[object]) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / name).open("a", encoding="utf-8") as file:
            file.writelines(f"{line_of(row)}\n" for row in rows)

    # -- reading -----------------------------------------------------------------------------------

    def read(self) -> Evidence:
        """Return the run; raise `BadHistoryError` if this is none."""
        if not (self.path / "run.json").exists() or not self.history_path.exists():
            raise BadHistoryError(f"{self.path} has no run.json or no history.jsonl")
        offline, failures = self._read_json("offline.json"), self._read_json("harness.json")
        with self.history_path.open(encoding="utf-8") as file:
            events = list(from_lines(file))
        return Evidence(
            facts=self.read_facts(),
            events=events,
            faults=self._rows("nemesis.jsonl", fault_from) or (),
            trace=self._trace(),
            finals=self._rows("finals.jsonl", final_from) or (),
            replicas=self._rows("replicas.jsonl", replica_from),
            offline=None if offline is None else {int(key): told for key, told in offline.items()},
            logs=self._logs(),
            leaders_seen=self._rows("leaders.jsonl", leader_from) or (),
            uses=self._rows("uses.jsonl", lambda told: Uses(*told)) or (),
            loads=self._rows("loads.jsonl", lambda told: Load(*told)) or (),
            harness_failures=[_CUT_SHORT] if failures is None else failures,
        )

    def read_facts(self) -> RunFacts:
        return read_line((self.path / "run.json").read_text(encoding="utf-8"), facts_from)

    def _read_json(self, name: str) -> Any:
        path = self.path / name
        if not path.exists():
            return None
        return read_line(path.read_text(encoding="utf-8"), lambda told: told)

    def _rows(self, name: str, read: Callable[[Any], T]) -> list[T] | None:
        path = self.path / name
        if not path.exists():
            return None
        found = list[T]()
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                # What has no end is torn, and nothing comes after it.
                if line.endswith("\n"):
                    try:
                        found.append(read_line(line, read))
                    except BadHistoryError as error:
                        raise BadHistoryError(f"{name}, line {number}: {error}") from error
        return found

    def _trace(self) -> list[Mapping[str, Any]] | None:
        if not self.trace_dir.is_dir():
            return None
        lines = list[Mapping[str, Any]]()
        for path in sorted(self.trace_dir.glob("*.jsonl")):
            lines += _whole_lines(path)
        return sorted(lines, key=lambda line: int(line["t_ns"]))

    def _logs(self) -> dict[int, list[tuple[int, str]]] | None:
        if not self.logs_dir.is_dir():
            return None
        return {
            int(path.stem.removeprefix(_LOG_NAME)): list(
                enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
            )
            for path in sorted(self.logs_dir.glob(f"{_LOG_NAME}*.log"))
        }


def _whole_lines(path: Path) -> Iterator[Mapping[str, Any]]:
    with path.open(encoding="utf-8", errors="replace") as file:
        for text in file:
            try:
                told = json.loads(text)
            except json.JSONDecodeError:
                continue
            if isinstance(told, dict) and {"t_ns", "node", "event"} <= told.keys():
                yield told
