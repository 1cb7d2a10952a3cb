"""A run that is written is the run that is read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.chaos.evidence import Evidence
from ottla.chaos.history import BadHistoryError, to_line
from ottla.chaos.run_folder import RunFolder
from tests.unit.chaos.legal import legal_run
from tests.unit.chaos.story import HERE, Story


def write(folder: RunFolder, evidence: Evidence) -> None:
    folder.write_facts(evidence.facts)
    with folder.open_history() as file:
        file.writelines(f"{to_line(one)}\n" for one in evidence.events)
    for fault in evidence.faults:
        folder.add_fault(fault)
    folder.add_leaders(evidence.leaders_seen)
    folder.add_finals(evidence.finals)
    folder.add_replicas(evidence.replicas or ())
    folder.write_offline(evidence.offline or {})
    folder.write_harness(evidence.harness_failures)
    folder.keep_logs(evidence.logs or {})


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    folder, trace = RunFolder(tmp_path / "run"), tmp_path / "trace.jsonl"
    story = Story(expected=(4,), tolerated=(3,), allowed_log=("EIO",))
    writers = {"transactors": {"t": "a client"}, "transactional_groups": ("g",)}
    facts = replace(story.evidence.facts, **writers)  # type: ignore[arg-type]  # what facts have
    story.evidence = replace(story.evidence, facts=facts)
    story.evidence = replace(legal_run(3), facts=story.evidence.facts)
    story.fault("kill", "inject", 1, 2).saw(HERE, 3, 1).said(1, "all is well", "good bye")
    story.evidence = replace(
        story.evidence,
        offline={1: ["a hole"], 2: []},
        harness_failures=["a client died"],
    )
    evidence = story.with_control_records(0).evidence
    trace.write_text("".join(json.dumps(one) + "\n" for one in evidence.trace or ()))
    write(folder, evidence)
    folder.keep_trace([trace, tmp_path / "missing.jsonl"])
    assert folder.read() == evidence


def test_what_was_not_taken_is_none_and_not_nothing(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.write_facts(Story().evidence.facts)
    folder.open_history().close()
    evidence = folder.read()
    assert evidence.trace is None
    assert evidence.replicas is None
    assert evidence.offline is None
    assert evidence.logs is None
    folder.keep_trace([])
    folder.keep_logs({})
    assert folder.read().trace == []
    assert folder.read().logs == {}


def test_a_run_that_was_cut_short_is_a_failure_of_the_harness(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.write_facts(Story().evidence.facts)
    folder.open_history().close()
    (told,) = folder.read().harness_failures
    assert "cut short" in told
    folder.write_harness([])
    assert not folder.read().harness_failures


def test_lines_that_a_crash_has_torn_are_left_out(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    evidence = Story().sent("w-1", 0).read({0: "w-1"}).read({0: "w-1"}, turn=2).evidence
    write(folder, evidence)
    for name in ("history.jsonl", "finals.jsonl"):
        text = (tmp_path / name).read_text()
        (tmp_path / name).write_text(text[:-9])
    left = folder.read()
    assert left.events == evidence.events[:-1]
    assert left.finals == evidence.finals[:-1]


def test_a_torn_line_of_a_trace_is_left_out_wherever_it_is(tmp_path: Path) -> None:
    folder, trace = RunFolder(tmp_path / "run"), tmp_path / "trace.jsonl"
    write(folder, Story().evidence)
    lines = [{"t_ns": number, "node": 1, "event": "stopped"} for number in (2, 1)]
    trace.write_text(f'{json.dumps(lines[0])}\n{{"t_ns": 3, "no\n7\n{{}}\n{json.dumps(lines[1])}\n')
    folder.keep_trace([trace])
    assert folder.read().trace == [lines[1], lines[0]], "in the order of the clock"


def test_what_is_no_run_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(BadHistoryError, match=r"no run\.json"):
        RunFolder(tmp_path).read()
    folder = RunFolder(tmp_path)
    write(folder, Story().evidence)
    (tmp_path / "finals.jsonl").write_text('{"k": 7}\n')
    with pytest.raises(BadHistoryError, match=r"finals\.jsonl, line 1"):
        folder.read()
