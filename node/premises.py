"""What a broker needs of the node that it is a part of.

Not here: the broker (`brokering.py`), and how a node gets these (`lifecycle.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ottla.node.clock import Clock
from ottla.node.data import Data
from ottla.node.internal.channels import Channels
from ottla.node.internal.entrance import Entrance
from ottla.node.internal.identity import WhoIAm
from ottla.node.internal.listener import InternalListener
from ottla.node.internal.tls import Tls
from ottla.node.kafka.listener import Listener
from ottla.node.metrics import Metrics
from ottla.node.options import NodeOptions
from ottla.proto.options.endpoints import Address, ListenerName


@dataclass(frozen=True, slots=True)
class Premises:
    """What a broker needs of its node."""

    options: NodeOptions
    data: Data
    me: WhoIAm
    clock: Clock
    metrics: Metrics
    listener: Listener
    internal: InternalListener
    entrance: Entrance
    channels: Channels
    tls: Tls | None
    # Where clients and other nodes are told to find this one, by listener.
    advertised: Mapping[ListenerName, Address]
