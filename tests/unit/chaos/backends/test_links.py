"""Ways between nodes that can be cut, delayed, thinned and reset, each direction by itself."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial

import pytest

from ottla.chaos.backends.links import CLIENTS, Links, is_listening
from ottla.chaos.backends.reserved import HOST, take_port
from ottla.chaos.clock import wait_until
from ottla.chaos.ports import WHOLE, LinkFault

SOON_S = 5.0
# Long enough for bytes that pass to have come, on loopback.
SILENCE_S = 0.15
CUT = LinkFault(is_cut=True)


class Echo:
    """Answers with what it gets, in upper case."""

    def __init__(self) -> None:
        self.socket = take_port()
        self.socket.listen()
        self.port = self.socket.getsockname()[1]
        self.taken = bytearray()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                one, _ = self.socket.accept()
                threading.Thread(target=self._answer, args=(one,), daemon=True).start()

    def _answer(self, one: socket.socket) -> None:
        with one, suppress(OSError):
            while data := one.recv(1 << 16):
                self.taken += data
                one.sendall(data.upper())


@pytest.fixture
def links() -> Iterator[Links]:
    made = Links(seed=1)
    yield made
    made.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    made = Echo()
    yield made
    made.socket.close()


def opened(links: Links, echo: Echo) -> int:
    port = links.add(1, 2, echo.port)
    links.watch(2, os.getpid())
    wait_until(lambda: is_listening(port), SOON_S, "the gate is open")
    return port


def dial(port: int) -> socket.socket:
    return socket.create_connection((HOST, port), timeout=SOON_S)


def hears(one: socket.socket, size: int) -> bytes:
    got = b""
    while len(got) < size:
        part = one.recv(size - len(got))
        if not part:
            break
        got += part
    return got


def is_silent(one: socket.socket) -> bool:
    one.settimeout(SILENCE_S)
    try:
        one.recv(1)
    except TimeoutError:
        return True
    else:
        return False
    finally:
        one.settimeout(SOON_S)


def _is_over(one: socket.socket) -> bool:
    try:
        return one.recv(1) == b""
    except ConnectionError:
        return True


def _is_shut(port: int) -> bool:
    return not is_listening(port)


def test_a_whole_link_changes_nothing(links: Links, echo: Echo) -> None:
    with dial(opened(links, echo)) as line:
        sent = os.urandom(1 << 20).hex().encode()
        threading.Thread(target=line.sendall, args=(sent,), daemon=True).start()
        assert hears(line, len(sent)) == sent.upper()
        assert links.passed_bytes(1, 2) == links.passed_bytes(2, 1) == len(sent)


def test_a_cut_holds_bytes_and_the_connection_lives(links: Links, echo: Echo) -> None:
    with dial(opened(links, echo)) as line:
        links.set(1, 2, CUT)
        line.sendall(b"held")
        assert is_silent(line)
        assert not echo.taken
        links.set(1, 2, WHOLE)
        assert hears(line, 4) == b"HELD"


def test_each_direction_is_cut_by_itself(links: Links, echo: Echo) -> None:
    with dial(opened(links, echo)) as line:
        links.set(2, 1, CUT)
        line.sendall(b"there")
        wait_until(lambda: echo.taken == b"there", SOON_S, "bytes go there")
        assert is_silent(line)
        links.set(2, 1, WHOLE)
        assert hears(line, 5) == b"THERE"


def test_who_dials_through_a_cut_meets_silence_until_it_is_mended(links: Links, echo: Echo) -> None:
    port = opened(links, echo)
    links.set(1, 2, CUT)
    with dial(port) as line:
        line.sendall(b"late")
        assert is_silent(line)
        links.set(1, 2, WHOLE)
        assert hears(line, 4) == b"LATE"


def test_a_reset_ends_connections_and_refuses_new_ones(links: Links, echo: Echo) -> None:
    port = opened(links, echo)
    with dial(port) as line:
        line.sendall(b"a")
        assert hears(line, 1) == b"A"
        links.set(1, 2, LinkFault(is_reset=True))
        assert _is_over(line)
        # A reset may come before the dialling itself is over.
        with suppress(ConnectionError), dial(port) as again:
            assert _is_over(again)
    links.set(1, 2, WHOLE)
    with dial(port) as line:
        line.sendall(b"c")
        assert hears(line, 1) == b"C"


def test_a_delay_is_added_to_each_direction_that_has_it(links: Links, echo: Echo) -> None:
    with dial(opened(links, echo)) as line:
        links.set(1, 2, LinkFault(delay_ms=60, jitter_ms=10))
        links.set(2, 1, LinkFault(delay_ms=40))
        began_s = time.monotonic()
        line.sendall(b"x")
        assert hears(line, 1) == b"X"
        assert 0.09 <= time.monotonic() - began_s < SOON_S


def test_pieces_are_counted_from_when_a_fault_holds(links: Links, echo: Echo) -> None:
    with dial(opened(links, echo)) as line:
        line.sendall(b"x")
        assert hears(line, 1) == b"X"
        assert links.met_pieces(1, 2) == 0
        links.set(1, 2, LinkFault(delay_ms=1))
        links.set(1, 2, LinkFault(delay_ms=1))
        for _ in range(2):
            line.sendall(b"x")
            assert hears(line, 1) == b"X"
        assert (links.met_pieces(1, 2), links.met_pieces(2, 1)) == (2, 0)
        links.set(1, 2, LinkFault(delay_ms=2))
        assert links.met_pieces(1, 2) == 0


def test_delayed_bytes_keep_their_order_whatever_the_dice_say(links: Links, echo: Echo) -> None:
    with dial(opened(links, echo)) as line:
        links.set(1, 2, LinkFault(delay_ms=5, jitter_ms=5, loss_per_mille=20))
        sent = b"".join(b"%05d" % number for number in range(200))
        for at in range(0, len(sent), 5):
            line.sendall(sent[at : at + 5])
        assert hears(line, len(sent)) == sent


def test_a_lost_packet_stops_the_stream_for_a_while(links: Links, echo: Echo) -> None:
    with dial(opened(links, echo)) as line:
        links.set(1, 2, LinkFault(loss_per_mille=1000))
        began_s = time.monotonic()
        line.sendall(b"x")
        assert hears(line, 1) == b"X"
        assert time.monotonic() - began_s >= 0.2


def test_a_thin_link_takes_its_time(links: Links, echo: Echo) -> None:
    with dial(opened(links, echo)) as line:
        links.set(1, 2, LinkFault(bytes_per_s=100_000))
        began_s = time.monotonic()
        line.sendall(b"x" * 30_000)
        assert hears(line, 30_000) == b"X" * 30_000
        assert time.monotonic() - began_s >= 0.29


def test_what_is_done_to_a_way_is_done_to_every_gate_of_it(links: Links, echo: Echo) -> None:
    other = Echo()
    ports = [opened(links, echo), links.add(1, 2, other.port)]
    wait_until(lambda: is_listening(ports[1]), SOON_S, "the other gate is open")
    try:
        with dial(ports[0]) as line, dial(ports[1]) as beside:
            links.set(1, 2, CUT)
            for one in (line, beside):
                one.sendall(b"held")
                assert is_silent(one)
            with dial(ports[1]) as late:
                late.sendall(b"late")
                assert is_silent(late)
                links.set(1, 2, WHOLE)
                assert [hears(one, 4) for one in (line, beside)] == [b"HELD"] * 2
                assert hears(late, 4) == b"LATE"
            assert links.passed_bytes(1, 2) == 12
            links.set(2, 1, LinkFault(delay_ms=60))
            began_s = time.monotonic()
            for one in (line, beside):
                one.sendall(b"x")
            assert [hears(one, 1) for one in (line, beside)] == [b"X"] * 2
            assert time.monotonic() - began_s >= 0.06
            assert links.met_pieces(2, 1) == 2
            links.set(1, 2, LinkFault(is_reset=True))
            assert _is_over(line)
            assert _is_over(beside)
    finally:
        other.socket.close()


def test_gates_of_one_way_open_each_when_the_port_behind_it_listens(
    links: Links, echo: Echo
) -> None:
    with take_port() as slow:
        first, second = opened(links, echo), links.add(1, 2, slow.getsockname()[1])
        # It is asked again and again, and stays shut beside one that is open.
        with pytest.raises(ConnectionRefusedError):
            dial(second)
        assert is_listening(first)
        slow.listen()
        wait_until(lambda: is_listening(second), SOON_S, "the second gate is open")
        with dial(second) as line:
            line.sendall(b"x")
            wait_until(lambda: links.passed_bytes(1, 2) == 1, SOON_S, "bytes pass")


def test_all_gates_of_a_way_shut_when_the_process_behind_them_ends(links: Links) -> None:
    with take_port() as taken:
        target_port: int = taken.getsockname()[1]
    ports = [links.add(1, 2, target_port), links.add(1, 2, target_port)]
    process = subprocess.Popen([sys.executable, "-c", _PROGRAM, str(target_port)])
    links.watch(2, process.pid)
    for port in ports:
        wait_until(partial(is_listening, port), SOON_S, "the gate is open")
    process.kill()
    process.wait()
    for port in ports:
        wait_until(partial(_is_shut, port), SOON_S, "the gate is shut")
    # A cut takes every trace of that: then both are silent, and not shut.
    links.set(1, 2, CUT)
    assert all(map(is_listening, ports))
    links.set(1, 2, WHOLE)
    assert not any(map(is_listening, ports))


def test_nobody_listens_at_the_gate_of_a_process_that_is_dead(links: Links) -> None:
    port, process = _program(links)
    with dial(port) as line:
        line.sendall(b"x")
        assert hears(line, 1) == b"x"
        process.kill()
        assert line.recv(1) == b""
    wait_until(lambda: not is_listening(port), SOON_S, "the gate is shut")
    with pytest.raises(ConnectionRefusedError):
        dial(port)
    process.wait()


def test_a_death_is_not_seen_through_a_cut(links: Links) -> None:
    port, process = _program(links)
    with dial(port) as line:
        line.sendall(b"x")
        assert hears(line, 1) == b"x"
        links.set(2, CLIENTS, CUT)
        process.kill()
        process.wait()
        assert is_silent(line)
        with dial(port) as other:
            assert is_silent(other)
        links.set(2, CLIENTS, WHOLE)
        assert line.recv(1) == b""


_PROGRAM = """
import socket, sys
one = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    line, _ = one.accept()
    while data := line.recv(10):
        line.sendall(data)
"""


def _program(links: Links) -> tuple[int, subprocess.Popen[bytes]]:
    with take_port() as taken:
        target_port: int = taken.getsockname()[1]
    port = links.add(CLIENTS, 2, target_port)
    process = subprocess.Popen([sys.executable, "-c", _PROGRAM, str(target_port)])
    links.watch(2, process.pid)
    wait_until(lambda: is_listening(port), SOON_S, "the gate is open")
    return port, process


def test_a_gate_opens_again_for_the_next_life_of_its_target(links: Links) -> None:
    port, process = _program(links)
    with dial(port) as line:
        line.sendall(b"x")
        assert hears(line, 1) == b"x"
        process.kill()
        process.wait()
        # The first life's connection is still there, at the side of the gate that dialled.
        wait_until(lambda: not is_listening(port), SOON_S, "the gate is shut")
        again = subprocess.Popen(process.args)
        links.watch(2, again.pid)
        wait_until(lambda: is_listening(port), SOON_S, "the gate is open")
        with dial(port) as other:
            other.sendall(b"y")
            assert hears(other, 1) == b"y"
        again.kill()
        again.wait()
