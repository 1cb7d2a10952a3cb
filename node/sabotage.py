"""Lets a judge break this process while it runs, by two signals. Off unless the environment asks.

`OTTLA_FAULTS` (`ottla.replication.storage.open`) gives the process a plug as well: SIGUSR2 pulls
it. What was not synced is lost, and the process leaves with 137.

`OTTLA_FAULTS_FILE` names a file of clauses, as `OTTLA_FAULTS` has them. SIGUSR1 has it read, and
what it says holds from then on, instead of what it said before; an empty one mends everything.
Two clauses more are known there:

    clock_ms=60000                      the wall clock is a minute ahead
    failpoint=log.roll.before:kill@1    arms a failpoint

What was obeyed, or why it was not, is written beside it, under the same name with `.obeyed`; and
with `.met`, how often the disk or the clock that was broken until then was met: nobody learns
anything from a fault that nobody met.

Not here: what the faults are.

A1  without these variables no signal is listened to, and nothing can be broken
A2  a file with a mistake changes nothing
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ottla.node.clock import Clock, ShiftedClock
from ottla.proto.errors import ConfigError
from ottla.replication.storage import failpoints
from ottla.replication.storage.faults import FaultPlan
from ottla.replication.storage.open import ENVIRONMENT_KEY, plan_of

FILE_KEY: Final = "OTTLA_FAULTS_FILE"
_OBEYED: Final = ".obeyed"
_MET: Final = ".met"
_CLOCK: Final = "clock_ms"
_FAILPOINT: Final = "failpoint"


class Sabotage:
    """What a judge may do to this process. `listen` once, from the main thread."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._has_plug: Final = bool(environ.get(ENVIRONMENT_KEY, "").strip())
        path = environ.get(FILE_KEY, "")
        self._path: Final = Path(path) if path else None
        self._shifted: Final = ShiftedClock() if path else None
        self._plan: FaultPlan | None = None
        # Failpoints that the file armed.
        self._armed = list[str]()

    @property
    def clock(self) -> Clock:
        """Return the clock that this process goes by."""
        return Clock() if self._shifted is None else self._shifted

    def reach(self, plan: FaultPlan | None) -> None:
        """Say what the disk of this process goes by."""
        self._plan = plan

    def listen(self) -> None:
        if self._has_plug:
            threading.excepthook = _on_thread_error
            signal.signal(signal.SIGUSR2, _pull_the_plug)
        if self._path is not None:
            signal.signal(signal.SIGUSR1, lambda number, frame: self.obey())

    def obey(self) -> None:
        """Read the file, and let everything in it hold."""
        assert self._path is not None
        met = self._met()
        try:
            text = self._path.read_text(encoding="utf-8")
            self._become(text)
            told = text
        except (OSError, ValueError, ConfigError) as error:
            told = f"refused: {error}"
        self._path.with_name(self._path.name + _MET).write_text(str(met), encoding="utf-8")
        part = self._path.with_name(self._path.name + _OBEYED + ".part")
        part.write_text(told, encoding="utf-8")
        part.rename(self._path.with_name(self._path.name + _OBEYED))

    def _met(self) -> int:
        """Return how often somebody met what is broken now."""
        of_disk = 0 if self._plan is None else self._plan.met
        return of_disk + (0 if self._shifted is None else self._shifted.reads)

    def _become(self, text: str) -> None:
        disk, armed, shift_ms = list[str](), list[tuple[str, failpoints.Action]](), 0
        for clause in filter(str.strip, text.split(";")):
            name, _, value = (part.strip() for part in clause.partition("="))
            if name == _CLOCK:
                shift_ms = int(value)
            elif name == _FAILPOINT:
                place, _, action = value.partition(":")
                armed.append((failpoints.require_name(place), failpoints.parse_action(action)))
            else:
                disk.append(clause)
        plan = plan_of(";".join(disk))
        if disk and self._plan is None:
            raise ConfigError(f"the disk cannot be broken yet, or {ENVIRONMENT_KEY} is not set")
        if self._plan is not None:
            self._plan.become(plan)
        if self._shifted is not None:
            self._shifted.shift_ms, self._shifted.reads = shift_ms, 0
        for place in self._armed:
            failpoints.disarm(place)
        self._armed = [place for place, _ in armed]
        for place, doing in armed:
            failpoints.arm(place, doing)


def _pull_the_plug(*_: object) -> None:
    # In a thread of its own it waits for the lock of whoever is writing just now, this one too.
    why = "somebody pulled the plug"
    threading.Thread(target=failpoints.cut_power, args=(why,), daemon=True).start()


def _on_thread_error(error: threading.ExceptHookArgs) -> None:
    # Whoever writes in the last microseconds finds that there is no power; that is no news.
    if not isinstance(error.exc_value, failpoints.CrashError):
        threading.__excepthook__(error)
