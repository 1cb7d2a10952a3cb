"""Which errors a disk will have: a table of rules, and a full disk, and slow syncs.

Not here: who looks at the plan (`faults.py`), and where a real process gets one from (`open.py`).
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final

from ottla.replication.storage.errors import os_error

# What a rule can be about. `committed` fails a commit that did happen: its outcome is unknown.
OPERATIONS: Final = (
    "open", "list", "read", "write", "truncate", "sync", "sync_dir", "rename", "remove", "make_dir",
    "lock", "commit", "committed",
)  # fmt: skip


@dataclass(slots=True)
class FaultRule:
    """Fail the n-th time that an operation meets a path, and if it lasts, every time from then."""

    operation: str
    # Matched against the whole path and against its last name.
    pattern: str
    nth: int = 1
    code: int = errno.EIO
    is_lasting: bool = False
    hits: int = 0


@dataclass(slots=True)
class FaultPlan:
    """Which errors happen when. It may be changed while things run, to heal a disk for instance."""

    rules: list[FaultRule] = field(default_factory=list)
    # Bytes that can still be written; None is any number.
    room_bytes: int | None = None
    # Called in each sync, to make it slow.
    slow_sync: Callable[[], None] | None = None
    # How often somebody met one of these, since this is the plan. Told to whoever judges.
    met: int = field(default=0, compare=False)

    def become(self, other: FaultPlan) -> None:
        """Go by another plan from now on."""
        self.met = 0
        self.rules = other.rules
        self.room_bytes = other.room_bytes
        self.slow_sync = other.slow_sync

    def tarry(self) -> None:
        """Take as long as the plan says."""
        if self.slow_sync is not None:
            self.met += 1
            self.slow_sync()

    def check(self, operation: str, path: str) -> None:
        """Raise `OSError` if a rule says so."""
        for rule in self.rules:
            if rule.operation == operation and (
                fnmatchcase(path, rule.pattern)
                or fnmatchcase(path.rpartition("/")[2], rule.pattern)
            ):
                rule.hits += 1
                if rule.hits == rule.nth or (rule.is_lasting and rule.hits > rule.nth):
                    self.met += 1
                    raise os_error(rule.code, path)
