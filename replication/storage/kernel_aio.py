"""fdatasync done by the kernel itself: handed over with one call, and told of by a descriptor.

A thread that syncs must be woken, must get the interpreter twice, and must wake the event loop
again; on busy cores that takes longer than the sync. Linux takes the same order by `io_submit` and
counts up an eventfd when it is done, which the event loop watches beside its sockets.

Asked by number, since the standard library has no call for it. Another system, another processor,
a sandbox that forbids it: then there is none (`open_kernel_aio` returns None), and threads do it.

Not here: which job may be handed over (`log/sync.py`), and who is told (`log/sync_kernel.py`).

E1  an order that was taken ends exactly once, with 0 or an error number, whoever reaps it
E2  nothing here waits for the disk, but `reap` when it is asked to wait, and `close`
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import sys
from contextlib import suppress
from struct import Struct
from typing import Final, NamedTuple


class _Calls(NamedTuple):
    """The numbers of the calls, which every processor has its own of."""

    setup: int
    destroy: int
    getevents: int
    submit: int


_CALLS: Final = {
    "x86_64": _Calls(setup=206, destroy=207, getevents=208, submit=209),
    "aarch64": _Calls(setup=0, destroy=1, getevents=4, submit=2),
}
_FDSYNC: Final = 3
_TELL_BY_EVENTFD: Final = 1
# struct iocb of a little-endian machine: data, key, flags of reads and writes, operation, priority,
# descriptor, buffer, bytes, offset, nothing, flags, eventfd.
_ORDER: Final = Struct("<QIIHhIQQqQII")
# struct io_event: data, the order's address, the result, nothing.
_EVENT: Final = Struct("<QQqq")
_EVENTS_AT_ONCE: Final = 64
ORDERS_MAX: Final = 128
_WAIT_NS: Final = 10_000_000
# Room in the kernel is used up, or somebody forbids it: not now, and threads do it.
_NOT_NOW: Final = (errno.EAGAIN, errno.EINVAL, errno.EPERM, errno.ENOSYS, errno.ENOMEM)


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class KernelAio:
    """Orders to the kernel. `begin` belongs to one thread; ends with `close`."""

    def __init__(self, calls: _Calls, context: ctypes.c_ulong, eventfd: int) -> None:
        self._calls: Final = calls
        self._context: Final = context
        self._eventfd = eventfd
        # Keeps the interpreter: these calls return at once. The other one lets it go.
        self._call: Final = ctypes.PyDLL(None, use_errno=True).syscall
        self._call_and_wait: Final = ctypes.CDLL(None, use_errno=True).syscall
        self._order: Final = bytearray(_ORDER.size)
        address = ctypes.addressof((ctypes.c_char * _ORDER.size).from_buffer(self._order))
        self._orders: Final = (ctypes.c_void_p * 1)(address)

    def fileno(self) -> int:
        """Return the descriptor that can be read when an order has ended."""
        return self._eventfd

    def begin(self, fd: int, number: int) -> bool:
        """Let the kernel sync a file; return False if it does not take the order."""
        # The kernel copies it: it may be written over when the call returns.
        _ORDER.pack_into(
            self._order,
            0,
            *(number, 0, 0, _FDSYNC, 0, fd, 0, 0, 0, 0),
            *(_TELL_BY_EVENTFD, self._eventfd),
        )
        if self._call(self._calls.submit, self._context, ctypes.c_long(1), self._orders) == 1:
            return True
        code = ctypes.get_errno()
        if code not in _NOT_NOW:
            raise OSError(code, os.strerror(code))
        return False

    def clear(self) -> None:
        """Let the descriptor be readable no more, until another order has ended."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._eventfd)

    def reap(self, *, waits: bool = False) -> list[tuple[int, int]]:
        """Return the numbers of orders that have ended, each with 0 or its error number (E1).

        If it waits: for one of them, or a hundredth of a second. May be called on any thread.
        """
        events = ctypes.create_string_buffer(_EVENT.size * _EVENTS_AT_ONCE)
        timeout = _Timespec(0, _WAIT_NS if waits else 0)
        call = self._call_and_wait if waits else self._call
        count = call(
            self._calls.getevents,
            self._context,
            ctypes.c_long(1 if waits else 0),
            ctypes.c_long(_EVENTS_AT_ONCE),
            events,
            ctypes.byref(timeout),
        )
        if count < 0:
            code = ctypes.get_errno()
            if code == errno.EINTR:
                return []
            raise OSError(code, os.strerror(code))
        told = _EVENT.iter_unpack(events.raw[: count * _EVENT.size])
        return [(number, -result if result < 0 else 0) for number, _, result, _ in told]

    def close(self) -> None:
        """Wait until every order has ended, and forget them."""
        eventfd, self._eventfd = self._eventfd, -1
        if eventfd >= 0:
            self._call_and_wait(self._calls.destroy, self._context)
            os.close(eventfd)


def open_kernel_aio() -> KernelAio | None:
    """Return a way to the kernel, or None where it has none for us."""
    calls = _CALLS.get(platform.machine())
    if calls is None or sys.platform != "linux" or sys.byteorder != "little":
        return None
    context = ctypes.c_ulong(0)
    try:
        call = ctypes.CDLL(None, use_errno=True).syscall
        if call(calls.setup, ctypes.c_long(ORDERS_MAX), ctypes.byref(context)) != 0:
            return None
        eventfd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    except (OSError, AttributeError):
        return None
    return KernelAio(calls, context, eventfd)
