"""Writes the report beside the evidence.

Not here: what is in it (`page.py`, `documents.py`).
"""

from __future__ import annotations

import json
from pathlib import Path

from ottla.chaos.report.documents import render_json, render_junit
from ottla.chaos.report.judgement import Judgement
from ottla.chaos.report.overview import render_overview
from ottla.chaos.report.page import render_page
from ottla.chaos.run_folder import RunFolder


def write_report(folder: RunFolder, judgement: Judgement) -> None:
    folder.path.mkdir(parents=True, exist_ok=True)
    folder.verdict_path.write_text(render_json(judgement), encoding="utf-8")
    folder.junit_path.write_text(render_junit(judgement), encoding="utf-8")
    folder.report_path.write_text(render_page(judgement), encoding="utf-8")


def write_overview(out: Path) -> Path:
    """Write one page for all runs below a folder, and return where it is."""
    found = sorted(out.glob("*/verdict.json"))
    runs = [(one.parent.name, json.loads(one.read_text(encoding="utf-8"))) for one in found]
    page = out / "index.html"
    page.write_text(render_overview(runs), encoding="utf-8")
    return page
