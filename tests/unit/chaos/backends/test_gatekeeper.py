"""Gates in a process of their own do what gates do, and end with whoever started them."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from ottla.chaos.backends.gatekeeper import Gatekeeper
from ottla.chaos.backends.links import EVERYWHERE, is_listening
from ottla.chaos.backends.reserved import HOST, take_port
from ottla.chaos.clock import wait_until
from ottla.chaos.ports import WHOLE, HarnessError, LinkFault

SOON_S = 10.0


@pytest.fixture
def keeper() -> Iterator[Gatekeeper]:
    made = Gatekeeper(seed=1)
    yield made
    made.close()


def test_bytes_pass_are_cut_and_are_counted(keeper: Gatekeeper) -> None:
    with take_port() as target:
        target.listen()
        port = keeper.add(1, 2, target.getsockname()[1])
        keeper.watch(2, os.getpid())
        wait_until(lambda: is_listening(port), SOON_S, "the gate is open")
        # The gate's own knocks, and ours.
        target.settimeout(SOON_S)
        keeper.set(1, 2, LinkFault(is_cut=True))
        with socket.create_connection((HOST, port), timeout=SOON_S) as line:
            line.sendall(b"held")
            assert keeper.passed_bytes(1, 2) == 0
            keeper.set(1, 2, WHOLE)
            wait_until(lambda: keeper.passed_bytes(1, 2) == 4, SOON_S, "bytes pass")
            keeper.set(1, 2, LinkFault(delay_ms=1))
            line.sendall(b"late")
            wait_until(lambda: keeper.met_pieces(1, 2) == 1, SOON_S, "a piece meets the delay")


def test_gates_for_others_listen_everywhere_and_dial_by_name() -> None:
    keeper = Gatekeeper(seed=1, host=EVERYWHERE)
    try:
        with take_port() as target:
            target.listen()
            port = keeper.add(1, 2, target.getsockname()[1], "localhost")
            nowhere = keeper.add(2, 1, 1, "no-such-host.invalid")
            for node in (1, 2):
                keeper.watch(node, os.getpid())
            wait_until(lambda: is_listening(port), SOON_S, "the gate is open")
            assert not is_listening(nowhere)
            with socket.create_connection((HOST, port), timeout=SOON_S) as line:
                line.sendall(b"here")
                wait_until(lambda: keeper.passed_bytes(1, 2) == 4, SOON_S, "bytes pass")
    finally:
        keeper.close()


def test_it_is_started_by_the_command_that_is_given() -> None:
    script = 'read asked; echo "{\\"answer\\": $WORTH}"'
    keeper = Gatekeeper(1, ("sh", "-c", script), environment={"WORTH": "7"})
    try:
        assert keeper.add(1, 2, 3) == 7
    finally:
        keeper.close()


def test_what_cannot_be_done_is_told(keeper: Gatekeeper) -> None:
    with pytest.raises(HarnessError, match="cannot watch"):
        keeper.watch(1, 0)


def test_it_is_gone_when_it_was_closed() -> None:
    keeper = Gatekeeper(seed=1)
    port = keeper.add(1, 2, 1)
    keeper.close()
    assert not is_listening(port)
    with pytest.raises(HarnessError):
        keeper.passed_bytes(1, 2)
