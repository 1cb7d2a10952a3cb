"""Who is told by a replica, and of what.

Not here: the replica (`replica.py`), and those who listen (`pulling.py`, `feeding.py`, requests).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ottla.proto.errors import RequestError, StorageError

if TYPE_CHECKING:
    from ottla.replication.replica import Replica


class HeldWaiter(Protocol):
    """Waits until this replica holds, or has committed, all below an offset."""

    def reached(self) -> None: ...

    def failed(self, error: StorageError | RequestError) -> None: ...


class ReadWaiter(Protocol):
    """Waits for something to read."""

    def woken(self) -> None: ...


class Feed(Protocol):
    """A follower of this partition, at the leader's end of its stream."""

    def appended(self) -> None:
        """The log has grown."""

    def committed(self) -> None:
        """The high watermark has moved."""

    def changed(self) -> None:
        """Leader epoch or leadership are others: whatever is waiting is to be judged anew."""

    def heard_ms(self) -> int | None:
        """When the follower surely followed here, in this leader epoch (rule 13), or None.

        That is when the answer was sent that its last fetch came after: a fetch may have lain in
        some buffer for long. None also if what it claimed last was not served.
        """


class PullListener(Protocol):
    """Fetches for this replica."""

    def changed(self, replica: Replica) -> None:
        """Its next step may be another."""
