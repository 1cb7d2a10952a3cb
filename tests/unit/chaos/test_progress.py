"""How a run goes, in words."""

from __future__ import annotations

import pytest

from ottla.chaos.progress import FAULT, NOTE, PHASE, TICK, PlainProgress, progress_for, told

TICKING = {"phase": "fault", "ok": 812, "fail": 3, "unknown": 9, "rate": 203.4}


def test_a_tick_tells_what_was_served_and_what_is_broken() -> None:
    said = told(TICK, {**TICKING, "faults": ["kill [2]"]})
    assert said == "fault  812 ok  3 refused  9 unknown  203/s  broken: kill [2]"


def test_breaking_and_mending_are_told_with_the_nodes() -> None:
    assert told(FAULT, {"fault": "kill", "step": "inject", "targets": [1, 3]}) == "broken: kill 1,3"
    assert told(FAULT, {"fault": "kill", "step": "heal", "targets": []}) == "mended: kill"


def test_without_a_terminal_lines_are_plain_and_ticks_are_few(
    capsys: pytest.CaptureFixture[str],
) -> None:
    progress = progress_for("C02")
    assert isinstance(progress, PlainProgress)
    with progress:
        progress(PHASE, {"phase": "steady"})
        for _ in range(100):
            progress(TICK, TICKING)
        progress(NOTE, {"text": "all is whole"})
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[0].endswith("── steady")
    assert lines[1].endswith("all is whole")
