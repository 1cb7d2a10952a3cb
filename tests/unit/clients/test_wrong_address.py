"""A wrong address in `bootstrap.servers`: each client says what to change, and in time."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from ottla.clients.admin.blocking import Admin
from ottla.clients.consumer.sync_consumer import Consumer
from ottla.clients.errors import BootstrapError
from ottla.clients.producer.client import Producer

TIMEOUT_S = 1.5
# Beyond the time that was asked for: a busy machine.
SLACK_S = 10.0
TLS_ALERT = b"\x15\x03\x03\x00\x02\x02\x46"


@contextmanager
def _server(says: bytes | None) -> Iterator[str]:
    """Answer every connection with these bytes, or take it and say nothing; give the address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken: list[socket.socket] = []

        def serve() -> None:
            while True:
                try:
                    one, _ = listener.accept()
                except OSError:
                    return
                taken.append(one)
                if says is not None:
                    one.recv(1)
                    one.sendall(says)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(SLACK_S)
            for one in taken:
                one.close()


def _consume(bootstrap: str) -> None:
    config = {"bootstrap.servers": bootstrap, "default.api.timeout.ms": int(TIMEOUT_S * 1000)}
    with Consumer(config) as consumer:
        consumer.partitions_for("t")


def _produce(bootstrap: str) -> None:
    config = {"bootstrap.servers": bootstrap, "max.block.ms": int(TIMEOUT_S * 1000)}
    with Producer(config) as producer:
        producer.partitions_for("t")


def _administer(bootstrap: str) -> None:
    config = {"bootstrap.servers": bootstrap, "default.api.timeout.ms": int(TIMEOUT_S * 1000)}
    with Admin(config) as admin:
        admin.list_topics()


CLIENTS: list[Callable[[str], None]] = [_consume, _produce, _administer]


def _require_refusal(use: Callable[[str], None], bootstrap: str, reason: str) -> None:
    began = time.monotonic()
    with pytest.raises(BootstrapError, match=reason) as told:
        use(bootstrap)
    assert bootstrap in str(told.value)
    assert time.monotonic() - began < TIMEOUT_S + SLACK_S


@pytest.mark.parametrize("use", CLIENTS)
def test_a_port_where_nobody_listens(use: Callable[[str], None]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    _require_refusal(use, f"127.0.0.1:{port}", "connection refused")


@pytest.mark.parametrize("use", CLIENTS)
def test_a_name_that_nobody_knows(use: Callable[[str], None]) -> None:
    _require_refusal(use, "no-such-host.invalid:9092", "the name is not known.* must name")


@pytest.mark.parametrize(
    ("says", "reason"),
    [
        (TLS_ALERT, "speaks TLS, and this client plain text only; name a plain-text listener"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "speaks HTTP, .* on another port"),
        (None, "did not answer within"),
    ],
    ids=["tls", "http", "silence"],
)
def test_a_port_that_is_not_for_kafka(says: bytes | None, reason: str) -> None:
    with _server(says) as bootstrap:
        _require_refusal(_consume, bootstrap, reason)
