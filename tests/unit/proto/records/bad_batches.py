"""Every bad batch we could think of, with our answer and what Kafka 4.3.1 answers.

The list "Produce" of the bad-input catalogue, as far as it concerns the bytes of one partition. The
unit test asks `validate_produced`; the interop test sends the same bytes to a real broker. So
nothing here needs pytest, and every case is plain bytes that do not depend on the real time.

What lies inside a batch comes twice: stored as it was signed by default, refused when the topic
asks for it (`ottla.validate.records`). Kafka always looks inside.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, Literal, NamedTuple

from ottla.proto.errors import ErrorCode
from ottla.proto.records.build import assemble, build_batch
from ottla.proto.records.compression import Codec, compress
from ottla.proto.records.header import BatchHeader, TimestampType, read_header, seal, write_header
from ottla.proto.records.record import Record
from ottla.proto.records.validate import BatchLimits
from ottla.proto.records.varint import write_varint
from tests.unit.proto.records.bombs import (
    gzip_bomb,
    lz4_bomb,
    readable_bomb,
    snappy_bomb,
    snappy_claim,
    zstd_zeros,
)

# A day in 2023: in the past of every clock that will run this, and Kafka's default allows that.
NOW_MS: Final = 1_700_000_000_000
YEAR_9999_MS: Final = 253_370_764_800_000

CORRUPT: Final = ErrorCode.CORRUPT_MESSAGE
INVALID: Final = ErrorCode.INVALID_RECORD
BAD_TIME: Final = ErrorCode.INVALID_TIMESTAMP
UNKNOWN: Final = ErrorCode.UNKNOWN_SERVER_ERROR

DEFAULT: Final = BatchLimits()
STRICT: Final = BatchLimits(validate_records=True)
APPEND_TIME: Final = BatchLimits(timestamp_type=TimestampType.LOG_APPEND_TIME)

# "same" as ours; "recorded": a new case, whose answer `make interop` is to write down.
KafkaAnswer = ErrorCode | Literal["same", "recorded"] | None


class BadBatch(NamedTuple):
    """One row: bytes, and who says what to them. None is "accepted"."""

    name: str
    build: Callable[[], bytes]
    expected: ErrorCode | None
    note: str = ""
    kafka: KafkaAnswer = "same"
    limits: BatchLimits = DEFAULT


def records(count: int = 3, timestamp: int = NOW_MS) -> list[Record]:
    return [Record(i, timestamp, b"key-%d" % i, b"value-%d" % i) for i in range(count)]


def good(codec: Codec = Codec.NONE) -> bytes:
    return build_batch(records(), codec=codec)


def changed(batch: bytes | None = None, /, **fields: int) -> bytes:
    """Return a good batch with fields of its header replaced, and sealed again."""
    whole = good() if batch is None else batch
    header = read_header(whole)
    result = bytearray(write_header(header._replace(**fields)) + whole[61:])
    seal(result)
    return bytes(result)


def shortened(batch_length: int) -> bytes:
    """Return a header cut to `batch_length`, and nothing behind it."""
    return changed(batch_length=batch_length)[: batch_length + 12]


def flipped(position: int) -> bytes:
    batch = bytearray(good())
    batch[position] ^= 1
    return bytes(batch)


def enclosed(payload: bytes, *, count: int = 1, codec: Codec = Codec.NONE) -> bytes:
    """Return a batch with a right header and checksum around any bytes at all."""
    header = BatchHeader(
        0, 0, -1, 2, 0, int(codec), count - 1, NOW_MS, NOW_MS, -1, -1, -1, count
    )  # fmt: skip
    return assemble(header, payload)


def varint(value: int) -> bytes:
    output = bytearray()
    write_varint(output, value)
    return bytes(output)


def framed(body: bytes) -> bytes:
    return varint(len(body)) + body


# Attributes, timestamp delta, offset delta, key "k", value "v", no headers.
BODY: Final = b"\x00\x00\x00\x02k\x02v\x00"


def body(
    *,
    attributes: int = 0,
    delta: int = 0,
    key: bytes = b"\x02k",
    value: bytes = b"\x02v",
    headers: bytes = b"\x00",
) -> bytes:
    return bytes([attributes]) + b"\x00" + varint(delta) + key + value + headers


def _two_values(first: int, second: int) -> bytes:
    return build_batch([Record(i, NOW_MS, None, bytes(n)) for i, n in enumerate((first, second))])


def sized(size: int) -> bytes:
    """Return a good batch of exactly `size` bytes."""
    # Two records, so that no length is near a size at which it takes one byte more.
    half = size // 2
    overhead = len(_two_values(half, half)) - 2 * half
    batch = _two_values(half, size - half - overhead)
    assert len(batch) == size
    return batch


def _header_cases() -> list[BadBatch]:
    claim = (1 << 31) - 1
    note_39 = "Kafka reads beyond the header it has and fails"
    return [
        BadBatch("no bytes", lambda: b"", INVALID),
        BadBatch("five bytes", lambda: good()[:5], INVALID),
        BadBatch("cut off before the magic", lambda: good()[:16], INVALID),
        BadBatch("cut off inside the header", lambda: good()[:60], INVALID),
        BadBatch("cut off by one byte", lambda: good()[:-1], INVALID),
        BadBatch("magic 0", lambda: changed(magic=0), INVALID),
        BadBatch("magic 1", lambda: changed(magic=1), INVALID),
        BadBatch("magic 3", lambda: changed(magic=3), CORRUPT),
        BadBatch("magic 127", lambda: changed(magic=127), CORRUPT),
        BadBatch("magic -1", lambda: changed(magic=-1), CORRUPT),
        BadBatch("batch length 0", lambda: changed(batch_length=0), CORRUPT),
        BadBatch("batch length 13", lambda: changed(batch_length=13), CORRUPT),
        BadBatch("batch length 14", lambda: shortened(14), CORRUPT, note_39, UNKNOWN),
        BadBatch("batch length 38", lambda: shortened(38), CORRUPT, note_39, UNKNOWN),
        BadBatch("batch length 39", lambda: shortened(39), CORRUPT),
        BadBatch("batch length 48", lambda: shortened(48), CORRUPT),
        BadBatch("batch length -1", lambda: changed(batch_length=-1), CORRUPT),
        BadBatch("batch length -2^31", lambda: changed(batch_length=-(1 << 31)), CORRUPT),
        BadBatch(
            "batch length one too many",
            lambda: changed(batch_length=read_header(good()).batch_length + 1),
            INVALID,
        ),
        BadBatch(
            "batch length one too few",
            lambda: changed(batch_length=read_header(good()).batch_length - 1),
            CORRUPT,
        ),
        BadBatch(
            "batch length 2^31-1",
            lambda: changed(batch_length=claim),
            INVALID,
            "in Kafka the size of the batch becomes negative",
            UNKNOWN,
        ),
        BadBatch("two batches", lambda: good() + good(), INVALID),
        BadBatch(
            "five bytes behind the batch",
            lambda: good() + b"12345",
            INVALID,
            "Kafka drops what is not a batch; we store all that was sent, or nothing",
            None,
        ),
        BadBatch(
            "half a batch behind the batch",
            lambda: good() + good()[:70],
            INVALID,
            "Kafka drops what is not a batch; we store all that was sent, or nothing",
            None,
        ),
        BadBatch("zeros behind the batch", lambda: good() + bytes(61), CORRUPT),
        BadBatch("checksum wrong", lambda: flipped(17), CORRUPT),
        BadBatch("a bit of a record wrong", lambda: flipped(-1), CORRUPT),
        BadBatch("base offset 1", lambda: changed(base_offset=1), INVALID),
        BadBatch("base offset -1", lambda: changed(base_offset=-1), INVALID),
        BadBatch("last offset delta = count", lambda: changed(last_offset_delta=3), INVALID),
        BadBatch("last offset delta = count-2", lambda: changed(last_offset_delta=1), INVALID),
        BadBatch("last offset delta -1", lambda: changed(last_offset_delta=-1), INVALID),
        BadBatch("last offset delta 2^31-1", lambda: changed(last_offset_delta=claim), INVALID),
        BadBatch("count 0", lambda: changed(count=0), INVALID),
        BadBatch("count 0, delta -1", lambda: changed(count=0, last_offset_delta=-1), INVALID),
        BadBatch("count -1", lambda: changed(count=-1), INVALID),
        BadBatch("count -1, delta -2", lambda: changed(count=-1, last_offset_delta=-2), INVALID),
        BadBatch("count 2^31-1", lambda: changed(count=claim), INVALID),
        BadBatch(
            "count 2^31-1, delta to match",
            lambda: changed(count=claim, last_offset_delta=claim - 1),
            INVALID,
            "refused by size, without reading the records",
        ),
        BadBatch(
            "count 2^31-1, delta to match, gzip",
            lambda: changed(good(Codec.GZIP), count=claim, last_offset_delta=claim - 1),
            INVALID,
            "more than could ever be unpacked within bounds",
        ),
    ]  # fmt: skip


def _attribute_cases() -> list[BadBatch]:
    no_codec = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    no_enum = "in Kafka the unknown number fails without a name"
    ours = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}
    return [
        BadBatch("codec 5", lambda: changed(attributes=5), no_codec, no_enum, UNKNOWN),
        BadBatch("codec 6", lambda: changed(attributes=6), no_codec, no_enum, UNKNOWN),
        BadBatch("codec 7", lambda: changed(attributes=7), no_codec, no_enum, UNKNOWN),
        BadBatch("control bit", lambda: changed(attributes=0x20), INVALID),
        BadBatch(
            "delete horizon bit",
            lambda: changed(attributes=0x40),
            INVALID,
            "only the cleaner may say how long tombstones stay",
            None,
        ),
        BadBatch(
            "LogAppendTime bit, CreateTime topic",
            lambda: changed(attributes=0x08),
            BAD_TIME,
            "Kafka clears the bit and seals the batch again",
            None,
        ),
        BadBatch(
            "LogAppendTime bit, LogAppendTime topic",
            lambda: changed(attributes=0x08),
            BAD_TIME,
            limits=APPEND_TIME,
        ),
        BadBatch(
            "transactional bit without producer id",
            lambda: changed(attributes=0x10),
            INVALID,
            "a request without transactional id is refused as a whole by Kafka",
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
        BadBatch(
            "transactional bit without transactional id",
            lambda: changed(attributes=0x10, **ours),
            None,
            "the id stands in the request: the one who reads requests refuses it",
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
        BadBatch("reserved bit 7", lambda: changed(attributes=0x80), None),
        BadBatch("reserved bit 8", lambda: changed(attributes=0x100), None),
        BadBatch("reserved bit 15", lambda: changed(attributes=-0x8000), None),
        BadBatch("sequence -1", lambda: changed(**{**ours, "base_sequence": -1}), INVALID),
        BadBatch("sequence -2", lambda: changed(**{**ours, "base_sequence": -2}), INVALID),
        BadBatch(
            "producer epoch -1",
            lambda: changed(**{**ours, "producer_epoch": -1}),
            ErrorCode.INVALID_PRODUCER_EPOCH,
            "Kafka takes it from a producer it has not met",
            None,
        ),
        BadBatch(
            "producer epoch -2",
            lambda: changed(**{**ours, "producer_epoch": -2}),
            ErrorCode.INVALID_PRODUCER_EPOCH,
        ),
        BadBatch("producer id -2", lambda: changed(producer_id=-2), None, "below 0 is none"),
    ]


def _limit_cases() -> list[BadBatch]:
    keyless = [Record(0, NOW_MS, None, b"v")]
    rewrites = "Kafka writes the right time into the header and seals it again"
    compacted = BatchLimits(compacted=True)
    hour = BatchLimits(timestamp_before_max_ms=3_600_000)
    segment = BatchLimits(segment_bytes=1 << 20)
    return [
        BadBatch("timestamp -1", lambda: build_batch(records(timestamp=-1)), None),
        BadBatch(
            "timestamp -2",
            lambda: build_batch(records(timestamp=-2)),
            BAD_TIME,
            "in a lookup by time negative numbers are commands",
            None,
        ),
        BadBatch("year 9999", lambda: build_batch(records(timestamp=YEAR_9999_MS)), BAD_TIME),
        BadBatch(
            "year 9999, LogAppendTime topic",
            lambda: build_batch(records(timestamp=YEAR_9999_MS)),
            None,
            limits=APPEND_TIME,
        ),
        BadBatch(
            "two hours old, an hour allowed",
            lambda: build_batch(records(timestamp=NOW_MS - 7_200_000)),
            BAD_TIME,
            limits=hour,
        ),
        BadBatch(
            "max timestamp claims year 9999",
            lambda: changed(max_timestamp=YEAR_9999_MS),
            BAD_TIME,
            rewrites,
            None,
        ),
        BadBatch(
            "max timestamp too low", lambda: changed(max_timestamp=1), None, rewrites
        ),
        BadBatch(
            "max timestamp too low, validated",
            lambda: changed(max_timestamp=1),
            BAD_TIME,
            rewrites,
            None,
            STRICT,
        ),
        BadBatch("as large as max.message.bytes", lambda: sized(1_048_588), None),
        BadBatch(
            "larger than max.message.bytes",
            lambda: sized(1_048_589),
            ErrorCode.MESSAGE_TOO_LARGE,
        ),
        BadBatch("as large as a segment", lambda: sized(1 << 20), None, limits=segment),
        BadBatch(
            "larger than a segment",
            lambda: sized((1 << 20) + 1),
            ErrorCode.RECORD_LIST_TOO_LARGE,
            limits=segment,
        ),
        BadBatch("compacted, with keys", good, None, limits=compacted),
        BadBatch("compacted, no key", lambda: build_batch(keyless), INVALID, limits=compacted),
        BadBatch(
            "compacted, no key, zstd",
            lambda: build_batch(keyless, codec=Codec.ZSTD),
            INVALID,
            limits=compacted,
        ),
    ]  # fmt: skip


def _inside(
    name: str, build: Callable[[], bytes], *, note: str = "", kafka: KafkaAnswer = INVALID
) -> list[BadBatch]:
    return [
        BadBatch(name, build, None, note or "stored as it was signed", kafka),
        BadBatch(f"{name}, validated", build, INVALID, note, kafka, STRICT),
    ]


def _record_cases() -> list[BadBatch]:
    endless = "Kafka's reader of numbers fails without a name"
    lenient = "Kafka takes any negative length for null"
    blind = "Kafka does not compare the offsets of records"
    two = framed(body()) + framed(body(delta=1))
    header = b"\x02" + b"\x02h\x02v"
    return [
        *_inside("record longer than the batch", lambda: enclosed(varint(len(BODY) + 1) + BODY)),
        *_inside("record shorter than its fields", lambda: enclosed(varint(len(BODY) - 1) + BODY)),
        *_inside("record length 0", lambda: enclosed(b"\x00" + BODY)),
        *_inside("record length -1", lambda: enclosed(b"\x01" + BODY)),
        *_inside(
            "record length of six bytes",
            lambda: enclosed(b"\x90" + b"\x80" * 4 + BODY),
            note=endless,
            kafka=UNKNOWN,
        ),
        *_inside(
            "record length without end",
            lambda: enclosed(b"\x80" * 9),
            note=endless,
            kafka=UNKNOWN,
        ),
        *_inside("header count -1", lambda: enclosed(framed(body(headers=b"\x01")))),
        *_inside("header count 10^6", lambda: enclosed(framed(body(headers=varint(1_000_000))))),
        *_inside("header key -1", lambda: enclosed(framed(body(headers=b"\x02\x01\x02v")))),
        *_inside("header key -2", lambda: enclosed(framed(body(headers=b"\x02\x03\x02v")))),
        *_inside("header key too long", lambda: enclosed(framed(body(headers=b"\x02\x60\x02v")))),
        *_inside(
            "header value -2",
            lambda: enclosed(framed(body(headers=b"\x02\x02h\x03"))),
            note=lenient,
            kafka=None,
        ),
        *_inside(
            "header key not UTF-8",
            lambda: enclosed(framed(body(headers=b"\x02\x02\xff\x02v"))),
            note="Kafka replaces what it cannot read",
            kafka=None,
        ),
        *_inside(
            "key -2", lambda: enclosed(framed(body(key=b"\x03"))), note=lenient, kafka=None
        ),
        *_inside(
            "value -2", lambda: enclosed(framed(body(value=b"\x03"))), note=lenient, kafka=None
        ),
        *_inside("key too long", lambda: enclosed(framed(body(key=b"\x60k")))),
        *_inside("value 2^31-1", lambda: enclosed(framed(body(value=varint((1 << 31) - 1))))),
        *_inside(
            "the same offset twice",
            lambda: enclosed(framed(body()) * 2, count=2),
            note=blind,
            kafka=None,
        ),
        *_inside(
            "offsets fall",
            lambda: enclosed(framed(body(delta=1)) + framed(body()), count=2),
            note=blind,
            kafka=None,
        ),
        *_inside(
            "offset beyond the last",
            lambda: enclosed(framed(body(delta=1))),
            note=blind,
            kafka=None,
        ),
        *_inside("one record more than counted", lambda: enclosed(two)),
        *_inside("one record less than counted", lambda: enclosed(two + b"\x00" * 7, count=3)),
        *_inside("bytes behind the records", lambda: enclosed(framed(body()) + b"12345")),
        BadBatch(
            "a record that says it is gzip",
            lambda: enclosed(framed(body(attributes=1))),
            None,
            "nested packing ended with magic 1; these bits mean nothing",
            limits=STRICT,
        ),
        BadBatch("a header", lambda: enclosed(framed(body(headers=header))), None, limits=STRICT),
    ]  # fmt: skip


def _packing_cases() -> list[BadBatch]:
    unnamed = "Kafka's reader fails without a name, or finds that no record is there"
    # What Kafka answers to garbage, to nothing at all, and to a stream without its end.
    answers = {
        Codec.GZIP: (UNKNOWN, UNKNOWN, INVALID),
        Codec.SNAPPY: (UNKNOWN, UNKNOWN, UNKNOWN),
        Codec.LZ4: (UNKNOWN, UNKNOWN, UNKNOWN),
        Codec.ZSTD: (UNKNOWN, INVALID, UNKNOWN),
    }
    cases: list[BadBatch] = []
    for codec, (garbage, nothing, truncated) in answers.items():
        name = codec.name.lower()
        payloads = {
            f"garbage as {name}": (b"these are no packed bytes", garbage),
            f"nothing as {name}": (b"", nothing),
            f"truncated {name}": (compress(codec, BODY * 9)[:-5], truncated),
        }
        cases.append(BadBatch(f"good {name}", partial(good, codec), None, limits=STRICT))
        for title, (payload, kafka) in payloads.items():
            build = partial(enclosed, payload, codec=codec)
            cases += _inside(title, build, note=unnamed, kafka=kafka)
    return cases


def _enclosed_bomb(payload: Callable[[], bytes], codec: Codec) -> bytes:
    return enclosed(payload(), codec=codec)


def _bomb_cases() -> list[BadBatch]:
    bombs: dict[str, tuple[Codec, Callable[[], bytes], ErrorCode | None]] = {
        "gzip, 1 MiB for 1 GiB": (Codec.GZIP, gzip_bomb, INVALID),
        "zstd, 320 KiB for 10 GiB": (Codec.ZSTD, lambda: zstd_zeros(81_920), INVALID),
        "lz4, 1 MiB for 240 MiB": (Codec.LZ4, lz4_bomb, INVALID),
        "snappy framed, 1 MiB for 20 MiB": (Codec.SNAPPY, snappy_bomb, INVALID),
        "snappy raw, 3 KiB for 4 GiB": (Codec.SNAPPY, snappy_claim, UNKNOWN),
        "readable, 32 KiB for one record of 1 GiB": (Codec.ZSTD, readable_bomb, None),
    }
    cases: list[BadBatch] = []
    for name, (codec, payload, kafka) in bombs.items():
        build = partial(_enclosed_bomb, payload, codec)
        note = {
            INVALID: "",
            UNKNOWN: "Kafka's reader fails without a name",
            None: "Kafka unpacks it to the end and keeps it; we could never read it within bounds",
        }[kafka]
        cases += _inside(f"bomb: {name}", build, note=note, kafka=kafka)
    return cases


CASES: Final = (
    *_header_cases(),
    *_attribute_cases(),
    *_limit_cases(),
    *_record_cases(),
    *_packing_cases(),
    *_bomb_cases(),
)
