"""What was measured, kept file by file: a run that was interrupted goes on where it ended.

    RUN/results/WORKLOAD/VARIANT-ROUND.json     one turn
    RUN/warm/PEER-NUMBER.json                   a warm-up and its curve
    RUN/uncounted/WORKLOAD/VARIANT-NUMBER.json  a turn before those that count
    RUN/facts.json                              machine, versions, settings, limits

K1  a file is written whole and renamed: what is there is complete
K2  a turn that failed is kept with its reason, under another name, and is taken again

Not here: what the turns are (`turns.py`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

Figures = dict[str, Any]


class Results:
    """The folder of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder: Final = folder

    def _path(self, workload: str, variant: str, number: int) -> Path:
        return self.folder / "results" / workload / f"{variant}-{number}.json"

    def has(self, workload: str, variant: str, number: int) -> bool:
        return self._path(workload, variant, number).exists()

    def keep(self, workload: str, variant: str, number: int, figures: Figures) -> None:
        write_json(self._path(workload, variant, number), figures)

    def keep_failure(self, workload: str, variant: str, number: int, reason: str) -> None:
        path = self._path(workload, variant, number).with_suffix(".failed")
        write_json(path, {"reason": reason})

    def failures(self) -> dict[str, str]:
        """Return why turns failed that were not taken again since."""
        found = dict[str, str]()
        for path in sorted(self.folder.glob("results/*/*.failed")):
            if not path.with_suffix(".json").exists():
                reason = json.loads(path.read_text(encoding="utf-8"))["reason"]
                found[f"{path.parent.name} {path.stem}"] = str(reason)
        return found

    def rounds(self, workload: str, variant: str) -> dict[int, Figures]:
        """Return what every round of a variant gave."""
        found = dict[int, Figures]()
        for path in (self.folder / "results" / workload).glob(f"{variant}-*.json"):
            name, _, number = path.stem.rpartition("-")
            if name == variant:
                found[int(number)] = json.loads(path.read_text(encoding="utf-8"))
        return dict(sorted(found.items()))

    def values(self, workload: str, variant: str, figure: str) -> dict[int, float]:
        rounds = self.rounds(workload, variant)
        return {at: float(one[figure]) for at, one in rounds.items() if one.get(figure) is not None}

    def keep_warm_up(self, peer: str, curve: Figures) -> None:
        number = len(list(self.folder.glob(f"warm/{peer}-*.json"))) + 1
        write_json(self.folder / "warm" / f"{peer}-{number}.json", curve)

    def keep_uncounted(self, workload: str, variant: str, at: int, figures: Figures) -> None:
        """Keep what was measured before it counted, by its place from 1; the last time counts."""
        write_json(self.folder / "uncounted" / workload / f"{variant}-{at}.json", figures)

    def uncounted(self, workload: str, variant: str, figure: str) -> dict[int, float]:
        """Return what was measured before it counted, by its place."""
        found = dict[int, float]()
        for path in (self.folder / "uncounted" / workload).glob(f"{variant}-[0-9]*.json"):
            one = json.loads(path.read_text(encoding="utf-8"))
            if one.get(figure) is not None:
                found[int(path.stem.rpartition("-")[2])] = float(one[figure])
        return dict(sorted(found.items()))

    def warm_ups(self) -> dict[str, Figures]:
        found = sorted(self.folder.glob("warm/*.json"))
        return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in found}

    def facts(self) -> dict[str, Any]:
        path = self.folder / "facts.json"
        told: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}
        return told

    def add_facts(self, more: Mapping[str, Any]) -> None:
        write_json(self.folder / "facts.json", {**self.facts(), **more})


def saturated_rounds(results: Results, workload: str, variant: str) -> int:
    """Return in how many rounds a system did not keep up."""
    rounds = results.rounds(workload, variant).values()
    return sum(bool(one.get("is_saturated")) for one in rounds)


def fell_behind(results: Results, workload: str, *variants: str) -> bool:
    """Return whether one of them did not keep up in a round: such a figure is a lower bound."""
    return any(saturated_rounds(results, workload, variant) for variant in variants)


def write_json(path: Path, content: object) -> None:
    """Write a file that is there as a whole or not at all (K1)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    fresh.replace(path)
