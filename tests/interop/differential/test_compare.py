"""The comparison itself: a judge that never convicts proves nothing."""

from __future__ import annotations

import copy

from tests.interop.differential.compare import ABSENT, Intended, differences, unexplained
from tests.interop.differential.recorded import RECORDED, load_answers, render
from tests.interop.differential.run import Answers

KAFKA: Answers = {
    "Metadata: a topic": {
        0: [{"topics": [{"name": "a", "error_code": "0 none", "error_message": "good"}]}],
        1: ["closed"],
    }
}


def changed() -> Answers:
    return copy.deepcopy(KAFKA)


def test_equal_answers_have_no_differences() -> None:
    assert differences(changed(), KAFKA) == []


def test_a_field_that_differs_is_found_with_its_place() -> None:
    ours = changed()
    ours["Metadata: a topic"][0][0]["topics"][0]["error_code"] = "3 unknown_topic_or_partition"
    (found,) = differences(ours, KAFKA)
    assert (found.version, found.place) == (0, "0.topics.0.error_code")
    assert (found.ours, found.kafka) == ("3 unknown_topic_or_partition", "0 none")


def test_a_field_too_many_and_one_too_few_are_found() -> None:
    ours = changed()
    topic = ours["Metadata: a topic"][0][0]["topics"][0]
    del topic["name"]
    topic["topic_id"] = "<id>"
    found = differences(ours, KAFKA)
    assert [(one.place, one.ours, one.kafka) for one in found] == [
        ("0.topics.0.name", ABSENT, "a"),
        ("0.topics.0.topic_id", "<id>", ABSENT),
    ]


def test_an_answer_too_many_or_none_at_all_is_found() -> None:
    ours = changed()
    ours["Metadata: a topic"][1] = ["closed", "closed"]
    assert [one.place for one in differences(ours, KAFKA)] == [""]
    assert len(differences({}, KAFKA)) == 2


def test_a_closed_connection_is_not_an_answer() -> None:
    ours = changed()
    ours["Metadata: a topic"][1] = [{"topics": []}]
    assert [one.kafka for one in differences(ours, KAFKA)] == ["closed"]


def test_words_may_differ_but_not_be_missing() -> None:
    ours = changed()
    topic = ours["Metadata: a topic"][0][0]["topics"][0]
    topic["error_message"] = "other words"
    assert differences(ours, KAFKA) == []
    del topic["error_message"]
    assert [one.place for one in differences(ours, KAFKA)] == ["0.topics.0.error_message"]


def test_true_is_not_one() -> None:
    assert len(differences({"c": {0: [{"x": 1}]}}, {"c": {0: [{"x": True}]}})) == 1


def test_an_intended_difference_explains_only_what_it_names() -> None:
    ours = changed()
    ours["Metadata: a topic"][0][0]["topics"][0]["error_code"] = "42 invalid_request"
    found = differences(ours, KAFKA)
    meant = Intended("Metadata: *", "*.error_code", "because", ours="42 invalid_request")
    other = Intended("Metadata: *", "*.error_code", "because", ours="3 something")
    assert unexplained(found, [meant]) == ([], [])
    assert unexplained(found, [other]) == (found, [other])
    assert unexplained([], [meant]) == ([], [meant])


def test_what_is_recorded_is_written_as_it_was_read() -> None:
    assert render(load_answers()) == RECORDED.read_text()
