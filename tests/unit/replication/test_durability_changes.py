"""A topic is changed from fsync to pagecache, or back: V2 holds at every moment of it.

The settings of a log and the view of its leader come from one image, and are obeyed one after the
other. Found by the simulator, seeds 312437 and 317410.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ottla.proto.ids import LeaderEpoch, Offset
from ottla.replication.leader import PartitionView
from tests.builders import EPOCH
from tests.replicas import view
from tests.unit.replication.test_replica import Scene, Someone, play, settled


def alone(*, is_fsync: bool, **changes: Any) -> PartitionView:
    """Return metadata of a leader whose follower is not in sync."""
    fields: dict[str, Any] = {"isr": view().isr, "is_fsync": is_fsync, "is_durable": False}
    return view(1, 2, **{**fields, **changes})


def obey_settings(scene: Scene, *, fsync: bool) -> None:
    log = scene.replica.log
    log.adopt_settings(replace(log.settings, fsync=fsync))
    scene.replica.settings_changed()


def both(scene: Scene, learnt: PartitionView, is_view_first: bool) -> list[Callable[[], None]]:
    """Return the two halves of obeying an image, in one order or the other."""
    halves: list[Callable[[], None]] = [
        lambda: obey_settings(scene, fsync=learnt.is_fsync),
        lambda: scene.replica.lead(learnt),
    ]
    return halves[::-1] if is_view_first else halves


def test_rule_38_a_page_cache_does_not_count_by_a_minimum_that_was_raised_before() -> None:
    """One image brings both: at no time was the page cache of one enough."""

    async def story(scene: Scene) -> None:
        scene.replica.lead(alone(is_fsync=True, partition_epoch=1, is_durable=True))
        everyone = scene.committed(scene.write(b"a"))
        obey_settings(scene, fsync=False)
        assert (everyone.calls, scene.replica.log.high_watermark) == ([], 0)
        scene.replica.lead(alone(is_fsync=False, partition_epoch=2, min_isr=2))
        assert (everyone.calls, scene.replica.log.high_watermark) == ([], 0)

    play(story)


def test_rule_28_a_page_cache_does_not_count_in_an_epoch_that_was_over_before() -> None:
    async def story(scene: Scene) -> None:
        everyone = scene.committed(scene.write(b"a"))
        obey_settings(scene, fsync=False)
        scene.replica.lead(view(epoch=LeaderEpoch(EPOCH + 1), is_fsync=False, is_durable=False))
        (told,) = everyone.calls
        assert told.startswith("failed: ")

    play(story)


@pytest.mark.parametrize("is_view_first", [False, True])
def test_after_a_change_to_pagecache_nobody_waits_for_the_disk(is_view_first: bool) -> None:
    async def story(scene: Scene) -> None:
        end = scene.write(b"a")
        one, everyone = scene.held(end), scene.committed(end)
        first, second = both(scene, alone(is_fsync=False, partition_epoch=1), is_view_first)
        first()
        assert one.calls == everyone.calls == []
        assert not scene.replica.when_held(Offset(end), Someone())
        second()
        assert one.calls == everyone.calls == ["reached"]
        assert scene.replica.when_held(Offset(end), Someone())

    play(story)


@pytest.mark.parametrize("is_view_first", [False, True])
def test_rule_47_after_a_change_to_fsync_the_own_page_cache_does_not_count(
    is_view_first: bool,
) -> None:
    """The follower is the slower one, and leaves the in-sync set with the same image."""

    async def story(scene: Scene) -> None:
        scene.replica.lead(view(1, 2, partition_epoch=1, is_fsync=False, is_durable=False))
        everyone = scene.committed(scene.write(b"a"))
        for change in both(scene, alone(is_fsync=True, partition_epoch=2), is_view_first):
            change()
            assert (everyone.calls, scene.replica.log.high_watermark) == ([], 0)
        await settled()
        await scene.pier.let_go()
        assert (everyone.calls, scene.replica.log.high_watermark) == (["reached"], 1)

    play(story, fsync=False)
