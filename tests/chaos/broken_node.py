"""`ottla` with one rule undone on purpose: what a harness that judges must find.

    python -m tests.chaos.broken_node no-fsync node log.dirs=…

Not here: which rules there are (`mutations.py`).
"""

from __future__ import annotations

import sys

from ottla.__main__ import main
from tests.chaos.mutations import BY_NAME


class Patch:
    """Sets attributes for good: this process has nothing to put back."""

    def setattr(self, target: object, name: str, value: object) -> None:
        # A name that is gone would leave the rule as it was, and prove nothing.
        getattr(target, name)
        setattr(target, name, value)


if __name__ == "__main__":
    BY_NAME[sys.argv.pop(1)].undo(Patch())
    main(prog_name="ottla")
