"""One suite for everything that claims to be `Files`."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.replication.storage.disk import DiskFiles
from ottla.replication.storage.faults import FaultyFiles, Power
from ottla.replication.storage.memory import MemoryFiles
from ottla.replication.storage.ports import File, Files

MakeFiles = Callable[[], Files]
KINDS: dict[str, MakeFiles] = {
    "disk": DiskFiles,
    "memory": MemoryFiles,
    "faulty disk": lambda: FaultyFiles(DiskFiles(), Power()),
    "faulty memory": lambda: FaultyFiles(MemoryFiles(), Power()),
}


@pytest.fixture(params=list(KINDS))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Files, str]:
    """Files of each kind, and an empty directory in them."""
    files = KINDS[request.param]()
    root = str(tmp_path) if "disk" in request.param else "/root"
    files.make_dir(root)
    return files, root


def fill(files: Files, path: str, content: bytes) -> File:
    file = files.open(path, create=True)
    file.write_at(0, [content])
    return file


def content_of(files: Files, path: str) -> bytes:
    file = files.open(path, writable=False)
    try:
        return file.read_at(0, 1 << 20)
    finally:
        file.close()


def test_buffers_are_written_one_after_another(place: tuple[Files, str]) -> None:
    files, root = place
    file = files.open(f"{root}/a", create=True)
    file.write_at(0, [b"one", bytearray(b"two"), memoryview(b"three")])
    file.write_at(3, [b"TWO"])
    assert file.read_at(0, 100) == b"oneTWOthree"
    assert file.size() == files.size_of(f"{root}/a") == 11
    file.close()


def test_no_buffers_write_nothing(place: tuple[Files, str]) -> None:
    files, root = place
    file = fill(files, f"{root}/a", b"")
    file.write_at(0, [])
    file.write_at(7, [b"", b""])
    assert file.size() == 0


def test_thousands_of_buffers_are_written_at_once(place: tuple[Files, str]) -> None:
    files, root = place
    file = files.open(f"{root}/a", create=True)
    buffers = [b"", *(b"%05d" % number for number in range(5000))]
    file.write_at(10, buffers)
    assert file.read_at(10, 100_000) == b"".join(buffers)


def test_a_gap_reads_as_zeros(place: tuple[Files, str]) -> None:
    files, root = place
    file = fill(files, f"{root}/a", b"ab")
    file.write_at(5, [b"c"])
    assert file.read_at(0, 10) == b"ab\0\0\0c"


def test_a_read_is_short_only_at_the_end(place: tuple[Files, str]) -> None:
    files, root = place
    file = fill(files, f"{root}/a", b"abcdef")
    assert file.read_at(2, 2) == b"cd"
    assert file.read_at(4, 10) == b"ef"
    assert file.read_at(6, 10) == b""
    assert file.read_at(600, 10) == b""


def test_truncating_shortens_and_extends_with_zeros(place: tuple[Files, str]) -> None:
    files, root = place
    file = fill(files, f"{root}/a", b"abcdef")
    file.truncate(2)
    assert file.size() == 2
    file.truncate(4)
    assert file.read_at(0, 10) == b"ab\0\0"


def test_room_beyond_the_end_is_seen_by_nobody(place: tuple[Files, str]) -> None:
    files, root = place
    file = fill(files, f"{root}/a", b"abc")
    file.reserve(1 << 20)
    assert file.size() == files.size_of(f"{root}/a") == 3
    file.write_at(3, [b"def"])
    file.reserve(0)
    assert file.read_at(0, 100) == b"abcdef"
    assert file.size() == 6


@pytest.mark.parametrize("size", [0, 1 << 20, 1 << 62])
def test_a_wish_for_room_raises_nothing(place: tuple[Files, str], size: int) -> None:
    files, root = place
    file = fill(files, f"{root}/a", b"abc")
    file.reserve(size)
    assert file.read_at(0, 100) == b"abc"
    file.close()
    file.reserve(size)


def test_a_view_outlives_its_file_and_cannot_be_written(place: tuple[Files, str]) -> None:
    files, root = place
    file = fill(files, f"{root}/a", b"abcdef")
    view = file.map()
    file.close()
    files.remove(f"{root}/a")
    assert bytes(view) == b"abcdef"
    assert view.readonly


def test_the_view_of_an_empty_file_is_empty(place: tuple[Files, str]) -> None:
    files, root = place
    assert len(fill(files, f"{root}/a", b"").map()) == 0


def test_a_file_may_grow_while_somebody_holds_a_view(place: tuple[Files, str]) -> None:
    files, root = place
    file = fill(files, f"{root}/a", b"abc")
    view = file.map()
    file.write_at(3, [b"def"])
    assert bytes(view) == b"abc"
    assert bytes(file.map()) == b"abcdef"


def test_an_open_file_survives_rename_and_removal(place: tuple[Files, str]) -> None:
    files, root = place
    file = fill(files, f"{root}/a", b"old")
    files.rename(f"{root}/a", f"{root}/b")
    file.write_at(0, [b"OLD"])
    assert content_of(files, f"{root}/b") == b"OLD"
    files.remove(f"{root}/b")
    fill(files, f"{root}/b", b"new").close()
    assert file.read_at(0, 10) == b"OLD"
    assert content_of(files, f"{root}/b") == b"new"


def test_a_rename_replaces_its_target(place: tuple[Files, str]) -> None:
    files, root = place
    old = fill(files, f"{root}/target", b"old")
    fill(files, f"{root}/source", b"new").close()
    files.rename(f"{root}/source", f"{root}/target")
    assert files.list_dir(root) == ["target"]
    assert content_of(files, f"{root}/target") == b"new"
    assert old.read_at(0, 10) == b"old"


def test_a_rename_onto_itself_changes_nothing(place: tuple[Files, str]) -> None:
    files, root = place
    fill(files, f"{root}/a", b"x").close()
    files.rename(f"{root}/a", f"{root}/a")
    assert content_of(files, f"{root}/a") == b"x"


def test_a_directory_is_renamed_with_what_is_in_it(place: tuple[Files, str]) -> None:
    files, root = place
    files.make_dir(f"{root}/d")
    file = fill(files, f"{root}/d/a", b"x")
    files.rename(f"{root}/d", f"{root}/e")
    file.write_at(0, [b"y"])
    assert files.list_dir(root) == ["e"]
    assert content_of(files, f"{root}/e/a") == b"y"


def test_names_are_sorted(place: tuple[Files, str]) -> None:
    files, root = place
    for name in ("b", "c", "a"):
        fill(files, f"{root}/{name}", b"").close()
    assert files.list_dir(root) == ["a", "b", "c"]


def test_directories_and_files_are_told_apart(place: tuple[Files, str]) -> None:
    files, root = place
    files.make_dir(f"{root}/d")
    files.make_dir(f"{root}/d")
    fill(files, f"{root}/f", b"").close()
    assert (files.is_dir(f"{root}/d"), files.is_dir(f"{root}/f")) == (True, False)
    assert not files.is_dir(f"{root}/none")
    assert (files.exists(f"{root}/f"), files.exists(f"{root}/none")) == (True, False)
    files.remove_dir(f"{root}/d")
    assert not files.exists(f"{root}/d")


def test_syncing_loses_nothing(place: tuple[Files, str]) -> None:
    files, root = place
    file = fill(files, f"{root}/a", b"abc")
    file.sync()
    files.sync_dir(root)
    assert content_of(files, f"{root}/a") == b"abc"


def test_a_lock_is_exclusive_until_it_is_closed(place: tuple[Files, str]) -> None:
    files, root = place
    lock = files.lock(f"{root}/.lock")
    with pytest.raises(BlockingIOError):
        files.lock(f"{root}/.lock")
    lock.close()
    files.lock(f"{root}/.lock").close()


def test_closing_twice_is_allowed_and_using_a_closed_file_is_not(place: tuple[Files, str]) -> None:
    files, root = place
    file = fill(files, f"{root}/a", b"abc")
    file.close()
    file.close()
    uses: list[Callable[[], object]] = [
        lambda: file.read_at(0, 1),
        lambda: file.write_at(0, [b"x"]),
        file.size,
        lambda: file.truncate(0),
        file.sync,
        file.map,
    ]
    for use in uses:
        with pytest.raises(OSError, match="Bad file descriptor"):
            use()


def test_a_file_opened_for_reading_cannot_be_changed(place: tuple[Files, str]) -> None:
    files, root = place
    fill(files, f"{root}/a", b"abc").close()
    file = files.open(f"{root}/a", writable=False)
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.write_at(0, [b"x"])
    with pytest.raises(OSError, match="Invalid argument"):
        file.truncate(0)
    assert file.read_at(0, 10) == b"abc"


@pytest.mark.parametrize(
    ("code", "use"),
    [
        (errno.ENOENT, lambda files, root: files.open(f"{root}/none")),
        (errno.ENOENT, lambda files, root: files.open(f"{root}/none/a", create=True)),
        (errno.ENOENT, lambda files, root: files.remove(f"{root}/none")),
        (errno.ENOENT, lambda files, root: files.rename(f"{root}/none", f"{root}/x")),
        (errno.ENOENT, lambda files, root: files.size_of(f"{root}/none")),
        (errno.ENOENT, lambda files, root: files.list_dir(f"{root}/none")),
        (errno.ENOENT, lambda files, root: files.sync_dir(f"{root}/none")),
        (errno.ENOENT, lambda files, root: files.make_dir(f"{root}/none/d")),
        (errno.ENOENT, lambda files, root: files.remove_dir(f"{root}/none")),
        (errno.EISDIR, lambda files, root: files.open(f"{root}/d")),
        (errno.EISDIR, lambda files, root: files.open(f"{root}/d", writable=False)),
        (errno.EISDIR, lambda files, root: files.remove(f"{root}/d")),
        (errno.EISDIR, lambda files, root: files.rename(f"{root}/f", f"{root}/d")),
        (errno.ENOTDIR, lambda files, root: files.rename(f"{root}/d", f"{root}/f")),
        (errno.ENOTDIR, lambda files, root: files.list_dir(f"{root}/f")),
        (errno.ENOTDIR, lambda files, root: files.remove_dir(f"{root}/f")),
        (errno.ENOTDIR, lambda files, root: files.sync_dir(f"{root}/f")),
        (errno.ENOTEMPTY, lambda files, root: files.remove_dir(f"{root}/d")),
        (errno.ENOTEMPTY, lambda files, root: files.rename(f"{root}/e", f"{root}/d")),
        (errno.EEXIST, lambda files, root: files.make_dir(f"{root}/f")),
        (errno.EINVAL, lambda files, root: files.open(f"{root}/f").write_at(-1, [b"x"])),
        (errno.EINVAL, lambda files, root: files.open(f"{root}/f").read_at(-1, 1)),
        (errno.EINVAL, lambda files, root: files.open(f"{root}/f").truncate(-1)),
    ],
)
def test_errors_have_the_kernels_numbers_and_change_nothing(
    place: tuple[Files, str], code: int, use: Callable[[Files, str], object]
) -> None:
    files, root = place
    files.make_dir(f"{root}/d")
    files.make_dir(f"{root}/e")
    fill(files, f"{root}/d/inside", b"x").close()
    fill(files, f"{root}/f", b"y").close()
    with pytest.raises(OSError) as caught:  # noqa: PT011 - the number is compared below
        use(files, root)
    assert caught.value.errno == code
    assert files.list_dir(root) == ["d", "e", "f"]
    assert files.list_dir(f"{root}/d") == ["inside"]
    assert content_of(files, f"{root}/f") == b"y"
