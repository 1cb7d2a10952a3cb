"""Keys that other nodes would refuse are found at the start, with the reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.node.internal.tls import NOBODY, Tls, name_of
from ottla.proto.errors import ConfigError
from ottla.proto.options.load import load
from tests.unit.node.internal.certificates import Authority

KEYSTORE = "listener.name.internal.ssl.keystore.location"
TRUSTSTORE = "listener.name.internal.ssl.truststore.location"


class Called:
    def __init__(self, *names: bytes) -> None:
        self._names = names

    def auth_context(self) -> dict[str, tuple[bytes, ...]]:
        return {"x509_subject_alternative_name": self._names} if self._names else {}


def read(keys: Path | str, trusted: Path | str) -> Tls | None:
    return Tls.from_options(
        load(flags={"node.id": "1", KEYSTORE: str(keys), TRUSTSTORE: str(trusted)})
    )


def test_without_keys_there_is_no_tls() -> None:
    assert Tls.from_options(load()) is None


def test_keys_of_this_node_are_taken(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    tls = read(authority.keys(name_of(1), "node-1.example"), authority.trusted)
    assert tls is not None
    assert tls.channel_credentials() is not None
    assert tls.server_credentials() is not None


def test_one_of_the_two_alone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="must be given together"):
        load(flags={KEYSTORE: str(Authority(tmp_path).keys(name_of(1)))})


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda a, o: (a.keys(name_of(2)), a.trusted), "[Hh]ostname mismatch.*ottla-node-1"),
        (lambda a, o: (a.keys(), a.trusted), "ottla-node-1"),
        (lambda a, o: (a.keys(name_of(1), age_days=2), a.trusted), "certificate has expired"),
        (lambda a, o: (o.keys(name_of(1)), a.trusted), "unable to get local issuer"),
        (lambda a, o: (a.trusted, a.trusted), "with a private key and its certificate"),
        (lambda a, o: (a.keys(name_of(1)), "/nowhere/at.all"), "No such file or directory"),
        (lambda a, o: ("/nowhere/at.all", a.trusted), "cannot be read"),
    ],
    ids=["other node", "no name", "expired", "foreign", "no key", "no authorities", "no file"],
)
def test_keys_that_others_would_refuse_stop_the_start(
    make: Callable[[Authority, Authority], tuple[Path, Path]], reason: str, tmp_path: Path
) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    with pytest.raises(ConfigError, match=reason):
        read(*make(authority, other))


def test_a_key_that_is_not_the_certificates_is_refused(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    one, other = authority.keys(name_of(1)).read_bytes(), authority.keys(name_of(1)).read_bytes()
    mixed = tmp_path / "mixed.pem"
    middle = b"-----BEGIN CERTIFICATE"
    mixed.write_bytes(one.partition(middle)[0] + middle + other.partition(middle)[2])
    with pytest.raises(ConfigError, match="key values mismatch"):
        read(mixed, authority.trusted)


def test_a_key_with_a_pass_phrase_is_refused_and_nobody_is_asked_for_it(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with pytest.raises(ConfigError, match="would be refused by other nodes"):
        read(authority.keys(name_of(1), pass_phrase=b"secret"), authority.trusted)


def test_a_file_of_authorities_without_one_is_refused(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    empty = tmp_path / "empty.pem"
    empty.write_bytes(b"")
    with pytest.raises(ConfigError, match="has none"):
        read(authority.keys(name_of(1)), empty)


@pytest.mark.parametrize(
    ("names", "node"),
    [
        ((b"ottla-node-7",), 7),
        ((b"host-7", b"ottla-node-7"), 7),
        ((b"ottla-node-7", b"ottla-node-8"), NOBODY),
        ((b"host-7",), NOBODY),
        ((b"ottla-node-07",), NOBODY),
        ((b"ottla-node-7.example",), NOBODY),
        ((b"\xff\xfe",), NOBODY),
        ((), NOBODY),
    ],
)
def test_a_certificate_speaks_for_the_one_node_that_it_names(
    names: tuple[bytes, ...], node: int, tmp_path: Path
) -> None:
    tls = Authority(tmp_path).tls(1)
    assert tls.verified_node(Called(*names)) == node
