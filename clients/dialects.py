"""The two dialects of transactions, and which versions of requests are of which. A core (KIP-890).

In the first, partitions and groups are added by requests of their own, and one epoch serves many
transactions. In the second, spoken when the cluster's feature `transaction.version` is 2 or more,
Produce and TxnOffsetCommit add them, and every end of a transaction gives a new epoch.

Not here: what is asked when (`producer/transactions.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ottla.proto.kafka.apis import END_TXN, INIT_PRODUCER_ID, TXN_OFFSET_COMMIT, ApiRow

FEATURE: Final = "transaction.version"
SECOND_DIALECT: Final = 2
# The first version that knows of two phases (KIP-939). Kafka 4.3 marks it as unstable.
TWO_PHASE_FROM: Final = 6
INIT_ROW: Final = replace(INIT_PRODUCER_ID, high=max(INIT_PRODUCER_ID.high, TWO_PHASE_FROM))
# Later versions are for brokers among themselves.
ADD_PARTITIONS_MAX: Final = 3
_FIRST_DIALECT_MAX: Final = {END_TXN.key: 4, TXN_OFFSET_COMMIT.key: 4}


def is_second_dialect(features: Mapping[str, int]) -> bool:
    """Return whether a cluster with these features speaks the second dialect."""
    return features.get(FEATURE, 0) >= SECOND_DIALECT


def version_in(row: ApiRow, highest: int, *, is_second: bool) -> int:
    """Return the version to speak, of those up to the highest that both sides know."""
    return highest if is_second else min(highest, _FIRST_DIALECT_MAX.get(row.key, highest))
