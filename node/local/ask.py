"""Asks a node over HTTP how it is: `/health/ready`, and `/status`.

Not here: what the answers lead to (`states.py`).
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from ottla.proto.options.endpoints import Address

_ANSWER_S: Final = 2.0
_ANSWER_BYTES_MAX: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class Answer:
    """A page that a node gave."""

    status: int
    body: dict[str, Any]


async def ask(address: Address, path: str) -> Answer | None:
    """Return what the node answers; None if it does not, or not in time."""
    try:
        async with asyncio.timeout(_ANSWER_S):
            return await _ask(address, path)
    except (OSError, TimeoutError, ValueError):
        return None


async def _ask(address: Address, path: str) -> Answer:
    reader, writer = await asyncio.open_connection(
        address.host, address.port, limit=_ANSWER_BYTES_MAX
    )
    try:
        writer.write(f"GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n".encode("ascii"))
        raw = await reader.read(_ANSWER_BYTES_MAX)
        # `read` gives what there is; the end of the connection is the end of the answer.
        while not reader.at_eof() and len(raw) < _ANSWER_BYTES_MAX:
            raw += await reader.read(_ANSWER_BYTES_MAX)
    finally:
        writer.close()
    head, _, body = raw.partition(b"\r\n\r\n")
    status = HTTPStatus(int(head.split(b" ", 2)[1]))
    told = json.loads(body)
    if not isinstance(told, dict):
        raise ValueError("not an object")  # noqa: TRY004  (it is about what came, not its type)
    return Answer(status, told)
