"""Finds where two answers differ, and takes out what is meant to differ.

An intended difference names a case, a place in the answer and what we answer there. One that no
longer shows is a mistake as well: the list is what a reader believes about us.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

from tests.interop.differential.normalise import SENTENCES
from tests.interop.differential.run import Answers

ABSENT: Final = "<absent>"
ANYTHING: Final = "<anything>"


@dataclass(frozen=True, slots=True)
class Difference:
    """One place in one answer where the two nodes differ."""

    case: str
    version: int
    # Which answer of the conversation, then the way to the field: "0.topics.0.error_code".
    place: str
    ours: Any
    kafka: Any

    def __str__(self) -> str:
        where = f"{self.case} (version {self.version}) at {self.place}"
        return f"{where}\n    Kafka: {self.kafka!r}\n    ours:  {self.ours!r}"


@dataclass(frozen=True, slots=True)
class Intended:
    """A difference that is meant, and why. `*` in a case or a place stands for anything."""

    case: str
    place: str
    because: str
    # What we answer there, or a set of what we may.
    ours: Any = ANYTHING
    kafka: Any = ANYTHING

    def explains(self, found: Difference) -> bool:
        return (
            fnmatchcase(found.case, self.case)
            and fnmatchcase(found.place, self.place)
            and _allows(self.ours, found.ours)
            and _allows(self.kafka, found.kafka)
        )


def _allows(told: Any, found: Any) -> bool:
    if isinstance(told, frozenset):
        return any(one == found for one in told)
    return told in (ANYTHING, found)


def differences(ours: Answers, kafka: Answers) -> list[Difference]:
    """Return all differences, in the order of the cases."""
    return [
        Difference(case, version, place, left, right)
        for case in sorted(kafka)
        for version in sorted(kafka[case])
        for place, left, right in _walk(
            ours.get(case, {}).get(version, ABSENT), kafka[case][version], ""
        )
    ]


def unexplained(
    found: Iterable[Difference], intended: Sequence[Intended]
) -> tuple[list[Difference], list[Intended]]:
    """Return the differences that nobody meant, and the intended ones that do not show."""
    shown: set[int] = set()
    left: list[Difference] = []
    for one in found:
        reasons = [i for i, reason in enumerate(intended) if reason.explains(one)]
        shown.update(reasons)
        if not reasons:
            left.append(one)
    return left, [reason for i, reason in enumerate(intended) if i not in shown]


def _walk(ours: Any, kafka: Any, place: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(ours, dict) and isinstance(kafka, dict):
        for name in sorted(ours.keys() | kafka.keys()):
            left, right = ours.get(name, ABSENT), kafka.get(name, ABSENT)
            # That there is a sentence is compared; its words are not.
            if name in SENTENCES and ABSENT not in (left, right):
                continue
            yield from _walk(left, right, f"{place}.{name}" if place else name)
    elif isinstance(ours, list) and isinstance(kafka, list) and len(ours) == len(kafka):
        for number, (left, right) in enumerate(zip(ours, kafka, strict=True)):
            yield from _walk(left, right, f"{place}.{number}" if place else str(number))
    elif ours != kafka or type(ours) is not type(kafka):
        yield place, ours, kafka
