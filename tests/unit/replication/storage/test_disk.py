"""What only real files can do; the rest is in the contract suite."""

from __future__ import annotations

import errno
import gc
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from ottla.replication.storage.disk import DiskFiles


@pytest.fixture
def files() -> DiskFiles:
    return DiskFiles()


@pytest.mark.parametrize("create", [True, False])
def test_a_symbolic_link_is_refused(files: DiskFiles, tmp_path: Path, create: bool) -> None:
    (tmp_path / "real").write_bytes(b"x")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for name in ("link", "dangling"):
        with pytest.raises(OSError) as caught:  # noqa: PT011 - the number is compared below
            files.open(str(tmp_path / name), create=create)
        assert caught.value.errno == errno.ELOOP
        assert files.exists(str(tmp_path / name))
    assert not (tmp_path / "nowhere").exists()


def test_a_link_to_a_directory_is_no_directory(files: DiskFiles, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert not files.is_dir(str(tmp_path / "link"))


def test_a_pipe_is_refused_without_waiting_for_a_writer(files: DiskFiles, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="Invalid argument"):
        files.open(str(tmp_path / "pipe"), writable=False)


def test_a_kernel_that_writes_only_a_part_is_asked_again(
    files: DiskFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.pwritev

    def grudging(fd: int, buffers: Sequence[bytes], position: int) -> int:
        return real(fd, [b"".join(buffers)[:7]], position)

    monkeypatch.setattr(os, "pwritev", grudging)
    file = files.open(str(tmp_path / "a"), create=True)
    file.write_at(3, [b"0123456789", b"", bytearray(b"abcdefghij"), memoryview(b"ABC")])
    assert file.read_at(3, 100) == b"0123456789abcdefghijABC"


def test_a_kernel_that_writes_nothing_is_an_error_and_no_endless_loop(
    files: DiskFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = files.open(str(tmp_path / "a"), create=True)
    monkeypatch.setattr(os, "pwritev", lambda *_: 0)
    with pytest.raises(OSError, match="Input/output error"):
        file.write_at(0, [b"x"])


def test_a_kernel_that_reads_only_a_part_is_asked_again(
    files: DiskFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.pread
    file = files.open(str(tmp_path / "a"), create=True)
    file.write_at(0, [b"0123456789"])
    monkeypatch.setattr(os, "pread", lambda fd, size, at: real(fd, min(size, 3), at))
    assert file.read_at(1, 8) == b"12345678"
    assert file.read_at(1, 100) == b"123456789"


def test_the_descriptor_lives_as_long_as_its_holder(files: DiskFiles, tmp_path: Path) -> None:
    file = files.open(str(tmp_path / "a"), create=True)
    fd = file.fileno()
    assert not os.get_inheritable(fd)
    del file
    gc.collect()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_a_refused_lock_leaks_no_descriptor(files: DiskFiles, tmp_path: Path) -> None:
    lock = files.lock(str(tmp_path / "lock"))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with pytest.raises(BlockingIOError):
            files.lock(str(tmp_path / "lock"))
    assert len(os.listdir("/proc/self/fd")) == before
    lock.close()
