"""The hash by which keys choose their partitions: Murmur2 with Java's seed, bit for bit.

Two programs in two languages that write the same key must meet in the same partition. So this may
never change.

Not here: what is done with the hash (`partitioning.py`).
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF
_POSITIVE: Final = 0x7FFFFFFF


def murmur2(data: bytes) -> int:
    """Return 32 bits, not signed."""
    length = len(data)
    whole = length & ~3
    state = _SEED ^ length
    for word in struct.unpack_from(f"<{whole >> 2}I", data):
        mixed = word * _M & _MASK
        state = (state * _M & _MASK) ^ ((mixed ^ mixed >> 24) * _M & _MASK)
    if whole != length:
        state = (state ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    state = (state ^ state >> 13) * _M & _MASK
    return state ^ state >> 15


# Keys repeat, and the hash costs more than everything else that `send` does.
@lru_cache(maxsize=16_384)
def positive_murmur2(key: bytes) -> int:
    """Return the hash as Java's `toPositive` makes it: the sign is cut off, not changed."""
    return murmur2(key) & _POSITIVE
