"""Asks every node all the time who leads, and notes each leader of each epoch that it is told.

Not here: whether two of them are too many (`judge.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Final

from tests.integration.replicated.background import Background
from tests.integration.replicated.history import History
from tests.integration.replicated.wire import Lines, ask_view

_EVERY_S: Final = 0.1
_ASK_S: Final = 1.0


class LeaderWatch(Background):
    """Looks at some topics through every node."""

    def __init__(
        self,
        addresses: Mapping[int, str],
        topics: Collection[str],
        history: History,
        *,
        every_s: float = _EVERY_S,
    ) -> None:
        super().__init__()
        self._addresses: Final = addresses
        self._topics: Final = topics
        self._history: Final = history
        self._every_s: Final = every_s
        self.answers = 0

    async def _live(self) -> None:
        lines = Lines(self._addresses)
        try:
            async with asyncio.TaskGroup() as group:
                for node_id in self._addresses:
                    group.create_task(self._look_at(lines, node_id))
        finally:
            await lines.close()

    async def _look_at(self, lines: Lines, node_id: int) -> None:
        while not self.is_over:
            view = await ask_view(lines, node_id, self._topics, _ASK_S)
            for place, seen in (view or {}).items():
                self._history.saw(place, seen.epoch, seen.leader)
            self.answers += view is not None
            await asyncio.sleep(self._every_s)
