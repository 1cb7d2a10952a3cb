"""Which partition a record goes to, if nobody has said it.

| partitioner | with a key | without |
| --- | --- | --- |
| `sticky`, the default | murmur2 of the key, as Java | one until a batch is full, then another |
| `round_robin` | each in turn | each in turn, exactly |
| a callable | what it returns | what it returns |

A callable gets the topic, the key as bytes and the number of partitions.

W1  the same key and the same number of partitions give the same partition, on every machine
W2  of `n` records in a row `round_robin` gives each partition n/count, rounded either way
W3  without a key, a partition without a leader is passed over while another has one

Not here: drawing. Dice are given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from ottla.clients.errors import SerdeError
from ottla.clients.producer.murmur2 import positive_murmur2

# Returns a number from 0 up to, and not including, the one given.
Dice = Callable[[int], int]


class Partitioner(Protocol):
    """A choice of one's own."""

    def __call__(self, topic: str, key: bytes | None, partition_count: int, /) -> int: ...


class Chooser(Protocol):
    """What chooses for one topic."""

    def choose(self, key: bytes | None, size: int) -> int:
        """Return a partition for a record of so many bytes."""
        ...

    def know(self, count: int, with_leader: Sequence[int]) -> None:
        """Take how many partitions there are, and which of them can be written to now."""
        ...


class Sticky:
    """Stays with one partition for `stay_bytes`, so that batches fill (KIP-794)."""

    def __init__(self, dice: Dice, stay_bytes: int) -> None:
        self._dice: Final = dice
        self._stay_bytes: Final = max(1, stay_bytes)
        self._count = 0
        self._usable: Sequence[int] = ()
        self._at = 0
        self._left = 0

    def know(self, count: int, with_leader: Sequence[int]) -> None:
        self._count = count
        self._usable = tuple(with_leader) or tuple(range(count))
        if self._at not in self._usable:
            self._left = 0

    def choose(self, key: bytes | None, size: int) -> int:
        if key is not None:
            return positive_murmur2(key) % self._count
        if self._left <= 0:
            self._turn()
        self._left -= size
        return self._at

    def _turn(self) -> None:
        others = [one for one in self._usable if one != self._at] or self._usable
        self._at = others[self._dice(len(others))]
        self._left = self._stay_bytes


class RoundRobin:
    """Each partition in turn, whatever the key."""

    def __init__(self) -> None:
        self._usable: Sequence[int] = ()
        self._next = 0

    def know(self, count: int, with_leader: Sequence[int]) -> None:
        self._usable = tuple(with_leader) or tuple(range(count))

    def choose(self, key: bytes | None, size: int) -> int:
        chosen = self._usable[self._next % len(self._usable)]
        self._next += 1
        return chosen


class Custom:
    """What a callable says, checked."""

    def __init__(self, topic: str, partitioner: Partitioner) -> None:
        self._topic: Final = topic
        self._partitioner: Final = partitioner
        self._count = 0

    def know(self, count: int, with_leader: Sequence[int]) -> None:
        self._count = count

    def choose(self, key: bytes | None, size: int) -> int:
        chosen = self._partitioner(self._topic, key, self._count)
        if type(chosen) is not int or not 0 <= chosen < self._count:
            raise SerdeError(
                f"{self._topic}: the partitioner returned {chosen!r}; the topic has partitions 0 "
                f"to {self._count - 1}."
            )
        return chosen


def chooser_of(topic: str, partitioner: object, *, dice: Dice, stay_bytes: int) -> Chooser:
    """Return what chooses for a topic, by the value of the option `partitioner`."""
    if partitioner == "round_robin":
        return RoundRobin()
    if callable(partitioner):
        return Custom(topic, partitioner)
    return Sticky(dice, stay_bytes)
