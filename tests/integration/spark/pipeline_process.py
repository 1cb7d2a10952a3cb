"""`ottla pipeline run` as a process that can be killed: its driver, or the Python of its tasks.

Spark's JVM forks a daemon of Python, and this one forks a worker for each task at work. A worker
that dies fails its task; the JVM that dies is the end of the driver.

Not here: what the pipeline does.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from tests.integration.nodes import wait_until

# On two cores that are shared with others, a JVM takes its time.
BATCH_DEADLINE_S: Final = 180.0
END_DEADLINE_S: Final = 60.0
_BATCH: Final = re.compile(r"^(\w+): batch (\d+), (\d+) rows", re.MULTILINE)
_FAILED_TASK: Final = re.compile(r"Exception in task ")
_TAIL_LINES: Final = 60
# So long after a kill the log has told of it.
_TOLD_S: Final = 0.5


class PipelineProcess:
    """One run of a pipeline, from its start to its end by itself or by the test."""

    def __init__(self, file: Path, log: Path, *, url: str, conf: dict[str, str]) -> None:
        self._log: Final = log
        settings = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
        command = [sys.executable, "-m", "ottla", "pipeline", "run", str(file)]
        with log.open("ab") as out:
            self._process: Final = subprocess.Popen(
                [*command, "--master", url, *settings],
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                # Its driver and its JVM are killed together.
                start_new_session=True,
            )

    @property
    def text(self) -> str:
        return self._log.read_text(errors="replace")

    def batches(self) -> dict[str, int]:
        """Return how many batches with rows each query has told of."""
        counted = dict[str, int]()
        for name, _, rows in _BATCH.findall(self.text):
            counted[name] = counted.get(name, 0) + (int(rows) > 0)
        return counted

    def failed_tasks(self) -> int:
        return len(_FAILED_TASK.findall(self.text))

    def wait_for_batches(self, names: set[str], more: int = 1) -> None:
        """Return when each of these queries has done so many batches more than now."""
        before = self.batches()

        def holds() -> bool:
            self.require_running()
            now = self.batches()
            return all(now.get(name, 0) >= before.get(name, 0) + more for name in names)

        try:
            wait_until(holds, BATCH_DEADLINE_S, f"{sorted(names)} do {more} batches more: {before}")
        except TimeoutError as error:
            error.add_note(self._tail())
            raise

    def kill_tasks(self) -> int:
        """Kill every Python that works for tasks until a task has failed; return how many."""
        killed, before = 0, self.failed_tasks()

        def is_told() -> bool:
            return self.failed_tasks() > before

        end = time.monotonic() + BATCH_DEADLINE_S
        while not is_told():
            self.require_running()
            assert time.monotonic() < end, "no task is at work"
            now = self.kill_workers()
            killed += now
            if now:
                # One that had nothing to do is not missed.
                with suppress(TimeoutError):
                    wait_until(is_told, _TOLD_S, "a task has failed")
        return killed

    def kill_workers(self) -> int:
        """Kill every Python that works for tasks, or plans them, once; return how many."""
        killed = 0
        for pid in self._workers():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed += 1
        return killed

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def kill_driver(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(END_DEADLINE_S)

    def wait_until_done(self, deadline_s: float) -> None:
        """Return when it has ended well."""
        try:
            code = self._process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it does not end:\n{self._tail()}") from None
        assert code == 0, f"it ended with {code}:\n{self._tail()}"

    def require_running(self) -> None:
        code = self._process.poll()
        assert code is None, f"it ended by itself with {code}:\n{self._tail()}"

    def end(self) -> None:
        """End it, whatever it does; for the end of a test that failed."""
        if self._process.poll() is None:
            self.kill_driver()

    def _workers(self) -> list[int]:
        """Return the processes of tasks: children of the daemon of Python."""
        children = dict[int, list[int]]()
        daemons = list[int]()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                line = (entry / "cmdline").read_bytes()
            except (FileNotFoundError, ProcessLookupError):
                continue
            pid = int(entry.name)
            children.setdefault(parent, []).append(pid)
            if b"pyspark.daemon" in line:
                daemons.append(pid)
        ours, waiting = set[int](), [self._process.pid]
        while waiting:
            one = waiting.pop()
            ours.add(one)
            waiting += children.get(one, [])
        is_daemon = set(daemons)
        return [
            child
            for daemon in daemons
            if daemon in ours
            for child in children.get(daemon, [])
            if child in is_daemon
        ]

    def _tail(self) -> str:
        return "\n".join(self.text.splitlines()[-_TAIL_LINES:])
