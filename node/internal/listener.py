"""The INTERNAL listener: one gRPC server for everything that nodes say to one another.

Against strangers: a bound on the size of what is received, on calls and connections, on the time
that a handshake may take; and TLS where keys are given.

Not here: what is said (`raft.py`, `introductions.py`, `identity.py`, `service.py`).
"""

from __future__ import annotations

from typing import Final

import grpc

from ottla.node.internal.tls import Tls
from ottla.node.kafka.listener import bound_socket
from ottla.proto.errors import ConfigError, ensure
from ottla.proto.options.endpoints import Address

RECEIVE_BYTES_MAX: Final = 4 << 20
KEEPALIVE_MS: Final = 2_000
_CALLS_MAX: Final = 2_048
_CONNECTIONS_MAX: Final = 512
_STREAMS_PER_CONNECTION_MAX: Final = 128
_METADATA_BYTES_MAX: Final = 8 * 1024
_HANDSHAKE_MS: Final = 5_000
_IDLE_MS: Final = 10 * 60 * 1000

_OPTIONS: Final[list[tuple[str, int]]] = [
    # Without this a second node would share the port in silence.
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", RECEIVE_BYTES_MAX),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_metadata_size", _METADATA_BYTES_MAX),
    ("grpc.absolute_max_metadata_size", _METADATA_BYTES_MAX),
    ("grpc.max_concurrent_streams", _STREAMS_PER_CONNECTION_MAX),
    ("grpc.max_allowed_incoming_connections", _CONNECTIONS_MAX),
    ("grpc.server_handshake_timeout_ms", _HANDSHAKE_MS),
    ("grpc.max_connection_idle_ms", _IDLE_MS),
    # A peer whose machine vanished is noticed, and one that asks whether we are there may ask
    # twice as often as we do.
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_MS),
    # This is what ends a connection; the one above alone is not obeyed.
    ("grpc.http2.ping_timeout_ms", KEEPALIVE_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", KEEPALIVE_MS // 2),
    ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_MS // 2),
]


class InternalListener:
    """The gRPC server of a node. `add`, `bind`, `start`, then `stop`."""

    def __init__(self, address: Address, tls: Tls | None) -> None:
        self._wanted: Final = address
        self._tls: Final = tls
        self._handlers: Final[list[grpc.GenericRpcHandler]] = []
        self._server: grpc.aio.Server | None = None
        self._is_started = False

    def add(self, *handlers: grpc.GenericRpcHandler) -> None:
        """Serve these too. One that is added after `bind` is there from then on."""
        self._handlers.extend(handlers)
        if self._server is not None:
            self._server.add_generic_rpc_handlers(handlers)

    def bind(self) -> Address:
        """Take the address, or raise `ConfigError`; nobody is answered before `start`.

        It needs a running event loop.
        """
        wanted = self._wanted
        try:
            # gRPC does not say why it cannot have an address, so it is tried without it.
            bound_socket(wanted).close()
            port = self._open(f"[::]:{wanted.port}" if not wanted.host else str(wanted))
        except OSError as error:
            raise self._refusal(error.strerror or str(error)) from None
        except RuntimeError:
            self._server = None
            raise self._refusal("gRPC cannot open it") from None
        return Address(wanted.host or "::", port)

    def _open(self, target: str) -> int:
        self._server = grpc.aio.server(options=_OPTIONS, maximum_concurrent_rpcs=_CALLS_MAX)
        self._server.add_generic_rpc_handlers(self._handlers)
        if self._tls is None:
            return self._server.add_insecure_port(target)
        return self._server.add_secure_port(target, self._tls.server_credentials())

    def _refusal(self, reason: str) -> ConfigError:
        return ConfigError(
            f"cannot listen on {self._wanted}: {reason}. "
            "Is another node running? Choose another: listeners=INTERNAL://127.0.0.1:19093"
        )

    async def start(self) -> None:
        ensure(self._server is not None, "bound before it starts")
        if self._server is not None:
            await self._server.start()
            self._is_started = True

    async def stop(self, grace_s: float = 0.5) -> None:
        """Take no new call, give those there are a moment, and end them."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop(grace_s if self._is_started else 0)
