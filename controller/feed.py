"""The metadata as this controller knows it, for everybody who follows it.

It keeps the newest image and the last deltas. A follower is a place in that row of deltas and has
no queue of its own: it is handed the delta after what it has, and a whole image when that delta is
not kept any more. So a follower that lags costs nothing, and bytes are made once for all of them.
A follower in this process that keeps up is handed the newest delta itself with its bytes, and need
not read them: of a thousand partitions that would take longer than all the rest.

Everything here happens on one event loop.

Not here: how the metadata comes about (`machine.py`) and gets here (`publishing.py`); the wire.

W1  a follower is handed versions in ascending order, each piece leading on from the one before
W2  what is kept of the past is bounded in number and in bytes
W3  who knows another truth about one version is handed ours, so that it finds out (D2 of delta.py)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from ottla.controller.delta import Delta, encode_delta
from ottla.controller.door import DoorClosedError, News
from ottla.controller.image import MetadataImage
from ottla.controller.snapshot import encode_image
from ottla.proto.errors import ensure

DELTAS_MAX: Final = 4096
DELTAS_BYTES_MAX: Final = 16 << 20

# A name of what happened, and its facts.
Tell = Callable[[str, Mapping[str, object]], None]


def tell_nobody(event: str, facts: Mapping[str, object]) -> None:
    """Where there is no log."""


@dataclass(frozen=True, slots=True)
class _Step:
    """One delta that is kept."""

    from_digest: bytes
    news: News


class MetadataFeed:
    """The newest image, and what led to it."""

    def __init__(
        self,
        image: MetadataImage,
        *,
        tell: Tell = tell_nobody,
        deltas_max: int = DELTAS_MAX,
        bytes_max: int = DELTAS_BYTES_MAX,
    ) -> None:
        self._image = image
        self._tell = tell
        self._deltas_max = deltas_max
        self._bytes_max = bytes_max
        # By the version from which each leads on; in order and without gaps.
        self._steps: dict[int, _Step] = {}
        self._bytes = 0
        # The last step with the delta itself. Only that one: of all, the bytes are the bound (W2).
        self._newest: News | None = None
        self._whole: News | None = None
        self._watchers: list[Callable[[MetadataImage], None]] = []
        self._moved = asyncio.Event()
        self._is_closed = False
        # How often a whole image was handed out, for metrics.
        self.images_given = 0

    @property
    def image(self) -> MetadataImage:
        return self._image

    def watch(self, watcher: Callable[[MetadataImage], None]) -> None:
        """Have `watcher` called with every new image, before anybody who follows is handed it."""
        self._watchers.append(watcher)

    def publish(self, image: MetadataImage, delta: Delta | None, data: bytes | None = None) -> None:
        """Take in the next image. Without a delta it comes from a snapshot.

        `data` is `encode_delta` of it, where that was made already.
        """
        before = self._image
        ensure(
            image.version >= before.version and image.cluster_id == before.cluster_id,
            "the metadata of one cluster only grows",
            before=before.version,
            now=image.version,
        )
        if delta is None:
            self._steps.clear()
            self._newest = None
            self._bytes = 0
        else:
            ensure(
                delta.from_version == before.version and delta.version == image.version,
                "a delta leads from the newest image to the next",
                newest=before.version,
                delta_from=delta.from_version,
            )
            self._keep(delta, encode_delta(delta) if data is None else data)
        self._image, self._whole = image, None
        for watcher in self._watchers:
            watcher(image)
        self._wake()

    def follow(self, version: int, digest: bytes) -> AsyncIterator[News]:
        """Give what comes after `version`, for ever; −1 for whoever has nothing."""
        return self._follow(version, digest)

    async def reached(self, version: int) -> MetadataImage:
        """Return the newest image once it holds `version`."""
        while self._image.version < version:
            await self._wait()
        return self._image

    def close(self) -> None:
        """Let everybody who waits go, with `DoorClosedError`."""
        self._is_closed = True
        self._wake()

    # ── The past ──────────────────────────────────────────────────────────────────────────────

    def _keep(self, delta: Delta, data: bytes) -> None:
        news = News(data, is_image=False, version=delta.version)
        self._newest = replace(news, delta=delta)
        self._steps[delta.from_version] = _Step(delta.from_digest, news)
        self._bytes += len(data)
        while self._steps and (
            len(self._steps) > self._deltas_max or self._bytes > self._bytes_max
        ):
            oldest = self._steps.pop(next(iter(self._steps)))
            self._bytes -= len(oldest.news.data)

    def _whole_image(self) -> News:
        if self._whole is None:
            image = self._image
            self._whole = News(encode_image(image), is_image=True, version=image.version)
        self.images_given += 1
        return self._whole

    # ── Following ─────────────────────────────────────────────────────────────────────────────

    async def _follow(self, version: int, digest: bytes) -> AsyncIterator[News]:
        # What was handed out here needs no second look.
        known: bytes | None = digest
        while True:
            while self._has_nothing_after(version, known):
                await self._wait()
            step = self._steps.get(version)
            if known is not None:
                self._notice_contradiction(version, known, step)
            known = None
            news = self._whole_image() if step is None else self._news_of(step)
            version = news.version
            yield news

    def _news_of(self, step: _Step) -> News:
        newest = self._newest
        is_newest = newest is not None and newest.version == step.news.version
        return newest if newest is not None and is_newest else step.news

    def _has_nothing_after(self, version: int, digest: bytes | None) -> bool:
        if self._is_closed:
            raise DoorClosedError("This controller is stopping.")
        newest = self._image
        if version == newest.version:
            return digest is None or digest == newest.digest
        # Whoever is ahead has it from another controller; this one will get there.
        return version > newest.version

    def _notice_contradiction(self, version: int, digest: bytes, step: _Step | None) -> None:
        """Tell it here too. What is handed out next makes the follower notice by itself (W3)."""
        ours = self._image.digest if version == self._image.version else None
        if step is not None:
            ours = step.from_digest
        if ours is not None and ours != digest:
            facts = {"version": version, "ours": ours.hex(), "theirs": digest.hex()}
            self._tell("metadata_contradicted", facts)

    def _wake(self) -> None:
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    async def _wait(self) -> None:
        if self._is_closed:
            raise DoorClosedError("This controller is stopping.")
        await self._moved.wait()
