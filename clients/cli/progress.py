"""A line on the terminal that tells how far something has come, and grows until it is done.

Shown only if standard error is a terminal; it is gone before anything else is printed.

Not here: what is counted.
"""

from __future__ import annotations

import os
import stat
import sys
from dataclasses import dataclass
from typing import BinaryIO, Final

import click

SHOW_EVERY_MS: Final = 500.0
_WIDTH: Final = 24
_AWAY: Final = "\r\x1b[K"


@dataclass(slots=True)
class Progress:
    """How much of the input has been read. A core: it is told the times."""

    began_ms: float
    # None: nobody knows how much will come.
    bytes_total: int | None
    bytes_read: int = 0
    shown_ms: float = 0.0

    def is_due(self, moment_ms: float) -> bool:
        """Return whether it is time to show it again, and take it as shown."""
        if moment_ms - max(self.shown_ms, self.began_ms) < SHOW_EVERY_MS:
            return False
        self.shown_ms = moment_ms
        return True

    def line(self, records: int, moment_ms: float) -> str:
        """Return a bar if the end is known, records done, and how fast."""
        seconds = max(1e-9, (moment_ms - self.began_ms) / 1000)
        rate = f"{records:,} records, {records / seconds:,.0f} records/s"
        if not self.bytes_total:
            return f"{self.bytes_read / 1e6:,.1f} MB, {rate}"
        share = min(1.0, self.bytes_read / self.bytes_total)
        full = int(share * _WIDTH)
        return f"[{'█' * full}{' ' * (_WIDTH - full)}] {share:.0%}, {rate}"


def bytes_left(file: BinaryIO) -> int | None:
    """Return how much a file still has, or None if it is no file but a pipe or a terminal."""
    try:
        found = os.fstat(file.fileno())
        return found.st_size - file.tell() if stat.S_ISREG(found.st_mode) else None
    except (OSError, ValueError):
        # It is not a file: a test holds it.
        return None


def show(line: str) -> None:
    if sys.stderr.isatty():
        click.echo(f"{_AWAY}{line}", nl=False, err=True)


def hide() -> None:
    if sys.stderr.isatty():
        click.echo(_AWAY, nl=False, err=True)
