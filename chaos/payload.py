"""What stands in a record that the harness writes, so that a wrong one gives itself away.

    ottla1|orders|2|w3-118|5f1c09aa

The name of the format, topic, partition, value, and a checksum of all before it. A record in the
wrong partition, a torn one, and one of somebody else all read as None.

A topic that is deleted and made again under the same name goes by `name#1`, `name#2`, … in the
history and in payloads: each life is a topic of its own, and a record of an earlier life that comes
up again is a stranger. On the wire it is `name`.

Not here: batches (`ottla.proto.records`), who writes (`runner/`).

P1  `decode_payload(place, encode_payload(place, value)) == value`; for any other place it is None
P2  a payload of which any byte was changed reads as None
"""

from __future__ import annotations

from typing import Final

from crc32c import crc32c

from ottla.chaos.history import Place

_FORMAT: Final = "ottla1"
_BAR: Final = "|"
_FIELDS: Final = 5
LIFE_MARK: Final = "#"
# A tombstone has no value: its payload stands in this header.
TOMBSTONE_HEADER: Final = "ottla"
# Few, so that a cleaner has much to throw away.
KEYS: Final = 23


def encode_payload(place: Place, value: str) -> bytes:
    told = f"{_FORMAT}|{place.topic}|{place.partition}|{value}|"
    return f"{told}{crc32c(told.encode()):08x}".encode()


def decode_payload(place: Place, data: bytes | None) -> str | None:
    """Return the value; None if this is not a payload of that partition, whole and unchanged."""
    try:
        told = (data or b"").decode()
    except UnicodeDecodeError:
        return None
    fields = told.split(_BAR)
    if len(fields) != _FIELDS:
        return None
    value = fields[3]
    return value if encode_payload(place, value) == data else None


def key_of(value: str) -> str:
    """Return the key under which a value is written to a compacted topic."""
    return f"k{crc32c(value.encode()) % KEYS}"


def wire_name(topic: str) -> str:
    """Return the name by which the cluster knows a topic of the history."""
    return topic.partition(LIFE_MARK)[0]
