"""Virtual time: what happens next, and the story of what happened.

Nothing in the simulation waits or looks at a clock; whoever wants something later puts it here. The
digest runs over every event, so two runs of one seed can be compared by one number.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from zlib import crc32

STORY_LINES = 30
Work = Callable[[], None]


class Schedule:
    """What is due, in order of time and then of asking."""

    def __init__(self) -> None:
        self.now_ms = 1_000
        self.events = 0
        self.digest = 0
        self._due: list[tuple[int, int, str, tuple[int, ...], Work]] = []
        self._asked = 0
        self._codes: dict[str, int] = {}
        self._story: deque[tuple[int, str, tuple[object, ...]]] = deque(maxlen=STORY_LINES)

    def after(self, delay_ms: int, kind: str, work: Work, *about: int) -> None:
        """Have `work` done later. `kind` and `about` say what it is, and to whom it happens."""
        self._asked += 1
        heappush(self._due, (self.now_ms + delay_ms, self._asked, kind, about, work))

    def step(self) -> None:
        """Let the next thing happen."""
        at_ms, _, kind, about, work = heappop(self._due)
        self.now_ms = at_ms
        self.events += 1
        code = self._codes.get(kind)
        if code is None:
            code = self._codes[kind] = crc32(kind.encode())
        self.digest = hash((self.digest, at_ms, code, about))
        work()

    def note(self, sentence: str, *about: object) -> None:
        """Write a line of the story; `sentence` has a % for each thing it is about."""
        self._story.append((self.now_ms, sentence, about))

    def story(self) -> str:
        return "\n".join(f"{at_ms:>6} ms  {told % about}" for at_ms, told, about in self._story)
