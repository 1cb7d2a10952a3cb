"""The peers, and the variants in which each is measured.

    variant           cluster      a record is acknowledged when
    ottla-pagecache   ottla        all in-sync copies have handed it to the operating system
    ottla-fsync       ottla        all in-sync copies have it on disk (the default)
    kafka             kafka        all in-sync copies have handed it to the operating system
    kafka-flush       kafka        the same, after each has synced its file (flush.messages=1)
    nats              nats         two of three copies hold it; synced every two minutes
    nats-sync         nats-sync    the same, after each has synced its file

Not here: how a peer is started.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from bench.peers.kafka import KafkaPeer
from bench.peers.nats import NatsPeer, NatsSyncPeer
from bench.peers.ottla import OttlaPeer
from bench.peers.peer import Peer

Durability = Literal["pagecache", "fsync"]

PEERS: Final[Mapping[str, Callable[[Path], Peer]]] = {
    "ottla": OttlaPeer,
    "kafka": KafkaPeer,
    "nats": NatsPeer,
    "nats-sync": NatsSyncPeer,
}


@dataclass(frozen=True, slots=True)
class Variant:
    """A peer, and what is chosen for its topics."""

    name: str
    peer: str
    durability: Durability
    # What it is compared with.
    baseline: str
    topic_configs: Mapping[str, str] = field(default_factory=dict)

    @property
    def speaks_kafka(self) -> bool:
        return self.peer in ("ottla", "kafka")


_ROWS: Final = (
    Variant("ottla-pagecache", "ottla", "pagecache", "kafka", {"ottla.durability": "pagecache"}),
    Variant("ottla-fsync", "ottla", "fsync", "kafka-flush", {"ottla.durability": "fsync"}),
    Variant("kafka", "kafka", "pagecache", "kafka"),
    Variant("kafka-flush", "kafka", "fsync", "kafka-flush", {"flush.messages": "1"}),
    Variant("nats", "nats", "pagecache", "kafka"),
    Variant("nats-sync", "nats-sync", "fsync", "kafka-flush"),
)
VARIANTS: Final[Mapping[str, Variant]] = {row.name: row for row in _ROWS}
