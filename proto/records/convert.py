"""Changes what a leader may change in a batch before it is stored: its clock and its packing.

Both make a new batch and a new seal; the records stay as the producer wrote them, byte for byte.
Not here: base offset and leader epoch, which are stamped without touching the seal (`header.py`).
"""

from __future__ import annotations

import struct
from typing import Final

from ottla.proto.records.build import assemble
from ottla.proto.records.compression import Codec, compress
from ottla.proto.records.decode import DECODE_BYTES_MAX, records_bytes
from ottla.proto.records.header import CODEC_MASK, TIMESTAMP_TYPE_BIT, read_header, seal

_ATTRIBUTES: Final = struct.Struct(">h")
_ATTRIBUTES_POSITION: Final = 21
_MAX_TIMESTAMP: Final = struct.Struct(">q")
_MAX_TIMESTAMP_POSITION: Final = 35


def with_log_append_time(batch: bytes | bytearray | memoryview, now_ms: int) -> bytearray:
    """Return a copy of one whole batch in which every record has the leader's time.

    Nothing is unpacked: with the attribute set, readers take the header's time for every record.
    """
    changed = bytearray(batch)
    (attributes,) = _ATTRIBUTES.unpack_from(changed, _ATTRIBUTES_POSITION)
    _ATTRIBUTES.pack_into(changed, _ATTRIBUTES_POSITION, attributes | TIMESTAMP_TYPE_BIT)
    _MAX_TIMESTAMP.pack_into(changed, _MAX_TIMESTAMP_POSITION, now_ms)
    seal(changed)
    return changed


def recompress(
    batch: bytes | bytearray | memoryview,
    codec: Codec,
    level: int | None = None,
    *,
    max_bytes: int = DECODE_BYTES_MAX,
) -> bytes:
    """Return one whole batch packed with `codec`, every other field of the header kept.

    The size changes, so the caller asks again whether it is allowed. Raises `RecordsError` if the
    records do not unpack; whether they can be read is not looked at.
    """
    payload = records_bytes(batch, max_bytes=max_bytes)
    header = read_header(batch)
    # An empty batch stays unpacked, as `build_batch` and Kafka write it.
    target = codec if payload else Codec.NONE
    attributes = header.attributes & ~CODEC_MASK | target
    return assemble(header._replace(attributes=attributes), compress(target, payload, level))
