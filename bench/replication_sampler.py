"""Looks at a node from within, as often as the kernel's clock ticks while it works.

It is loaded into a node that the bench starts (`replication_profile.py`), begins at SIGUSR1, and at
SIGUSR2 writes what it saw. A timer of the kernel counts the processor time of all threads of the
process; when it rings, the main thread, in which the event loop runs, notes where it is. While it
waits in `select`, whoever works is another thread: one of gRPC, or one that syncs.

The function that is noted is the one in which Python is; a call into C counts for its caller, with
the line. What happens in C, and in other threads, `perf` tells.
Not here: when to look, and how it is shown.
"""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Final

OUTPUT_VARIABLE: Final = "BENCH_SAMPLES"
_STEP_S: Final = 0.001
_DEPTH_MAX: Final = 40


class Sampler:
    """Counts the places where the main thread is."""

    def __init__(self, directory: Path) -> None:
        self._directory: Final = directory
        # Places: file, function, line. A function with no line counts also for those it calls.
        self._own: Counter[tuple[str, str, int]] = Counter()
        self._below: Counter[tuple[str, str]] = Counter()

    def begin(self, *_: object) -> None:
        self._own.clear()
        self._below.clear()
        signal.signal(signal.SIGPROF, self._note)
        signal.setitimer(signal.ITIMER_PROF, _STEP_S, _STEP_S)

    def _note(self, _: int, frame: FrameType | None) -> None:
        if frame is None:
            return
        code = frame.f_code
        self._own[code.co_filename, code.co_qualname, frame.f_lineno] += 1
        seen = set[tuple[str, str]]()
        above: FrameType | None = frame
        for _depth in range(_DEPTH_MAX):
            if above is None:
                break
            seen.add((above.f_code.co_filename, above.f_code.co_qualname))
            above = above.f_back
        self._below.update(seen)

    def end(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        told = {
            "own": [[*place, count] for place, count in self._own.items()],
            "below": [[*place, count] for place, count in self._below.items()],
        }
        path = self._directory / f"{os.getpid()}.json"
        # Under its name only when it is whole.
        path.with_suffix(".new").write_text(json.dumps(told), encoding="utf-8")
        path.with_suffix(".new").rename(path)


def install() -> None:
    """Be ready in this process, if the environment says so."""
    directory = os.environ.get(OUTPUT_VARIABLE)
    if directory:
        sampler = Sampler(Path(directory))
        signal.signal(signal.SIGUSR1, sampler.begin)
        signal.signal(signal.SIGUSR2, sampler.end)
