"""DescribeCluster and UnregisterBroker: which brokers there are, and that one will not come back.

A broker that is fenced serves nobody: it is told only to whoever asks for such brokers too.

Whoever wants something of the controller may ask any broker, which passes it on. The controller
that clients are told is the active one, if it is a broker that they can reach.

Not here: where partitions are (`metadata.py`), and how the controllers are (`quorum.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.controller.image import BrokerInfo, MetadataImage
from ottla.node.kafka.refusals import error_fields
from ottla.node.kafka.requests import Request
from ottla.proto.errors import ErrorCode, RequestError
from ottla.proto.ids import BrokerId

if TYPE_CHECKING:
    from ottla.node.broker import Broker

NO_BROKER: Final = -1
_NO_CLUSTER: Final = ""
_ENDPOINT_BROKERS: Final = 1
_ENDPOINT_CONTROLLERS: Final = 2
# Bits by Kafka's numbers of operations: all that can be done with a cluster.
CLUSTER_OPERATIONS: Final = sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12))
NOT_ASKED_FOR: Final = -(2**31)


def reachable_brokers(image: MetadataImage) -> list[BrokerInfo]:
    return [one for one in image.brokers.values() if not one.is_fenced]


def controller_told(image: MetadataImage, here: BrokerId) -> int:
    """Return whom clients send what only a controller can do; −1 if nobody can be reached."""
    for one in (image.controller_id, here):
        broker = image.brokers.get(one)
        if broker is not None and broker.is_active:
            return one
    return next((one.broker_id for one in reachable_brokers(image)), NO_BROKER)


def broker_told(broker: BrokerInfo, id_field: str, listener: str) -> dict[str, Any]:
    """Return a broker for a client that came in by this listener."""
    host, port = broker.address_for(listener)
    return {id_field: broker.broker_id, "host": host, "port": port, "rack": broker.rack}


# ── DescribeCluster ───────────────────────────────────────────────────────────────────────────


async def describe_cluster(broker: Broker, request: Request) -> dict[str, Any]:
    body, image = request.body, broker.controller.image
    endpoint = body.get("endpoint_type", _ENDPOINT_BROKERS)
    if endpoint == _ENDPOINT_CONTROLLERS:
        sentence = "Clients reach brokers here; controllers do not talk to clients."
        return _refused(ErrorCode.MISMATCHED_ENDPOINT_TYPE, sentence)
    if endpoint != _ENDPOINT_BROKERS:
        sentence = f"There are no endpoints of type {endpoint}."
        return _refused(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, sentence)
    with_fenced = body.get("include_fenced_brokers", False)
    told = image.brokers.values() if with_fenced else reachable_brokers(image)
    may_be_told = body.include_cluster_authorized_operations
    return {
        "throttle_time": 0,
        **error_fields(None),
        "endpoint_type": _ENDPOINT_BROKERS,
        "cluster_id": image.cluster_id,
        "controller_id": controller_told(image, broker.node_id),
        "brokers": [
            {**broker_told(one, "broker_id", request.listener), "is_fenced": one.is_fenced}
            for one in told
        ],
        "cluster_authorized_operations": CLUSTER_OPERATIONS if may_be_told else NOT_ASKED_FOR,
    }


def _refused(code: ErrorCode, sentence: str) -> dict[str, Any]:
    return {
        "throttle_time": 0,
        **error_fields(RequestError(code, sentence)),
        "endpoint_type": _ENDPOINT_BROKERS,
        "cluster_id": _NO_CLUSTER,
        "controller_id": NO_BROKER,
        "brokers": [],
        "cluster_authorized_operations": NOT_ASKED_FOR,
    }


# ── UnregisterBroker ──────────────────────────────────────────────────────────────────────────


async def unregister_broker(broker: Broker, request: Request) -> dict[str, Any]:
    """Forget a broker. One that is up, or that holds partitions, is refused; Kafka forgets it."""
    wanted = BrokerId(request.body.broker_id)
    refused = await broker.controller.forget_broker(wanted, client=request.client)
    return {"throttle_time": 0, **error_fields(refused)}
