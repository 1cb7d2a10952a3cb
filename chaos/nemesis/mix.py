"""Random faults, several at a time, from a seed: the same seed gives the same plan.

Whom they hit depends on who leads by then, and so does not repeat itself; what is done and for how
long does.

What is done, and to whom, is dealt from shuffled decks, not thrown: in an hour each kind of fault
that ends, stops or cuts off a node meets leaders and coordinators of transactions several times,
whatever the seed. With dice there were hours in which no coordinator was ever killed.

Not here: doing it (`driver.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Final, Generic, TypeVar

from ottla.chaos.nemesis.plan import Round, Step, Target
from ottla.chaos.nemesis.table import KINDS
from ottla.chaos.ports import Means

T = TypeVar("T")

# Of so many rounds one is calm.
_CALM_ONE_OF: Final = 4
_TOGETHER_MAX: Final = 3
_SECONDS: Final = (4.0, 12.0)
# How often each is in a deck. Followers are hit by what hits two or all, too.
_ROLES: Final = {Target.LEADER: 3, Target.FOLLOWER: 2, Target.ANY: 1, Target.CONTROLLER: 1}
_COORDINATORS: Final = 3


class _Deck(Generic[T]):
    """Cards that are dealt until none is left, and then shuffled again."""

    def __init__(self, cards: Sequence[T], dice: Random) -> None:
        self._cards: Final = tuple(cards)
        self._dice: Final = dice
        self._left = list[T]()

    def deal(self) -> T:
        if not self._left:
            self._left = self._dice.sample(self._cards, k=len(self._cards))
        return self._left.pop()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Card:
    """A fault that may be done; without a target, whom it hits is dealt apart."""

    fault: str
    target: Target | None = None
    times: int = 1
    for_s: float = 5.0
    facts: Mapping[str, Any] = field(default_factory=dict)
    # Facts that are drawn each time.
    drawn: Callable[[Random], Mapping[str, Any]] | None = None


def _sync_ms(dice: Random) -> Mapping[str, Any]:
    return {"sync_ms": dice.choice((20, 100, 400))}


def _room_bytes(dice: Random) -> Mapping[str, Any]:
    return {"room_bytes": dice.randrange(20_000)}


# One of each family is there at a time. Those that end, stop or cut off nodes are twice as likely.
_VIOLENT: Final = (
    (
        _Card(fault="kill", times=3),
        _Card(fault="kill", target=Target.TWO),
        _Card(fault="kill", target=Target.ALL),
        _Card(fault="stop"),
        _Card(fault="power", times=3),
        _Card(fault="power", target=Target.ALL),
    ),
    (
        _Card(fault="pause", times=3),
        _Card(fault="pause", target=Target.TWO),
        _Card(fault="pause", target=Target.ALL, facts={"apart_s": 0.5}),
    ),
    (
        _Card(fault="isolate", times=3),
        _Card(fault="isolate", target=Target.TWO),
        _Card(fault="one-way", target=Target.PAIR),
        _Card(fault="one-way", target=Target.PAIR, facts={"back": True}),
        _Card(fault="ring", target=Target.ALL),
        _Card(fault="client-cut"),
    ),
)
_FAMILIES: Final = (
    *_VIOLENT,
    (
        _Card(fault="weather"),
        _Card(fault="weather", target=Target.ALL, facts={"delay_ms": 30, "jitter_ms": 20}),
    ),
    (
        _Card(fault="disk-slow", drawn=_sync_ms),
        _Card(fault="disk-full", drawn=_room_bytes),
        _Card(fault="disk-error"),
        _Card(fault="disk-error", facts={"operation": "write"}),
    ),
    (_Card(fault="clock", for_s=3.0),),
    (_Card(fault="failpoint", for_s=3.0),),
)


def _step(card: _Card, dice: Random, targets: Mapping[str, _Deck[Target]]) -> Step:
    target = targets[card.fault].deal() if card.target is None else card.target
    facts = card.facts if card.drawn is None else card.drawn(dice)
    return Step(fault=card.fault, target=target, for_s=card.for_s, facts=facts)


def rounds(
    seed: int, means: Collection[Means], *, has_transactions: bool = False
) -> Iterator[Round]:
    """Yield rounds without end, of what can be done."""
    dice = Random(f"{seed}/mix")
    counts = {**_ROLES, **({Target.TRANSACTIONS: _COORDINATORS} if has_transactions else {})}
    roles = [target for target, count in counts.items() for _ in range(count)]
    targets = defaultdict[str, _Deck[Target]](partial(_Deck, roles, dice))
    usable, violent = list[_Deck[_Card]](), list[_Deck[_Card]]()
    for family in _FAMILIES:
        possible = [card for card in family if KINDS[card.fault].means <= frozenset(means)]
        cards = [card for card in possible for _ in range(card.times)]
        if cards:
            usable.append(_Deck(cards, dice))
            violent += [usable[-1]] if family in _VIOLENT else []
    while True:
        for_s = dice.uniform(*_SECONDS)
        if dice.randrange(_CALM_ONE_OF) == 0:
            yield Round((), for_s)
            continue
        together = dice.randint(1, _TOGETHER_MAX)
        drawn = dice.sample([*usable, *violent], k=len(usable) + len(violent))
        chosen = list(dict.fromkeys(drawn))[:together]
        yield Round(tuple(_step(deck.deal(), dice, targets) for deck in chosen), for_s)
