"""A signal ends a run tidily: every block is left, and with it every cluster ended and removed.

Not here: what the blocks do (`stage.py`, `bench/measure.py`).
"""

from __future__ import annotations

import signal
from typing import Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def end_tidily() -> None:
    """Have these signals raise `SystemExit` in the main thread from now on."""
    for one in _SIGNALS:
        # Who was started with `nohup` goes on when its terminal goes.
        if signal.getsignal(one) is not signal.SIG_IGN:
            signal.signal(one, _end)


def _end(*_: object) -> None:
    # Whoever is impatient must not interrupt the tidying up: it takes a second or two.
    for one in _SIGNALS:
        signal.signal(one, signal.SIG_IGN)
    raise SystemExit("asked to end")
