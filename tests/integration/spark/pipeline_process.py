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
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from tests.integration.nodes import wait_until

# Who waits so long hangs: on two cores beside a load of 15 a first batch took 100 s.
BATCH_DEADLINE_S: Final = 420.0
END_DEADLINE_S: Final = 60.0
_BATCH: Final = re.compile(r"^(\w+): batch (\d+), (\d+) rows", re.MULTILINE)
_FAILED_TASK: Final = re.compile(r"Exception in task ")
_TAIL_LINES: Final = 60
# By what the processes of one run are known.
_DRIVER: Final = b"org.apache.spark.deploy.SparkSubmit"
_TASKS: Final = b"pyspark.worker"
_DECIDING: Final = b"python_streaming_sink_runner"
# Where a thread of the driver stands that has the reports of all tasks of a batch.
_COMMITTING: Final = "PythonStreamingWrite.commit"
_ASK_EVERY_S: Final = 0.2
# What stands near the end of the threads that a JVM tells of.
_DUMPED: Final = "JNI global refs"
# A JVM that is killed soon need not compile itself well.
QUICK_JVM: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# So long after a kill the log has told of it.
_TOLD_S: Final = 0.5


class PipelineProcess:
    """One run of a pipeline, from its start to its end by itself or by the test."""

    def __init__(
        self,
        file: Path,
        log: Path,
        *,
        url: str,
        conf: dict[str, str],
        elsewhere: Sequence[int] = (),
    ) -> None:
        self._log: Final = log
        # Processes below which tasks run, if that is not the driver.
        self._elsewhere: Final = tuple(elsewhere)
        # Processes that stand still, and would for ever.
        self._frozen: Final = set[int]()
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
            error.add_note(self._told_of_hang())
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
        self._signal(self._frozen, signal.SIGKILL)
        self._frozen.clear()

    def freeze_tasks_below(self, top: int) -> int:
        """Let every Python that works for tasks below a process stand still; return how many.

        Tasks that are there now, or come there, are slow in the eyes of Spark.
        """
        found = {pid for pid, (_, line) in _family([top]).items() if _TASKS in line}
        self._signal(found, signal.SIGSTOP)
        self._frozen.update(found)
        return len(found)

    def thaw(self) -> None:
        self._signal(self._frozen, signal.SIGCONT)
        self._frozen.clear()

    def kill_driver_at_commit(
        self, *, in_the_middle: bool, holds: Callable[[], bool] = lambda: True
    ) -> None:
        """Kill it when every task of a batch has reported, and Spark does not know it committed.

        The Python that decides stands still, and then the driver waits for it. It is stopped in the
        middle of a decision, where `holds` says so, or before it has begun one.
        """

        def is_committing() -> bool:
            self.require_running()
            # It tells a lot, and stands still meanwhile.
            time.sleep(_ASK_EVERY_S)
            return _COMMITTING in self._threads()

        def stands() -> bool:
            self.thaw()
            if in_the_middle and not is_committing():
                return False
            lines = self._descendants()
            self._frozen.update(pid for pid, (_, line) in lines.items() if _DECIDING in line)
            self._signal(self._frozen, signal.SIGSTOP)
            is_there = bool(self._frozen) and is_committing() is in_the_middle
            return is_there and holds()

        try:
            wait_until(stands, BATCH_DEADLINE_S, "who decides stands still")
            wait_until(is_committing, BATCH_DEADLINE_S, "the driver is about to commit")
        except TimeoutError as error:
            error.add_note(self._tail())
            raise
        self.kill_driver()

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
        lines = self._descendants()
        daemons = {pid for pid, (_, line) in lines.items() if b"pyspark.daemon" in line}
        return [pid for pid in daemons if lines[pid][0] in daemons]

    def _descendants(self) -> dict[int, tuple[int, bytes]]:
        """Return parent and command of every process of this run."""
        return _family([self._process.pid, *self._elsewhere])

    def _told_of_hang(self) -> str:
        return f"{self._tail()}\n--- its threads:\n{self._threads()}"

    def _threads(self) -> str:
        """Return what the threads of the driver do: a JVM tells that on SIGQUIT."""
        begin = self._log.stat().st_size

        def told() -> str:
            with self._log.open("rb") as log:
                log.seek(begin)
                return log.read().decode(errors="replace")

        lines = self._descendants()
        self._signal([pid for pid, (_, line) in lines.items() if _DRIVER in line], signal.SIGQUIT)
        with suppress(TimeoutError):
            wait_until(lambda: _DUMPED in told(), END_DEADLINE_S, "the threads are told")
        return told()

    def _signal(self, pids: Iterable[int], what: signal.Signals) -> None:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, what)

    def _tail(self) -> str:
        return "\n".join(self.text.splitlines()[-_TAIL_LINES:])


def _family(tops: Sequence[int]) -> dict[int, tuple[int, bytes]]:
    """Return parent and command of these processes and of every one below them."""
    found, children = dict[int, tuple[int, bytes]](), dict[int, list[int]]()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            line = (entry / "cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        pid = int(entry.name)
        found[pid] = (parent, line)
        children.setdefault(parent, []).append(pid)
    ours, waiting = set[int](), list(tops)
    while waiting:
        one = waiting.pop()
        ours.add(one)
        waiting += children.get(one, [])
    return {pid: told for pid, told in found.items() if pid in ours}
