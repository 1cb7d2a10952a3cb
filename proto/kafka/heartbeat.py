"""The answer to a group member's heartbeat: six bytes, written at once.

Every member of every group asks for it every few seconds, and nearly always it says "no error".
"""

from __future__ import annotations

import struct
from typing import Final

_ERROR: Final = struct.Struct(">h")
_THROTTLE_AND_ERROR: Final = struct.Struct(">ih")
_THROTTLE_FROM: Final = 1
_FLEXIBLE_FROM: Final = 4


def encode_heartbeat_response(version: int, error: int, throttle_ms: int = 0) -> bytes:
    """Return the body, in versions 0–4."""
    if version < _THROTTLE_FROM:
        return _ERROR.pack(error)
    body = _THROTTLE_AND_ERROR.pack(throttle_ms, error)
    return body + b"\x00" if version >= _FLEXIBLE_FROM else body
