"""What was shown of one partition: which values at which offsets, and where each was first.

Not here: whether it may be so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

# Of what no poll has shown, but a final read.
NO_EVENT: Final = -1


class Sight(NamedTuple):
    """That a value was shown at an offset; by which event first, and when (None: by no poll)."""

    offset: int
    value: str | None
    event: int
    moment_ns: int | None


@dataclass(slots=True)
class Seen:
    """All that was shown of one partition."""

    # The value that was shown first at each offset; None: a payload that is not ours.
    at: dict[int, str | None] = field(default_factory=dict)
    # Other values at the same offset.
    others: dict[int, list[Sight]] = field(default_factory=dict)
    # The lowest offset of each value.
    where: dict[str, int] = field(default_factory=dict)
    # All offsets of a value that is at more than one.
    again: dict[str, set[int]] = field(default_factory=dict)
    # When and by which event an offset was shown first; polls only.
    first: dict[int, tuple[int, int]] = field(default_factory=dict)

    def add(self, offset: int, value: str | None, moment_ns: int | None, event: int) -> None:
        if offset not in self.at:
            self.at[offset] = value
            if moment_ns is not None:
                self.first[offset] = (moment_ns, event)
        elif self.at[offset] != value:
            others = self.others.setdefault(offset, [])
            if value not in (other.value for other in others):
                others.append(Sight(offset, value, event, moment_ns))
        if value is None:
            return
        before = self.where.setdefault(value, offset)
        if before != offset:
            self.again.setdefault(value, {before}).add(offset)
            self.where[value] = min(before, offset)

    def copy(self) -> Seen:
        return Seen(
            dict(self.at),
            {offset: list(others) for offset, others in self.others.items()},
            dict(self.where),
            {value: set(offsets) for value, offsets in self.again.items()},
            dict(self.first),
        )

    def sights(self) -> list[Sight]:
        """Return every value at every offset that was shown."""
        unseen = (None, NO_EVENT)
        found = [
            Sight(offset, value, (first := self.first.get(offset, unseen))[1], first[0])
            for offset, value in self.at.items()
        ]
        return [*found, *(one for others in self.others.values() for one in others)]
