"""What the observer remembers: of each replica, and of what was committed to each partition.

Not here: what follows from it (`truth.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.proto.ids import NO_EPOCH


@dataclass(slots=True)
class Copy:
    """One replica, as it was when it was last looked at. It outlives the process."""

    end: int = 0
    synced: int = 0
    high_watermark: int = 0
    # All below is known to be what is committed.
    verified: int = 0
    # The machine lost power, or its disk, since the broker registered last.
    is_dark: bool = False
    is_wiped: bool = False
    is_damaged: bool = False
    # Whether it ended in the midst of something: what it had then is not what must be there.
    is_torn: bool = False
    # How often this copy has lost something that it may have counted for.
    losses: int = 0
    seen: tuple[int, ...] = ()


@dataclass(slots=True)
class Committed:
    """What was committed to one partition, as bytes."""

    data: bytearray = field(default_factory=bytearray)
    # Where the batch that begins at an offset lies in `data`.
    at: dict[int, int] = field(default_factory=lambda: {0: 0})
    end: int = 0
    # Values by their offset, and back.
    values: dict[int, int] = field(default_factory=dict)
    offsets: dict[int, int] = field(default_factory=dict)
    # The epoch of the last unclean election that was seen: before it all bets are off.
    era: int = NO_EPOCH
    # Who wrote in which epoch, and what each epoch has at an offset.
    writers: dict[int, int] = field(default_factory=dict)
    written: dict[tuple[int, int], int] = field(default_factory=dict)
    # How much the copies had lost when a value was appended first.
    losses: dict[int, int] = field(default_factory=dict)
    # What is below was deleted on purpose; a late retry of it is not known for what it is.
    deleted_below: int = 0
    # What was deleted on purpose, and where it was. It outlives unclean elections: whoever leads
    # then may still know a late retry for what it is, and rightly says where it was.
    deleted: set[tuple[int, int]] = field(default_factory=set)
    # When somebody began to lead in an epoch.
    led_ms: dict[int, int] = field(default_factory=dict)

    def begin_at(self, offset: int) -> None:
        """Nobody has what is below, after an unclean election."""
        self.data.clear()
        self.at, self.end = {offset: 0}, offset

    def let_go(self, below: int) -> None:
        """A leader has deleted what is below, because it was asked to."""
        self.deleted_below = max(self.deleted_below, below)
        self.deleted |= {(at, value) for at, value in self.values.items() if at < below}

    def has(self, offset: int, value: int) -> bool:
        """Whether that is what was committed there, though it may be deleted since."""
        return self.values.get(offset) == value or (offset, value) in self.deleted

    def slice(self, first: int, end: int) -> bytearray:
        return self.data[self.at[first] : self.at[end]]
