"""The real kernel syncs by itself, where it is willing (E1, K1)."""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.replication.log.group_commit import GroupCommit
from ottla.replication.log.sync_kernel import KernelSyncs
from ottla.replication.log.sync_threads import SyncThreads
from ottla.replication.storage.kernel_aio import KernelAio, open_kernel_aio
from tests.builders import append
from tests.unit.replication.log.kernel_door import WAIT_S, many_logs


def _is_offered() -> bool:
    """Return whether a plain Linux on a processor that we know runs this test: no excuse then."""
    status = Path("/proc/self/status")
    is_plain = status.exists() and "Seccomp:\t0" in status.read_text(encoding="utf-8")
    is_built_in = Path("/proc/sys/fs/aio-max-nr").exists()
    return is_plain and is_built_in and platform.machine() in ("x86_64", "aarch64")


@pytest.fixture
def aio() -> Iterator[KernelAio]:
    opened = open_kernel_aio()
    if opened is None:
        assert not _is_offered(), "this kernel has it, and it was not opened"
        pytest.skip("this kernel, processor or sandbox has no such calls")
    yield opened
    opened.close()


def test_e1_the_real_kernel_syncs_many_logs_at_once(aio: KernelAio, tmp_path: Path) -> None:
    # More than one look at what has ended brings, and more than are handed over at once.
    logs = many_logs(tmp_path, 300)

    async def tell() -> None:
        kernel, threads = KernelSyncs(aio), SyncThreads(1)
        commits = [GroupCommit(log, threads, kernel=kernel) for log in logs]
        async with asyncio.timeout(WAIT_S):
            for _ in range(5):
                for log in logs:
                    append(log, b"a")
                await asyncio.gather(
                    *(
                        commit.synced(log.end_offset)
                        for commit, log in zip(commits, logs, strict=True)
                    )
                )
        for log in logs:
            assert log.synced_offset == log.end_offset == 6
            assert log.unsynced.jobs_running == 0
        kernel.close()
        threads.shutdown()

    asyncio.run(tell())


def test_e1_what_cannot_be_synced_is_not_taken(aio: KernelAio) -> None:
    reading, writing = os.pipe()
    try:
        assert not aio.begin(writing, 1)
    finally:
        os.close(reading)
        os.close(writing)
    with pytest.raises(OSError, match="Bad file descriptor"):
        aio.begin(writing, 2)
    assert aio.reap() == []


def test_e1_orders_end_once_whoever_reaps(aio: KernelAio, tmp_path: Path) -> None:
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    try:
        ended = list[tuple[int, int]]()
        for number in range(1, 101):
            os.write(fd, b"x")
            while not aio.begin(fd, number):
                ended += aio.reap(waits=True)
        for _ in range(1000):
            if len(ended) == 100:
                break
            ended += aio.reap(waits=True)
        assert sorted(ended) == [(number, 0) for number in range(1, 101)]
    finally:
        os.close(fd)
    aio.clear()
    assert aio.reap() == []
