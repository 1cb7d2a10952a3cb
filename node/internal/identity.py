"""Who a node is, for whoever asks: a probe above all (rule 11a).

Not here: asking (`probe.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import grpc

from ottla.node.internal import wire
from ottla.proto.kafka.uuids import UUID

SERVICE: Final = "ottla.Quorum"
IDENTIFY: Final = f"/{SERVICE}/Identify"

# In quotes: gRPC's own classes take no parameters while running.
Context: TypeAlias = "grpc.aio.ServicerContext[bytes, bytes]"
# By name; `quorum_service` makes a service of those of several modules.
Handlers: TypeAlias = "Mapping[str, grpc.RpcMethodHandler[Any, Any]]"


@dataclass(slots=True)
class WhoIAm:
    """This process. The cluster is "" until it is known."""

    node_id: int
    # Drawn at each start.
    incarnation: UUID
    cluster_id: str = ""


def identity_handler(me: WhoIAm) -> Handlers:
    async def identify(_: bytes, __: Context) -> bytes:
        return wire.encode_identity(wire.Identity(me.cluster_id, me.node_id, me.incarnation))

    return {"Identify": grpc.unary_unary_rpc_method_handler(identify)}


def quorum_service(*parts: Handlers) -> grpc.GenericRpcHandler:
    """Return the service that has the methods of all the parts."""
    methods = {name: handler for part in parts for name, handler in part.items()}
    return grpc.method_handlers_generic_handler(SERVICE, methods)
