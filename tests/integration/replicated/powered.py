"""A node whose power can be cut at any moment from outside: by SIGUSR2.

    python -m tests.integration.replicated.powered node …

It is `ottla` as it is, with `OTTLA_FAULTS` for the style of the cut, and one more signal. What was
not synced by then is dropped, torn or reordered on the real files, and the process leaves with 137.
"""

from __future__ import annotations

import os
import signal
import threading

from ottla.__main__ import main
from ottla.replication.storage import failpoints


def _cut(*_: object) -> None:
    # In a thread of its own it waits for the lock of whoever is writing just now, this one too.
    threading.Thread(target=_switch_off, daemon=True).start()


def _switch_off() -> None:
    for switch in failpoints._power_switch:
        switch("somebody pulled the plug")
    # No storage was opened yet, so there is nothing to lose.
    os._exit(failpoints.EXIT_CODE)


def _on_thread_error(error: threading.ExceptHookArgs) -> None:
    # Whoever writes in the last microseconds finds that there is no power; that is no news.
    if not isinstance(error.exc_value, failpoints.CrashError):
        threading.__excepthook__(error)


if __name__ == "__main__":
    threading.excepthook = _on_thread_error
    signal.signal(signal.SIGUSR2, _cut)
    main(prog_name="ottla")
