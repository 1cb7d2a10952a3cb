"""What a request may reach: this node in its role of storing partitions.

Not here: how these parts come together (`wiring.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ottla.controller.image import BrokerInfo
from ottla.controller.port import Controller
from ottla.node.clock import Clock
from ottla.node.groups.coordinator import Groups
from ottla.node.kafka.producers import ProducerIds
from ottla.node.metrics import Metrics
from ottla.node.options import NodeOptions
from ottla.node.transactions.coordinator import Transactions
from ottla.node.transactions.peers import NoPeers, Peers
from ottla.proto.ids import BrokerId, TopicPartition
from ottla.replication.replica import Replica
from ottla.replication.replicas import Replicas


@dataclass(slots=True)
class Broker:
    """The parts of a running broker."""

    node_id: BrokerId
    cluster_id: str
    options: NodeOptions
    controller: Controller
    replicas: Replicas
    producer_ids: ProducerIds
    clock: Clock
    metrics: Metrics
    data_dir: str
    # Whether the active controller has answered a heartbeat that was sent within the session (13a).
    is_heard: Callable[[], bool] = lambda: True
    # Whether the stream to a broker that is followed here broke: it may be dead, unheard of yet.
    is_out_of_reach: Callable[[BrokerId], bool] = lambda broker_id: False
    # For how many seconds it is broken by now; None: it is not.
    lost_for_s: Callable[[BrokerId], float | None] = lambda broker_id: None
    # Who was fenced a moment ago: they may be dead, and clients unaware of it.
    just_fenced: Callable[[], Iterable[BrokerInfo]] = tuple
    # Obeys the metadata of a partition at once, which it would else in a moment.
    hurry: Callable[[TopicPartition], None] = lambda partition: None
    # What other brokers are asked for the sake of transactions.
    peers: Peers = field(default_factory=NoPeers)
    # The consumer groups, and the transactions, that this broker coordinates.
    groups: Groups = field(init=False)
    transactions: Transactions = field(init=False)

    def __post_init__(self) -> None:
        self.groups = Groups(self)
        self.transactions = Transactions(self)

    def look(self, replica: Replica) -> None:
        """Tell coordinators that a replica has begun to lead, or to follow, or has failed."""
        self.groups.look(replica)
        self.transactions.look(replica)
