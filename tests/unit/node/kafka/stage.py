"""A broker without sockets and without a disk: what a cold handler needs, and no more.

A question goes through the codec on its way in and on its way out, so a handler that returns what
the version cannot carry fails here. There are no logs behind it: `replicas`, `producer_ids` and
`metrics` are missing, and a handler that asks for them needs another stage.

Times and ids are counted up, so a run is the same every time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from ottla.controller.image import BrokerInfo, MetadataImage
from ottla.controller.port import Listener, TopicDefaults
from ottla.node.clock import Clock
from ottla.node.cluster import ClusterController
from ottla.node.kafka.requests import Handler, Request
from ottla.node.options import NodeOptions
from ottla.proto.ids import BrokerId
from ottla.proto.kafka.apis import ApiRow
from ottla.proto.kafka.decode import decode_request, decode_response
from ottla.proto.kafka.encode import encode_request, encode_response
from ottla.proto.kafka.framing import RequestHead
from ottla.proto.kafka.message import Message
from ottla.proto.kafka.uuids import UUID
from ottla.proto.options import node
from ottla.proto.options.load import load
from tests.unit.node.kafka.one_door import CLUSTER_ID, Cluster, OneDoor

if TYPE_CHECKING:
    from ottla.node.broker import Broker

NODE_ID = BrokerId(1)
HERE = BrokerInfo(NODE_ID, "127.0.0.1", 9092)


class CountedIds:
    """Ids that differ, and are the same in every run."""

    def __init__(self) -> None:
        self._count = 0

    def __call__(self) -> UUID:
        self._count += 1
        return UUID(int=(self._count << 64) | 0x0123456789ABCDEF)


@dataclass(slots=True)
class StageBroker:
    """Those parts of a `Broker` that need neither disk nor network."""

    node_id: BrokerId
    cluster_id: str
    options: NodeOptions
    controller: ClusterController
    clock: Clock
    lost_for_s: Callable[[BrokerId], float | None] = lambda broker_id: None
    just_fenced: Callable[[], Iterable[BrokerInfo]] = tuple


class Stage:
    """A broker to put questions to."""

    def __init__(
        self,
        options: Mapping[str, str] | None = None,
        cluster: Cluster | None = None,
        *,
        timeout_ms: int = 10_000,
    ) -> None:
        """Start with options as on a command line, in a cluster of one unless one is given."""
        self.options = NodeOptions(load(flags={"node.id": str(NODE_ID), **(options or {})}))
        self.door = OneDoor(Cluster() if cluster is None else cluster, NODE_ID)
        self.controller = self.door.open(
            check_configs=self.options.check,
            defaults=self._defaults,
            new_uuid=CountedIds(),
            clock=Clock(),
            timeout_ms=timeout_ms,
        )
        self.controller.watch(self._adopt)
        asyncio.run(self.door.tell())
        self.broker = cast(
            "Broker", StageBroker(NODE_ID, CLUSTER_ID, self.options, self.controller, Clock())
        )

    @property
    def cluster(self) -> Cluster:
        """What the controllers decide; `tell` lets this broker see it."""
        return self.door.cluster

    def tell(self) -> None:
        asyncio.run(self.door.tell())

    @property
    def image(self) -> MetadataImage:
        return self.controller.image

    def watch(self, listener: Listener) -> None:
        self.controller.watch(listener)

    def ask(
        self,
        handler: Handler,
        row: ApiRow,
        version: int,
        fields: Mapping[str, Any] | None = None,
        *,
        listener: str = "CLIENT",
    ) -> Message:
        """Return the answer to one question as a client would read it."""
        return asyncio.run(self.ask_soon(handler, row, version, fields, listener=listener))

    async def ask_soon(
        self,
        handler: Handler,
        row: ApiRow,
        version: int,
        fields: Mapping[str, Any] | None = None,
        *,
        listener: str = "CLIENT",
    ) -> Message:
        body = decode_request(row, version, encode_request(row, version, fields or {}))
        head = RequestHead(row.key, version, 1, "a test", 0)
        request = Request(head, row, version, body, "127.0.0.1", listener)
        answer = await handler(self.broker, request)
        return decode_response(row, version, encode_response(row, version, answer))

    def _defaults(self) -> TopicDefaults:
        current = self.options.current
        return TopicDefaults(
            current.value_of(node.NUM_PARTITIONS),
            current.value_of(node.DEFAULT_REPLICATION_FACTOR),
        )

    async def _adopt(self, image: MetadataImage) -> None:
        self.options.adopt(image)
