"""How busy the machine of a run was, second by second, and how much of that was the work of others.

Limits on time say something only while the nodes of a run get a processor. So a thread looks at
`/proc` once a second: how much of all processors was idle, how much this process and those below it
used, and how late the thread itself woke up. The rest is the work of others.

Not here: what follows from it (`checkers/starving.py`).

Y1  a machine that cannot be looked at gives no samples: nothing is excused then
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from ottla.chaos.clock import now_ns
from ottla.chaos.evidence import Load

PERIOD_S: Final = 1.0
_NS: Final = 1_000_000_000
_PROC: Final = Path("/proc")
# Of /proc/stat: user nice system idle iowait irq softirq steal. Waiting for a disk is idle too.
_IDLE: Final = slice(3, 5)
_ALL: Final = slice(0, 8)
# Of /proc/PID/stat behind the name: the parent, and the time used by it and by its dead children.
_PARENT: Final = 1
_USED: Final = slice(11, 15)


class Ticks(NamedTuple):
    """What was counted up to a moment, in ticks of the kernel."""

    t_ns: int
    # Of all processors together.
    all: int
    idle: int
    # Of a process and those below it.
    own: int


def ticks(root: int, proc: Path = _PROC) -> Ticks:
    """Look now; raise `OSError` or `ValueError` if there is nothing to be seen."""
    line = (proc / "stat").read_text(encoding="ascii").partition("\n")[0]
    counted = [int(one) for one in line.split()[1:]]
    own = sum(_own(root, proc))
    return Ticks(now_ns(), sum(counted[_ALL]), sum(counted[_IDLE]), own)


def _own(root: int, proc: Path) -> Iterator[int]:
    parents, used = dict[int, int](), dict[int, int]()
    for path in proc.iterdir():
        if path.name.isdigit():
            with suppress(OSError, ValueError, IndexError):
                # A name may have brackets and spaces in it.
                rest = (path / "stat").read_text(errors="replace").rpartition(")")[2].split()
                parents[int(path.name)] = int(rest[_PARENT])
                used[int(path.name)] = sum(map(int, rest[_USED]))
    for pid, ticks_used in used.items():
        if _is_below(pid, root, parents):
            yield ticks_used


def _is_below(pid: int, root: int, parents: dict[int, int]) -> bool:
    for _ in parents:
        if pid == root:
            return True
        pid = parents.get(pid, 0)
    return False


def load_between(before: Ticks, after: Ticks) -> Load | None:
    """Return how busy it was from one look to the next; None: nothing was counted."""
    counted = after.all - before.all
    if counted <= 0:
        return None
    idle = max(0, after.idle - before.idle) / counted
    # Of a process that ended unseen its last ticks are counted late: never less than nothing.
    own = max(0, after.own - before.own) / counted
    late_s = (after.t_ns - before.t_ns) / _NS - PERIOD_S
    return Load(
        before.t_ns,
        after.t_ns,
        round(idle, 3),
        round(max(0.0, 1 - idle - own), 3),
        round(late_s, 3),
    )


class LoadWatch:
    """Looks once a second, from `start` to `stop`."""

    def __init__(self, add: Callable[[Load], None]) -> None:
        self._add: Final = add
        self._is_over: Final = threading.Event()
        self._thread: Final = threading.Thread(target=self._watch, name="load", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _watch(self) -> None:
        with suppress(OSError, ValueError, IndexError):
            before = ticks(os.getpid())
            while not self._is_over.wait(PERIOD_S):
                after = ticks(os.getpid())
                load = load_between(before, after)
                if load is not None:
                    self._add(load)
                before = after
