"""Processes are known by more than their number, and signals never hit a stranger."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.node.local.processes import Life, ProcessId, end_of_child, life_of, send, spawn
from tests.integration.nodes import wait_until

DEADLINE_S = 10.0


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[ProcessId]:
    program = "import signal; print('here', flush=True); signal.pause()"
    process = spawn(["-c", program], tmp_path / "log", os.environ)
    try:
        wait_until(lambda: (tmp_path / "log").read_text() == "here\n", DEADLINE_S, "it came about")
        yield process
    finally:
        send(process, signal.SIGKILL)
        wait_until(lambda: life_of(process) is Life.GONE, DEADLINE_S, "it came about")
        end_of_child(process)


def test_a_process_is_paused_goes_on_and_ends(sleeper: ProcessId) -> None:
    assert life_of(sleeper) is Life.RUNNING
    assert send(sleeper, signal.SIGSTOP)
    wait_until(lambda: life_of(sleeper) is Life.PAUSED, DEADLINE_S, "it came about")
    assert send(sleeper, signal.SIGCONT)
    wait_until(lambda: life_of(sleeper) is Life.RUNNING, DEADLINE_S, "it came about")
    assert send(sleeper, signal.SIGTERM)
    wait_until(lambda: life_of(sleeper) is Life.GONE, DEADLINE_S, "it came about")


def test_one_that_ended_is_gone_also_while_nobody_asked_for_its_exit_code(
    sleeper: ProcessId,
) -> None:
    send(sleeper, signal.SIGKILL)
    wait_until(lambda: life_of(sleeper) is Life.GONE, DEADLINE_S, "it came about")
    assert not send(sleeper, signal.SIGTERM)
    assert end_of_child(sleeper) == -signal.SIGKILL
    assert end_of_child(sleeper) is None


def test_one_whose_other_threads_still_work_is_not_gone(tmp_path: Path) -> None:
    # The first thread ends alone, as after a SIGKILL while another one is in the middle of a sync.
    program = (
        "import ctypes, threading, time\n"
        "threading.Thread(target=time.sleep, args=(60,)).start()\n"
        "ctypes.CDLL(None).pthread_exit(None)\n"
    )
    process = spawn(["-c", program], tmp_path / "log", dict(os.environ))
    try:
        stat = Path(f"/proc/{process.pid}/stat")
        wait_until(lambda: stat.read_text().split()[2] == "Z", 20, "its first thread has ended")
        assert life_of(process) is Life.RUNNING
    finally:
        send(process, signal.SIGKILL)
    wait_until(lambda: life_of(process) is Life.GONE, 20, "it is gone")
    end_of_child(process)


@pytest.mark.parametrize("change", [{"started": 12}, {"boot_id": "another"}])
def test_another_process_with_the_same_number_is_left_alone(
    change: dict[str, object], sleeper: ProcessId
) -> None:
    earlier = replace(sleeper, **change)  # type: ignore[arg-type]
    assert life_of(earlier) is Life.GONE
    assert not send(earlier, signal.SIGKILL)
    assert life_of(sleeper) is Life.RUNNING


def test_it_has_a_session_of_its_own_so_that_ctrl_c_does_not_reach_it(sleeper: ProcessId) -> None:
    assert os.getsid(sleeper.pid) == sleeper.pid
