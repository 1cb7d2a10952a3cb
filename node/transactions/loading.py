"""From the records of one partition of `__transaction_state` to transactional ids.

Not here: reading the log (`node/groups/reading.py`).

L1  what the log says last of an id is what it is
L2  a record that cannot be read takes no other id with it; how many there were is told
"""

from __future__ import annotations

from typing import Final

from ottla.node.groups.loading import Gathered
from ottla.node.transactions.records import decode_key, decode_value
from ottla.node.transactions.transaction import Transaction
from ottla.proto.errors import RecordsError


class Loaded:
    """Transactional ids as the log has them."""

    def __init__(self, gathered: Gathered) -> None:
        """It takes its time: for a thread, when all is read."""
        self.transactions: Final[dict[str, Transaction]] = {}
        self.unreadable = gathered.unreadable
        for key, data, _ in gathered.items():
            try:
                found = decode_key(key)
                if found is not None:
                    self.transactions[found] = Transaction(found, decode_value(data))
            except RecordsError:
                self.unreadable += 1
