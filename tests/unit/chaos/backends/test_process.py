"""A node as a process: a signal is sent only to one that listens to it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from ottla.chaos.backends.process import NodeProcess, catches
from ottla.chaos.clock import wait_until

# Takes its time before it listens, as a node does that has just been started.
_SLOW = """
import os, pathlib, signal, sys
path = pathlib.Path(os.environ["OTTLA_FAULTS_FILE"])
refusals = ["refused: the disk cannot be broken yet"]
def obey(*_):
    told = refusals.pop() if refusals else path.read_text()
    part = path.with_name("part")
    part.write_text(told)
    part.rename(path.with_name("faults.obeyed"))
total = sum(range(3_000_000))
signal.signal(signal.SIGUSR1, obey)
while True:
    signal.pause()
"""


@contextmanager
def _node(directory: Path) -> Iterator[NodeProcess]:
    node = NodeProcess(
        node=1,
        directory=directory,
        command=[sys.executable, "-c", _SLOW],
        environment={},
        dice=Random(1),
    )
    node.begin()
    try:
        yield node
    finally:
        node.kill()
        node.wait_ended()


def test_faults_reach_a_node_that_has_only_just_begun(tmp_path: Path) -> None:
    with _node(tmp_path) as node:
        node.set_faults(["eio=sync:*:1"])
        assert node.is_running
        assert node.faults == ["eio=sync:*:1"]
        node.set_faults([])
        assert node.faults == []


def test_a_node_without_faults_is_not_asked_to_have_none(tmp_path: Path) -> None:
    with _node(tmp_path) as node:
        node.set_faults([])
        assert node.is_running


def test_who_listens_to_a_signal_is_known() -> None:
    listening = "import signal; signal.signal(signal.SIGUSR1, print); signal.pause()"
    with subprocess.Popen([sys.executable, "-c", listening]) as process:
        wait_until(lambda: catches(process.pid, signal.SIGUSR1), 20, "it listens")
        assert not catches(process.pid, signal.SIGUSR2)
        process.kill()
