"""H3: a bug in serving one request closes that connection, is told, and stops nobody else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.node.kafka.dispatch import HANDLERS, Dispatch
from ottla.node.kafka.requests import Handler
from ottla.proto.errors import InvariantError
from ottla.proto.kafka.apis import API_VERSIONS, DESCRIBE_CLUSTER, FETCH, PRODUCE, ApiRow
from ottla.proto.kafka.encode import encode_request
from ottla.proto.kafka.framing import request_frame
from tests.unit.node.kafka.desk import open_desk
from tests.unit.node.kafka.guest import Table, settled

NOTHING: dict[ApiRow, dict[str, Any]] = {
    PRODUCE: {"transactional_id": None, "acks": 1, "timeout": 1, "topic_data": []},
    FETCH: {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 0,
        "max_bytes": 1,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [],
        "forgotten_topics_data": [],
        "rack_id": "",
    },
    DESCRIBE_CLUSTER: {"include_cluster_authorized_operations": False, "endpoint_type": 1},
    API_VERSIONS: {},
}


def frame_of(row: ApiRow, version: int) -> bytes:
    return request_frame(row, version, 7, "test", encode_request(row, version, NOTHING[row]))


def broken(error: Exception) -> Callable[..., Any]:
    def serve(*_: object) -> None:
        raise error

    return serve


def broken_handler(error: Exception) -> Handler:
    async def serve(*_: object) -> dict[str, Any]:
        raise error

    return serve


def test_a_bug_in_a_request_closes_its_connection_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with open_desk() as desk:
        dispatch = Dispatch(desk.broker)
        monkeypatch.setattr(dispatch.produce, "serve", broken(ValueError("a bug")))
        monkeypatch.setattr(dispatch.fetch, "serve", broken(KeyError("another")))
        monkeypatch.setitem(HANDLERS, DESCRIBE_CLUSTER, broken_handler(TypeError("a third")))

        async def story(row: ApiRow, version: int) -> list[str]:
            unlucky, lucky = Table(), Table()
            for table in (unlucky, lucky):
                monkeypatch.setattr(table.waiter, "serve", dispatch.serve)
            await unlucky.order(frame_of(row, version) + frame_of(API_VERSIONS, 0))
            await settled()
            assert await unlucky.eat(1) == b""
            await lucky.order(frame_of(API_VERSIONS, 0))
            assert (await lucky.eat(8))[4:] == (7).to_bytes(4, "big")
            lucky.connection.close("the story is over")
            for table in (unlucky, lucky):
                table.guest.close()
            return unlucky.waiter.closings

        for row, version in ((PRODUCE, 9), (FETCH, 12), (DESCRIBE_CLUSTER, 0)):
            told = desk.run(story(row, version))
            assert told == [f"{row.name} {version} could not be served"]


def test_a_broken_invariant_goes_on_to_whoever_ends_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Style 6.9: what others rely on may be wrong by now."""
    with open_desk() as desk:
        dispatch = Dispatch(desk.broker)
        monkeypatch.setattr(dispatch.fetch, "serve", broken(InvariantError("two and two are five")))

        async def story() -> Table:
            table = Table()
            with pytest.raises(InvariantError):
                dispatch.serve(table.connection, memoryview(frame_of(FETCH, 12))[4:])
            table.guest.close()
            return table

        assert desk.run(story()).connection.is_closed
