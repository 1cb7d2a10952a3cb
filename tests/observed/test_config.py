"""Prometheus's own tool reads what is shipped for it, and the rules that the tests go by."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.observed.prometheus import promtool
from tests.observed.rules import ROOT, RULES, shortened

pytestmark = [pytest.mark.integration, pytest.mark.long]


def test_promtool_finds_nothing_wrong_with_the_rules(tmp_path: Path) -> None:
    shutil.copy(RULES, tmp_path / "rules.yml")
    text = RULES.read_text(encoding="utf-8")
    told = promtool(tmp_path, "check", "rules", str(tmp_path / "rules.yml"))
    assert f"SUCCESS: {text.count('- alert:')} rules found" in told


def test_promtool_finds_nothing_wrong_with_the_configuration(tmp_path: Path) -> None:
    """Paths in it are those inside the container; here they are beside it."""
    shutil.copytree(ROOT / "compose" / "prometheus", tmp_path / "prometheus")
    config = tmp_path / "prometheus" / "prometheus.yml"
    text = config.read_text(encoding="utf-8")
    config.write_text(text.replace("/etc/prometheus", str(tmp_path / "prometheus")), "utf-8")
    told = promtool(tmp_path, "check", "config", str(config))
    assert "rules found" in told
    assert "job_name: ottla" in text, "the rules name the job"


def test_the_shortened_rules_differ_in_durations_only(tmp_path: Path) -> None:
    text = RULES.read_text(encoding="utf-8")
    short = shortened(text)
    path = tmp_path / "rules.yml"
    path.write_text(short, encoding="utf-8")
    promtool(tmp_path, "check", "rules", str(path))
    assert "for: 2000ms" in short
    assert "[30000ms]" in short
    pairs = zip(text.split(), short.split(), strict=True)
    changed = [(was, now) for was, now in pairs if was != now]
    assert len(changed) == text.count(" for: ") + text.count("m])") + text.count("m],")
    assert all("ms" in now for _, now in changed)
