"""Small bytes that unpack to very many, for every codec, made cheaply.

Not here: the batches around them (`bad_batches.py`).
"""

from __future__ import annotations

from functools import cache

import cramjam

from ottla.proto.records.compression import Codec, compress
from ottla.proto.records.varint import write_varint


def zstd_zeros(blocks: int, before: bytes = b"") -> bytes:
    """Return a zstd frame of `before` and then `blocks` times 128 KiB of zeros, 4 bytes each."""
    run = 1 << 17
    frame = bytearray(b"\x28\xb5\x2f\xfd\x00\x38")
    if before:
        frame += (len(before) << 3).to_bytes(3, "little") + before
    frame += ((run << 3) | 2).to_bytes(3, "little") + b"\x00"
    frame += frame[-4:] * (blocks - 2)
    return bytes(frame + ((run << 3) | 3).to_bytes(3, "little") + b"\x00")


@cache
def gzip_bomb() -> bytes:
    """Return 1 GiB of zeros in 64 members, about 1 MiB."""
    return bytes(cramjam.gzip.compress(bytes(16 << 20), level=9)) * 64


@cache
def lz4_bomb(blocks: int = 3800) -> bytes:
    """Return `blocks` times 64 KiB of zeros, in about 270 bytes each."""
    one = compress(Codec.LZ4, bytes(1 << 16))
    return one[:7] + one[7:-4] * blocks + one[-4:]


@cache
def snappy_bomb(blocks: int = 650) -> bytes:
    """Return `blocks` times 32 KiB of zeros in the framing of Java, about 1.5 KiB each."""
    one = compress(Codec.SNAPPY, bytes(1 << 15))
    return one[:16] + one[16:] * blocks


def snappy_claim() -> bytes:
    """Return raw snappy that claims the most its length field can: 4 GiB less one byte."""
    return b"\xff\xff\xff\xff\x0f" + b"\xfe\x01\x00" * 1000


def readable_bomb() -> bytes:
    """Return one well-formed record whose value is 1 GiB of zeros, packed into 32 KiB."""
    value_bytes = (1 << 30) - 1
    head = bytearray(b"\x00\x00\x00\x01")
    write_varint(head, value_bytes)
    length = bytearray()
    # The last zero is the count of headers.
    write_varint(length, len(head) + value_bytes + 1)
    return zstd_zeros(8192, before=bytes(length + head))
