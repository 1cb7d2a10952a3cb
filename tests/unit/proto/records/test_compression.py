"""Packing that Java can read, and unpacking that no bytes can make large or slow."""

from __future__ import annotations

import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from contextlib import suppress

import cramjam
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.proto.errors import ErrorCode, RecordsError
from ottla.proto.records.compression import CODEC_NAMES, Codec, codec_of, compress, decompress
from tests.unit.proto.records.bombs import (
    gzip_bomb,
    lz4_bomb,
    readable_bomb,
    snappy_bomb,
    snappy_claim,
    zstd_zeros,
)

MIB = 1 << 20
PACKED = [codec for codec in Codec if codec is not Codec.NONE]
# Several blocks of snappy and lz4, half of it random so that lz4 stores some blocks as they are.
LONG = zlib.compress(bytes(range(256)) * 4096)[:40] * 4000 + bytes(
    (i * 2654435761 >> 13) & 0xFF for i in range(100_000)
)


@given(st.sampled_from(Codec), st.binary(max_size=300))
@example(Codec.SNAPPY, LONG)
@example(Codec.LZ4, LONG)
@example(Codec.GZIP, LONG)
@example(Codec.ZSTD, LONG)
def test_what_is_packed_comes_back(codec: Codec, data: bytes) -> None:
    packed = compress(codec, memoryview(data))
    assert packed == compress(codec, bytearray(data)), "packing is deterministic"
    assert decompress(codec, memoryview(packed), max_bytes=len(data)) == data


@pytest.mark.parametrize(
    ("codec", "level"),
    [
        (Codec.GZIP, -1), (Codec.GZIP, 1), (Codec.GZIP, 9), (Codec.LZ4, 1), (Codec.LZ4, 17),
        (Codec.ZSTD, -5), (Codec.ZSTD, 22), (Codec.SNAPPY, None), (Codec.NONE, None),
    ],
)  # fmt: skip
def test_every_level_that_kafka_knows_can_be_read(codec: Codec, level: int | None) -> None:
    assert decompress(codec, compress(codec, LONG, level), max_bytes=MIB) == LONG


@pytest.mark.parametrize("codec", Codec)
def test_the_bound_is_exact(codec: Codec) -> None:
    packed = compress(codec, LONG)
    assert decompress(codec, packed, max_bytes=len(LONG)) == LONG
    with pytest.raises(RecordsError) as caught:
        decompress(codec, packed, max_bytes=len(LONG) - 1)
    assert str(len(LONG) - 1) in caught.value.sentence


@pytest.mark.parametrize("codec", PACKED)
@pytest.mark.parametrize("size", [0, 1, 5, 12, 17, 100])
def test_garbage_and_cut_off_streams_are_refused(codec: Codec, size: int) -> None:
    for broken in (compress(codec, LONG)[:size], b"\x00garbage" * size, b"\xff" * (size + 1)):
        # Sixteen bytes of the framing of snappy are a stream of nothing.
        if broken[:8] == b"\x82SNAPPY\x00" and len(broken) <= 16:
            continue
        with pytest.raises(RecordsError):
            decompress(codec, broken, max_bytes=MIB)


def test_lz4_frames_have_the_flags_that_java_accepts() -> None:
    frame = compress(Codec.LZ4, LONG)
    assert frame[:4] == bytes.fromhex("04224d18")
    version, independent, reserved = frame[4] >> 6, frame[4] >> 5 & 1, frame[4] & 0b11
    assert (version, independent, reserved) == (1, 1, 0)
    assert bytes(cramjam.lz4.decompress(frame)) == LONG


def test_lz4_frames_of_others_are_read() -> None:
    assert decompress(Codec.LZ4, bytes(cramjam.lz4.compress(LONG)), max_bytes=MIB) == LONG


def test_snappy_is_written_in_the_framing_of_java() -> None:
    packed = compress(Codec.SNAPPY, b"a" * 40_000)
    assert packed[:16] == b"\x82SNAPPY\x00" + bytes([0, 0, 0, 1, 0, 0, 0, 1])
    first = int.from_bytes(packed[16:20], "big")
    assert bytes(cramjam.snappy.decompress_raw(packed[20 : 20 + first])) == b"a" * 32_768
    rest = packed[20 + first :]
    assert int.from_bytes(rest[:4], "big") == len(rest) - 4
    assert bytes(cramjam.snappy.decompress_raw(rest[4:])) == b"a" * (40_000 - 32_768)


def test_snappy_is_read_raw_and_in_joined_streams() -> None:
    raw = bytes(cramjam.snappy.compress_raw(LONG))
    assert decompress(Codec.SNAPPY, raw, max_bytes=MIB) == LONG
    joined = compress(Codec.SNAPPY, b"one, ") + compress(Codec.SNAPPY, b"two")
    assert decompress(Codec.SNAPPY, joined, max_bytes=MIB) == b"one, two"


def test_gzip_is_read_in_joined_members() -> None:
    joined = compress(Codec.GZIP, b"one, ") + compress(Codec.GZIP, b"two")
    assert decompress(Codec.GZIP, joined, max_bytes=MIB) == b"one, two"


def test_names_are_those_of_the_option_and_numbers_those_of_the_format() -> None:
    assert {codec.value: name for codec, name in CODEC_NAMES.items()} == {
        0: "uncompressed",
        1: "gzip",
        2: "snappy",
        3: "lz4",
        4: "zstd",
    }
    assert [codec_of(bits) for bits in range(5)] == list(Codec)
    for bits in (5, 6, 7):
        with pytest.raises(RecordsError) as caught:
            codec_of(bits)
        assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


BOMBS: dict[str, Callable[[], tuple[Codec, bytes]]] = {
    "gzip, 1 GiB": lambda: (Codec.GZIP, gzip_bomb()),
    "zstd, 10 GiB": lambda: (Codec.ZSTD, zstd_zeros(81_920)),
    "zstd, one record of 1 GiB": lambda: (Codec.ZSTD, readable_bomb()),
    "lz4, 1 GiB": lambda: (Codec.LZ4, lz4_bomb(16_384)),
    "snappy framed, 1 GiB": lambda: (Codec.SNAPPY, snappy_bomb(32_768)),
    "snappy raw, 128 MiB": lambda: (
        Codec.SNAPPY,
        bytes(cramjam.snappy.compress_raw(bytes(128 * MIB))),
    ),
    "snappy raw, claims 4 GiB": lambda: (Codec.SNAPPY, snappy_claim()),
    "snappy framed, claims 4 GiB": lambda: (
        Codec.SNAPPY,
        compress(Codec.SNAPPY, b"")[:16] + (3005).to_bytes(4, "big") + snappy_claim(),
    ),
    "gzip, 50 000 tiny members": lambda: (Codec.GZIP, compress(Codec.GZIP, b"") * 50_000 + b"!"),
    "snappy framed, 200 000 tiny blocks": lambda: (
        Codec.SNAPPY,
        compress(Codec.SNAPPY, b"")[:16] + b"\x00\x00\x00\x01\x00" * 200_000 + b"!!!!!",
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_in_bounded_memory_and_time(name: str) -> None:
    codec, bomb = BOMBS[name]()
    code = (
        "import resource, sys\n"
        "from ottla.proto.errors import RecordsError\n"
        "from ottla.proto.records.compression import Codec, decompress\n"
        "data = sys.stdin.buffer.read()\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try:\n"
        f"    decompress(Codec({int(codec)}), data, max_bytes={16 * MIB})\n"
        "except RecordsError:\n"
        "    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    started = time.monotonic()
    child = subprocess.run(
        [sys.executable, "-c", code], input=bomb, stdout=subprocess.PIPE, check=True, timeout=20
    )
    assert time.monotonic() - started < 10
    grown_kib = int(child.stdout)
    assert grown_kib < 3 * 16 * 1024, f"{grown_kib} KiB for a bound of 16 MiB"


@pytest.mark.parametrize("codec", PACKED)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_damaged_stream_is_refused_or_gives_bounded_bytes(
    codec: Codec, data: st.DataObject
) -> None:
    stream = bytearray(compress(codec, LONG[-2000:] + b"ab" * 500))
    for _ in range(data.draw(st.integers(1, 4))):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    del stream[data.draw(st.integers(len(stream) // 2, len(stream))) :]
    with suppress(RecordsError):
        assert len(decompress(codec, stream, max_bytes=5000)) <= 5000
