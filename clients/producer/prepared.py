"""The name of a transaction that waits for a decision, to be kept, sent on and used later. A core.

Not here: deciding it (`transacting.py`, `clients/admin/transactions.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from ottla.proto.errors import ConfigError
from ottla.proto.options.option import shown


@dataclass(frozen=True, slots=True)
class PreparedTransaction:
    """The name of a transaction that waits for a decision: whoever has it can decide.

    As text it begins as Kafka's own does (KIP-939): `producer id:epoch`, then the transactional id.
    """

    transactional_id: str
    producer_id: int
    epoch: int

    def __str__(self) -> str:
        return f"{self.producer_id}:{self.epoch}:{self.transactional_id}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what `str` wrote, or raise `ConfigError`."""
        producer_id, _, rest = text.partition(":")
        epoch, _, transactional_id = rest.partition(":")
        if not (producer_id.isdecimal() and epoch.isdecimal() and transactional_id):
            raise ConfigError(
                f"{shown(text)} names no prepared transaction: that is "
                "PRODUCER_ID:EPOCH:TRANSACTIONAL_ID, as `prepare` gave it."
            )
        return cls(transactional_id, int(producer_id), int(epoch))
