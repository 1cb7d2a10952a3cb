"""What the hand-written Produce and Fetch share: texts, leaders and endpoints, written at once.

Not here: anything that reads; that is `primitives.py`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from ottla.proto.errors import LocalProtocolError
from ottla.proto.kafka.primitives import STRING_MAX, uvarint
from ottla.proto.kafka.uuids import UUID

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_LEADER: Final = struct.Struct(">ii")

# Node id, host, port, rack.
Endpoint = tuple[int, str, int, str | None]


class TaggedError(Exception):
    """A tag section is not empty: the request has to be read the slow way. Never leaves `proto`."""


def text(value: str | None, *, flexible: bool) -> bytes:
    if value is None:
        raise LocalProtocolError("null, where the protocol allows no null")
    raw = value.encode()
    if len(raw) > STRING_MAX:
        raise LocalProtocolError(f"a text of {len(raw)} bytes; {STRING_MAX} are allowed")
    return (uvarint(len(raw) + 1) if flexible else _INT16.pack(len(raw))) + raw


def id_bytes(topic_id: UUID | None) -> bytes:
    if topic_id is None:
        raise LocalProtocolError("a topic in this version needs an id")
    return topic_id.bytes


def text_or_null(value: str | None, *, flexible: bool) -> bytes:
    if value is None:
        return b"\x00" if flexible else b"\xff\xff"
    return text(value, flexible=flexible)


def leader_tag(tag: int, leader: tuple[int, int]) -> bytes:
    """Return the tagged field (leader, epoch): tag, size, two numbers, no tags inside."""
    return bytes((tag, _LEADER.size + 1)) + _LEADER.pack(*leader) + b"\x00"


def endpoints_tag(endpoints: Sequence[Endpoint]) -> bytes:
    """Return the tag section of a whole answer: where the leaders named in it can be reached."""
    if not endpoints:
        return b"\x00"
    out = uvarint(len(endpoints) + 1)
    for node_id, host, port, rack in endpoints:
        out += (
            _INT32.pack(node_id)
            + text(host, flexible=True)
            + _INT32.pack(port)
            + text_or_null(rack, flexible=True)
            + b"\x00"
        )
    return b"\x01\x00" + uvarint(len(out)) + out
