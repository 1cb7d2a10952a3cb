"""What brokers ask of one another for the sake of transactions, whoever carries it.

Not here: gRPC (`node/internal/transactions.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ottla.node.transactions.words import Place
from ottla.proto.errors import ErrorCode, OttlaError
from ottla.proto.ids import BrokerId
from ottla.proto.records.control import EndMarker

# What became of each partition that was named.
Outcomes = Mapping[Place, ErrorCode]


class WantedMarker(NamedTuple):
    """A marker, and where it is to be written."""

    end: EndMarker
    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """The leader of partitions asks a coordinator whether a producer may write to them."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    places: tuple[Place, ...]
    # Partitions that are not in the transaction are taken into it (Produce 12, TxnOffsetCommit 5).
    adds: bool


class Admitted(NamedTuple):
    """What a coordinator says of an admission."""

    outcomes: Outcomes
    # Leader epoch of the coordinator's partition; −1: none has answered.
    coordinator_epoch: int = -1


class PeerAwayError(OttlaError):
    """A broker did not answer: what was asked of it may have been done or not."""


class Peers(Protocol):
    """The other brokers. Everything raises `PeerAwayError`."""

    async def write_markers(
        self, node: BrokerId, wanted: Sequence[WantedMarker]
    ) -> list[Outcomes]: ...

    async def admit(self, node: BrokerId, asked: Admission) -> Admitted: ...


class NoPeers:
    """For a broker that is alone."""

    async def write_markers(self, node: BrokerId, wanted: Sequence[WantedMarker]) -> list[Outcomes]:
        raise PeerAwayError(f"There is no way to broker {node}.")

    async def admit(self, node: BrokerId, asked: Admission) -> Admitted:
        raise PeerAwayError(f"There is no way to broker {node}.")
