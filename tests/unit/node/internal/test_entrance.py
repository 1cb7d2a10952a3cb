"""The REPLICATION listener: who is let in, and who is not."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from ottla.node.internal import entrance
from ottla.node.internal.cable import VANISHED_MS
from ottla.node.internal.entrance import TICKET_BYTES, Entrance, Ticket, secured
from ottla.node.internal.tls import Tls, name_of
from ottla.proto.errors import ConfigError
from ottla.proto.options.endpoints import Address
from tests.unit.node.internal.certificates import Authority
from tests.unit.node.internal.link import leader, run, until
from tests.unit.node.internal.stage import listen_to_logs
from tests.unit.node.internal.test_replication_service import Cable, ticket

NUMBER = bytes(range(TICKET_BYTES))


class Hall:
    """A entrance, and who came in."""

    def __init__(self, tls: Tls | None = None) -> None:
        self.entrance = Entrance(Address("127.0.0.1", 0), tls)
        self.address = self.entrance.bind()
        self.tickets = {NUMBER: Ticket(NUMBER, 2, self._take)}
        self.came: list[socket.socket] = []

    def _take(self, sock: socket.socket) -> None:
        self.came.append(sock)

    def redeem(self, number: bytes) -> Ticket | None:
        return self.tickets.pop(number, None)


@asynccontextmanager
async def hall(tls: Tls | None = None) -> AsyncIterator[Hall]:
    found = Hall(tls)
    found.entrance.start(found.redeem)
    try:
        yield found
    finally:
        await found.entrance.stop()
        for sock in found.came:
            sock.close()


async def dial(where: Hall) -> socket.socket:
    sock = socket.socket()
    sock.setblocking(False)
    address = (where.address.host, where.address.port)
    try:
        await asyncio.get_running_loop().sock_connect(sock, address)
    except OSError:
        sock.close()
        raise
    return sock


def is_over(sock: socket.socket) -> bool:
    """Return whether the other end has closed it by now."""
    try:
        return sock.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


async def is_shut(sock: socket.socket) -> bool:
    """Wait until the other end has closed it."""
    try:
        return await asyncio.get_running_loop().sock_recv(sock, 1) == b""
    except ConnectionError:
        return True


def test_d1_a_ticket_is_good_for_one_line() -> None:
    async def story() -> None:
        log = listen_to_logs()
        async with hall() as here:
            with await dial(here) as first, await dial(here) as second:
                first.send(NUMBER[:10])
                await asyncio.sleep(0.01)
                first.send(NUMBER[10:])
                await until(lambda: len(here.came) == 1)
                second.send(NUMBER)
                assert await is_shut(second)
            (came,) = here.came
            # A machine that vanishes is noticed by the kernel.
            assert came.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert came.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == VANISHED_MS
        assert log.getvalue().count("Nobody was given such a ticket.") == 1

    run(story)


@pytest.mark.parametrize("words", [b"GET / HTTP/1.1\r\nHost: node\r\n\r\n", b"\xff" * 4096, b"GET"])
def test_d1_strangers_are_sent_away(words: bytes) -> None:
    async def story() -> None:
        async with hall() as here:
            with await dial(here) as sock:
                sock.send(words)
                sock.shutdown(socket.SHUT_WR)
                assert await is_shut(sock)
            with await dial(here) as sock:
                sock.send(NUMBER)
                await until(lambda: here.came)

    run(story)


def test_who_only_looks_whether_somebody_listens_is_not_told_of() -> None:
    async def story() -> None:
        log = listen_to_logs()
        async with hall() as here:
            (await dial(here)).close()
            await until(lambda: "knocked" in log.getvalue())
        assert "WARNING" not in log.getvalue()

    run(story)


def test_d2_who_says_nothing_is_sent_away_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entrance, "LET_IN_S", 0.05)

    async def story() -> None:
        log = listen_to_logs()
        async with hall() as here:
            with await dial(here) as sock:
                sock.send(NUMBER[:-1])
                assert await is_shut(sock)
            assert not here.came
        assert "It did not say its number." in log.getvalue()

    run(story)


def test_d2_strangers_hold_a_few_places_and_never_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(entrance, "WAITING_MAX", 3)

    async def story() -> None:
        log = listen_to_logs()
        async with hall() as here:
            silent = [await dial(here) for _ in range(20)]
            await until(lambda: len(here.entrance._waiting) == 3)
            assert all([await is_shut(one) for one in silent[:-3]])
            # They go on coming, and a follower gets through.
            with await dial(here) as sock:
                sock.send(NUMBER)
                await until(lambda: here.came)
            assert log.getvalue().count("Too many wait to be let in.") == 1
            for one in silent:
                one.close()

    run(story)


def test_d2_strangers_who_come_all_at_once_hold_no_more_and_leave_turns_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(entrance, "WAITING_MAX", 20)

    async def story() -> None:
        most = turns = 0
        has_come = False

        async def look() -> None:
            nonlocal most, turns
            while not has_come:
                # Also those who were sent away and still hold a connection.
                most = max(most, sum("_greet" in repr(task) for task in asyncio.all_tasks()))
                turns += 1
                await asyncio.sleep(0)

        async with hall() as here:
            looking = asyncio.create_task(look())
            await asyncio.sleep(0)
            strangers = []
            for _ in range(6):
                # As many as may stand in line, without a turn in between.
                for _ in range(60):
                    strangers.append(socket.socket())
                    strangers[-1].setblocking(False)
                    with suppress(BlockingIOError):
                        strangers[-1].connect((here.address.host, here.address.port))
                before = turns
                ended = len(strangers) - 20
                await until(lambda least=ended: sum(map(is_over, strangers)) >= least)  # type: ignore[misc]
                assert len(here.entrance._waiting) == 20
                assert turns >= before + 60 // entrance._ACCEPTS_MAX
            assert most <= 20 + entrance._ACCEPTS_MAX
            with await dial(here) as sock:
                sock.send(NUMBER)
                await until(lambda: here.came)
            has_come = True
            await looking
            for one in strangers:
                one.close()

    run(story)


def test_who_is_sent_away_before_being_greeted_is_let_go_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """More come in one turn than may wait: those were never looked at, and nobody else has them."""
    monkeypatch.setattr(entrance, "WAITING_MAX", 3)
    closed: list[socket.socket] = []
    close = socket.socket.close

    def noted(self: socket.socket) -> None:
        closed.append(self)
        close(self)

    async def story() -> None:
        async with hall() as here:
            strangers = [socket.socket() for _ in range(12)]
            for one in strangers:
                one.setblocking(False)
                with suppress(BlockingIOError):
                    one.connect((here.address.host, here.address.port))
            monkeypatch.setattr(socket.socket, "close", noted)
            await until(lambda: sum(map(is_over, strangers)) >= 9)
            # By a call, and not only because the last one who knew it forgot it.
            assert len(closed) == 9
            monkeypatch.setattr(socket.socket, "close", close)
            for one in strangers:
                one.close()

    run(story)


def test_with_keys_a_ticket_comes_with_the_certificate_of_its_node(tmp_path: Path) -> None:
    authority = Authority(tmp_path)

    async def story() -> None:
        log = listen_to_logs()
        async with hall(authority.tls(1)) as here:
            # In plain text nobody is heard.
            with await dial(here) as sock:
                sock.send(NUMBER)
                assert await is_shut(sock)
            keys = authority.tls(3).calling_context()
            with await secured(await dial(here), keys, server_hostname=name_of(1)) as other:
                other.send(NUMBER)
                await until(lambda: "came with another's certificate" in log.getvalue())
            assert not here.came
            here.tickets[NUMBER] = Ticket(NUMBER, 2, here._take)
            keys = authority.tls(2).calling_context()
            with await secured(await dial(here), keys, server_hostname=name_of(1)) as right:
                right.send(NUMBER)
                await until(lambda: here.came)

    run(story)


@pytest.mark.parametrize(("line_end", "between"), [(b"\r\n", b""), (b"\n", b" \n\n")])
def test_keys_may_be_written_by_any_editor(tmp_path: Path, line_end: bytes, between: bytes) -> None:
    authority = Authority(tmp_path)
    keys = authority.keys(name_of(1))
    held = keys.read_bytes().replace(b"-----\n-----", b"-----" + between + b"\n-----")
    keys.write_bytes(held.replace(b"\n", line_end))
    twice = authority.trusted.read_bytes() + between + Authority(tmp_path, "b").trusted.read_bytes()
    authority.trusted.write_bytes(twice.replace(b"\n", line_end))
    tls = Tls.from_files(keys, authority.trusted)
    tls.require_valid(1, keys, authority.trusted)
    assert len(tls.serving_context().get_ca_certs()) == 2
    assert len(tls.calling_context().get_ca_certs()) == 2


def test_keys_that_cannot_be_used_are_told(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    one, other = authority.tls(1), authority.tls(2)
    with pytest.raises(ConfigError, match=r"cannot be used for REPLICATION: key values mismatch"):
        Tls(one.key, other.chain, one.authorities).serving_context()


def test_with_keys_who_dials_insists_on_the_node_that_it_means(tmp_path: Path) -> None:
    authority, foreign = Authority(tmp_path), Authority(tmp_path, "foreign")

    async def story() -> None:
        async with hall(authority.tls(1)) as here:
            for keys, name in ((authority.tls(2), name_of(3)), (foreign.tls(2), name_of(1))):
                with pytest.raises(OSError, match=r"certificate verify failed"):
                    await secured(await dial(here), keys.calling_context(), server_hostname=name)

    run(story)


def test_an_address_that_is_taken_is_told() -> None:
    async def story() -> None:
        async with hall() as here:
            other = Entrance(here.address, None)
            with pytest.raises(ConfigError, match=r"Address already in use.*REPLICATION://"):
                other.bind()
            await other.stop()

    run(story)


def test_after_a_stop_nobody_is_let_in() -> None:
    async def story() -> None:
        here = Hall()
        here.entrance.start(here.redeem)
        with await dial(here) as sock:
            await until(lambda: here.entrance._waiting)
            await here.entrance.stop()
            assert await is_shut(sock)
        with pytest.raises(ConnectionRefusedError):
            await dial(here)

    run(story)


# ── Tickets, where they are given ─────────────────────────────────────────────────────────────


def test_the_newest_ticket_of_a_follower_is_the_one_that_counts() -> None:
    async def story() -> None:
        async with leader() as node:
            old, new = await ticket(node), await ticket(node)
            assert old[TICKET_BYTES:].decode() == str(node.entrance_address)
            stale = await Cable.open(node, number=old[:TICKET_BYTES])
            assert await stale.end() == ""
            cable = await Cable.open(node, number=new[:TICKET_BYTES])
            await cable.ask(b"ask")
            await node.fed()
            again = await Cable.open(node, number=new[:TICKET_BYTES])
            assert await again.end() == ""
            cable.close()

    run(story)


def test_a_ticket_that_is_too_old_is_void(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.node.internal.replication_service.TICKET_MS", -1)

    async def story() -> None:
        async with leader() as node:
            cable = await Cable.open(node)
            assert await cable.end() == ""
            assert not node.feeders

    run(story)
