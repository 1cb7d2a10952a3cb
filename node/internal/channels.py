"""Ways to other nodes: one gRPC channel for each, and fresh ones for those who watch a peer's life.

A channel of gRPC connects by itself, again and again, and looks the name up each time. It waits at
least 100 ms after a failure, and calls fail at once meanwhile. Who must know sooner (`raft.py`,
`probe.py`) dials with a channel of its own, and throws it away afterwards.

A judge of the cluster may stand between its nodes: `OTTLA_DIAL` says where to dial instead of where
a node is said to be, as `host:port>host:port` between semicolons.

Not here: what is called.

H1  nothing is sent twice by gRPC: retries are off
H2  with TLS, the other side is proven to be the node that was dialled
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

import grpc

from ottla.node.internal.listener import KEEPALIVE_MS, RECEIVE_BYTES_MAX
from ottla.node.internal.tls import Tls, name_of
from ottla.proto.errors import ConfigError
from ottla.proto.options.endpoints import Address, parse_address

ENVIRONMENT_KEY: Final = "OTTLA_DIAL"
_OPTIONS: Final[list[tuple[str, int | str]]] = [
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", RECEIVE_BYTES_MAX),
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.dns_min_time_between_resolutions_ms", 500),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_MS),
    ("grpc.http2.ping_timeout_ms", KEEPALIVE_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.service_config_disable_resolution", 1),
    # Channels of one process would share connections, and with them the pauses after failures.
    ("grpc.use_local_subchannel_pool", 1),
]


def detours_from_environment(environ: Mapping[str, str]) -> dict[Address, Address]:
    """Return where to dial instead, by where a node is said to be, or raise `ConfigError`."""
    found = dict[Address, Address]()
    for clause in filter(str.strip, environ.get(ENVIRONMENT_KEY, "").split(";")):
        told, _, instead = clause.partition(">")
        try:
            found[parse_address(told.strip())] = parse_address(instead.strip())
        except ValueError as error:
            raise ConfigError(f"{ENVIRONMENT_KEY} must be {error}.") from None
    return found


class Channels:
    """One channel to each node, made on demand, and made anew when its address changes."""

    def __init__(self, tls: Tls | None, detours: Mapping[Address, Address] | None = None) -> None:
        self.tls: Final = tls
        # For lines that are not gRPC's (`line.py`).
        self.calling_context: Final = None if tls is None else tls.calling_context()
        self._detours: Final = dict(detours or {})
        self._open: Final[dict[int, tuple[Address, grpc.aio.Channel]]] = {}
        self._closing: Final[set[asyncio.Task[None]]] = set()

    def to(self, node_id: int, address: Address) -> grpc.aio.Channel:
        """Return the channel to a node. It is shared: only `close` closes it."""
        found = self._open.get(node_id)
        if found is not None:
            if found[0] == address:
                return found[1]
            task = asyncio.get_running_loop().create_task(found[1].close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
        channel = self.fresh(node_id, address)
        self._open[node_id] = (address, channel)
        return channel

    def fresh(self, node_id: int, address: Address) -> grpc.aio.Channel:
        """Return a channel with a connection of its own, which whoever asked must close."""
        way = str(self.way_to(address))
        if self.tls is None:
            return grpc.aio.insecure_channel(way, options=_OPTIONS)
        options = [*_OPTIONS, ("grpc.ssl_target_name_override", name_of(node_id))]
        return grpc.aio.secure_channel(way, self.tls.channel_credentials(), options)

    def way_to(self, address: Address) -> Address:
        """Return where to dial for an address: there, unless somebody stands in between.

        Whoever looks names up asks here first: what a name leads to is no detour's beginning.
        """
        return self._detours.get(address, address)

    async def close(self) -> None:
        channels = [channel for _, channel in self._open.values()]
        self._open.clear()
        await asyncio.gather(*self._closing, *(channel.close() for channel in channels))
