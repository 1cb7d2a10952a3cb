"""Batches into bytes, quickly: what `proto/records/build.py` does, for what a producer sends.

`build_batch` is the measure of it: the tests compare byte for byte. This one keeps the short
numbers in a table, joins each record once and the batch once, and takes the checksum once.

Not here: the request around it (`wire.py`).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from crc32c import crc32c

from ottla.clients.producer.batch import Entry
from ottla.proto.records.compression import Codec, compress
from ottla.proto.records.header import MAGIC, TRANSACTIONAL_BIT
from ottla.proto.records.varint import write_varint

_TABLE_SIZE: Final = 1 << 14
# Base offset, length, leader epoch, magic; then the checksum; then what it covers.
_FRONT: Final = struct.Struct(">qiibI")
_REST: Final = struct.Struct(">hiqqqhii")
_REST_AND_LENGTH: Final = _REST.size + 9
_NULL: Final = b"\x01"
_NO_HEADERS: Final = b"\x00"


def _varint(value: int) -> bytes:
    out = bytearray()
    write_varint(out, value)
    return bytes(out)


_VARINTS: Final = tuple(_varint(value) for value in range(_TABLE_SIZE))
# With the attributes of the record, which are always 0, in front.
_DELTAS: Final = tuple(b"\x00" + one for one in _VARINTS)


def encode_batch(
    entries: Sequence[Entry],
    *,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
) -> bytes:
    """Return one sealed batch; its offsets begin at 0, as a leader expects it."""
    base_ms = entries[0][0]
    payload, max_ms = _encode_entries(entries, base_ms)
    if codec is not Codec.NONE:
        payload = compress(codec, payload, level)
    rest = _REST.pack(
        int(codec) | TRANSACTIONAL_BIT if is_transactional else int(codec),
        len(entries) - 1,
        base_ms,
        max_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        len(entries),
    )
    crc = crc32c(payload, crc32c(rest))
    front = _FRONT.pack(0, _REST_AND_LENGTH + len(payload), -1, MAGIC, crc)
    return b"".join((front, rest, payload))


def _encode_entries(entries: Sequence[Entry], base_ms: int) -> tuple[bytes, int]:
    varints, deltas, short = _VARINTS, _DELTAS, _TABLE_SIZE
    join = b"".join
    pieces: list[bytes] = []
    add = pieces.append
    max_ms = base_ms
    for at, (stamp, key, value, headers) in enumerate(entries):
        delta = stamp - base_ms
        if stamp > max_ms:
            max_ms = stamp
        value_size = -1 if value is None else len(value)
        if 0 <= delta < short and value_size < short and at < short and not headers:
            if key is None:
                if value is None:
                    body = join((deltas[delta], varints[at], b"\x01\x01\x00"))
                else:
                    body = join(
                        (deltas[delta], varints[at], _NULL, varints[value_size], value, _NO_HEADERS)
                    )
            else:
                body = _keyed(deltas[delta] + varints[at], key, value)
        else:
            body = _any(delta, at, key, value, headers)
        size = len(body)
        add(varints[size] if size < short else _varint(size))
        add(body)
    return join(pieces), max_ms


def _keyed(start: bytes, key: bytes, value: bytes | None) -> bytes:
    size = len(key)
    told = _VARINTS[size] if size < _TABLE_SIZE else _varint(size)
    if value is None:
        return b"".join((start, told, key, b"\x01\x00"))
    return b"".join((start, told, key, _VARINTS[len(value)], value, _NO_HEADERS))


def _any(
    delta: int,
    at: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]],
) -> bytes:
    """Encode what does not fit into the tables, or has headers."""
    body = bytearray(1)
    write_varint(body, delta)
    write_varint(body, at)
    for content in (key, value):
        _write_bytes(body, content)
    write_varint(body, len(headers))
    for name, content in headers:
        _write_bytes(body, name.encode())
        _write_bytes(body, content)
    return bytes(body)


def _write_bytes(body: bytearray, content: bytes | None) -> None:
    if content is None:
        body += _NULL
        return
    write_varint(body, len(content))
    body += content
