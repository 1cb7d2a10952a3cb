"""What a coordinator tells of its transactions at each scrape.

Not here: the names (`node/metric_table.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.node import metric_table as table
from ottla.node.metrics import Reading
from ottla.node.transactions.words import State

if TYPE_CHECKING:
    from ottla.node.transactions.coordinator import Transactions


def readings_of(transactions: Transactions, now_ms: int) -> Iterator[Reading]:
    ledgers = [one for one in transactions.ledgers.values() if one.is_led and one.is_loaded]
    values = [one.value for ledger in ledgers for one in ledger.transactions.values()]
    states = Counter(value.state for value in values)
    for state in State:
        yield Reading(table.TRANSACTIONS, states[state], (state.word,))
    began = [value.started_ms for value in values if value.state is State.ONGOING]
    oldest_s = max(0, now_ms - min(began)) / 1000 if began else 0
    yield Reading(table.TRANSACTION_OLDEST, oldest_s)
    yield Reading(table.TRANSACTION_MARKERS, transactions.markers.waiting)
    yield Reading(table.TRANSACTIONS_TIMED_OUT, transactions.timed_out)
    loading = sum(not one.is_loaded for one in transactions.ledgers.values())
    yield Reading(table.TRANSACTIONS_LOADING, loading)
