"""What a producer does in its transactions, drawn from its seed.

Most transactions are committed. Some are aborted on purpose, and some are left open: their producer
walks away, and a successor with the same transactional id takes over. Before some, the answer to
the one before is asked for again while records of this one are on their way, as a request does
that was delayed in the network (KAFKA-17754).

Some producers prepare instead of committing. Then they are gone, successors come back and only keep
what is prepared, and in the end somebody decides: a successor, or an operator. Some of it waits for
longer than a bad time-out would.

Not here: how it is done (`runner/`), what must follow (`checkers/transactions.py`).

D1  the same plan gives the same list of transactions, and of decisions about those prepared
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
# Of what is prepared.
_COMMITTED_PERCENT: Final = 70
_OPERATOR_PERCENT: Final = 45
_LONG_PERCENT: Final = 20
_RESTARTS: Final = (0, 0, 1, 2)
_RESTART_S: Final = (0.2, 1.0)
_SHORT_S: Final = (0.2, 2.5)
_LONG_S: Final = (4.0, 8.0)


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


class Decision(NamedTuple):
    """What becomes of a transaction that is prepared, whoever dies."""

    is_commit: bool
    # Else by a successor of its producer.
    is_by_operator: bool
    # How long nothing is done, before each restart that only keeps it, and before the decision.
    waits_s: tuple[float, ...]


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


def decisions(plan: ProcessPlan) -> Iterator[Decision]:
    """Yield, without end, what becomes of one transaction after another that is prepared."""
    dice = Random(f"{plan.seed}/decisions")
    while True:
        restarts = [dice.uniform(*_RESTART_S) for _ in range(dice.choice(_RESTARTS))]
        is_long = dice.randrange(_HUNDRED) < _LONG_PERCENT
        last_s = dice.uniform(*(_LONG_S if is_long else _SHORT_S))
        is_commit = dice.randrange(_HUNDRED) < _COMMITTED_PERCENT
        is_by_operator = dice.randrange(_HUNDRED) < _OPERATOR_PERCENT
        yield Decision(is_commit, is_by_operator, (*restarts, last_s))
