"""Addresses in options: where a node listens, what it tells others, and who votes.

    CLIENT://127.0.0.1:9092,INTERNAL://127.0.0.1:9093     listeners
    INSIDE://node-1:19092,OUTSIDE://localhost:9092         two for clients, under names of your own
    1@node-1:9093,2@node-2:9093,3@[fd00::3]:9093           voters

Not here: looking a name up or binding a port. Whether `node-1` exists is not a question of form.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import Final

from ottla.proto.ids import INT32_MAX, BrokerId
from ottla.proto.options.option import Kind, WireType, shown

# INTERNAL, REPLICATION, HTTP, or else a listener for clients.
ListenerName = str
LISTENER_NAMES: Final[tuple[ListenerName, ...]] = ("CLIENT", "INTERNAL", "REPLICATION", "HTTP")
_NOT_FOR_CLIENTS: Final = frozenset({"INTERNAL", "REPLICATION", "HTTP"})
# What Kafka's own example files call the listeners that do the same work.
_KAFKA_NAMES: Final[dict[str, ListenerName]] = {"PLAINTEXT": "CLIENT", "CONTROLLER": "INTERNAL"}
_BY_NAME: Final[dict[str, ListenerName]] = {name: name for name in LISTENER_NAMES} | _KAFKA_NAMES
_OWN_NAME: Final = re.compile(r"[A-Z][A-Z0-9_]{0,31}")
# In Kafka these names stand for a protocol too, and clients are spoken to in plain text here.
_PROTECTED_NAMES: Final = frozenset({"SSL", "SASL_PLAINTEXT", "SASL_SSL"})
# So like a name with a meaning that it is a slip: INTERNL would be open to clients.
_SLIP: Final = 0.8
_PORT_MAX: Final = 65535
# Underscores are no part of host names, but container names have them.
_LABEL: Final = r"[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?"
_HOST: Final = re.compile(rf"{_LABEL}(\.{_LABEL})*\.?")
_HOST_MAX: Final = 253
_NUMBER: Final = re.compile(r"[0-9]{1,10}")


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a port. An empty host, where a node listens, means every address it has."""

    host: str
    port: int

    @property
    def is_everywhere(self) -> bool:
        return self.host in ("", "0.0.0.0", "::")

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it, as far as the text tells."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Listener:
    """One of the doors of a node."""

    name: ListenerName
    address: Address

    def __str__(self) -> str:
        return f"{self.name}://{self.address}"


@dataclass(frozen=True, slots=True)
class Voter:
    """A controller that votes, and its INTERNAL address."""

    node_id: BrokerId
    address: Address

    def __str__(self) -> str:
        return f"{self.node_id}@{self.address}"


def parse_address(text: str, *, listening: bool = False) -> Address:
    """Return the address, or raise ValueError with words that complete "… must be"."""
    host, colon, port = text.rpartition(":")
    if not colon:
        raise ValueError(f"host:port everywhere, and {shown(text)} has no port")
    port_min = 0 if listening else 1
    if not _NUMBER.fullmatch(port) or not port_min <= int(port) <= _PORT_MAX:
        raise ValueError(f"host:port with a port from {port_min} to {_PORT_MAX}, not {shown(text)}")
    return Address(_parse_host(host, text, listening=listening), int(port))


def _parse_host(host: str, text: str, *, listening: bool) -> str:
    if host.startswith("[") and host.endswith("]"):
        try:
            return str(IPv6Address(host[1:-1]))
        except ValueError:
            raise ValueError(f"host:port with an IPv6 address in [ ], not {shown(text)}") from None
    if not host and listening:
        return host
    if len(host) > _HOST_MAX or not _HOST.fullmatch(host):
        raise ValueError(f"host:port with a name or an address as host, not {shown(text)}")
    return host


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",")] if text else []


def _parse_listeners(text: str, *, listening: bool) -> tuple[Listener, ...]:
    listeners = tuple(_parse_listener(item, listening=listening) for item in _items(text))
    _require_distinct([listener.name for listener in listeners], "listener")
    _require_distinct(
        [listener.address for listener in listeners if listener.address.port], "address"
    )
    return listeners


def _parse_listener(item: str, *, listening: bool) -> Listener:
    name, separator, address = item.partition("://")
    if not separator:
        raise ValueError(f"a list of NAME://host:port, and {shown(item)} is none")
    return Listener(listener_name(name), parse_address(address, listening=listening))


def listener_name(text: str) -> ListenerName:
    """Return the name of a listener, or raise ValueError with words that complete "… must be"."""
    name = text.strip().upper()
    if name in _BY_NAME:
        return _BY_NAME[name]
    if name in _PROTECTED_NAMES:
        raise ValueError(
            f"a list of NAME://host:port, and {name} promises what no listener gives yet: "
            "clients are spoken to in plain text. Call it CLIENT if that is meant"
        )
    if near := difflib.get_close_matches(name[:64], _BY_NAME, n=1, cutoff=_SLIP):
        raise ValueError(
            f"a list of NAME://host:port, and {shown(text)} is too like {near[0]}: "
            f"write {near[0]}, or choose another name"
        )
    if not _OWN_NAME.fullmatch(name):
        raise ValueError(
            f"a list of NAME://host:port with names of letters, digits and _, not {shown(text)}"
        )
    return name


def is_for_clients(name: ListenerName) -> bool:
    return name not in _NOT_FOR_CLIENTS


def _parse_voters(text: str) -> tuple[Voter, ...]:
    voters = tuple(_parse_voter(item) for item in _items(text))
    _require_distinct([voter.node_id for voter in voters], "id")
    _require_distinct([voter.address for voter in voters], "address")
    return voters


def _parse_voter(item: str) -> Voter:
    node_id, separator, address = item.partition("@")
    if not separator:
        raise ValueError(f"a list of id@host:port, and {shown(item)} is none")
    if not _NUMBER.fullmatch(node_id) or int(node_id) > INT32_MAX:
        raise ValueError(f"a list of id@host:port with whole numbers as ids, not {shown(node_id)}")
    return Voter(BrokerId(int(node_id)), parse_address(address))


def _require_distinct(
    values: list[ListenerName] | list[Address] | list[BrokerId], word: str
) -> None:
    seen: set[object] = set()
    for value in values:
        if value in seen:
            raise ValueError(f"a list that names each {word} once, and {value} is there twice")
        seen.add(value)


def _text_of(items: Iterable[Listener | Voter]) -> str:
    return ",".join(map(str, items))


LISTENERS: Final = Kind(
    "listeners", WireType.LIST, lambda text: _parse_listeners(text, listening=True), _text_of
)
ADVERTISED: Final = Kind(
    "listeners", WireType.LIST, lambda text: _parse_listeners(text, listening=False), _text_of
)
VOTERS: Final = Kind("voters", WireType.LIST, _parse_voters, _text_of)
