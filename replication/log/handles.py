"""Files open for reading, of which there are never too many.

A log may have a hundred thousand segments and a process only so many descriptors. The files that
were read last stay open; the others are opened again when needed.

Not here: the newest segment of each log, which keeps its own file open for writing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from ottla.replication.storage.ports import File, Files

HANDLES_MAX: Final = 256


class Handles:
    """The least recently used file goes when there are too many, and what hangs on it."""

    def __init__(self, files: Files, count_max: int = HANDLES_MAX) -> None:
        self._files: Final = files
        self._count_max: Final = count_max
        self._open: OrderedDict[str, tuple[File, Callable[[], None]]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def open(self, path: str, on_evicted: Callable[[], None] = lambda: None) -> File:
        """Return the file; when its turn has come to go, `on_evicted` gives back the rest."""
        held = self._open.get(path)
        if held is not None:
            self._open.move_to_end(path)
            return held[0]
        file = self._files.open(path, writable=False)
        self._open[path] = file, on_evicted
        if len(self._open) > self._count_max:
            # Not closed: a reader may be sending from it. The descriptor goes with the last one.
            _, (_, evicted) = self._open.popitem(last=False)
            evicted()
        return file

    def forget(self, path: str) -> None:
        """The name means another file now, or none."""
        self._open.pop(path, None)
