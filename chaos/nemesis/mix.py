"""Random faults, several at a time, from a seed: the same seed gives the same plan.

Whom they hit depends on who leads by then, and so does not repeat itself; what is done and for how
long does.

Not here: doing it (`driver.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from random import Random
from typing import Final

from ottla.chaos.nemesis.plan import Round, Step, Target
from ottla.chaos.nemesis.table import KINDS
from ottla.chaos.ports import Means

# Of so many rounds one is calm.
_CALM_ONE_OF: Final = 4
_TOGETHER_MAX: Final = 3
_SECONDS: Final = (4.0, 12.0)
_ROLES: Final = (Target.LEADER, Target.FOLLOWER, Target.ANY, Target.CONTROLLER)


def _families(dice: Random, roles: Sequence[Target]) -> tuple[tuple[Step, ...], ...]:
    """Return for each family of faults what it may be this time."""
    who = dice.choice(roles)
    return (
        (
            Step(fault="kill", target=who),
            Step(fault="kill", target=Target.TWO),
            Step(fault="kill", target=Target.ALL),
            Step(fault="stop", target=who),
            Step(fault="power", target=who),
            Step(fault="power", target=Target.ALL),
        ),
        (
            Step(fault="pause", target=who),
            Step(fault="pause", target=Target.TWO),
            Step(fault="pause", target=Target.ALL, facts={"apart_s": 0.5}),
        ),
        (
            Step(fault="isolate", target=who),
            Step(fault="isolate", target=Target.TWO),
            Step(fault="one-way", target=Target.PAIR),
            Step(fault="one-way", target=Target.PAIR, facts={"back": True}),
            Step(fault="ring", target=Target.ALL),
            Step(fault="client-cut", target=who),
        ),
        (
            Step(fault="weather", target=who),
            Step(fault="weather", target=Target.ALL, facts={"delay_ms": 30, "jitter_ms": 20}),
        ),
        (
            Step(fault="disk-slow", target=who, facts={"sync_ms": dice.choice((20, 100, 400))}),
            Step(fault="disk-full", target=who, facts={"room_bytes": dice.randrange(20_000)}),
            Step(fault="disk-error", target=who),
            Step(fault="disk-error", target=who, facts={"operation": "write"}),
        ),
        (Step(fault="clock", target=who, for_s=3.0),),
        (Step(fault="failpoint", target=who, for_s=3.0),),
    )


def rounds(
    seed: int, means: Collection[Means], *, has_transactions: bool = False
) -> Iterator[Round]:
    """Yield rounds without end, of what can be done."""
    dice = Random(f"{seed}/mix")
    roles = (*_ROLES, *([Target.TRANSACTIONS] if has_transactions else []))
    while True:
        for_s = dice.uniform(*_SECONDS)
        if dice.randrange(_CALM_ONE_OF) == 0:
            yield Round((), for_s)
            continue
        possible = [
            [step for step in family if KINDS[step.fault].means <= frozenset(means)]
            for family in _families(dice, roles)
        ]
        usable = [family for family in possible if family]
        chosen = dice.sample(usable, k=min(dice.randint(1, _TOGETHER_MAX), len(usable)))
        yield Round(tuple(dice.choice(family) for family in chosen), for_s)
