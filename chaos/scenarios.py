"""The table of scenarios: what is broken, under which load, and what that may cost.

`scenarios.toml` beside this file is the table; a file of one's own may be given instead of it, or
with it. Every mistake in it is told in one sentence, all of them at once.

Not here: doing it (`conductor.py`), what the faults are (`nemesis/table.py`).

E1  what is not known is refused: a misspelt key never means its default
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ottla.chaos.checkers.rows import ROWS
from ottla.chaos.limits import ScenarioLimits, limits_from, problems_of
from ottla.chaos.nemesis.plan import Step, Target
from ottla.chaos.nemesis.table import KINDS
from ottla.chaos.ports import Means
from ottla.chaos.workload import workload_names
from ottla.proto.errors import ConfigError

TABLE: Final = Path(__file__).with_name("scenarios.toml")
TIERS: Final = ("pr", "nightly", "weekly", "judge")
BACKENDS: Final = ("local", "docker", "kafka")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One row of the table."""

    id: str
    title: str
    tier: str
    # How long it takes at most, all told.
    limit_s: float
    workload: str
    steps: tuple[Step, ...] = ()
    # A random mix of faults for so long, after the steps; 0: none.
    mix_s: float = 0.0
    nodes: int = 3
    # Nodes that only vote.
    controllers: int = 0
    # How long nothing is broken, at first and at the end.
    steady_s: float = 4.0
    # How fast clients are: below 1 where many workloads share few cores.
    pace: float = 1.0
    recovery_s: float = 8.0
    ok_min: int = 100
    # How many named places its nodes must die at; None: at all that are named.
    reached_min: int | None = None
    # Options of the nodes.
    options: Mapping[str, str] = field(default_factory=dict)
    backends: tuple[str, ...] = ("local",)
    expected: tuple[int, ...] = ()
    tolerated: tuple[int, ...] = ()
    allowed_log: tuple[str, ...] = ()
    is_unclean_allowed: bool = False
    limits: ScenarioLimits = field(default_factory=ScenarioLimits)

    @property
    def means(self) -> frozenset[Means]:
        """Return what a backend must be able to do."""
        steps = [*self.steps, *(more for step in self.steps for more in step.also)]
        needed = frozenset[Means]().union(*(KINDS[step.fault].means for step in steps))
        if self.mix_s:
            needed |= {Means.KILL, Means.PAUSE, Means.LINKS}
        return needed


def load(*paths: Path) -> dict[str, Scenario]:
    """Return the scenarios of the table, and of other files; raise `ConfigError` with all mistakes.

    A file that is read later may replace a scenario of an earlier one.
    """
    found = dict[str, Scenario]()
    for path in (TABLE, *paths):
        try:
            told = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{path} is no TOML: {error}.") from error
        found |= read(told, str(path.name))
    return found


def read(told: Mapping[str, Any], name: str = "the table") -> dict[str, Scenario]:
    """Return the scenarios of a table, or raise `ConfigError` with all its mistakes."""
    problems, found = list[str](), dict[str, Scenario]()
    for key in told:
        if key != "scenario":
            problems.append(f"{name}: there is no {key!r}; rows are [[scenario]].")
    for number, row in enumerate(told.get("scenario", ()), 1):
        known = str(row.get("id", f"row {number}"))
        wrong = [f"{name}, {known}: {one}" for one in _problems(row)]
        if known in found:
            wrong.append(f"{name}, {known}: there are two of it.")
        problems += wrong
        if not wrong:
            found[known] = _scenario(row)
    if problems:
        raise ConfigError(*problems)
    return found


# ── Rows ──────────────────────────────────────────────────────────────────────────────────────

_NUMBER: Final = (int, float)
# What a row may say, and of which type it is.
_KEYS: Final[dict[str, type | tuple[type, ...]]] = {
    "id": str, "title": str, "tier": str, "limit_s": _NUMBER, "workload": str, "fault": list,
    "mix_s": _NUMBER, "nodes": int, "controllers": int, "steady_s": _NUMBER, "recovery_s": _NUMBER,
    "ok_min": int, "reached_min": int, "options": dict, "backends": list, "expected": list,
    "tolerated": list, "allowed_log": list, "is_unclean_allowed": bool, "limits": dict,
    "pace": _NUMBER,
}  # fmt: skip
_REQUIRED: Final = ("id", "title", "tier", "limit_s", "workload")
_STEP_KEYS: Final[dict[str, type | tuple[type, ...]]] = {
    "fault": str, "target": str, "for_s": _NUMBER, "calm_s": _NUMBER, "times": int, "also": list,
}  # fmt: skip


def _problems(row: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"{name} is missing." for name in _REQUIRED if name not in row)
    yield from _type_problems(row, _KEYS, "a scenario")
    if row.get("tier", TIERS[0]) not in TIERS:
        yield f"tier is one of {', '.join(TIERS)}, not {row['tier']!r}."
    for part in str(row.get("workload", "W1")).split("+"):
        if part not in workload_names():
            yield f"there is no workload {part!r}; there are {', '.join(workload_names())}."
    for backend in row.get("backends", ()):
        if backend not in BACKENDS:
            yield f"there is no backend {backend!r}; there are {', '.join(BACKENDS)}."
    for key in ("expected", "tolerated"):
        if any(one not in ROWS for one in row.get(key, ())):
            yield f"{key} are rows of the judge, from {min(ROWS)} to {max(ROWS)}."
    if isinstance(row.get("limits", {}), dict):
        yield from (f"limits: {one}" for one in problems_of(row.get("limits", {})))
    for number, step in enumerate(row.get("fault", ()), 1):
        yield from (f"fault {number}: {one}" for one in _step_problems(step))


def _type_problems(
    row: Mapping[str, Any], keys: Mapping[str, type | tuple[type, ...]], what: str
) -> Iterator[str]:
    for key, value in row.items():
        if key not in keys:
            yield f"{what} has no {key!r}; it has {', '.join(keys)}."
        elif not _is_of(value, keys[key]):
            yield f"{key} is of the wrong type: {value!r}."
        elif isinstance(value, int | float) and value < 0:
            yield f"{key} must not be below 0."


def _is_of(value: object, kind: type | tuple[type, ...]) -> bool:
    # In Python a truth value is a number too.
    is_truth = isinstance(value, bool)
    return isinstance(value, kind) and (not is_truth or kind in (bool, object))


def _step_problems(step: Mapping[str, Any]) -> Iterator[str]:
    kind = KINDS.get(str(step.get("fault")))
    if kind is None:
        yield f"there is no fault {step.get('fault')!r}; there are {', '.join(KINDS)}."
        return
    extra = dict.fromkeys(kind.fact_names(), object)
    yield from _type_problems(step, {**_STEP_KEYS, **extra}, kind.name)
    targets = [one.value for one in Target]
    if step.get("target", targets[0]) not in targets:
        yield f"target is one of {', '.join(targets)}, not {step['target']!r}."
    for more in step.get("also", ()):
        yield from (f"also: {one}" for one in _step_problems(more))


def _scenario(row: Mapping[str, Any]) -> Scenario:
    plain = {key: value for key, value in row.items() if key not in ("fault", "options", "limits")}
    lists = ("backends", "expected", "tolerated", "allowed_log")
    plain |= {key: tuple(plain[key]) for key in lists if key in plain}
    return Scenario(
        **plain,
        steps=tuple(map(_step, row.get("fault", ()))),
        options={key: str(value) for key, value in row.get("options", {}).items()},
        limits=limits_from(row.get("limits", {})),
    )


def _step(row: Mapping[str, Any]) -> Step:
    told = {key: value for key, value in row.items() if key in _STEP_KEYS}
    plain = {key: value for key, value in told.items() if key not in ("target", "also")}
    facts = {key: value for key, value in row.items() if key not in _STEP_KEYS}
    target = Target(row.get("target", Target.ANY.value))
    also = tuple(map(_step, row.get("also", ())))
    return Step(**plain, target=target, facts=facts, also=also)
