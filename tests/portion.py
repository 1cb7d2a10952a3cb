"""How much of a long run is done: all of it, or what `OTTLA_PORTION` says, 0.3 for three in ten.

At home a long run is as long as its claim. CI has an hour for all of them, and does a part of each.

Not here: which tests are long (the marker), and which targets run them (`Makefile`).
"""

from __future__ import annotations

import os
from math import ceil
from typing import Final

KEY: Final = "OTTLA_PORTION"


def portion(count: int, least: int = 1) -> int:
    """Return how often to do what is done `count` times in a whole run."""
    share = float(os.environ.get(KEY, "1"))
    if not 0 < share <= 1:
        raise ValueError(f"{KEY} is above 0 and at most 1, not {share}")
    return min(count, max(least, ceil(count * share)))


def is_whole() -> bool:
    """Return whether all of each run is done, as its figures are claimed for."""
    return portion(1_000_000) == 1_000_000


def stride() -> int:
    """Return how far apart moments lie that are tried one after the other: 1 is each of them."""
    return max(1, round(100 / portion(100)))
