"""Files open for reading, of which there are never too many.

A log may have a hundred thousand segments and a process only so many descriptors. The files that
were read last stay open; the others are opened again when needed. If descriptors run out all the
same, all of them are given back: whoever writes needs one more.

Not here: the newest segment of each log, which keeps its own file open for writing.
"""

from __future__ import annotations

import errno
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, TypeVar

from ottla.replication.storage.ports import File, Files

HANDLES_MAX: Final = 256
_Done = TypeVar("_Done")


def is_shortage(error: BaseException) -> bool:
    """Return whether no descriptor was left: no fault of the disk, and over when others let go."""
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)


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
        file = self.relieved(lambda: self._files.open(path, writable=False))
        self._open[path] = file, on_evicted
        if len(self._open) > self._count_max:
            # Not closed: a reader may be sending from it. The descriptor goes with the last one.
            _, (_, evicted) = self._open.popitem(last=False)
            evicted()
        return file

    def relieved(self, work: Callable[[], _Done]) -> _Done:
        """Do work that opens files; if no descriptor is left, once more without ours."""
        try:
            return work()
        except OSError as error:
            if not (is_shortage(error) and self._open):
                raise
        self.let_go()
        return work()

    def let_go(self) -> None:
        """Give all of them back."""
        while self._open:
            _, (_, evicted) = self._open.popitem()
            evicted()

    def forget(self, path: str) -> None:
        """The name means another file now, or none."""
        self._open.pop(path, None)
