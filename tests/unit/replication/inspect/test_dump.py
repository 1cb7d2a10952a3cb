"""What `dump` tells of files, in JSON and in words."""

from __future__ import annotations

import pytest

from ottla.proto.ids import Offset
from ottla.proto.records.build import build_batch
from ottla.proto.records.compression import Codec
from ottla.proto.records.header import CODEC_MASK, HEADER_SIZE, TimestampType, seal
from ottla.proto.records.record import Record
from ottla.replication.inspect.dump import DumpChoice, dump_file, kind_of
from ottla.replication.inspect.overview import overviews
from ottla.replication.inspect.places import find_place
from ottla.replication.inspect.words import bytes_in_words, in_words, time_in_words
from ottla.replication.log.state import Intent, Pending
from ottla.replication.storage.memory import MemoryFiles, MemoryStateStore
from tests.unit.replication.inspect.shelf import DIRECTORY, ROOT, filled

LOG = "/00000000000000000100.log"
RECORDS = [
    Record(100, 1000, b"k", b"v", (("h", b"1"), ("none", None))),
    Record(101, 1001, None, b"\xff\x00"),
    Record(102, 1002, b"gone", None),
]


def _dump(content: bytes, choice: DumpChoice, path: str = LOG) -> list[dict[str, object]]:
    files = MemoryFiles()
    files.open(path, create=True).write_at(0, [content])
    return [item.as_json() for item in dump_file(files, path, choice)]


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_and_its_records_in_json(codec: Codec) -> None:
    batch = build_batch(
        RECORDS,
        base_offset=100,
        codec=codec,
        producer_id=9,
        producer_epoch=1,
        base_sequence=5,
        leader_epoch=3,
        transactional=True,
    )
    told = _dump(batch, DumpChoice(records=True))
    assert told[0] == {
        "type": "batch",
        "base_offset": 100,
        "last_offset": 102,
        "position": 0,
        "size": len(batch),
        "leader_epoch": 3,
        "codec": codec.name.lower(),
        "crc": int.from_bytes(batch[17:21], "big"),
        "crc_ok": True,
        "count": 3,
        "producer_id": 9,
        "producer_epoch": 1,
        "base_sequence": 5,
        "max_timestamp": 1002,
        "timestamp_type": "CreateTime",
        "transactional": True,
        "control": False,
        "delete_horizon_ms": None,
    }
    assert told[1:] == [
        {
            "type": "record",
            "offset": 100,
            "timestamp": 1000,
            "key": "k",
            "value": "v",
            "headers": [["h", "1"], ["none", None]],
        },
        {
            "type": "record",
            "offset": 101,
            "timestamp": 1001,
            "key": None,
            "value": {"base64": "/wA="},
            "headers": [],
        },
        {
            "type": "record",
            "offset": 102,
            "timestamp": 1002,
            "key": "gone",
            "value": None,
            "headers": [],
        },
    ]


def test_records_are_told_only_when_asked_for() -> None:
    assert [one["type"] for one in _dump(build_batch(RECORDS), DumpChoice())] == ["batch"]


def test_append_time_control_and_delete_horizon() -> None:
    batch = build_batch(
        RECORDS,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        control=True,
        delete_horizon_ms=77,
        max_timestamp=500,
    )
    (told,) = _dump(batch, DumpChoice())
    assert (told["timestamp_type"], told["max_timestamp"]) == ("LogAppendTime", 500)
    assert (told["control"], told["delete_horizon_ms"]) == (True, 77)


def test_a_batch_that_cannot_be_opened_does_not_hide_the_next() -> None:
    broken = bytearray(build_batch(RECORDS))
    broken[HEADER_SIZE] = 0x7F
    seal(broken)
    strange = bytearray(build_batch(RECORDS))
    strange[22] |= CODEC_MASK
    seal(strange)
    content = bytes(broken) + bytes(strange) + build_batch(RECORDS)
    told = _dump(content, DumpChoice(records=True))
    kinds = [one["type"] for one in told]
    assert kinds == ["batch", "problem", "batch", "problem", "batch", "record", "record", "record"]
    assert str(told[1]["problem"]).startswith("the records cannot be read: Record 0 claims")
    assert told[2]["codec"] == "unknown (7)"
    assert told[3]["problem"] == (
        "the records cannot be read: No codec has the number 7; 0 to 4 exist."
    )


def test_a_wrong_checksum_is_told_and_the_next_batch_too() -> None:
    batch = build_batch(RECORDS)
    broken = batch[:-1] + bytes([batch[-1] ^ 1])
    told = _dump(broken + batch, DumpChoice(records=True))
    assert [one["type"] for one in told][:3] == ["batch", "problem", "batch"]
    assert told[0]["crc_ok"] is False
    assert str(told[1]["problem"]).startswith("checksum 0x")


def test_a_batch_of_a_later_format_is_told_and_not_opened() -> None:
    batch = bytearray(build_batch(RECORDS))
    batch[16] = 3
    told = _dump(bytes(batch), DumpChoice(records=True))
    assert told[1]["problem"] == "magic 3; this program knows 2"


@pytest.mark.parametrize("tail", [b"\0" * 100, b"\0" * 3, build_batch(RECORDS)[:-1]])
def test_a_tail_that_is_no_batch_is_told_with_its_position(tail: bytes) -> None:
    batch = build_batch(RECORDS)
    told = _dump(batch + tail, DumpChoice())
    assert told[1] == {
        "type": "problem",
        "file": LOG,
        "position": len(batch),
        "problem": f"no batch in the last {len(tail)} bytes",
    }


def test_from_an_offset_and_not_too_many() -> None:
    shelf = filled()
    path = f"{DIRECTORY}/{20:020d}.log"
    choice = DumpChoice(from_offset=25, batches_max=2, records=True)
    told = [item.as_json() for item in dump_file(shelf.files, path, choice)]
    assert [(one["type"], one.get("base_offset", one.get("offset"))) for one in told] == [
        ("batch", 24),
        ("record", 25),
        ("batch", 26),
        ("record", 26),
        ("record", 27),
    ]


def test_index_entries_are_absolute() -> None:
    index = "/00000000000000000100.index.deleted"
    assert _dump(bytes.fromhex("00000007 00000100"), DumpChoice(), index) == [
        {"type": "index_entry", "offset": 107, "position": 256}
    ]
    times = "/00000000000000000100.timeindex.cleaned"
    assert _dump(bytes.fromhex("00000000000003e8 00000007"), DumpChoice(), times) == [
        {"type": "time_entry", "timestamp": 1000, "offset": 107}
    ]


def test_the_room_that_kafka_keeps_in_an_index_is_not_told() -> None:
    index = "/00000000000000000000.index"
    content = bytes.fromhex("00000007 00000100") + bytes(80_000)
    assert len(_dump(content, DumpChoice(), index)) == 1
    assert _dump(bytes(80_000), DumpChoice(), index) == []
    assert len(_dump(bytes(8), DumpChoice(), index)) == 1


def test_a_part_of_an_entry_is_told() -> None:
    told = _dump(bytes.fromhex("00000007 00000100 0001"), DumpChoice(), "/" + "0" * 20 + ".index")
    assert told[1]["problem"] == "the last 2 bytes are no entry"


def test_an_index_whose_name_says_nothing_cannot_be_told() -> None:
    (told,) = _dump(bytes(8), DumpChoice(), "/copy.index")
    assert told["problem"] == "its name does not say at which offset the segment begins"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a/0.log", ".log"),
        ("0.log.deleted", ".log"),
        ("0.timeindex", ".timeindex"),
        ("0.index.cleaned", ".index"),
        ("meta.properties", None),
    ],
)
def test_what_a_file_is(name: str, kind: str | None) -> None:
    assert kind_of(name) == kind


# -- words -----------------------------------------------------------------------------------------


def test_a_batch_in_words() -> None:
    files = MemoryFiles()
    batch = build_batch(
        RECORDS, base_offset=100, leader_epoch=3, producer_id=9, producer_epoch=1, base_sequence=5
    )
    files.open(LOG, create=True).write_at(0, [batch])
    lines = [in_words(item) for item in dump_file(files, LOG, DumpChoice(records=True))]
    assert [" ".join(line.split()) for line in lines] == [
        f"100 to 102 at 0 {len(batch)} bytes 3 records none 1970-01-01 00:00:01.002 "
        "leader epoch 3 producer 9 epoch 1 sequence 5 to 7 crc ok",
        '100 1970-01-01 00:00:01.000 key "k" value "v" header "h" = "1" header "none" = null',
        "101 1970-01-01 00:00:01.001 key null value 0xff00",
        '102 1970-01-01 00:00:01.002 key "gone" value null',
    ]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "null"),
        (b"", '""'),
        ("Grüße".encode(), '"Grüße"'),
        (b"\x1b[2J", "0x1b5b324a"),
        (b"\xff", "0xff"),
        (b"a" * 81, f'"{"a" * 80}"… (81 bytes)'),
        (b"\xff" * 41, f"0x{'ff' * 40}… (41 bytes)"),
        ("€".encode() * 500, f'"{"€" * 80}"… (1500 bytes)'),
        ("x€".encode() * 500, f'"{"x€" * 40}"… (2000 bytes)'),
    ],
)
def test_bytes_in_words(content: bytes | None, words: str) -> None:
    assert bytes_in_words(content) == words


def test_bytes_in_full() -> None:
    assert bytes_in_words(b"a" * 200, full=True) == f'"{"a" * 200}"'
    assert bytes_in_words(b"\xff" * 200, full=True) == f"0x{'ff' * 200}"


@pytest.mark.parametrize(
    ("timestamp", "words"),
    [
        (-1, "no time"),
        (0, "1970-01-01 00:00:00.000"),
        (253_402_300_799_999, "9999-12-31 23:59:59.999"),
        (2**63 - 1, f"time {2**63 - 1}"),
        (-(2**63), f"time {-(2**63)}"),
        (-62_135_596_800_000, "0001-01-01 00:00:00.000"),
    ],
)
def test_times_in_words(timestamp: int, words: str) -> None:
    assert time_in_words(timestamp) == words


def test_a_partition_at_a_glance() -> None:
    shelf = filled()
    place = find_place(shelf.files, ROOT)
    assert place is not None
    (overview,) = overviews(shelf.files, place, MemoryStateStore(shelf.disk))
    told = overview.as_json()
    assert (told["partition"], told["epochs"]) == ("t-0", [[0, 0], [2, 30]])
    assert (told["start_offset"], told["high_watermark"], told["recovery_point"]) == (0, 60, 60)
    assert told["producers"] == [
        {"producer_id": 7, "epoch": 0, "last_sequence": 59, "last_offset": 59}
    ]
    assert [one["bytes"] for one in told["segments"]] == [970, 970, 970]
    lines = list(overview.lines())
    assert lines[:3] == ["t-0", "  start offset     0", "  high watermark   60"]
    assert "  epoch 2          from 30" in lines


def test_what_waits_to_happen_to_a_partition_is_told() -> None:
    shelf = filled()
    sources = (Offset(0), Offset(20))
    shelf.change_state(
        horizon_ms=1000, pending=Pending(intent=Intent.SWAP, offset=Offset(0), sources=sources)
    )
    place = find_place(shelf.files, ROOT)
    assert place is not None
    (overview,) = overviews(shelf.files, place, MemoryStateStore(shelf.disk))
    lines = list(overview.lines())
    assert "  tombstones go    1970-01-01 00:00:01.000" in lines
    assert "  pending          swap at 0, in the place of the segments at 0, 20" in lines
    told = overview.as_json()
    assert (told["horizon_ms"], told["pending"]) == (1000, "swap")
    assert (told["pending_offset"], told["pending_sources"]) == (0, [0, 20])
