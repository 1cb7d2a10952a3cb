"""Which partition of `__transaction_state` a transactional id belongs to.

Not here: who leads it (the metadata).
"""

from __future__ import annotations

from typing import Final

from ottla.node.groups.places import partition_of

__all__ = ["TRANSACTIONAL_ID_MAX", "TRANSACTIONS_TOPIC", "partition_of"]

TRANSACTIONS_TOPIC: Final = "__transaction_state"
# Characters in a transactional id, as in the name of a group.
TRANSACTIONAL_ID_MAX: Final = 1_000
