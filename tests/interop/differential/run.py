"""Holds every conversation with one node and returns the answers, ready to be compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final
from uuid import UUID

from tests.interop.broker import wait_until
from tests.interop.differential.case import CLOSED, Answer, Ask, Case, Send
from tests.interop.differential.exchange import Exchange
from tests.interop.differential.normalise import normalise
from tests.interop.differential.stage import SHARED, TRIMMED, TRIMMED_START, build_stage, trim

# More than that is a conversation that does not end.
TURNS_MAX: Final = 50
SETTLE_DEADLINE_S: Final = 10.0

# By the name of the case, then by version: one answer for each request of the conversation.
Answers = dict[str, dict[int, list[Any]]]


def ask_node(host: str, port: int, cases: Iterable[Case]) -> Answers:
    """Return what the node answers to all cases."""
    todo = list(cases)
    own = {
        topic_name(number, version): case.topic
        for number, case in enumerate(todo)
        for version in case.versions
        if case.topic is not None
    }
    with Exchange(host, port) as exchange:
        ids = build_stage(exchange, {**SHARED, **own})
        trim(exchange, TRIMMED, TRIMMED_START)
    shared = {name: ids[name] for name in SHARED}
    answers: Answers = {}
    for number, case in enumerate(todo):
        answers[case.name] = {}
        for version in case.versions:
            name = topic_name(number, version)
            mine = {**shared, name: ids[name]} if name in ids else shared
            ask = Ask(version, name, mine)
            answers[case.name][version] = _hold(host, port, case, ask, shared)
    return answers


def topic_name(number: int, version: int) -> str:
    # Padded, so that no name is the beginning of another.
    return f"own-{number:04d}-v{version:02d}"


def _hold(host: str, port: int, case: Case, ask: Ask, shared: Mapping[str, UUID]) -> list[Any]:
    """Hold one conversation, on a connection that is made anew whenever the node hangs up."""
    answers: list[Any] = []
    talk = case.talk(ask)
    exchange = Exchange(host, port)
    try:
        send = next(talk)
        for _ in range(TURNS_MAX):
            answer = _ask_until(exchange, send)
            if send.is_recorded:
                answers.append(normalise(case, ask, answer, shared))
            if answer == CLOSED:
                exchange.close()
                exchange = Exchange(host, port)
            send = talk.send(answer)
    except StopIteration:
        return answers
    finally:
        exchange.close()
    raise AssertionError(f"{case.name} does not end")


def _ask_until(exchange: Exchange, send: Send) -> Answer:
    """Return the answer, or the first that is as it is waited for."""
    until = send.until
    if until is not None:
        wait_until(
            lambda: until(exchange.ask(send)),
            SETTLE_DEADLINE_S,
            f"an answer of {send.row.name} that shows the change",
        )
    return exchange.ask(send)
