"""What the tests of groups note of what is read: by topic and partition, and since a mark."""

from __future__ import annotations

import time

from tests.integration.groups.crew import Readings


def test_a_record_of_one_topic_does_not_stand_for_one_of_another() -> None:
    readings = Readings()
    readings.note(("one", 0), 0)
    assert readings.has_all("one", {0: 1})
    assert not readings.has_all("another", {0: 1})


def test_a_commit_that_was_asked_for_before_the_mark_does_not_count() -> None:
    readings = Readings()
    before_s = time.monotonic()
    readings.mark()
    readings.note_commit([("one", 0)], before_s)
    assert readings.committed_s() == {}
    readings.note_commit([("one", 1)], time.monotonic())
    assert list(readings.committed_s()) == [("one", 1)]
