"""One connection of frames between two nodes, on a socket that is driven directly.

A tube for parcels between two houses: what is put in leaves at once if the tube takes it, and waits
in order if not. Whoever is at the other end is called with one parcel after the other.

    frame      size uint32 │ so many bytes
    beat       size 0: nothing is said, and somebody is there
    farewell   size with its highest bit set │ why the connection ends, in UTF-8

Why not gRPC, which all else between nodes goes by: its threads cost more than half of the processor
time of replication (ADR 0033).

Not here: what a frame means (`ottla.proto.replication`), when to speak (`two_way.py`), and how a
connection begins (`entrance.py`, `replication_stream.py`).

L1  a frame is heard whole, once, in the order in which it was sent, or the cable ends
L2  a size is held against the bound before anything is made of it
L3  it always reads, also while it cannot write: if both ends wrote and neither read, they would
    wait for one another for ever
L4  bytes that somebody still looks at are not read into again
L5  the end is told once, with the reason; never if this end closed it
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from struct import Struct
from typing import Final

from ottla.node.kafka.collecting import Collecting
from ottla.node.kafka.outbox import Outbox
from ottla.proto.errors import OttlaError, RemoteProtocolError

Buffer = bytes | bytearray | memoryview

# How long bytes may be under way without a sign of the peer's machine, and how it is asked.
VANISHED_MS: Final = 5_000
_ASKED_AFTER_S: Final = 2
_ASKED_EACH_S: Final = 1
_ASKED_TIMES: Final = 2

_SIZE: Final = Struct(">I")
_IS_FAREWELL: Final = 1 << 31
_FAREWELL_BYTES_MAX: Final = 1024
_BEAT: Final = _SIZE.pack(0)
# What is read into at first, and again when nothing large came for a while.
BUFFER_USUAL: Final = 64 * 1024
# Reads in one go, so that one busy cable does not hold up everything else.
_READS_MAX: Final = 4
# What TLS gets at once: one record.
_RECORD_BYTES: Final = 16 * 1024


class CableEndedError(OttlaError):
    """The other end has ended the connection, or it broke; for this reason."""


class Cable:
    """One connection, from when both ends know each other. `start` once, `close` at the end."""

    __slots__ = (
        "_buffer",
        "_collecting",
        "_filled",
        "_frame_bytes_max",
        "_hear",
        "_is_closed",
        "_is_heard",
        "_is_over",
        "_is_reading_soon",
        "_is_watched",
        "_largest",
        "_loop",
        "_on_end",
        "_on_taken",
        "_outbox",
        "_sock",
    )

    def __init__(self, sock: socket.socket, *, frame_bytes_max: int) -> None:
        self._sock: Final = sock
        self._frame_bytes_max: Final = frame_bytes_max
        self._loop: Final = asyncio.get_running_loop()
        self._outbox: Outbox | _Records = (
            _Records() if isinstance(sock, ssl.SSLSocket) else Outbox()
        )
        self._collecting: Final = None if isinstance(sock, ssl.SSLSocket) else Collecting(sock)
        self._buffer = bytearray(BUFFER_USUAL)
        self._filled = 0
        # The largest frame since the buffer was last looked at.
        self._largest = 0
        # Whether the kernel tells when it takes more.
        self._is_watched = False
        self._is_heard = False
        # With TLS: it is read on in the next turn, whether or not the kernel calls.
        self._is_reading_soon = False
        # Nothing is heard or said any more; and the socket is gone, too.
        self._is_over = False
        self._is_closed = False
        self._hear: Callable[[memoryview], None] = _nobody
        self._on_taken: Callable[[], None] = _nothing
        self._on_end: Callable[[Exception], None] = _nobody

    def start(
        self,
        hear: Callable[[memoryview], None],
        *,
        on_taken: Callable[[], None],
        on_end: Callable[[Exception], None],
    ) -> None:
        """Call `hear` with every frame, and `on_taken` when all was taken that had to wait.

        A frame is lent until `hear` returns; who keeps a view of it keeps its bytes (L4). What
        `hear` and `on_taken` raise ends the cable, and is told like any other end.
        """
        self._hear, self._on_taken, self._on_end = hear, on_taken, on_end
        self._loop.add_reader(self._sock.fileno(), self._on_readable)
        if isinstance(self._sock, ssl.SSLSocket):
            # What came with the handshake is in no socket any more.
            self._read_soon()

    # -- saying ----------------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Whether something that was said has not left yet."""
        return bool(self._outbox)

    def send(self, pieces: Sequence[Buffer]) -> None:
        """Send one frame, in pieces that are not copied; what is not taken waits."""
        if self._is_over:
            return
        self._outbox.add([_SIZE.pack(sum(map(len, pieces))), *pieces])  # type: ignore[list-item]  # bytearrays are as good
        self._flush()

    def beat(self) -> None:
        """Let the other end know that somebody is here, unless it hears so anyway."""
        if not (self._is_over or self._outbox):
            self._outbox.add([_BEAT])
            self._flush()

    def _flush(self) -> None:
        if self._is_watched:
            return
        try:
            if self._outbox.send(self._sock):
                return
        except OSError as error:
            # Whoever sends does not expect to hear of the end right now.
            self._loop.call_soon(self._end, CableEndedError(_reason(error)))
            return
        self._is_watched = True
        self._loop.add_writer(self._sock.fileno(), self._on_writable)

    def _on_writable(self) -> None:
        try:
            is_all_sent = self._outbox.send(self._sock)
        except OSError as error:
            self._end(CableEndedError(_reason(error)))
            return
        if not is_all_sent:
            return
        self._is_watched = False
        self._loop.remove_writer(self._sock.fileno())
        try:
            self._on_taken()
        except Exception as error:  # noqa: BLE001  # whoever keeps the cable is told of it
            self._end(error)

    # -- hearing ---------------------------------------------------------------------------------

    def was_heard(self) -> bool:
        """Return whether any byte came since this was last asked."""
        if not self._is_over and self._collecting is not None and self._collecting.stop():
            # Of what the kernel was asked to collect nothing was told yet.
            self._on_readable()
        was_heard, self._is_heard = self._is_heard, False
        if self._largest <= BUFFER_USUAL < len(self._buffer) and not self._filled:
            self._replace(BUFFER_USUAL)
        self._largest = 0
        return was_heard

    def _on_readable(self) -> None:
        try:
            for _ in range(_READS_MAX):
                if self._is_over or not self._read():
                    return
        except Exception as error:  # noqa: BLE001  # whoever keeps the cable is told of it
            self._end(error)
        else:
            if isinstance(self._sock, ssl.SSLSocket):
                # What TLS has decrypted already makes no socket readable.
                self._read_soon()

    def _read_soon(self) -> None:
        # Once: each call would ask for another, besides those that the selector makes.
        if not self._is_reading_soon:
            self._is_reading_soon = True
            self._loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        self._is_reading_soon = False
        self._on_readable()

    def _read(self) -> bool:
        """Read once, and let every whole frame be heard; return whether there may be more."""
        try:
            with memoryview(self._buffer) as whole, whole[self._filled :] as room:
                count = self._sock.recv_into(room)
                was_all = count == len(room)
        except (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        except OSError as error:
            raise CableEndedError(_reason(error)) from None
        if count == 0:
            raise CableEndedError("It ended the connection.")
        self._is_heard = True
        self._filled += count
        at, needed = self._hear_whole()
        if self._is_over:
            return False
        self._settle(at, needed)
        return was_all or isinstance(self._sock, ssl.SSLSocket)

    def _hear_whole(self) -> tuple[int, int]:
        """Return where the first frame begins that is not whole, and how long that one is."""
        at = 0
        while self._filled - at >= _SIZE.size:
            (size,) = _SIZE.unpack_from(self._buffer, at)
            end = at + _SIZE.size + self._checked(size)
            if end > self._filled:
                return at, end - at
            if size & _IS_FAREWELL:
                text = bytes(self._buffer[at + _SIZE.size : end])
                raise CableEndedError(text.decode(errors="replace"))
            if size:
                self._largest = max(self._largest, size)
                self._hear(memoryview(self._buffer)[at + _SIZE.size : end])
                if self._is_over:
                    break
            at = end
        return at, _SIZE.size

    def _checked(self, size: int) -> int:
        """Return how many bytes follow (L2)."""
        if size & _IS_FAREWELL:
            size, most = size & ~_IS_FAREWELL, _FAREWELL_BYTES_MAX
        else:
            most = self._frame_bytes_max
        if size > most:
            raise RemoteProtocolError(f"A frame of {size} bytes is larger than max, {most}.")
        return size

    def _settle(self, at: int, needed: int) -> None:
        """Make room for the rest of a frame that began at a place of the buffer."""
        if len(self._buffer) < needed:
            self._replace(needed, at)
        elif at and self._is_lent():
            # What somebody still looks at would change (L4).
            self._replace(len(self._buffer), at)
        elif at:
            left = self._filled - at
            self._buffer[:left] = self._buffer[at : self._filled]
            self._filled = left
        if self._collecting is not None:
            missing = needed - self._filled if self._filled else 0
            self._collecting.look(missing, len(self._buffer) - self._filled)

    def _is_lent(self) -> bool:
        """Return whether somebody looks at the buffer: then its size cannot change."""
        try:
            self._buffer.append(0)
        except BufferError:
            return True
        self._buffer.pop()
        return False

    def _replace(self, size: int, at: int = 0) -> None:
        """Take another buffer, and with it what is left from a place on."""
        left = self._filled - at
        other = bytearray(size)
        other[:left] = memoryview(self._buffer)[at : self._filled]
        self._buffer, self._filled = other, left

    # -- the end ---------------------------------------------------------------------------------

    def _end(self, error: Exception) -> None:
        """Be over, and say why to whoever keeps the cable, who closes it then."""
        if self._is_over:
            tell_late(error)
        else:
            self._fall_silent()
            self._on_end(error)

    def _fall_silent(self) -> None:
        self._is_over = True
        descriptor = self._sock.fileno()
        self._loop.remove_reader(descriptor)
        self._loop.remove_writer(descriptor)

    def close(self, why: str | None = None) -> None:
        """Let go of the socket; tell the other end why, if it takes that at once."""
        if self._is_closed:
            return
        if not self._is_over:
            self._fall_silent()
        self._is_closed = True
        if why is not None and not self._outbox:
            text = why.encode()[:_FAREWELL_BYTES_MAX]
            with suppress(OSError):
                self._sock.send(_SIZE.pack(_IS_FAREWELL | len(text)) + text)
        self._sock.close()
        # Whoever keeps the cable is kept by it: without this both would lie around.
        self._hear, self._on_taken, self._on_end = _nobody, _nothing, _nobody
        self._buffer, self._filled, self._outbox = bytearray(), 0, Outbox()


class _Records:
    """What waits on a cable with TLS, which takes one piece at a time, and no file."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: list[memoryview] = []

    def __bool__(self) -> bool:
        return bool(self._parts)

    def add(self, parts: Sequence[Buffer]) -> None:
        # As many as go into one record are one piece.
        small: list[Buffer] = []
        size = 0
        for part in parts:
            if size + len(part) > _RECORD_BYTES and small:
                self._parts.append(memoryview(b"".join(small)))
                small, size = [], 0
            small.append(part)
            size += len(part)
        self._parts.append(memoryview(b"".join(small) if len(small) > 1 else small[0]))

    def send(self, sock: socket.socket) -> bool:
        parts = self._parts
        try:
            while parts:
                sent = sock.send(parts[0])
                if sent < len(parts[0]):
                    parts[0] = parts[0][sent:]
                else:
                    del parts[0]
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            return False
        return True


def tell_late(error: Exception) -> None:
    """Tell of a bug that came when a cable was over already; other ends need not be told of."""
    if not isinstance(error, (CableEndedError, RemoteProtocolError)):
        what = {"message": "a bug at the end of a cable between nodes", "exception": error}
        asyncio.get_running_loop().call_exception_handler(what)


def prepare(sock: socket.socket) -> None:
    """Let a connection notice within seconds that the machine at the other end has vanished."""
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", _ASKED_AFTER_S),
        ("TCP_KEEPINTVL", _ASKED_EACH_S),
        ("TCP_KEEPCNT", _ASKED_TIMES),
        ("TCP_USER_TIMEOUT", VANISHED_MS),
    ):
        # Not every system has all of them.
        if (option := getattr(socket, name, None)) is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


def _reason(error: OSError) -> str:
    return f"The connection broke: {error.strerror or error}."


def _nothing() -> None:
    """Do nothing: it has not begun."""


def _nobody(_: object) -> None:
    """Do nothing: it has not begun."""
