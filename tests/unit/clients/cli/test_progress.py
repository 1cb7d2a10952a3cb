"""The line that shows how far a bulk load has come."""

from __future__ import annotations

import io
import os
from pathlib import Path

from ottla.clients.cli.progress import Progress, bytes_left


def test_a_bar_shows_the_share_that_was_read() -> None:
    progress = Progress(began_ms=0.0, bytes_total=1000, bytes_read=500)
    assert progress.line(40, 2000.0) == f"[{'█' * 12}{' ' * 12}] 50%, 40 records, 20 records/s"
    progress.bytes_read = 5000
    assert "] 100%, " in progress.line(40, 2000.0)


def test_without_a_size_there_is_no_bar() -> None:
    progress = Progress(began_ms=0.0, bytes_total=None, bytes_read=2_500_000)
    assert progress.line(40, 2000.0) == "2.5 MB, 40 records, 20 records/s"


def test_it_is_shown_twice_a_second() -> None:
    progress = Progress(began_ms=1000.0, bytes_total=None)
    assert [at for at in range(1000, 3000, 100) if progress.is_due(at)] == [1500, 2000, 2500]


def test_what_is_left_of_a_file_is_known_and_of_a_pipe_is_not(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"12345")
    with path.open("rb") as file:
        assert bytes_left(file) == 5
        file.read(2)
        assert bytes_left(file) == 3
    reader, writer = os.pipe()
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        assert bytes_left(pipe) is None
    assert bytes_left(io.BytesIO(b"x")) is None
