"""The disk alone: as many records as were due, each timed, and nothing left behind."""

from __future__ import annotations

from pathlib import Path

from bench.versus.disk import paced_syncs


def test_every_record_that_was_due_is_timed_and_no_file_is_left(tmp_path: Path) -> None:
    times_us = paced_syncs(tmp_path, rate=200, seconds=0.1)
    assert len(times_us) == 20
    assert times_us == sorted(times_us)
    assert times_us[0] > 0
    assert list(tmp_path.iterdir()) == []
