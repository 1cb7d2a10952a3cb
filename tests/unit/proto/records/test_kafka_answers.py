"""Our answers to bad batches beside those of Apache Kafka, as recorded by `make interop`.

Needs no Java: the recording is part of the repository.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from tests.unit.proto.records.bad_batches import CASES, BadBatch

RECORDED: Final = Path(__file__).resolve().parents[3] / "interop" / "kafka_answers.json"
ANSWERS: Final[dict[str, dict[str, int | str | None]]] = json.loads(RECORDED.read_text())


def kafka_code(case: BadBatch) -> int | None:
    """Return the recorded code, 0 for "accepted", None for a closed connection."""
    code = ANSWERS[case.name]["code"]
    assert code is None or isinstance(code, int)
    return code


def test_kafka_was_asked_about_exactly_the_cases_there_are() -> None:
    assert sorted(ANSWERS) == sorted(case.name for case in CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_our_answer_is_kafkas_or_the_case_says_why_not(case: BadBatch) -> None:
    if int(case.expected or 0) != kafka_code(case):
        assert case.note, f"we say {case.expected!r}, Kafka says {ANSWERS[case.name]}"


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.kafka != "recorded"], ids=lambda case: case.name
)
def test_the_case_foretells_kafkas_answer(case: BadBatch) -> None:
    foretold = case.expected if case.kafka == "same" else case.kafka
    assert int(foretold or 0) == kafka_code(case)
