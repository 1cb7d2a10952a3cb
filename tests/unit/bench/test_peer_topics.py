"""The settings of a peer's topic are asked for until they are told, and then compared."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from bench.peers import topics
from bench.peers.peer import PeerError


class Teller:
    """An admin client whose brokers answer one after the other."""

    def __init__(self, *answers: int | dict[str, str]) -> None:
        self.answers = list(answers)

    def describe_configs(self, resources: list[Any], **_: object) -> dict[Any, Future[Any]]:
        future = Future[Any]()
        match self.answers.pop(0):
            case int(code):
                future.set_exception(KafkaException(KafkaError(code)))
            case told:
                future.set_result({key: SimpleNamespace(value=told[key]) for key in told})
        return {resources[0]: future}


def _ask(monkeypatch: pytest.MonkeyPatch, *answers: int | dict[str, str]) -> None:
    monkeypatch.setattr(topics, "admin_to", lambda bootstrap: Teller(*answers))
    topics.require_configs("nowhere", "t", {"flush.messages": "1"})


def test_a_broker_that_has_not_heard_of_the_topic_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _ask(monkeypatch, KafkaError.UNKNOWN_TOPIC_OR_PART, {"flush.messages": "1"})


def test_other_errors_are_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KafkaException):
        _ask(monkeypatch, KafkaError.TOPIC_AUTHORIZATION_FAILED)


def test_settings_that_were_not_taken_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PeerError, match="flush"):
        _ask(monkeypatch, {"flush.messages": "9"})
