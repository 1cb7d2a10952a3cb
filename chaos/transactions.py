"""What a producer does in its transactions, drawn from its seed.

Most transactions are committed. Some are aborted on purpose, and some are left open: their producer
walks away, and a successor with the same transactional id takes over. Before some, the answer to
the one before is asked for again while records of this one are on their way, as a request does
that was delayed in the network (KAFKA-17754).

Not here: how it is done (`runner/`), what must follow (`checkers/transactions.py`).

D1  the same plan gives the same list of transactions
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from random import Random
from typing import Final, NamedTuple

from ottla.chaos.history import Place
from ottla.chaos.workload import ProcessPlan

# Of so many transactions.
_HUNDRED: Final = 100
_ABORTED_PERCENT: Final = 15
_LEFT_PERCENT: Final = 4
_LATE_PERCENT: Final = 25
_PARTITIONS_MAX: Final = 4


class Fate(Enum):
    """How a transaction is to end."""

    COMMIT = "commit"
    ABORT = "abort"
    # Its producer is gone, and another one begins under its name.
    LEAVE = "leave"


class TransactionDraw(NamedTuple):
    """What a producer does in one transaction."""

    # Where each record goes; those of one lane are in the order of its transactions.
    places: tuple[Place, ...]
    fate: Fate
    # The end of the transaction before is asked for again in the middle of this one.
    has_late_end: bool


def transactions(plan: ProcessPlan) -> Iterator[TransactionDraw]:
    """Yield transactions without end; each writes to two partitions at least."""
    dice = Random(plan.seed)
    while True:
        chosen = dice.sample(plan.places, dice.randint(2, min(_PARTITIONS_MAX, len(plan.places))))
        more = dice.randint(0, max(0, plan.lanes - len(chosen)))
        places = chosen + dice.choices(chosen, k=more)
        dice.shuffle(places)
        roll = dice.randrange(_HUNDRED)
        if roll < _LEFT_PERCENT:
            fate = Fate.LEAVE
        elif roll < _LEFT_PERCENT + _ABORTED_PERCENT:
            fate = Fate.ABORT
        else:
            fate = Fate.COMMIT
        yield TransactionDraw(tuple(places), fate, dice.randrange(_HUNDRED) < _LATE_PERCENT)
