"""`make run` and `make node`, as a newcomer does it: read, type what it says, press Ctrl-C."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue

import pytest

from tests.tidy.tree import ROOT

pytestmark = pytest.mark.integration

DEADLINE_S = 60.0


class Terminal:
    """A program in a process group of its own, as a terminal starts it, and what it has said."""

    def __init__(self, *command: str) -> None:
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self._lines: Queue[str] = Queue()
        self.said = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            self._lines.put(line)

    def read_until(self, text: str) -> None:
        end = time.monotonic() + DEADLINE_S
        while text not in self.said:
            try:
                self.said += self._lines.get(timeout=max(0.0, end - time.monotonic()))
            except Empty:
                pytest.fail(f"it never said {text!r}; it said:\n{self.said}")

    def press_ctrl_c(self) -> int:
        os.killpg(self.process.pid, signal.SIGINT)
        code = self.process.wait(DEADLINE_S)
        self._reader.join(DEADLINE_S)
        while not self._lines.empty():
            self.said += self._lines.get()
        return code


@contextmanager
def _make(target: str, options: str) -> Iterator[Terminal]:
    made = Terminal("make", target, f"OPTIONS={options}")
    try:
        yield made
    finally:
        if made.process.poll() is None:
            os.killpg(made.process.pid, signal.SIGKILL)
            made.process.wait(DEADLINE_S)
        if made.process.stdout is not None:
            made.process.stdout.close()


def _typed(terminal: Terminal, title: str) -> str:
    """Run the line that `make run` printed under a title, and return its output."""
    found = re.search(rf"^  {title} +(.+)$", terminal.said, re.MULTILINE)
    assert found is not None, terminal.said
    done = subprocess.run(
        ["bash", "-c", found[1]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _write_and_read(terminal: Terminal) -> None:
    """Do what it says."""
    terminal.read_until("Ctrl-C stops it.")
    assert "bootstrap.servers=localhost:" in terminal.said
    assert "created" in _typed(terminal, "make a topic")
    _typed(terminal, "produce")
    written_s = time.monotonic() - terminal.began
    consume = re.search(r"^  consume +(.+)$", terminal.said, re.MULTILINE)
    assert consume is not None
    terminal.said += f"  consumed  {consume[1]} --max-messages 1\n"
    assert _typed(terminal, "consumed") == "hello\n"
    print(f"first acknowledged write after {written_s:.2f} s, with two commands typed")


def test_what_make_run_says_can_be_typed_and_ctrl_c_stops_all_nodes(tmp_path: Path) -> None:
    data = tmp_path / "data"
    try:
        with _make("run", f"--data {data} --base-port 0") as terminal:
            _write_and_read(terminal)
            assert "replication factor 3" in _typed(terminal, "its replicas")
            terminal.press_ctrl_c()
            assert "Stopped cleanly: node 1, node 2, node 3." in terminal.said
    finally:
        # The nodes are no children of the terminal, and would outlive it if something failed.
        command = [sys.executable, "-m", "ottla", "cluster", "stop", "--data", str(data)]
        subprocess.run(command, cwd=ROOT, capture_output=True, timeout=DEADLINE_S, check=False)


def test_what_make_node_says_can_be_typed_and_ctrl_c_stops_it(tmp_path: Path) -> None:
    listeners = "listeners=CLIENT://127.0.0.1:0,INTERNAL://127.0.0.1:0,HTTP://127.0.0.1:0"
    with _make("node", f"log.dirs={tmp_path / 'data'} {listeners}") as terminal:
        _write_and_read(terminal)
        terminal.press_ctrl_c()
        assert "node_stopped" in terminal.said
