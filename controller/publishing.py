"""Carries the metadata from the thread of the quorum to the event loop of the node.

The quorum applies commands in its own thread. What they made of the metadata is handed to the loop
before the answer to whoever proposed them is, by the same door; so whoever was answered finds the
change in the feed.

Not here: the state (`machine.py`), and what the loop does with it (`feed.py`).
"""

from __future__ import annotations

import asyncio

from ottla.controller.feed import MetadataFeed
from ottla.controller.machine import MetadataMachine
from ottla.controller.outcome import Outcome


class PublishingMachine:
    """A `StateMachine` of the quorum whose every state reaches the feed, in order."""

    __slots__ = ("_feed", "_loop", "_machine")

    def __init__(
        self, machine: MetadataMachine, loop: asyncio.AbstractEventLoop, feed: MetadataFeed
    ) -> None:
        self._machine = machine
        self._loop = loop
        self._feed = feed

    def apply(self, command: bytes) -> Outcome:
        outcome = self._machine.apply(command)
        self._publish()
        return outcome

    def snapshot(self) -> bytes:
        return self._machine.snapshot()

    def restore(self, state: bytes) -> None:
        self._machine.restore(state)
        self._publish()

    def describe(self) -> str:
        return self._machine.describe()

    def _publish(self) -> None:
        machine = self._machine
        try:
            self._loop.call_soon_threadsafe(
                self._feed.publish, machine.image, machine.last_delta, machine.last_delta_bytes
            )
        except RuntimeError:
            # The loop is closed: the node has stopped, and nobody follows any more.
            return
