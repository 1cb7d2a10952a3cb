"""The place of one answer in the order of a connection's answers.

Not here: the order itself, and sending (`connection.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from ottla.node.kafka.outbox import Part

if TYPE_CHECKING:
    from ottla.node.kafka.connection import Connection


class Slot:
    """The place of one answer in the order of answers. Filled once, from any later moment."""

    __slots__ = (
        "began_us",
        "came_us",
        "connection",
        "on_closed",
        "parts",
        "request_bytes",
        "waits_us",
    )

    def __init__(self, connection: Connection, request_bytes: int) -> None:
        self.connection: Final = connection
        self.request_bytes: Final = request_bytes
        # On the clock for durations: when it was whole, was taken up, and since when it waits.
        self.came_us: Final = connection.read_us
        self.began_us: Final = connection.served_us
        self.waits_us: int | None = None
        self.parts: Sequence[Part] | None = None
        # Called if the connection closes before the answer is there.
        self.on_closed: Callable[[], None] | None = None

    def answer(self, parts: Sequence[Part]) -> None:
        """Give the whole answer, its length first. Nothing happens if the client has gone."""
        self.parts = parts
        self.on_closed = None
        self.connection.answered(self)

    def fail(self, reason: str) -> None:
        """There is no answer that could be sent: the connection closes."""
        self.on_closed = None
        self.connection.close(reason)
