"""TLS between nodes: each proves who it is, or is not listened to.

The certificate of a node carries the name `ottla-node-<id>` among its alternative names. Who dials
a node insists on that name; who is dialled reads the name of the caller. Addresses prove nothing,
so they need not stand in certificates.

Without keys there is no TLS, and everybody who reaches the INTERNAL listener is believed to be who
they say.

Not here: the options' rows (`ottla.proto.options.node`).

P1  with keys, nobody without a certificate of these authorities is served
P2  a certificate that the node's own authorities would refuse stops the start, with the reason
"""

from __future__ import annotations

import os
import re
import ssl
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import grpc

from ottla.proto.errors import ConfigError
from ottla.proto.options import node
from ottla.proto.options.sources import Options

# A certificate that names no node, or two, speaks for nobody.
NOBODY: Final = -1

_NAME: Final = re.compile(r"ottla-node-(0|[1-9][0-9]{0,9})")
_KEY: Final = re.compile(
    rb"-----BEGIN (?P<kind>[A-Z ]*PRIVATE KEY)-----.+?-----END (?P=kind)-----\n?", re.DOTALL
)
_CERTIFICATE: Final = re.compile(
    rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----\n?", re.DOTALL
)
_PEM_BYTES_MAX: Final = 1 << 20
_HANDSHAKE_STEPS_MAX: Final = 20


class Authenticated(Protocol):
    """What is asked of a call's context."""

    def auth_context(self) -> Mapping[str, Iterable[bytes]]: ...


def name_of(node_id: int) -> str:
    """Return the name that stands in the certificate of a node."""
    return f"ottla-node-{node_id}"


@dataclass(frozen=True, slots=True)
class Tls:
    """The keys of one node, and the authorities that it trusts."""

    key: bytes
    chain: bytes
    authorities: bytes

    @classmethod
    def from_options(cls, options: Options) -> Tls | None:
        """Return the keys that the options name, checked, or None; raise `ConfigError`."""
        keys = options.value_of(node.INTERNAL_KEYSTORE)
        trusted = options.value_of(node.INTERNAL_TRUSTSTORE)
        if not keys and not trusted:
            return None
        if not keys or not trusted:
            raise ConfigError(
                f"{node.INTERNAL_KEYSTORE.name} and {node.INTERNAL_TRUSTSTORE.name} must be given "
                "together."
            )
        tls = cls.from_files(Path(keys), Path(trusted))
        tls.require_valid(options.value_of(node.NODE_ID), Path(keys), Path(trusted))
        return tls

    @classmethod
    def from_files(cls, keys: Path, trusted: Path) -> Tls:
        held = _read(keys, node.INTERNAL_KEYSTORE.name)
        key, chain = _KEY.search(held), _certificates(held)
        if key is None or not chain:
            raise ConfigError(
                f"{node.INTERNAL_KEYSTORE.name} must be a PEM file with a private key and its "
                f"certificate; {keys} is none."
            )
        told = _read(trusted, node.INTERNAL_TRUSTSTORE.name)
        authorities = _certificates(told)
        if not authorities:
            raise ConfigError(
                f"{node.INTERNAL_TRUSTSTORE.name} must be a PEM file with certificates; {trusted} "
                "has none."
            )
        return cls(key.group().strip() + b"\n", chain, authorities)

    def require_valid(self, node_id: int, keys: Path, trusted: Path) -> None:
        """Raise `ConfigError` unless other nodes would take these keys for those of this node."""
        try:
            serving, calling = _contexts(keys, trusted)
            _shake_hands(serving, calling, name_of(node_id))
        except (ssl.SSLError, OSError) as error:
            raise ConfigError(
                f"{node.INTERNAL_KEYSTORE.name} would be refused by other nodes: "
                f"{reason_of(error)}. It needs a certificate for {name_of(node_id)} that "
                f"{trusted} vouches for."
            ) from None

    def server_credentials(self) -> grpc.ServerCredentials:
        return grpc.ssl_server_credentials(
            [(self.key, self.chain)],
            root_certificates=self.authorities,
            require_client_auth=True,
        )

    def channel_credentials(self) -> grpc.ChannelCredentials:
        return grpc.ssl_channel_credentials(self.authorities, self.key, self.chain)

    def serving_context(self) -> ssl.SSLContext:
        """Return what a listener needs that is not gRPC's; it asks for certificates, too."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = ssl.CERT_REQUIRED
        return self._loaded(context)

    def calling_context(self) -> ssl.SSLContext:
        """Return the same for who dials such a listener, and insists on the name of a node."""
        return self._loaded(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))

    def _loaded(self, context: ssl.SSLContext) -> ssl.SSLContext:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        try:
            context.load_verify_locations(cadata=self.authorities.decode("ascii", "replace"))
            with _as_file(self.key + self.chain) as path:
                context.load_cert_chain(path, password=lambda: "")
        except OSError as error:
            raise ConfigError(
                f"{node.INTERNAL_KEYSTORE.name} cannot be used for REPLICATION: {reason_of(error)}."
            ) from None
        return context

    def verified_node(self, context: Authenticated) -> int:
        """Return the node that the caller's certificate names; `NOBODY` if it names no single one.

        Where there is no `Tls` there is nothing to ask, and the caller passes None on.
        """
        names = context.auth_context().get("x509_subject_alternative_name", ())
        return _only_node(map(_shown, names))


def node_named_in(sock: ssl.SSLSocket) -> int:
    """Return the node that the certificate of the other end names; `NOBODY` if no single one."""
    certificate = sock.getpeercert() or {}
    names: Any = certificate.get("subjectAltName", ())
    return _only_node(name for kind, name in names if kind == "DNS")


def _only_node(names: Iterable[str]) -> int:
    nodes = {found[1] for name in names if (found := _NAME.fullmatch(name))}
    return int(nodes.pop()) if len(nodes) == 1 else NOBODY


def reason_of(error: OSError) -> str:
    """Return the part of an error that a person needs."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return str(error.verify_message)
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).lower().replace("_", " ")
    return error.strerror or str(error)


def why_of(error: OSError) -> str:
    """Return why a connection could not be made, or did not last, in the system's own words."""
    if isinstance(error, ssl.SSLError) or error.errno is None:
        return reason_of(error)
    # asyncio puts the address there, which whoever reads this knows.
    return os.strerror(error.errno)


def _certificates(pem: bytes) -> bytes:
    """Return all that there are, each on lines of its own, whatever stood between them."""
    return b"".join(found.strip() + b"\n" for found in _CERTIFICATE.findall(pem))


@contextmanager
def _as_file(pem: bytes) -> Iterator[str]:
    """Python takes a key from a file only: one in memory, where the system has such."""
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("ottla-keys"), "wb") as held:
            held.write(pem)
            held.flush()
            yield f"/proc/self/fd/{held.fileno()}"
    else:
        with tempfile.NamedTemporaryFile(prefix="ottla-") as kept:
            kept.write(pem)
            kept.flush()
            yield kept.name


def _shown(name: bytes) -> str:
    return name.decode("ascii", "replace")


def _read(path: Path, option: str) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_PEM_BYTES_MAX)
    except OSError as error:
        raise ConfigError(f"{option} cannot be read: {path}: {reason_of(error)}.") from None


def _contexts(keys: Path, trusted: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.verify_mode = ssl.CERT_REQUIRED
    calling = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for context in (serving, calling):
        # A callback without words, so that a key with a pass phrase asks nobody on a terminal.
        context.load_cert_chain(keys, password=lambda: "")
        context.load_verify_locations(trusted)
    return serving, calling


def _shake_hands(serving: ssl.SSLContext, calling: ssl.SSLContext, name: str) -> None:
    """Let this node dial itself, in memory. Raises what either side would complain of."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = calling.wrap_bio(to_client, to_server, server_hostname=name)
    server = serving.wrap_bio(to_server, to_client, server_side=True)
    waiting = [client, server]
    for _ in range(_HANDSHAKE_STEPS_MAX):
        for side in tuple(waiting):
            try:
                side.do_handshake()
                waiting.remove(side)
            except ssl.SSLWantReadError:
                continue
        if not waiting:
            return
    raise ssl.SSLError("the handshake does not end")
