"""Who is told when partitions come and go."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ottla.proto.ids import TopicPartition


class RebalanceListener:
    """Told of rebalances; override what matters. With `AsyncConsumer`, methods may be coroutines.

    Calls come between two polls, never while the program works on records: what it was given before
    is done with. Committing and seeking is allowed inside.
    """

    def on_partitions_assigned(
        self, partitions: Sequence[TopicPartition]
    ) -> Awaitable[None] | None:
        """These are ours now; nothing has been fetched yet."""
        return None

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """These are about to go to others; offsets can still be committed."""
        return None

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """These went to others already, maybe long ago; a commit would be refused."""
        return self.on_partitions_revoked(partitions)


Method = Callable[[Sequence[TopicPartition]], Any]
# How a method of a listener is called; where, is for the consumer to say.
Notify = Callable[[Method, Sequence[TopicPartition]], Awaitable[None]]


async def call(method: Method, partitions: Sequence[TopicPartition]) -> None:
    """Call it, and wait for it if it is a coroutine."""
    result = method(partitions)
    if inspect.isawaitable(result):
        await result
