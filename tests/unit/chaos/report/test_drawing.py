"""Numbers as people read them, and shapes that cannot be broken out of."""

from __future__ import annotations

import pytest

from ottla.chaos.report.drawing import count, milliseconds, rect, seconds, text


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "–"),
        (0.0042, "4 ms"),
        (0.9994, "999 ms"),
        (1.25, "1.2 s"),
        (119.0, "119.0 s"),
        (125.0, "2 min 5 s"),
        (3700.0, "61 min"),
    ],
)
def test_a_length_of_time_has_as_many_digits_as_matter(value: float | None, said: str) -> None:
    assert seconds(value) == said


def test_milliseconds_and_thousands() -> None:
    assert milliseconds(1500.0) == "1.5 s"
    assert count(1234567) == "1\u202f234\u202f567"


def test_texts_are_escaped() -> None:
    assert "<b>" not in text(0, 0, "<b>", "label")
    assert "<b>" not in rect(0, 0, 1, 1, "lane", "<b>")
