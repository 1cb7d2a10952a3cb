"""UpdateFeatures: Kafka's level stays, ours is raised by hand."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.controller.image import FEATURE_LEVEL
from ottla.node.kafka import features
from ottla.node.kafka.features import update_features
from ottla.proto.kafka.apis import UPDATE_FEATURES
from tests.unit.node.kafka.stage import Stage

UP, DOWN, DOWN_UNSAFELY = 1, 2, 3
Update = tuple[str, int, int]
OURS = "ottla.feature.level"
KAFKAS = "metadata.version"


def update(
    stage: Stage, *updates: Update, version: int = 2, validate_only: bool = False
) -> tuple[int, str | None, list[Any]]:
    """Return the code, the sentence, and what is told of each feature (before version 2)."""
    told = [
        {
            "feature": name,
            "max_version_level": level,
            "upgrade_type": kind,
            "allow_downgrade": kind != UP,
        }
        for name, level, kind in updates
    ]
    fields = {"feature_updates": told, "validate_only": validate_only, "timeout": 1000}
    answer = stage.ask(update_features, UPDATE_FEATURES, version, fields)
    results = [(one.feature, one.error_code) for one in answer.get("results", ())]
    return answer.error_code, answer.error_message, results


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize("wanted", [(KAFKAS, 30, UP), (OURS, FEATURE_LEVEL, UP)])
def test_a_level_that_is_there_already_needs_nothing(version: int, wanted: Update) -> None:
    stage = Stage()
    code, sentence, results = update(stage, wanted, version=version)
    assert (code, sentence) == (0, None)
    assert results == ([(wanted[0], 0)] if version < 2 else [])
    assert stage.door.clients == []


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ((KAFKAS, 31, UP), "always 30"),
        ((KAFKAS, 29, DOWN), "always 30"),
        ((KAFKAS, 0, DOWN_UNSAFELY), "always 30"),
        ((OURS, FEATURE_LEVEL + 1, UP), f"levels up to {FEATURE_LEVEL}"),
        ((OURS, 32767, UP), f"levels up to {FEATURE_LEVEL}"),
        ((OURS, 0, DOWN), "never goes back"),
        ((OURS, -1, DOWN_UNSAFELY), "never goes back"),
        (("group.version", 1, UP), "no such feature"),
        (("", 1, UP), "no such feature"),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(
    version: int, wanted: Update, words: str
) -> None:
    code, sentence, results = update(Stage(), wanted, version=version)
    assert (code, results) == (95, [])
    assert sentence is not None
    assert words in sentence


@pytest.mark.parametrize("kind", [0, 4, -1])
def test_an_unknown_type_of_upgrade_is_refused(kind: int) -> None:
    assert update(Stage(), (KAFKAS, 30, kind))[0] == 95
    # Version 0 has no types.
    assert update(Stage(), (KAFKAS, 30, kind), version=0)[0] == 0


def test_one_that_is_refused_stops_all(raised: None) -> None:
    stage = Stage()
    code, _, _ = update(stage, (OURS, FEATURE_LEVEL + 1, UP), ("missing", 1, UP))
    assert code == 95
    assert stage.door.clients == []


@pytest.fixture
def raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """This program knows one level more than the brokers of the cluster have said they know."""
    monkeypatch.setattr(features, "FEATURE_LEVEL", FEATURE_LEVEL + 1)


@pytest.mark.parametrize("validate_only", [True, False])
def test_a_level_that_some_broker_does_not_know_is_refused_by_the_controller(
    raised: None, validate_only: bool
) -> None:
    stage = Stage()
    code, sentence, _ = update(stage, (OURS, FEATURE_LEVEL + 1, UP), validate_only=validate_only)
    assert code == 95
    assert sentence is not None
    assert "Broker 1 knows feature levels up to" in sentence
    assert stage.door.clients == ([] if validate_only else ["127.0.0.1/a test"])


def test_a_downgrade_does_not_go_up(raised: None) -> None:
    code, sentence, _ = update(Stage(), (OURS, FEATURE_LEVEL + 1, DOWN))
    assert code == 95
    assert sentence is not None
    assert "no downgrade" in sentence


def test_without_a_controller_nothing_is_raised(raised: None) -> None:
    stage = Stage(timeout_ms=30)
    stage.door.is_deposed = True
    assert update(stage, (OURS, FEATURE_LEVEL + 1, UP))[0] == 41
