"""What a coordinator tells of its groups at each scrape.

The lag of a group in a partition is how many offsets lie between what it has committed and the high
watermark. The coordinator knows the high watermark of partitions of which it has a replica itself,
led or followed; of others it tells no lag. A follower hears of the high watermark with its next
fetch, so what it tells may be behind by the wait of one fetch.

M1  no more than `LAGS_MAX` lags are told: above that, none, rather than some by chance

Not here: the names (`node/metric_table.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ottla.node import metric_table as table
from ottla.node.groups.words import State
from ottla.node.metrics import Reading

if TYPE_CHECKING:
    from ottla.node.broker import Broker
    from ottla.node.groups.coordinator import Groups
    from ottla.node.groups.ledger import Ledger

LAGS_MAX: Final = 5_000
_ALIVE: Final = tuple(state for state in State if state is not State.DEAD)


def readings_of(broker: Broker, groups: Groups) -> Iterator[Reading]:
    for reason, count in groups.rebalances.items():
        yield Reading(table.GROUP_REBALANCES, count, (reason.value,))
    ledgers = [one for one in groups.ledgers.values() if one.is_led and one.is_loaded]
    states = Counter(group.state for ledger in ledgers for group in ledger.groups.values())
    for state in _ALIVE:
        yield Reading(table.GROUPS, states[state], (state.value,))
    members = sum(len(group.members) for ledger in ledgers for group in ledger.groups.values())
    yield Reading(table.GROUP_MEMBERS, members)
    yield Reading(table.GROUPS_LOADING, sum(not one.is_loaded for one in groups.ledgers.values()))
    if sum(len(offsets) for ledger in ledgers for offsets in ledger.offsets.values()) <= LAGS_MAX:
        for ledger in ledgers:
            yield from _lags(broker, ledger)


def _lags(broker: Broker, ledger: Ledger) -> Iterator[Reading]:
    for name, offsets in ledger.offsets.items():
        for (topic, index), value in offsets.items():
            replica = broker.replicas.get(topic, index)
            if replica is not None:
                lag = max(0, replica.log.high_watermark - value.offset)
                yield Reading(table.GROUP_LAG, lag, (name, topic, str(index)))
