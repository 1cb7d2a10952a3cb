"""The batches of replicas, compared: are they the same, and if not, where is the first difference?

A difference is told only where it counts: from the highest log start to the lowest high watermark.
Below the offset up to which some replica was compacted, replicas differ rightly, because each of
them cleans when it likes: there only batches are compared that both have, and of those only that
they are of the same epoch. (What compaction keeps of each key needs the records, and is not
compared.)

Not here: getting them (`replicas.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ottla.proto.errors import RemoteProtocolError

_AT_ONCE: Final = 256


class Batch(NamedTuple):
    """One batch, as a node tells it."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    crc: int
    size: int
    attributes: int

    def __str__(self) -> str:
        return (
            f"a batch from {self.base_offset} to {self.last_offset} of epoch {self.leader_epoch} "
            f"({self.size} bytes, checksum {self.crc:#010x}, attributes {self.attributes:#x})"
        )


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a replica's digest."""

    node: int
    log_start_offset: int
    high_watermark: int
    compacted_below: int
    batches: list[Batch]
    # Where to go on; None: that was all.
    following: int | None
    damage: str | None


def page_of(told: Mapping[str, Any]) -> Page:
    """Return what a node told, or raise `RemoteProtocolError`."""
    try:
        return Page(
            node=int(told["node"]),
            log_start_offset=int(told["log_start_offset"]),
            high_watermark=int(told["high_watermark"]),
            compacted_below=int(told["compacted_below"]),
            batches=[Batch(*(int(one[name]) for name in Batch._fields)) for one in told["batches"]],
            following=None if told["next"] is None else int(told["next"]),
            damage=None if told["damage"] is None else str(told["damage"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise RemoteProtocolError(f"the page /digest is not as it should be: {error!r}") from None


@dataclass(frozen=True, slots=True)
class Stretch:
    """From where to where replicas can be compared."""

    first: int
    before: int
    # Below it some replica was compacted.
    compacted_below: int

    @property
    def is_empty(self) -> bool:
        return self.first >= self.before


def stretch_of(heads: Iterable[Page]) -> Stretch:
    """Return what all replicas have, and have committed."""
    known = list(heads)
    first = max(one.log_start_offset for one in known)
    before = min(one.high_watermark for one in known)
    compacted = max(one.compacted_below for one in known)
    return Stretch(first, before, max(first, min(compacted, before)))


@dataclass(slots=True)
class Comparison:
    """Replicas of one partition, given batch by batch as they come. Begin with `give`."""

    nodes: Sequence[int]
    compacted_below: int = 0
    # Batches that all have, and among them those that are rightly not the same.
    compared: int = 0
    cleaned: int = 0
    # In words, once there is one.
    difference: str | None = None
    difference_at: int = 0
    _waiting: dict[int, list[Batch]] = field(default_factory=dict)
    _ended: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._waiting = {node: [] for node in self.nodes}

    @property
    def wants(self) -> list[int]:
        """Whose next batches are needed to go on."""
        if self.difference is not None:
            return []
        return [one for one in self.nodes if not self._waiting[one] and one not in self._ended]

    def give(self, node: int, batches: Sequence[Batch], *, is_last: bool) -> None:
        """Take more batches of a replica; `is_last`: there are no others."""
        self._waiting[node] += batches
        if is_last:
            self._ended.add(node)
        if not self.wants:
            self._compare()

    def _compare(self) -> None:
        waiting = self._waiting
        while self.difference is None and not self.wants and any(waiting.values()):
            # Few at a time: where they differ, all of them are looked at one by one.
            count = min(_AT_ONCE, *(len(one) for one in waiting.values()))
            some = [one[:count] for one in waiting.values()]
            if count and all(one == some[0] for one in some):
                self.compared += count
                for one in waiting.values():
                    del one[:count]
            else:
                self._compare_one()

    def _compare_one(self) -> None:
        """Look at the lowest batch that anybody has."""
        heads = {node: batches[0] for node, batches in self._waiting.items() if batches}
        lowest = min(one.base_offset for one in heads.values())
        there = {node: one for node, one in heads.items() if one.base_offset == lowest}
        is_everywhere = len(there) == len(self.nodes)
        if is_everywhere and len(set(there.values())) == 1:
            self.compared += 1
        elif lowest >= self.compacted_below:
            self._differ(lowest, there)
        elif len({one.leader_epoch for one in there.values()}) > 1:
            # Compaction takes records away, and leaves a batch its epoch.
            self._differ(lowest, there)
        else:
            self.cleaned += 1
        for node in there:
            del self._waiting[node][0]

    def _differ(self, offset: int, there: Mapping[int, Batch]) -> None:
        told = [
            f"node {node} has {there[node]}" if node in there else f"node {node} has none there"
            for node in self.nodes
        ]
        self.difference = f"different from offset {offset} on: {'; '.join(told)}"
        self.difference_at = offset
