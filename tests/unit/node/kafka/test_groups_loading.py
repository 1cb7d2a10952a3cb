"""What members are told while their coordinator still reads its partition."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.node.groups import coordinator
from ottla.proto.errors import ErrorCode, RequestError
from ottla.proto.kafka import apis
from tests.unit.node.kafka.desk import Desk, Place, open_desk
from tests.unit.node.kafka.test_groups import FLAGS, GROUP, LOADING, found, stable


@pytest.fixture
def desk() -> Iterator[Desk]:
    with open_desk(Place(), **FLAGS) as opened:
        found(opened)
        yield opened


@pytest.mark.parametrize("version", range(apis.HEARTBEAT.low, apis.HEARTBEAT.high + 1))
def test_a_heartbeat_is_taken_while_the_coordinator_reads(desk: Desk, version: int) -> None:
    member_id, generation = stable(desk)
    who = {"group_id": GROUP, "member_id": member_id, "generation_id": generation}
    desk.broker.groups.ledger_of(GROUP).is_loaded = False
    answer = desk.run(desk.asked(apis.HEARTBEAT, version, **who))
    assert answer["error_code"] == ErrorCode.NONE


def test_no_heartbeat_is_taken_by_one_who_reads_while_another_may_coordinate(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one gives the member's partitions away: it has to look for it, and stop."""
    member_id, generation = stable(desk)
    who = {"group_id": GROUP, "member_id": member_id, "generation_id": generation}
    desk.broker.groups.ledger_of(GROUP).is_loaded = False

    def refuse(*_: object) -> None:
        raise RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    monkeypatch.setattr(coordinator, "require_standing", refuse)
    answer = desk.run(desk.asked(apis.HEARTBEAT, 4, **who))
    assert answer["error_code"] == ErrorCode.NOT_COORDINATOR


def test_nobody_joins_while_the_coordinator_reads(desk: Desk) -> None:
    stable(desk)
    desk.broker.groups.ledger_of(GROUP).is_loaded = False
    fields = {
        "group_id": GROUP,
        "session_timeout": 30_000,
        "rebalance_timeout": 30_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    answer = desk.run(desk.asked(apis.JOIN_GROUP, 9, **fields))
    assert answer["error_code"] == LOADING
