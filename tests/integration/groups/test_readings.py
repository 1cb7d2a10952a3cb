"""What the tests of groups note of what is read: by topic and partition, and when."""

from __future__ import annotations

from tests.integration.groups.crew import Readings


def test_a_record_of_one_topic_does_not_stand_for_one_of_another() -> None:
    readings = Readings()
    readings.note(("one", 0), 0)
    assert readings.has_all("one", {0: 1})
    assert not readings.has_all("another", {0: 1})


def test_a_record_that_is_read_again_was_read_when_it_was_read_first() -> None:
    readings = Readings()
    readings.note(("one", 0), 7)
    first_s = readings.read_s(("one", 0), 7)
    readings.note(("one", 0), 7)
    assert readings.read_s(("one", 0), 7) == first_s
    assert readings.read_s(("one", 0), 8) is None


def test_a_commit_covers_what_stands_before_its_offset() -> None:
    readings = Readings()
    readings.note_commit(("one", 0), 7)
    assert readings.committed_s(("one", 0), 6) is not None
    assert readings.committed_s(("one", 0), 7) is None
    assert readings.committed_s(("another", 0), 6) is None
