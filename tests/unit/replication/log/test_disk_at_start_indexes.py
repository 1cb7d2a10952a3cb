"""What a start does about index files: too short, too long, corrupt, missing.

An index is a hint (I2): whatever its file says, the same batches are served, a look-up by time
gives the same answer, and retention removes nothing that is not due. Rows of "Disk at start".
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.proto.ids import Offset
from ottla.replication.log.lookup import first_at_or_after, latest_timestamp
from tests.builders import NOW_MS, append, batches_of
from tests.unit.replication.log.disk_at_start import (
    END,
    SETTINGS,
    VICTIM,
    Node,
    Running,
    filled,
    require_neighbour,
    time_of,
)

Damage = Callable[[bytes], bytes | None]

ENTRY = {".index": struct.Struct(">ii"), ".timeindex": struct.Struct(">qi")}


DAMAGES: dict[str, Damage] = {
    "missing": lambda content: None,
    "empty": lambda content: b"",
    "one byte": lambda content: content[:1],
    "half an entry short": lambda content: content[:-4],
    "four bytes too long": lambda content: content + b"\0\0\0\x01",
    "zeros behind it": lambda content: content + bytes(48),
    "ones behind it": lambda content: content + b"\xff" * 48,
    "large entries behind it": lambda content: content + b"\x7f\xff\xff\xff" * 12,
    "all zeros": lambda content: bytes(len(content)),
    "all ones": lambda content: b"\xff" * len(content),
    "backwards": lambda content: content[::-1],
    "first byte flipped": lambda content: (
        bytes([content[0] ^ 0x80]) + content[1:] if content else b"\x80"
    ),
    "last byte flipped": lambda content: (
        content[:-1] + bytes([content[-1] ^ 0x11]) if content else b"\x11"
    ),
    "twice": lambda content: content * 2,
}


def entries_of(content: bytes, suffix: str) -> list[tuple[int, int]]:
    entry = ENTRY[suffix]
    return [entry.unpack_from(content, at) for at in range(0, len(content), entry.size)]


def packed(entries: list[tuple[int, int]], suffix: str) -> bytes:
    return b"".join(ENTRY[suffix].pack(*entry) for entry in entries)


def require_same_answers(node: Node, running: Running) -> None:
    """Everything is read, from every offset, and every time is found, as if nothing had been."""
    log = running.log
    assert log.offline is None
    assert batches_of(log) == node.written
    for number in range(END):
        found = log.read(Offset(number), bytes_max=1)
        assert found is not None
        assert found.read() == node.written[number]
    for number in range(END):
        for timestamp in (time_of(number) - 500, time_of(number)):
            assert first_at_or_after(log, timestamp) == (time_of(number), number)
    assert first_at_or_after(log, time_of(END - 1) + 1) is None
    assert latest_timestamp(log) == (time_of(END - 1), END - 1)
    require_neighbour(running)


def require_hint(node: Node) -> None:
    for _ in range(2):
        with node.started() as running:
            assert running.report.damaged == {}
            require_same_answers(node, running)
    with node.started() as running:
        assert append(running.log, (b"k", b"goes on")) == END


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
@pytest.mark.parametrize("base", [0, 10, 15])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_index_changes_no_answer(
    tmp_path: Path, damage: str, suffix: str, base: int, clean: bool
) -> None:
    node = filled(tmp_path, clean=clean)
    path = node.path(base, suffix)
    content = DAMAGES[damage](path.read_bytes())
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    require_hint(node)


@pytest.mark.parametrize("base", [0, 15])
def test_an_index_whose_entries_point_one_batch_too_far_changes_no_answer(
    tmp_path: Path, base: int
) -> None:
    node = filled(tmp_path, clean=True)
    path = node.path(base, ".index")
    wrong = [(key, value + 100) for key, value in entries_of(path.read_bytes(), ".index")]
    path.write_bytes(packed(wrong, ".index"))
    require_hint(node)


@pytest.mark.parametrize("base", [0, 15])
def test_an_index_whose_last_entry_points_into_a_batch_changes_no_answer(
    tmp_path: Path, base: int
) -> None:
    node = filled(tmp_path, clean=True)
    path = node.path(base, ".index")
    *first, (key, value) = entries_of(path.read_bytes(), ".index")
    path.write_bytes(packed([*first, (key, value + 3)], ".index"))
    require_hint(node)


@pytest.mark.parametrize("base", [0, 15])
@pytest.mark.parametrize("shift", [-50_000, 50_000])
def test_a_time_index_with_other_times_changes_no_answer(
    tmp_path: Path, base: int, shift: int
) -> None:
    node = filled(tmp_path, clean=True)
    path = node.path(base, ".timeindex")
    wrong = [(key + shift, value) for key, value in entries_of(path.read_bytes(), ".timeindex")]
    path.write_bytes(packed(wrong, ".timeindex"))
    require_hint(node)


@pytest.mark.parametrize("base", [0, 15])
@pytest.mark.parametrize("shift", [-2, 2])
def test_a_time_index_with_other_offsets_changes_no_answer(
    tmp_path: Path, base: int, shift: int
) -> None:
    node = filled(tmp_path, clean=True)
    path = node.path(base, ".timeindex")
    wrong = [(key, value + shift) for key, value in entries_of(path.read_bytes(), ".timeindex")]
    path.write_bytes(packed(wrong, ".timeindex"))
    require_hint(node)


@pytest.mark.parametrize("damage", ["one entry short", "all zeros", "times too early", "empty"])
def test_a_damaged_time_index_makes_retention_remove_nothing_that_is_not_due(
    tmp_path: Path, damage: str
) -> None:
    # The newest record of the segment at 0 is exactly as old as the limit: it stays.
    settings = replace(SETTINGS, retention_ms=NOW_MS - time_of(4))
    node = filled(tmp_path, settings, clean=True)
    path = node.path(0, ".timeindex")
    entries = entries_of(path.read_bytes(), ".timeindex")
    damaged = {
        "one entry short": packed(entries[:-1], ".timeindex"),
        "all zeros": bytes(12 * len(entries)),
        "times too early": packed([(key - 5000, value) for key, value in entries], ".timeindex"),
        "empty": b"",
    }
    path.write_bytes(damaged[damage])
    with node.started() as running:
        running.log.advance_high_watermark(Offset(END))
        assert running.manager.retain(now_ms=NOW_MS) == 0
        assert batches_of(running.log) == node.written
        assert running.manager.retain(now_ms=NOW_MS + 1) == 1
        assert batches_of(running.log) == node.written[5:]


def test_indexes_of_every_segment_missing_are_all_rebuilt(tmp_path: Path) -> None:
    node = filled(tmp_path, clean=True)
    paths = [path for path in sorted((tmp_path / "t-0").iterdir()) if path.suffix != ".log"]
    sound = {path: path.read_bytes() for path in paths}
    for path in paths:
        path.unlink()
    require_hint(node)
    # The newest gets entries for the new batch, so only the old ones can be compared.
    old = [path for path in paths if int(path.name[:20]) < 15]
    assert {path: path.read_bytes() for path in old} == {path: sound[path] for path in old}


def test_an_index_that_is_a_link_is_neither_followed_nor_written_through(tmp_path: Path) -> None:
    node = filled(tmp_path / "data", clean=True)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"precious")
    for base in (0, 15):
        node.path(base, ".index").unlink()
        node.path(base, ".index").symlink_to(elsewhere)
    with node.started() as running:
        assert running.log.offline is not None
        assert VICTIM in running.report.damaged
        require_neighbour(running)
    assert elsewhere.read_bytes() == b"precious"
