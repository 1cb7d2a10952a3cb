"""Plays any list of steps in the small world of copies; a step that makes no sense does nothing.

A step is a word and two numbers, which are taken modulo whatever there is to choose from: so
hypothesis can shrink a list of steps, and dice can make one.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Final

from ottla.proto.errors import ErrorCode
from ottla.proto.ids import BrokerId
from tests.scripts.replication.copies import LAG_MS, Copies
from tests.scripts.replication.parts import Letter

Step = tuple[str, int, int]

# How often dice choose each step. The daily ones often, or nothing would ever be committed.
WEIGHTS: Final = {
    "write": 14,
    "write_one": 3,
    "sync": 12,
    "fetch": 10,
    "work": 20,
    "govern": 4,
    "ask": 4,
    "arrive": 4,
    "answer": 4,
    "learn": 10,
    "propose": 6,
    "decide": 6,
    "reply": 6,
    "time_out": 3,
    "wait": 6,
    "crash": 2,
    "power": 2,
    "restart": 4,
    "unfence": 4,
    "fence": 2,
    "wipe": 1,
    "least": 1,
}
# The same where the controller is hard to reach, and brokers come and go.
DOUBT: Final = WEIGHTS | {
    "propose": 14,
    "decide": 4,
    "time_out": 14,
    "govern": 2,
    "fence": 5,
    "unfence": 10,
    "restart": 8,
    "ask": 10,
    "arrive": 3,
}
WORDS: Final = tuple(WEIGHTS)


class Player:
    """Plays steps in one world, and looks at its promises after every one."""

    def __init__(self, world: Copies) -> None:
        self.world = world
        self.count = 0

    def play(self, steps: Iterable[Step]) -> None:
        for word, first, second in steps:
            getattr(self, f"do_{word}")(first, second)
            self.world.require_promises()

    def _number(self, first: int) -> int:
        return 1 + first % len(self.world.copies)

    def _write(self, first: int, acks: str) -> None:
        leaders = [n for n, copy in self.world.copies.items() if copy.leader is not None]
        if leaders:
            self.count += 1
            self.world.write(leaders[first % len(leaders)], f"v{self.count}", acks=acks)

    def do_write(self, first: int, second: int) -> None:
        self._write(first, "all")

    def do_write_one(self, first: int, second: int) -> None:
        self._write(first, "1")

    def do_sync(self, first: int, second: int) -> None:
        self.world.sync(self._number(first))

    def do_fetch(self, first: int, second: int) -> None:
        self.world.fetch(self._number(first), limit=1 + second % 4)

    def do_work(self, first: int, second: int) -> None:
        """A healthy broker for a moment."""
        self.do_learn(first, second)
        self.do_sync(first, second)
        self.do_fetch(first, 3)
        self.do_sync(first, second)

    def do_govern(self, first: int, second: int) -> None:
        """A healthy controller for a moment."""
        for number in self.world.copies:
            self.world.propose(number)
        for letter in tuple(self.world.letters):
            if letter.code is None:
                self.world.decide(letter)
            self.world.reply(letter)
        for number in self.world.copies:
            self.world.learn(number)

    def do_ask(self, first: int, second: int) -> None:
        self.world.ask(self._number(first))

    def do_arrive(self, first: int, second: int) -> None:
        self.world.arrive(self._number(first), limit=1 + second % 4)

    def do_answer(self, first: int, second: int) -> None:
        self.world.answer(self._number(first))

    def do_learn(self, first: int, second: int) -> None:
        self.world.learn(self._number(first))

    def do_propose(self, first: int, second: int) -> None:
        self.world.propose(self._number(first))

    def _letter(self, first: int, *, decided: bool) -> Letter | None:
        found = [one for one in self.world.letters if (one.code is not None) is decided]
        return found[first % len(found)] if found else None

    def do_decide(self, first: int, second: int) -> None:
        if (letter := self._letter(first, decided=False)) is not None:
            self.world.decide(letter)

    def do_reply(self, first: int, second: int) -> None:
        if (letter := self._letter(first, decided=True)) is not None:
            self.world.reply(letter)

    def do_time_out(self, first: int, second: int) -> None:
        if (letter := self._letter(first, decided=bool(second % 2))) is not None:
            self.world.reply(letter, ErrorCode.REQUEST_TIMED_OUT)

    def do_wait(self, first: int, second: int) -> None:
        self.world.wait((10, 100, LAG_MS // 2, LAG_MS + 1)[first % 4])

    def do_crash(self, first: int, second: int) -> None:
        self.world.crash(self._number(first))

    def do_power(self, first: int, second: int) -> None:
        """Power fails, unless the page cache is all that the topic promises."""
        number = self._number(first)
        self.world.crash(number, power=self.world.copies[number].is_fsync)

    def do_wipe(self, first: int, second: int) -> None:
        self.world.wipe(self._number(first))

    def do_restart(self, first: int, second: int) -> None:
        self.world.restart(self._number(first))

    def do_unfence(self, first: int, second: int) -> None:
        number = self._number(first)
        is_active = self.world.cluster.image.is_active(BrokerId(number))
        if self.world.copies[number].is_up and not is_active:
            self.world.cluster.unfence(number)

    def do_fence(self, first: int, second: int) -> None:
        self.world.cluster.fence(self._number(first))

    def do_least(self, first: int, second: int) -> None:
        """Another minimum; followers hear of it when they learn."""
        self.world.cluster.configure(min__insync__replicas=1 + first % len(self.world.copies))


def thrown(seed: int, length: int) -> list[Step]:
    """Return steps as dice throw them; every other seed in worse weather."""
    dice = Random(seed)
    weights = DOUBT if seed % 2 else WEIGHTS
    words = dice.choices(WORDS, weights=[weights[word] for word in WORDS], k=length)
    return [(word, dice.randrange(12), dice.randrange(12)) for word in words]
