"""Whose fencing is told of for a moment, and whose is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.controller.commands import ForgetBroker
from ottla.node.just_fenced import NAMED_MS, JustFenced
from tests.unit.controller.cluster import Cluster


class Seen:
    """A cluster of three, and what is seen of it."""

    def __init__(self) -> None:
        self.cluster = Cluster(size=3)
        self.just_fenced = JustFenced()
        self.look(0)

    def look(self, now_ms: int) -> None:
        self.just_fenced.obey(self.cluster.image, now_ms)

    def at(self, now_ms: int) -> list[int]:
        return [int(one.broker_id) for one in self.just_fenced.brokers(now_ms)]


@pytest.fixture
def seen() -> Seen:
    return Seen()


def test_who_is_fenced_is_named_for_a_moment(seen: Seen) -> None:
    """Q3."""
    assert seen.at(0) == []
    seen.cluster.fence(2)
    seen.look(10)
    assert seen.at(10) == [2]
    assert seen.at(10 + NAMED_MS - 1) == [2]
    assert seen.at(10 + NAMED_MS) == []


def test_later_images_do_not_make_the_moment_longer(seen: Seen) -> None:
    """Q3."""
    seen.cluster.fence(2)
    seen.look(10)
    seen.cluster.fence(3)
    seen.look(500)
    seen.look(600)
    assert seen.at(600) == [2, 3]
    assert seen.at(10 + NAMED_MS) == [3]


def test_in_the_first_image_nobody_is_just_fenced() -> None:
    """Q1. Who was dead before this broker started is not news."""
    cluster = Cluster(size=3)
    cluster.fence(2)
    just_fenced = JustFenced()
    just_fenced.obey(cluster.image, 0)
    assert just_fenced.brokers(0) == []


def _starts_again(cluster: Cluster) -> None:
    cluster.register(2)


def _starts_again_and_serves(cluster: Cluster) -> None:
    cluster.start(2)


def _comes_back(cluster: Cluster) -> None:
    cluster.unfence(2)


def _is_forgotten(cluster: Cluster) -> None:
    broker = cluster.broker(2)
    cluster.ok(ForgetBroker(broker.broker_id, broker.broker_epoch))


@pytest.mark.parametrize(
    "then", [_starts_again, _starts_again_and_serves, _comes_back, _is_forgotten]
)
def test_who_is_something_else_by_now_is_not_named(
    seen: Seen, then: Callable[[Cluster], None]
) -> None:
    """Q3."""
    seen.cluster.fence(2)
    seen.look(10)
    then(seen.cluster)
    seen.look(20)
    assert seen.at(20) == []


def test_another_process_in_its_place_was_not_fenced(seen: Seen) -> None:
    """Q1. Whoever registers is fenced at first."""
    seen.cluster.register(2)
    seen.look(10)
    assert seen.cluster.broker(2).is_fenced
    assert seen.at(10) == []


@pytest.mark.parametrize("is_seen", [True, False])
def test_who_shuts_down_is_not_named(seen: Seen, *, is_seen: bool) -> None:
    """Q2. Also if shutting down and the fencing come in one image."""
    seen.cluster.shut_down(2)
    if is_seen:
        seen.look(10)
        assert seen.at(10) == []
    seen.cluster.fence(2)
    seen.look(20)
    assert seen.at(20) == []


def test_who_is_fenced_again_is_named_again(seen: Seen) -> None:
    seen.cluster.fence(2)
    seen.look(10)
    seen.cluster.unfence(2)
    seen.look(20)
    seen.cluster.fence(2)
    seen.look(5_000)
    assert seen.at(5_000) == [2]
