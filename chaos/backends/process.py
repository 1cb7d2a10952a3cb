"""One node as a process of this machine, through all its lives.

Not here: the other nodes (`local.py`), what it says (`inside.py`).

N1  only processes that were started here are signalled, and only while they are ours
N2  a node is not configured by whoever runs the harness: their `OTTLA_…` variables stay outside
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from ottla.chaos.clock import NeverHappenedError, wait_until
from ottla.chaos.ports import HarnessError

STOP_DEADLINE_S: Final = 30.0
_SIGNAL_DEADLINE_S: Final = 10.0
# What a process leaves with when its power is cut; the second, if it had no storage open yet.
_CUT_CODES: Final = (137, -signal.SIGUSR2)
# What a cut may do to what was not synced.
_STYLES: Final = ("drop", "torn", "reorder", "mixed")
_PAGE_BYTES: Final = resource.getpagesize()


@dataclass(slots=True, kw_only=True)
class NodeProcess:
    """Its program, its files, and the process while there is one."""

    node: int
    directory: Path
    # The whole command line.
    command: Sequence[str]
    environment: Mapping[str, str]
    # Of what its cuts take; None: it is no node of ours, and nothing inside it can be broken.
    dice: Random | None
    process: subprocess.Popen[bytes] | None = None
    lives: int = 0
    is_paused: bool = False
    faults: list[str] = field(default_factory=list)

    @property
    def data_dir(self) -> Path:
        return self.directory / "data"

    @property
    def log_path(self) -> Path:
        return self.directory / "node.log"

    @property
    def trace_path(self) -> Path:
        return self.directory / "trace.jsonl"

    @property
    def _faults_path(self) -> Path:
        return self.directory / "faults"

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def exit_code(self) -> int | None:
        return None if self.process is None else self.process.poll()

    @property
    def pid(self) -> int:
        if self.process is None:
            raise HarnessError(f"node {self.node} was never started")
        return self.process.pid

    # -- its lives -------------------------------------------------------------------------------

    def begin(self, more: Mapping[str, str] | None = None) -> None:
        if self.is_running:
            raise HarnessError(f"node {self.node} runs already")
        self.directory.mkdir(parents=True, exist_ok=True)
        self.lives += 1
        self.is_paused = False
        self.faults = []
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env={**surroundings(), **self._seam(), **self.environment, **(more or {})},
                # A Ctrl-C at the terminal is for the harness, which then ends its nodes.
                start_new_session=True,
            )

    def _seam(self) -> dict[str, str]:
        """Return what lets a node of ours be broken from outside, and how a cut would go."""
        if self.dice is None:
            return {}
        self._faults_path.write_text("")
        style, seed = self.dice.choice(_STYLES), self.dice.randrange(1000)
        return {
            "OTTLA_FAULTS": f"style={style};seed={seed}",
            "OTTLA_FAULTS_FILE": str(self._faults_path),
        }

    def signal(self, number: int) -> None:
        """Send a signal, if there is anybody to get it."""
        if self.process is not None:
            self.process.send_signal(number)

    def wait_ended(self, deadline_s: float = STOP_DEADLINE_S) -> int:
        assert self.process is not None
        try:
            return self.process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            raise HarnessError(f"node {self.node} did not end within {deadline_s:g} s") from None

    def kill(self) -> None:
        self.signal(signal.SIGKILL)

    def pull_plug(self) -> None:
        if not catches(self.pid, signal.SIGUSR2):
            self.resume()
            self._wait_listens(signal.SIGUSR2)
        self.signal(signal.SIGUSR2)
        # One that hangs hears it when it goes on.
        self.resume()

    def require_cut(self) -> None:
        code = self.wait_ended(_SIGNAL_DEADLINE_S)
        if code not in _CUT_CODES:
            raise HarnessError(f"node {self.node} left with {code} when its power was cut")

    def ask_to_stop(self) -> None:
        self.signal(signal.SIGTERM)
        self.resume()

    def pause(self) -> None:
        self.signal(signal.SIGSTOP)
        self.is_paused = True

        def is_stopped() -> bool:
            return not self.is_running or _state(self.pid) == "T"

        wait_until(is_stopped, _SIGNAL_DEADLINE_S, f"node {self.node} hangs")

    def resume(self) -> None:
        self.signal(signal.SIGCONT)
        self.is_paused = False

    # -- faults while it runs --------------------------------------------------------------------

    def set_faults(self, clauses: Sequence[str]) -> int:
        """Have it obey these and no other; return when it does, or when it is no more.

        And how often it has met those that held before.
        """
        if list(clauses) == self.faults:
            return 0
        text, told = ";".join(clauses), list[str]()

        def holds() -> bool:
            # One that has just begun has no disk to break yet, and is asked again.
            told.append(self._obeyed(text))
            return told[-1] == text

        try:
            wait_until(holds, _SIGNAL_DEADLINE_S, f"node {self.node} obeys its faults")
        except NeverHappenedError as error:
            raise HarnessError(f"node {self.node} takes no faults: {told[-1]}") from error
        self.faults = list(clauses)
        met = self._faults_path.with_name("faults.met")
        return int(met.read_text()) if met.exists() else 0

    def _obeyed(self, text: str) -> str:
        """Return what it says when it is asked to obey this; if it is no more, that it does."""
        obeyed = self._faults_path.with_name("faults.obeyed")
        obeyed.unlink(missing_ok=True)
        self._faults_path.with_name("faults.met").unlink(missing_ok=True)
        self._faults_path.write_text(text)
        self._wait_listens(signal.SIGUSR1)
        self.signal(signal.SIGUSR1)
        try:
            wait_until(
                lambda: obeyed.exists() or not self.is_running,
                _SIGNAL_DEADLINE_S,
                f"node {self.node} says whether it obeys",
            )
        except NeverHappenedError as error:
            raise HarnessError(str(error)) from error
        return obeyed.read_text() if obeyed.exists() else text

    def _wait_listens(self, number: int) -> None:
        """Wait until a signal is caught: a process that has only just begun would die of it."""
        try:
            wait_until(
                lambda: not self.is_running or catches(self.pid, number),
                _SIGNAL_DEADLINE_S,
                f"node {self.node} listens to signal {number}",
            )
        except NeverHappenedError as error:
            raise HarnessError(str(error)) from error

    def limit_memory(self, more_bytes: int | None) -> None:
        """Bound its private memory to what it has and so much more."""
        limit = resource.RLIM_INFINITY
        if more_bytes is not None:
            limit = _data_bytes(self.pid) + more_bytes
        _, hard = resource.prlimit(self.pid, resource.RLIMIT_DATA)
        resource.prlimit(self.pid, resource.RLIMIT_DATA, (limit, hard))

    # -- what it uses ----------------------------------------------------------------------------

    def uses(self) -> dict[str, Any]:
        return uses_of(self.pid, self.data_dir)

    def log_lines(self) -> list[tuple[int, str]]:
        if not self.log_path.exists():
            return []
        text = self.log_path.read_text(encoding="utf-8", errors="replace")
        return list(enumerate(text.splitlines(), 1))


def uses_of(pid: int, data_dir: Path) -> dict[str, Any]:
    """Return what a process uses, and its files; raise `OSError` if it is gone, or not ours."""
    proc = Path(f"/proc/{pid}")
    return {
        "rss_bytes": int((proc / "statm").read_text().split()[1]) * _PAGE_BYTES,
        "open_files": sum(1 for _ in (proc / "fd").iterdir()),
        "disk_bytes": sum(one.stat().st_blocks * 512 for one in _files(data_dir)),
        "rss_peak_bytes": _peak_bytes(proc),
    }


def _peak_bytes(proc: Path) -> int:
    """Return the most memory that a process has ever held."""
    for line in (proc / "status").read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def surroundings() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("OTTLA_")}


def catches(pid: int, number: int) -> bool:
    """Tell whether a process has a handler for a signal."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


def _state(pid: int) -> str:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[0]


def _data_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[5]) * _PAGE_BYTES


def _files(directory: Path) -> list[Path]:
    found = list[Path]()
    for path in directory.rglob("*"):
        try:
            if path.is_file():
                found.append(path)
        except OSError:
            # It was renamed or removed while we looked.
            continue
    return found
