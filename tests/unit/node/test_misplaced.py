"""A node with the id of another process, and a broker among another cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID

import pytest

from ottla.controller.door import DoorClosedError, OtherClusterError
from ottla.node.clock import Clock
from ottla.node.internal.identity import WhoIAm
from ottla.node.internal.wire import Identity
from ottla.node.misplaced import Elsewhere, find_double
from ottla.proto.options.endpoints import Address

ME = WhoIAm(2, UUID(int=1))
MYSELF = Identity("c", 2, UUID(int=1))
TWIN = Identity("c", 2, UUID(int=9))
NEIGHBOUR = Identity("c", 3, UUID(int=9))
WHERE = Address("node-2", 9093)


class Answers:
    """Answers in turn; the last one for ever."""

    def __init__(self, *told: Identity | None) -> None:
        self._told: Sequence[Identity | None] = told
        self.asked = 0

    async def identity(self, address: Address, *, node_id: int, timeout_ms: int) -> Identity | None:
        assert (address, node_id) == (WHERE, 2)
        self.asked += 1
        return self._told[min(self.asked, len(self._told)) - 1]


def found_by(answers: Answers) -> str | None:
    async def story() -> str | None:
        async with asyncio.timeout(20):
            return await find_double(ME, WHERE, answers, Clock(), session_ms=20, ask_s=0.02)

    return asyncio.run(story())


def test_who_answers_itself_asks_no_more() -> None:
    answers = Answers(MYSELF, TWIN)
    assert found_by(answers) is None
    assert answers.asked == 1


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (TWIN, "Another process is node 2 and answers at node-2:9093"),
        (NEIGHBOUR, "controller.quorum.voters has node 2 at node-2:9093, and node 3 answers there"),
    ],
    ids=["the same id", "another id"],
)
def test_who_finds_another_for_two_sessions_is_told_what_to_change(
    other: Identity, told: str
) -> None:
    found = found_by(Answers(other))
    assert found is not None
    assert told in found
    assert "node.id" in found


def test_a_life_before_this_one_that_ends_in_time_is_no_double() -> None:
    answers = Answers(TWIN, None, MYSELF)
    assert found_by(answers) is None
    assert answers.asked == 3


def test_silence_does_not_count_towards_the_two_sessions() -> None:
    answers = Answers(TWIN, None, TWIN, MYSELF)
    assert found_by(answers) is None


def test_a_broker_gives_up_when_more_than_half_of_the_controllers_are_of_another_cluster() -> None:
    elsewhere = Elsewhere(3)
    assert elsewhere.note(1, OtherClusterError("This is the cluster x.")) is None
    assert elsewhere.note(2, DoorClosedError("It is dead.")) is None
    assert elsewhere.note(1, OtherClusterError("This is the cluster x.")) is None
    told = elsewhere.note(3, OtherClusterError("This is the cluster x."))
    assert told is not None
    assert "This is the cluster x. Correct controller.quorum.voters" in told


def test_a_controller_that_says_something_else_now_does_not_count_any_more() -> None:
    elsewhere = Elsewhere(3)
    elsewhere.note(1, OtherClusterError("This is the cluster x."))
    elsewhere.note(1, DoorClosedError("It is dead."))
    assert elsewhere.note(3, OtherClusterError("This is the cluster x.")) is None
