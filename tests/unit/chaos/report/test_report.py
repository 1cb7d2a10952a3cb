"""The report: a page that loads nothing, JSON that can be read, JUnit that says the same."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from ottla.chaos.checkers.rows import ROWS
from ottla.chaos.evidence import Load, Outcome
from ottla.chaos.history import Kind
from ottla.chaos.report.documents import render_json, render_junit
from ottla.chaos.report.judgement import Judgement, judge_run
from ottla.chaos.report.page import render_page
from ottla.chaos.report.timeline import draw_timeline
from ottla.chaos.report.write import write_overview, write_report
from ottla.chaos.run_folder import RunFolder
from tests.unit.chaos.story import Story

PAGE_BYTES_MAX = 2_000_000
_LOADS = re.compile(r"(?:src|href)\s*=|url\(|@import|<script|<link|https?://", re.IGNORECASE)


def _good() -> Story:
    log = dict[int, str | None]()
    story = Story(title="nothing is broken", machine={"processor": "abacus"})
    for number in range(200):
        story.passed(0.01).sent(f"w-{number}", number)
        log[number] = f"w-{number}"
    return story.polled(log).read(log)


def _lossy() -> Story:
    story = _good().fault("kill", "inject", 1).fault("kill", "heal", 1)
    return story.sent("w-200", 200).read({}, turn=2, end=0)


def _judged(story: Story) -> Judgement:
    return judge_run(story.evidence)


def test_a_run_that_keeps_every_promise_has_passed() -> None:
    judgement = _judged(_good())
    assert judgement.outcome is Outcome.PASSED, judgement.sentence()
    page = render_page(judgement)
    assert "Every promise that could be judged was kept." in page
    assert "nothing is broken" in page
    assert "abacus" in page
    assert "✗" not in page


def test_the_page_says_how_much_of_the_processors_others_had() -> None:
    story = _good()
    assert "nobody looked who had them" in render_page(_judged(story))
    loads = [Load(0, 1, 0.0, 0.5, 0.0), Load(1, 2, 0.5, 0.1, 0.0)]
    story.evidence = replace(story.evidence, loads=loads)
    told = "30% were taken by others, and 50% of the time was starved"
    assert told in render_page(_judged(story))


def test_a_broken_promise_stands_at_the_top_with_its_evidence() -> None:
    judgement = _judged(_lossy())
    assert judgement.outcome is Outcome.FAILED
    page = render_page(judgement)
    assert "A promise was broken" in page
    assert page.index("✗ broken") < page.index("✓ held")
    assert "w-200" in page


@pytest.mark.parametrize("story", [Story, _good, _lossy])
def test_a_page_loads_nothing_from_outside(story: type[Story]) -> None:
    assert not _LOADS.search(render_page(_judged(story())))


def test_the_same_evidence_gives_the_same_page() -> None:
    assert render_page(_judged(_lossy())) == render_page(_judged(_lossy()))


def test_whatever_stands_in_the_evidence_is_text_and_never_markup() -> None:
    evil = "<script>alert(1)</script>"
    story = Story(scenario=evil, system=evil, command=evil, topics={evil: {evil: evil}})
    story.fault(evil, "inject", 1).begin("w-0").end("w-0", Kind.FAIL, error=evil)
    page = render_page(_judged(story))
    assert evil not in page
    assert "&lt;script&gt;" in page


def test_the_picture_is_well_formed() -> None:
    judgement = _judged(_lossy())
    picture = draw_timeline(judgement.series, judgement.evidence.facts.nodes)
    root = ElementTree.fromstring(picture)
    texts = [node.text for node in root.iter("text")]
    assert "kill 1" in texts
    assert "t-0" in texts


def test_the_page_of_a_long_run_stays_small() -> None:
    story = Story()
    for number in range(3_000):
        story.passed(1.2).sent(f"w-{number}", number)
        if number % 10 == 0:
            story.fault("kill", "inject", 1 + number % 3).fault("kill", "heal", 1 + number % 3)
            story.obeyed(1, number, leader=1 + number % 3, isr=[1, 2, 3])
    assert len(render_page(_judged(story)).encode()) < PAGE_BYTES_MAX


def test_json_has_all_verdicts_and_numbers() -> None:
    told = json.loads(render_json(_judged(_lossy())))
    assert told["outcome"] == "failed"
    assert len(told["verdicts"]) == len(ROWS)
    assert told["counts"]["send ok"] == 201
    assert [fault["fault"] for fault in told["faults"]] == ["kill"]
    assert told["command"] == "pytest"


def test_junit_has_a_test_for_each_promise_and_one_for_the_run() -> None:
    root = ElementTree.fromstring(render_junit(_judged(_lossy())))
    cases = root.findall("testcase")
    assert len(cases) == int(root.attrib["tests"]) == len(ROWS) + 1
    assert len(root.findall("testcase/failure")) == int(root.attrib["failures"]) >= 2
    assert len(root.findall("testcase/skipped")) == int(root.attrib["skipped"])


def test_a_run_of_which_nothing_can_be_said_is_an_error_in_junit() -> None:
    root = ElementTree.fromstring(render_junit(_judged(Story(ok_min=100).sent("w-0", 0))))
    assert int(root.attrib["errors"]) == len(root.findall("testcase/error")) == 1


def test_the_report_is_written_beside_the_evidence(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    write_report(folder, _judged(_good()))
    assert folder.report_path.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert json.loads(folder.verdict_path.read_text(encoding="utf-8"))["outcome"] == "passed"
    ElementTree.parse(folder.junit_path)


def test_it_is_told_as_what_nodes_were_hit_in_one_run_and_in_all_together(tmp_path: Path) -> None:
    assert "Who was hit" not in render_page(_judged(_lossy()))
    story = _good().fault("kill", "inject", 1, role="leader").fault("kill", "heal", 1)
    judgement = _judged(story)
    row = '<tr><td class="">kill</td><td class="num">{}</td></tr>'
    assert row.format(1) in render_page(judgement)
    assert json.loads(render_json(judgement))["roles"] == {"kill": {"leader": 1}}
    for name in ("a", "b"):
        write_report(RunFolder(tmp_path / name), judgement)
    assert row.format(2) in write_overview(tmp_path).read_text(encoding="utf-8")


def test_many_runs_stand_on_one_page_and_what_failed_comes_first(tmp_path: Path) -> None:
    for name, story in (("a-good", _good()), ("b-lossy", _lossy())):
        write_report(RunFolder(tmp_path / name), _judged(story))
    page = write_overview(tmp_path).read_text(encoding="utf-8")
    assert "1 passed" in page
    assert "1 failed" in page
    assert page.index("b-lossy/report.html") < page.index("a-good/report.html")
