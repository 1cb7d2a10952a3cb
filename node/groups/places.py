"""Which partition of `__consumer_offsets` a group belongs to.

Not here: who leads it (the metadata).
"""

from __future__ import annotations

from typing import Final

OFFSETS_TOPIC: Final = "__consumer_offsets"
# Characters in the name of a group. Every one of them is counted in for each request.
GROUP_ID_MAX: Final = 1_000
_MASK: Final = 0xFFFF_FFFF
_SIGN: Final = 0x8000_0000
_FACTOR: Final = 31


def java_hash(text: str) -> int:
    """Return what `String.hashCode` does: over UTF-16 units, in 32 bits with a sign."""
    data = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(data), 2):
        value = (value * _FACTOR + (data[at] << 8 | data[at + 1])) & _MASK
    return value - (_MASK + 1) if value & _SIGN else value


def partition_of(group: str, partitions: int) -> int:
    value = java_hash(group)
    # The one number that Java's abs leaves negative counts as 0.
    return 0 if value == -_SIGN else abs(value) % partitions
