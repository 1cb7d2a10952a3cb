"""Ids of topics and directories: 16 bytes on the wire, the standard library's `UUID` in our hands.

Zero means "no id" in Kafka. Here it stays `ZERO_UUID`, never None, so that what came in can go out
again. This module only holds the type; nothing in `proto` draws an id.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final
from uuid import UUID

__all__ = ["UUID", "ZERO_UUID", "uuid_of"]

ZERO_UUID: Final = UUID(int=0)


# Building a UUID costs more than reading the rest of a small request, and the same few topics are
# asked for again and again.
@lru_cache(maxsize=4096)
def uuid_of(raw: bytes) -> UUID:
    """Return the id that exactly 16 bytes stand for."""
    return UUID(bytes=raw)
