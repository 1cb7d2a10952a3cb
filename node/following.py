"""The metadata as this node obeys it: one image after another, and who waits for which.

News come from any controller, and from another one after each break, so they may be older than what
is known, and may begin later.

Not here: where news come from (`lifeline.py`), and what obeying means (`reconcile.py`).

Z1  images only move forward; what contradicts them raises `InvariantError` (`controller/delta.py`)
Z2  `applied_version` moves when every listener has seen the image, one image at a time
Z3  a listener that fails is told of in the log, and has its next chance with the next image, or
    with the same one after a second
Z4  what comes while listeners are at work is obeyed in one go: an image says everything
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from ottla.controller.delta import NotFollowed, decode_delta, follow, follow_whole
from ottla.controller.door import News
from ottla.controller.image import FEATURE_LEVEL, MetadataImage
from ottla.controller.port import Listener
from ottla.controller.snapshot import decode_image
from ottla.node.logs import logger
from ottla.proto.errors import InvariantError, StorageError

_log = logger("node.following")

NOTHING: Final = (-1, b"")
# What could not be obeyed is tried again after this time.
AGAIN_S: Final = 1.0


class Following:
    """Takes in news in the order they come, and lets others wait for what they hold."""

    def __init__(self, image: MetadataImage) -> None:
        # Moves before the listeners are awaited: they may ask for it.
        self.image = image
        self.applied_version = -1
        # Why this node does not obey the newest image, although it has seen it.
        self.trouble: str | None = None
        # The newest that is known; what is obeyed may be older, and skips what lies between.
        self._newest = image
        # One image at a time (Z2).
        self._turn: Final = asyncio.Lock()
        self._obeying: asyncio.Task[None] | None = None
        # Set while an image that could not be obeyed is to be tried again.
        self._again: asyncio.TimerHandle | None = None
        self._is_stopped = False
        # Called after every image that was obeyed.
        self.on_obeyed: Callable[[MetadataImage], None] = lambda image: None
        self._listeners: list[Listener] = []
        self._has_gap = True
        self._moved = asyncio.Event()

    @property
    def has_image(self) -> bool:
        """Whether any controller has given the metadata yet."""
        return self.applied_version >= 0

    @property
    def position(self) -> tuple[int, bytes]:
        """The version and digest after which to follow; `NOTHING`: a whole image is needed."""
        return NOTHING if self._has_gap else (self._newest.version, self._newest.digest)

    def watch(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def learn(self, news: News) -> bool:
        """Take the news in, to be obeyed soon. False: there is a gap; follow from `position`.

        What comes while listeners are at work is obeyed in one go afterwards (Z4). Raises
        `InvariantError` if the news contradict what is known, `CorruptionError` if they cannot be
        read, and `StorageError` if they are not for this node.
        """
        following = self._next(news)
        if following is NotFollowed.GAP:
            self._has_gap = True
            return False
        if news.is_image:
            # Also if it is older: what comes next from there leads on, and is passed over.
            self._has_gap = False
        if isinstance(following, MetadataImage):
            self._newest = following
        if self._obeying is None and not self._is_obeyed:
            self._obeying = asyncio.get_running_loop().create_task(self._obey_all())
            self._obeying.add_done_callback(_report)
        return True

    async def take(self, news: News) -> bool:
        """Take the news in, and wait until they are obeyed."""
        is_followed = self.learn(news)
        if is_followed and self._obeying is not None:
            await asyncio.wait({self._obeying})
        return is_followed

    @property
    def _is_obeyed(self) -> bool:
        return self.has_image and self.applied_version == self._newest.version

    async def _obey_all(self, *, again: bool = False) -> None:
        try:
            while again or not self._is_obeyed:
                again = False
                async with self._turn:
                    await self._obey(self._newest)
                self.on_obeyed(self.image)
        finally:
            self._obeying = None

    def _try_again(self) -> None:
        """Obey the same image once more, if it is still the last and could not be obeyed."""
        self._again = None
        if self.trouble is not None and self._obeying is None:
            self._obeying = asyncio.get_running_loop().create_task(self._obey_all(again=True))
            self._obeying.add_done_callback(_report)

    def stop(self) -> None:
        """Try nothing again."""
        self._is_stopped = True
        if self._again is not None:
            self._again.cancel()

    async def join(self, begin: Listener, then: Listener) -> None:
        """Have `begin` awaited with the present image, and `then` with every one after it."""
        async with self._turn:
            await begin(self.image)
            self._listeners.append(then)

    async def reached(self, version: int) -> MetadataImage:
        """Return the first image from this version on that every listener has seen."""
        while self.applied_version < version:
            await self._moved.wait()
        return self.image

    @property
    def is_busy(self) -> bool:
        """Whether news are being obeyed at this moment."""
        return self._turn.locked()

    async def idle(self) -> None:
        """Wait until no news are being obeyed."""
        while self._obeying is not None:
            await asyncio.wait({self._obeying})
        async with self._turn:
            pass

    def _next(self, news: News) -> MetadataImage | NotFollowed:
        if news.is_image:
            whole = decode_image(news.data)
            self._require_cluster(whole.cluster_id)
            following = follow_whole(self._newest, whole)
        else:
            known = news.delta
            following = follow(self._newest, decode_delta(news.data) if known is None else known)
        if isinstance(following, MetadataImage) and following.feature_level > FEATURE_LEVEL:
            raise StorageError(
                f"The cluster is at feature level {following.feature_level}, and this version of "
                f"Ottla knows levels up to {FEATURE_LEVEL}. Start a newer version."
            )
        return following

    def _require_cluster(self, cluster_id: str) -> None:
        ours = self._newest.cluster_id
        if not ours:
            # A new node is told by the first image what it belongs to.
            self._newest = replace(self._newest, cluster_id=cluster_id)
        elif ours != cluster_id:
            raise StorageError(
                f"This node belongs to the cluster {ours}, and the controllers that it was told of "
                f"to the cluster {cluster_id}. Correct controller.quorum.voters, or the data "
                "directory."
            )

    async def _obey(self, image: MetadataImage) -> None:
        self.image = image
        trouble: str | None = None
        for listener in tuple(self._listeners):
            try:
                await listener(image)
            except InvariantError:
                raise
            except (OSError, StorageError) as error:
                _log.error("image_not_obeyed", version=image.version, error=str(error))
                trouble = str(error)
            except Exception as error:  # noqa: BLE001
                # A mistake of ours in one listener. The others, and the next image, go on.
                _tell_bug(error)
                trouble = repr(error)
        self.trouble = trouble
        if trouble is not None and self._again is None and not self._is_stopped:
            # In a quiet cluster the next image may be long in coming.
            loop = asyncio.get_running_loop()
            self._again = loop.call_later(AGAIN_S, self._try_again)
        self.applied_version = image.version
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        what = {"message": "the metadata could not be obeyed", "exception": error}
        task.get_loop().call_exception_handler(what)


def _tell_bug(error: Exception) -> None:
    asyncio.get_running_loop().call_exception_handler(
        {"message": "a listener for images failed", "exception": error}
    )
