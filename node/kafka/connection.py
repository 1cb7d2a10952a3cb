"""One client's connection: requests in, answers out, in the order of the requests.

A waiter who carries only so many plates: with too many orders open, or a guest who does not eat,
no further order is taken. That is the whole of back-pressure: the socket is not read.

N1  answers leave in the order of their requests, whatever order they become ready in
N2  a request's bytes are lent: whoever serves it is done with them when `serve` returns
N3  memory is bounded: one request being read, so many waiting, so much unsent; the large requests
    of all connections together by `memory.py`
N4  a length is believed only up to the limit, and paid for only as bytes arrive
N5  while a fetch waits for data, no later request of its connection begins, as in Kafka

The socket is driven directly (`add_reader`, `recv_into`, `sendmsg`, `sendfile`): asyncio's
transports would copy what does not fit into the socket, and cannot send from a file in between.

Not here: what a request means (`dispatch.py`), and which connections there are (`listener.py`).
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from ottla.node.kafka.collecting import Collecting
from ottla.node.kafka.goodbyes import end_sending, has_left
from ottla.node.kafka.memory import BUFFER_USUAL, ReceiveMemory, new_buffer
from ottla.node.kafka.outbox import Outbox, is_near
from ottla.node.kafka.refusals import told_length
from ottla.node.kafka.slot import Slot
from ottla.proto.errors import RemoteProtocolError

_LENGTH_BYTES: Final = 4
# Of an idle connection; ten thousand of them are 20 MB.
_BUFFER_MIN: Final = 2 * 1024
# Requests of one connection that may wait for their answers, and their bytes (hot-path rule 7).
SLOTS_MAX: Final = 512
WAITING_BYTES_MAX: Final = 16 * 1024**2
# Answers that wait for the client to read them.
UNSENT_BYTES_MAX: Final = 1024**2
UNSENT_PARTS_MAX: Final = 1024


class Server(Protocol):
    """What a connection needs from those who own it."""

    request_bytes_max: int
    memory: ReceiveMemory

    def serve(self, connection: Connection, frame: memoryview) -> None:
        """Take one request. Raises `RemoteProtocolError` if it is none."""

    def protocol_broken(self, connection: Connection, error: RemoteProtocolError) -> None: ...

    def closed(self, connection: Connection, reason: str) -> None: ...

    def now_ms(self) -> int: ...

    def now_us(self) -> int: ...


class Connection:
    """One client. Made by the listener, ends with `close`."""

    __slots__ = (
        "_buffer",
        "_corked",
        "_draining",
        "_fd",
        "_filled",
        "_hurry",
        "_is_flush_due",
        "_is_reading",
        "_is_writing",
        "_loop",
        "_outbox",
        "_serial",
        "_server",
        "_slots",
        "_sock",
        "_start",
        "_view",
        "_waiting_bytes",
        "_was_full",
        "active_ms",
        "client_id",
        "client_software",
        "collecting",
        "frame_began_ms",
        "host",
        "is_closed",
        "is_leaving",
        "listener",
        "needed",
        "port",
        "read_us",
        "served_us",
    )

    def __init__(
        self,
        sock: socket.socket,
        host: str,
        port: int,
        server: Server,
        now_ms: int,
        *,
        listener: str = "CLIENT",
    ) -> None:
        self._loop: Final = asyncio.get_running_loop()
        self._sock: Final = sock
        # What selectors are told: of a socket that they do not know they make a long sentence.
        self._fd: Final = sock.fileno()
        self._server: Final = server
        self.host: Final = host
        self.port: Final = port
        # The name of the listener that it came in by.
        self.listener: Final = listener
        # As the client last called itself; for people.
        self.client_id: str | None = None
        self.client_software = ""
        self.is_closed = False
        self.active_ms = now_ms
        # When something was read last, and when the last request was taken up.
        self.read_us = 0
        self.served_us = 0
        # When the first byte of an unfinished request came, and how many bytes it has; None if
        # there is none.
        self.frame_began_ms: int | None = None
        self.needed = _LENGTH_BYTES
        self._buffer = new_buffer(_BUFFER_MIN)
        self._view = memoryview(self._buffer)
        # Bytes [_start, _filled) are read and not served yet.
        self._start = 0
        self._filled = 0
        # The last read filled the buffer: there is more where that came from.
        self._was_full = False
        self.collecting: Final = Collecting(sock)
        self._slots: Final[deque[Slot]] = deque()
        self._waiting_bytes = 0
        self._outbox: Final = Outbox(is_near=is_near(sock, host))
        self._corked = False
        # `_flush_due` is on its way.
        self._is_flush_due = False
        # A request is served that others must not overtake.
        self._serial = False
        # Answers the fetch that waits, if one does (N5).
        self._hurry: Callable[[], None] | None = None
        # The client has said its last word; it may still wait for answers.
        self.is_leaving = False
        self._draining = False
        self._is_reading = False
        self._is_writing = False
        self._set_reading(True)

    def __repr__(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def waiting_count(self) -> int:
        return len(self._slots)

    @property
    def is_read(self) -> bool:
        """Whether the socket is being read; if not, it is not the client who is slow."""
        return self._is_reading

    @property
    def sent_bytes(self) -> int:
        return self._outbox.sent_bytes

    # -- answers ---------------------------------------------------------------------------------

    def open_slot(self, request_bytes: int) -> Slot:
        """Return the next place in the order of answers (N1)."""
        slot = Slot(self, request_bytes)
        self._slots.append(slot)
        self._waiting_bytes += request_bytes
        return slot

    def answered(self, slot: Slot) -> None:
        """Send what is ready at the end of this turn: one sync answers many requests at once."""
        if self.is_closed or self._corked or self._is_flush_due or self._slots[0] is not slot:
            return
        self._is_flush_due = True
        self._loop.call_soon(self._flush_due)

    def _flush_due(self) -> None:
        self._is_flush_due = False
        if not self.is_closed:
            # Who waited long for an answer has not been idle.
            self.active_ms = self._server.now_ms()
            self._flush()
            self._resume()

    def begin_serial(self) -> None:
        """Let no later request begin before `end_serial`."""
        self._serial = True

    def begin_wait(self, hurry: Callable[[], None]) -> None:
        """Let no later request begin before `end_wait`, which `hurry` brings about (N5)."""
        self._hurry = hurry

    def end_wait(self) -> None:
        """Go on with later requests once the answer has been given."""
        self._hurry = None

    def notice_leaving(self) -> None:
        """Look whether a client has left that is not read because a fetch of it waits."""
        if self._hurry is None or self._is_reading:
            return
        if has_left(self._sock):
            # Not closed: what it has sent behind the fetch is served yet.
            self.is_leaving = True
            self._hurry()

    def drain(self) -> None:
        """Take no further request: what has been asked is answered, and then it is over."""
        self._draining = True
        self._set_reading(False)
        self._part()

    def _part(self) -> None:
        """Let a client go that waits for nothing more: it may just be asking, and nobody reads."""
        if self._draining and self.is_drained:
            end_sending(self._sock)

    @property
    def is_drained(self) -> bool:
        return not (self._slots or self._outbox)

    def end_serial(self) -> None:
        self._serial = False
        if not self.is_closed and not self._corked:
            self._resume()

    def _flush(self) -> None:
        """Send the answers that are ready and next in line."""
        slots = self._slots
        try:
            while slots and (parts := slots[0].parts) is not None:
                self._waiting_bytes -= slots.popleft().request_bytes
                self._outbox.add(parts)
            if self._outbox and not self._is_writing:
                self._send()
        except OSError as error:
            self.close(f"sending failed: {error.strerror or error}")

    def _send(self) -> None:
        is_done = self._outbox.send(self._sock)
        if is_done == self._is_writing:
            self._is_writing = not is_done
            if is_done:
                self._loop.remove_writer(self._fd)
            else:
                self._loop.add_writer(self._fd, self._on_writable)
        self._part()

    def _on_writable(self) -> None:
        self.active_ms = self._server.now_ms()
        try:
            self._send()
        except OSError as error:
            self.close(f"sending failed: {error.strerror or error}")
            return
        self._resume()

    # -- requests --------------------------------------------------------------------------------

    @property
    def _may_serve(self) -> bool:
        return not (
            self.is_closed
            or self._serial
            or self._hurry is not None
            or self._draining
            or len(self._slots) >= SLOTS_MAX
            or self._waiting_bytes >= WAITING_BYTES_MAX
            or self._outbox.memory_bytes >= UNSENT_BYTES_MAX
            or len(self._outbox) >= UNSENT_PARTS_MAX
        )

    @property
    def _may_read(self) -> bool:
        """Whether to read. While a fetch waits, once: that is how we hear that its client has left.

        Nearly always nothing comes, and the selector need not be told of every fetch that waits.
        """
        if self._hurry is None:
            return self._may_serve
        return self._filled == self._start and not (self.is_closed or self._draining)

    def _set_reading(self, wanted: bool) -> None:
        if wanted and not self._is_reading:
            self._loop.add_reader(self._fd, self._on_readable)
        elif self._is_reading and not wanted:
            self._loop.remove_reader(self._fd)
        self._is_reading = wanted

    def _resume(self) -> None:
        """Go on with what was read before, and with reading, if there is room again."""
        if self._is_reading or not self._may_serve:
            return
        self._serve_buffered()
        if self._may_read:
            if self.frame_began_ms is not None:
                # The rest may have come long ago: its time counts from when we read again.
                self.frame_began_ms = self._server.now_ms()
            self._set_reading(True)

    def _on_readable(self) -> None:
        self.read_us = now_us = self._server.now_us()
        self.active_ms = now_ms = now_us // 1000
        # First of all: it may put another buffer in the place of this one.
        end = self._read_to()
        if end is None:
            self._set_reading(False)
            return
        try:
            count = self._sock.recv_into(self._view[self._filled : end])
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.close(f"reading failed: {error.strerror or error}")
            return
        if count == 0:
            self.close("closed by the client")
            return
        if self.frame_began_ms is None:
            self.frame_began_ms = now_ms
        self._filled += count
        self._was_full = self._filled == len(self._buffer)
        self._serve_buffered()
        if self.is_closed:
            return
        if not self._may_read:
            self._set_reading(False)
        missing = self.needed - (self._filled - self._start)
        self.collecting.look(missing, len(self._buffer) - self._filled)

    def _read_to(self) -> int | None:
        """Return up to where to read, with room there for it (N4), or None if there is none now.

        A large request is read to its end and no further, so that what follows it need not be
        moved to the front.
        """
        end = self._start + self.needed
        if self.needed > BUFFER_USUAL and end <= len(self._buffer):
            return end
        is_tight = self._start or self._was_full or self._filled == len(self._buffer)
        if is_tight and not self._make_room():
            return None
        return min(len(self._buffer), max(self.needed, BUFFER_USUAL))

    def _make_room(self) -> bool:
        unread = self._filled - self._start
        size = len(self._buffer)
        is_small = size < BUFFER_USUAL and (self._was_full or size < self.needed)
        self._was_full = False
        if unread == size or is_small:
            # Twice what has really come, or what a request surely needs, whichever is less.
            size = min(max(2 * size, BUFFER_USUAL), max(self.needed, BUFFER_USUAL))
            if size > BUFFER_USUAL and not self._server.memory.lend(self, size):
                return False
            bigger = new_buffer(size)
            bigger[:unread] = self._view[self._start : self._filled]
            self._buffer, self._view = bigger, memoryview(bigger)
        elif unread:
            self._view[:unread] = bytes(self._view[self._start : self._filled])
        self._start, self._filled = 0, unread
        return True

    def go_on(self) -> None:
        """Read on, soon: there may be memory for a larger buffer now."""
        self._loop.call_soon(self._resume)

    def _serve_buffered(self) -> None:
        """Serve whole requests until there is none, or none may be served."""
        while self._serve_some() and self._may_serve:
            pass
        if self._filled == self._start:
            self._nothing_unread()
        if len(self._buffer) > BUFFER_USUAL and (self._hurry or self._server.memory.is_short):
            self.shrink()

    def _nothing_unread(self) -> None:
        self._start = self._filled = 0
        self.frame_began_ms = None
        self.needed = _LENGTH_BYTES

    def _serve_some(self) -> bool:
        """Serve requests, then send all the answers that are there with as few calls as can be.

        Return whether there may be more, which could not be served before that.
        """
        self._corked = True
        may_be_more = True
        try:
            while may_be_more and self._may_serve:
                frame = self._next_frame()
                if frame is None:
                    may_be_more = False
                else:
                    self._server.serve(self, frame)
        except RemoteProtocolError as error:
            # What was asked before is still answered, if it can be at once.
            self._flush()
            if not self.is_closed:
                self._server.protocol_broken(self, error)
                self.close(f"protocol: {error}")
            return False
        except Exception:
            # A bug. Its request will never be answered, so neither can those behind it.
            self.close("a bug")
            raise
        finally:
            self._corked = False
        if self._slots and self._slots[0].parts is not None:
            self._flush()
        return may_be_more

    def _next_frame(self) -> memoryview | None:
        unread = self._filled - self._start
        if unread < _LENGTH_BYTES:
            self.needed = _LENGTH_BYTES
            return None
        body = self._start + _LENGTH_BYTES
        size = int.from_bytes(self._view[self._start : body], "big", signed=True)
        if not 0 <= size <= self._server.request_bytes_max:
            raise RemoteProtocolError(told_length(size, self._server.request_bytes_max))
        self.needed = _LENGTH_BYTES + size
        if unread < self.needed:
            return None
        end = body + size
        self._start = end
        self.frame_began_ms = self.active_ms
        return self._view[body:end].toreadonly()

    def shrink(self) -> None:
        """Give back a large buffer that nothing, or little, is in."""
        unread = self._filled - self._start
        size = BUFFER_USUAL if unread else _BUFFER_MIN
        if self.is_closed or self._corked or unread > size or len(self._buffer) <= size:
            return
        smaller = new_buffer(size)
        smaller[:unread] = self._view[self._start : self._filled]
        self._buffer, self._view = smaller, memoryview(smaller)
        self._start, self._filled, self._was_full = 0, unread, False
        self._server.memory.give_back(self)

    # -- end -------------------------------------------------------------------------------------

    def close(self, reason: str) -> None:
        """Close at once. Requests that wait are told, and their answers go nowhere."""
        if self.is_closed:
            return
        self.is_closed = True
        self._set_reading(False)
        if self._is_writing:
            self._is_writing = False
            self._loop.remove_writer(self._fd)
        self._sock.close()
        # Half a request goes at once, whoever may still know this connection.
        self._buffer = new_buffer(0)
        self._view = memoryview(self._buffer)
        self._start = self._filled = 0
        self._server.memory.give_back(self)
        slots = tuple(self._slots)
        self._slots.clear()
        for slot in slots:
            if slot.on_closed is not None:
                slot.on_closed()
        self._server.closed(self, reason)
