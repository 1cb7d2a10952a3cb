"""A member in a process of its own, to be killed: `mortal.py CLIENT BOOTSTRAP GROUP TOPIC`.

It says what it reads, "topic partition offset" a line, before it commits that.
"""

from __future__ import annotations

import sys
import threading

from tests.integration.groups.crew import CLIENTS, Member, Place, Readings


class Said(Readings):
    """What is read, on standard output."""

    def note(self, place: Place, offset: int, reader: Member | None = None) -> None:
        print(*place, offset, flush=True)


def main() -> None:
    name, bootstrap, group, topic = sys.argv[1:]
    CLIENTS[name](bootstrap, group, topic, Said()).start()
    threading.Event().wait()


if __name__ == "__main__":
    main()
