"""Records as people write them: small texts with names that repeat, so that a codec finds work.

Not here: who writes them.
"""

from __future__ import annotations

from random import Random
from typing import Final

_SEED: Final = 12


def payloads(size: int, count: int) -> list[bytes]:
    """Return so many different values of exactly `size` bytes; the same ones every time."""
    dice = Random(_SEED)
    return [_payload(dice, size) for _ in range(count)]


def _payload(dice: Random, size: int) -> bytes:
    text = bytearray()
    while len(text) < size:
        text += (
            f'{{"user":"u{dice.randrange(10**6)}","page":"/item/{dice.randrange(10**4)}",'
            f'"at":{1_700_000_000_000 + dice.randrange(10**9)},"ms":{dice.randrange(5000)}}}'
        ).encode()
    return bytes(text[:size])
