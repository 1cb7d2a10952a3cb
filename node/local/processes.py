"""Processes that outlive the command that began them, and signals that never hit a stranger.

A number of a process is used again after its end. So a process is known by its number, by when it
began, and by the boot of the machine; and a signal goes through a descriptor of the process, which
is opened first and compared then.

Not here: what the processes are for (`cluster.py`).

P1  a signal reaches the process that was recorded, or none
P2  who has ended counts as gone, also while nobody has asked for its exit code
P3  a process whose first thread has ended is there for as long as another thread of it is: that one
    may be in the middle of a sync, and holds the locks on its files until it ends as well
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from ottla.proto.errors import StorageError

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
# Fields of /proc/PID/stat, counted from the one after the program's name.
_STATE: Final = 0
_STARTED: Final = 19
_ENDED_STATES: Final = frozenset("ZXx")
_PAUSED_STATES: Final = frozenset("Tt")
# A parent that ignores these would hand that down.
_DEFAULT_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ)


class Life(Enum):
    """What the system says of a process."""

    RUNNING = "running"
    PAUSED = "paused"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class ProcessId:
    """One process, and no other that ever has its number."""

    pid: int
    # In ticks of the machine since its boot.
    started: int
    boot_id: str


def spawn(command: Sequence[str], log_path: Path, environment: Mapping[str, str]) -> ProcessId:
    """Begin a process in a session of its own, so that Ctrl-C of a terminal does not reach it."""
    to_log = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    try:
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, *command],
            environment,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(log_path), to_log, 0o644),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
            setsigdef=_DEFAULT_SIGNALS,
        )
    except OSError as error:
        raise StorageError(f"no process can be started with its log in {log_path}: {error}.") from (
            error
        )
    # It is our child: its number stays its own until we ask for its exit code.
    found = _stat_of(pid)
    return ProcessId(pid, int(found[_STARTED]) if found else 0, _boot_id())


def life_of(process: ProcessId) -> Life:
    """Return how a recorded process is; one that ended, or never was of this boot, is gone."""
    found = _stat_of(process.pid)
    if found is None or process.boot_id != _boot_id() or int(found[_STARTED]) != process.started:
        return Life.GONE
    state = found[_STATE]
    if state in _ENDED_STATES:
        return Life.RUNNING if _has_other_threads(process.pid) else Life.GONE
    return Life.PAUSED if state in _PAUSED_STATES else Life.RUNNING


def send(process: ProcessId, number: signal.Signals) -> bool:
    """Signal exactly this process (P1); return False if it is gone."""
    try:
        held = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        # Compared while the descriptor holds the process: the number cannot change hands now.
        if life_of(process) is Life.GONE:
            return False
        signal.pidfd_send_signal(held, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(held)
    return True


def end_of_child(process: ProcessId) -> int | None:
    """Return the exit code of a child that has ended, negative for a signal; else None."""
    with suppress(ChildProcessError):
        pid, status = os.waitpid(process.pid, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
    return None


def _stat_of(pid: int) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name of the program may hold blanks and brackets: what counts begins after the last.
    return text.rpartition(")")[2].split()


def _has_other_threads(pid: int) -> bool:
    try:
        return any(one.name != str(pid) for one in Path(f"/proc/{pid}/task").iterdir())
    except (FileNotFoundError, ProcessLookupError):
        return False


def _boot_id() -> str:
    return _BOOT_ID.read_text(encoding="ascii").strip()
