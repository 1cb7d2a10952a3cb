"""The listeners for clients: take connections, count them, send away those that only hold on.

A node may have several, under names of their own. They share all limits: to a node it is the same
by which of them a stranger came.

Limits (hostile-input §5.2), under Kafka's names where Kafka has one: connections in all and from
one address, the size of a request, the memory for requests that are arriving, how long a connection
may be idle, how slowly a request may arrive.

Not here: what is read and sent (`connection.py`), what it means (`dispatch.py`).
"""

from __future__ import annotations

import asyncio
import errno
import resource
import socket
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from ottla.node.clock import Clock
from ottla.node.kafka.connection import Connection
from ottla.node.kafka.memory import UNLIMITED, ReceiveMemory
from ottla.node.logs import logger
from ottla.node.metrics import Metrics
from ottla.proto.errors import ConfigError, RemoteProtocolError, ensure
from ottla.proto.ids import INT32_MAX
from ottla.proto.options.endpoints import Address, ListenerName

_log = logger("kafka.listener")

_BACKLOG: Final = 512
# Connections taken in one go, so that a storm of them does not stop everything else.
_ACCEPTS_MAX: Final = 64
_SWEEP_S: Final = 1.0
# Without a descriptor left there is nothing to do but wait.
_SHORTAGE_PAUSE_S: Final = 0.2
_SHORTAGES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
# Descriptors that no connection gets: a quarter of all, and not fewer than this if there are twice
# as many. The logs need them, and a log without one refuses what its clients send.
_KEPT_FOR_LOGS_MIN: Final = 256
# A buffer that was not used for this long goes back.
_BUFFER_IDLE_MS: Final = 5_000
# So much faster must a large request arrive while others wait for the memory that it takes.
_HASTE: Final = 64


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    """What strangers may do."""

    request_bytes_max: int
    connections_max: int
    connections_per_host_max: int
    idle_ms_max: int
    # A request must arrive within `grace_ms` and as long as its size takes at this speed.
    request_bytes_per_s_min: int = 16 * 1024
    grace_ms: int = 5_000
    # All that large requests which are still arriving may take.
    receive_bytes_max: int = UNLIMITED


class Listener:
    """All the clients of this node. `start`, then `stop`."""

    def __init__(
        self,
        addresses: Mapping[ListenerName, Address],
        settings: Callable[[], ListenerSettings],
        serve: Callable[[Connection, memoryview], None],
        *,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._wanted: Final = addresses
        self._settings_now: Final = settings
        self._settings = settings()
        self.serve = serve
        self._clock: Final = clock
        self._metrics: Final = metrics
        self.now_ms: Final = clock.monotonic_ms
        self.now_us: Final = clock.monotonic_us
        self.connections: Final[set[Connection]] = set()
        self._per_host: Counter[str] = Counter()
        self._connections_room = connections_room()
        self._socks: Final[dict[ListenerName, socket.socket]] = {}
        self._sweeping: asyncio.TimerHandle | None = None
        self.request_bytes_max = self._settings.request_bytes_max
        self.memory = ReceiveMemory(self._settings.receive_bytes_max)

    # -- start and stop --------------------------------------------------------------------------

    def bind(self) -> dict[ListenerName, Address]:
        """Take the addresses, or raise `ConfigError`; nobody is answered before `start`."""
        return {name: self._bind(name, address) for name, address in self._wanted.items()}

    def _bind(self, name: ListenerName, wanted: Address) -> Address:
        try:
            sock = bound_socket(wanted)
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {wanted}: {error.strerror or error}. Is another node running? "
                f"Choose another: listeners={name}://127.0.0.1:{_another_port(wanted.port)}"
            ) from None
        sock.setblocking(False)
        self._socks[name] = sock
        host, port = sock.getsockname()[:2]
        return Address(wanted.host or host, port)

    def start(self) -> None:
        ensure(bool(self._socks), "a listener starts after it has taken its addresses")
        for name, sock in self._socks.items():
            sock.listen(_BACKLOG)
            self._go_on(name)
            # Told from the first scrape on: nobody has come.
            self._metrics.connections_of(name)
        self._sweeping = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)

    def stop_accepting(self) -> None:
        loop = asyncio.get_running_loop() if self._socks else None
        while self._socks:
            _, sock = self._socks.popitem()
            if loop is not None:
                loop.remove_reader(sock)
            sock.close()

    def drain(self) -> None:
        """Take no connection and no request any more; what was asked is still answered."""
        self.stop_accepting()
        for connection in tuple(self.connections):
            connection.drain()

    @property
    def is_drained(self) -> bool:
        return all(connection.is_drained for connection in self.connections)

    def stop(self) -> None:
        self.stop_accepting()
        if self._sweeping is not None:
            self._sweeping.cancel()
        for connection in tuple(self.connections):
            connection.close("the node is stopping")

    # -- connections -----------------------------------------------------------------------------

    def _on_connectable(self, listener: ListenerName) -> None:
        for _ in range(_ACCEPTS_MAX):
            ours = self._socks.get(listener)
            if ours is None:
                return
            try:
                sock, name = ours.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno in _SHORTAGES:
                    self._rest(listener, ours, error)
                else:
                    _log.warning("accept_failed", error=str(error))
                return
            self._take(sock, name[0], name[1], listener)

    def _rest(self, listener: ListenerName, sock: socket.socket, error: OSError) -> None:
        _log.warning("accept_paused", error=str(error))
        self._metrics.refused("descriptors")
        loop = asyncio.get_running_loop()
        loop.remove_reader(sock)
        loop.call_later(_SHORTAGE_PAUSE_S, self._go_on, listener)

    def _go_on(self, listener: ListenerName) -> None:
        sock = self._socks.get(listener)
        if sock is not None:
            loop = asyncio.get_running_loop()
            loop.add_reader(sock, partial(self._on_connectable, listener))

    def _take(self, sock: socket.socket, host: str, port: int, listener: ListenerName) -> None:
        refusal = self._refusal(host)
        if refusal is not None:
            sock.close()
            self._metrics.refused(refusal)
            _log.warning("connection_refused", host=host, limit=refusal)
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A client that vanished without a word is noticed in the end, also while its fetch waits.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._per_host[host] += 1
        counts = self._metrics.connections_of(listener)
        counts.created += 1
        counts.open += 1
        self.connections.add(Connection(sock, host, port, self, self.now_ms(), listener=listener))

    def _refusal(self, host: str) -> str | None:
        if len(self.connections) >= self._settings.connections_max:
            return "max.connections"
        if self._per_host[host] >= self._settings.connections_per_host_max:
            return "max.connections.per.ip"
        if len(self.connections) >= self._connections_room:
            return "descriptors"
        return None

    def protocol_broken(self, connection: Connection, error: RemoteProtocolError) -> None:
        self._metrics.protocol_error(type(error).__name__)
        _log.warning(
            "protocol_broken",
            peer=str(connection),
            client=connection.client_id,
            software=connection.client_software,
            error=str(error),
        )

    def closed(self, connection: Connection, reason: str) -> None:
        self.connections.discard(connection)
        self._per_host[connection.host] -= 1
        if self._per_host[connection.host] <= 0:
            del self._per_host[connection.host]
        counts = self._metrics.connections_of(connection.listener)
        counts.closed += 1
        counts.open -= 1
        _log.debug("connection_closed", peer=str(connection), reason=reason)

    # -- the sweep -------------------------------------------------------------------------------

    def _sweep(self) -> None:
        self._settings = self._settings_now()
        self._connections_room = connections_room()
        self.request_bytes_max = self._settings.request_bytes_max
        self.memory.limit = self._settings.receive_bytes_max
        now_ms = self.now_ms()
        for connection in tuple(self.connections):
            # Whoever sends slowly is heard of before he is taken for idle.
            connection.collecting.stop()
            reason = self._complaint(connection, now_ms)
            if reason is not None:
                self._metrics.refused("slow" if connection.frame_began_ms else "idle")
                connection.close(reason)
            elif now_ms - connection.active_ms > _BUFFER_IDLE_MS:
                connection.shrink()
            connection.notice_leaving()
        self.memory.call_all()
        self._sweeping = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)

    def _complaint(self, connection: Connection, now_ms: int) -> str | None:
        settings = self._settings
        if now_ms - connection.active_ms > settings.idle_ms_max and not connection.waiting_count:
            return "idle for longer than connections.max.idle.ms"
        is_in_the_way = self.memory.is_short and self.memory.is_lent_to(connection)
        if is_in_the_way and self._is_stuck(connection, now_ms):
            return "its client does not read, and others need the memory that its request takes"
        began_ms = connection.frame_began_ms
        if began_ms is None or not connection.is_read:
            # It is us who do not read.
            return None
        bytes_per_s_min = settings.request_bytes_per_s_min * (_HASTE if is_in_the_way else 1)
        allowed_ms = settings.grace_ms + 1000 * connection.needed // bytes_per_s_min
        if now_ms - began_ms > allowed_ms:
            return f"a request of {connection.needed} bytes did not arrive in {allowed_ms} ms"
        return None

    def _is_stuck(self, connection: Connection, now_ms: int) -> bool:
        """Return whether nothing happens on a connection, and that is not our fault."""
        if connection.is_read or connection.waiting_count or self.memory.is_refused(connection):
            return False
        return now_ms - connection.active_ms > self._settings.grace_ms


def connections_room() -> int:
    """Return how many connections leave the logs the descriptors that they need."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return INT32_MAX
    return limit - max(limit // 4, min(_KEPT_FOR_LOGS_MIN, limit // 2))


def _another_port(port: int) -> int:
    return 19092 if port != 19092 else 29092


def bound_socket(address: Address) -> socket.socket:
    """Return a socket on the address; an empty host means every address, of IPv6 too."""
    if not address.host:
        if socket.has_dualstack_ipv6():
            return _bound(socket.AF_INET6, ("::", address.port), dual=True)
        return _bound(socket.AF_INET, ("", address.port))
    found = socket.getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    # Clients that are told a name try its addresses one by one; IPv4 is there on every machine.
    family, _, _, _, name = min(found, key=lambda one: one[0] is not socket.AF_INET)
    return _bound(family, name)


def _bound(
    family: socket.AddressFamily | int, name: tuple[object, ...], *, dual: bool = False
) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if dual:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind(name)
    except BaseException:
        sock.close()
        raise
    return sock
