"""Connections never take the descriptors that the logs need."""

from __future__ import annotations

import resource
from collections.abc import Iterator

import pytest

from ottla.node.kafka.listener import connections_room
from ottla.proto.ids import INT32_MAX


@pytest.fixture(autouse=True)
def _limits_come_back() -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.parametrize(("limit", "room"), [(200, 100), (512, 256), (1000, 744), (2000, 1500)])
def test_a_quarter_is_kept_and_of_few_up_to_half(limit: int, room: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < limit:
        pytest.skip(f"this process may have {hard} descriptors only")
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    assert connections_room() == room


def test_a_limit_is_not_made_up_where_there_is_none() -> None:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert (connections_room() == INT32_MAX) == (limit == resource.RLIM_INFINITY)
