"""The log of a node: one line for one event, with facts as `key=value` or as JSON.

    12:04:09.117 INFO  replication.replica isr_shrunk partition=orders-0 epoch=7 isr=1,2

Client ids, topic names and error texts come from strangers, so a value is never trusted:

L1  an event is one line, whatever its values hold: what is not printable is escaped, and what
    could be taken for another fact is quoted
L2  a line is of bounded length: each value, the number of facts, and a traceback have limits
L3  one event of one logger writes at most `BURST_LINES` lines in `BURST_MS`; the rest is counted,
    and the count is told. Nobody can fill a disk by being refused. DEBUG is not limited
L4  a fact whose name says that it is a secret is not written
L5  logging never fails: a line that cannot be written is counted in `lines_lost`

Event names are `noun_verbed` constants; what varies is a fact. Times are UTC.

Not here: how a line looks (`log_line.py`), and where it goes after standard error.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TextIO

from ottla.node.clock import Clock
from ottla.node.log_line import Level, json_line, moment_text, text_line, trace_lines

Format = Literal["text", "json"]

LEVELS: Final[dict[str, int]] = {"debug": 10, "info": 20, "warning": 30, "error": 40}
BURST_LINES: Final = 10
BURST_MS: Final = 10_000
_LIMITERS_MAX: Final = 1_024


@dataclass(slots=True)
class _Limiter:
    """How often one event of one logger was written in the burst that began at `began_ms`."""

    began_ms: int
    written: int = 0
    held_back: int = 0


class Sink:
    """Where lines go, in which format, and from which level on. One for the process."""

    def __init__(self, stream: TextIO, clock: Clock, form: Format, level: Level) -> None:
        self.level = LEVELS[level]
        # Lines that could not be written (L5).
        self.lines_lost = 0
        self._stream: Final = stream
        self._clock: Final = clock
        self._line: Final = json_line if form == "json" else text_line
        self._limiters: dict[tuple[str, str], _Limiter] = {}
        # A thread that syncs a file may log as well as the event loop.
        self._lock: Final = threading.Lock()

    def write(
        self,
        level: Level,
        logger: str,
        event: str,
        facts: Mapping[str, object],
        trace: tuple[str, ...] = (),
    ) -> None:
        with self._lock:
            now_ms = self._clock.now_ms()
            self._tell_held_back(now_ms, ended_only=True)
            if level == "debug" or self._is_let_through(logger, event, now_ms):
                self._put(self._line(moment_text(now_ms), level, logger, event, facts, trace))

    def flush(self) -> None:
        """Tell what was held back until now. For the end of a process."""
        with self._lock:
            self._tell_held_back(self._clock.now_ms(), ended_only=False)

    def _is_let_through(self, logger: str, event: str, now_ms: int) -> bool:
        limiter = self._limiters.setdefault((logger, event), _Limiter(now_ms))
        if limiter.written >= BURST_LINES:
            limiter.held_back += 1
            return False
        limiter.written += 1
        return True

    def _tell_held_back(self, now_ms: int, *, ended_only: bool) -> None:
        # Events are constants of this program, so there are few; a library that makes up logger
        # names must not change that.
        ended_only = ended_only and len(self._limiters) <= _LIMITERS_MAX
        ended = [
            key
            for key, limiter in self._limiters.items()
            # A clock that was set back ends a burst too: it must not last for ever.
            if not (ended_only and 0 <= now_ms - limiter.began_ms < BURST_MS)
        ]
        for logger, event in ended:
            count = self._limiters.pop((logger, event)).held_back
            if count:
                facts = {"of": event, "count": count}
                line = self._line(
                    moment_text(now_ms), "warning", logger, "lines_held_back", facts, ()
                )
                self._put(line)

    def _put(self, line: str) -> None:
        try:
            self._stream.write(line)
            self._stream.flush()
        except (OSError, ValueError):
            # The reader has gone, the disk is full or the stream is closed: no reason to stop.
            self.lines_lost += 1


class Logger:
    """Somebody who logs: a name and the facts that stand in each of its lines."""

    __slots__ = ("_context", "_name")

    def __init__(self, name: str, context: Mapping[str, object]) -> None:
        self._name: Final = name
        self._context: Final = context

    def bind(self, **facts: object) -> Logger:
        """Return a logger that adds these facts to each line."""
        return Logger(self._name, {**self._context, **facts})

    @property
    def shows_debug(self) -> bool:
        """Whether a DEBUG line is written at all; ask before facts that are costly to make."""
        return _current.sink.level <= LEVELS["debug"]

    def debug(self, event: str, /, **facts: object) -> None:
        self._write("debug", event, facts)

    def info(self, event: str, /, **facts: object) -> None:
        self._write("info", event, facts)

    def warning(self, event: str, /, **facts: object) -> None:
        self._write("warning", event, facts)

    def error(self, event: str, /, **facts: object) -> None:
        self._write("error", event, facts)

    def exception(self, event: str, /, **facts: object) -> None:
        """Write an ERROR with the exception that is being handled, and where it came from."""
        error = sys.exception()
        if error is not None:
            facts = {**facts, "error": error}
        self._write("error", event, facts, tuple(trace_lines(error)))

    def _write(
        self, level: Level, event: str, facts: Mapping[str, object], trace: tuple[str, ...] = ()
    ) -> None:
        sink = _current.sink
        if LEVELS[level] >= sink.level:
            sink.write(level, self._name, event, {**self._context, **facts}, trace)


class _Bridge(logging.Handler):
    """Takes what libraries log, asyncio above all, into our lines."""

    def emit(self, record: logging.LogRecord) -> None:
        level: Level = "debug"
        for name in ("info", "warning", "error"):
            if record.levelno >= LEVELS[name]:
                level = name
        try:
            told = record.getMessage()
        except (TypeError, ValueError):
            told = str(record.msg)
        error = record.exc_info[1] if record.exc_info else None
        facts = {"message": told} if error is None else {"message": told, "error": error}
        if LEVELS[level] >= _current.sink.level:
            trace = tuple(trace_lines(error))
            _current.sink.write(level, record.name, "library_said", facts, trace)


@dataclass(slots=True)
class _Current:
    """The sink in use: loggers are made when modules are loaded, before options are known."""

    sink: Sink


_current: Final = _Current(Sink(sys.stderr, Clock(), "text", "info"))


def logger(name: str, **context: object) -> Logger:
    """Return the logger of a module, named as the module without `ottla.`."""
    return Logger(name, context)


def setup(
    form: Format = "text",
    level: Level = "info",
    *,
    stream: TextIO | None = None,
    clock: Clock | None = None,
) -> Sink:
    """Begin to log as the options say; what libraries log comes along from WARNING on."""
    sink = Sink(sys.stderr if stream is None else stream, clock or Clock(), form, level)
    _current.sink = sink
    root = logging.getLogger()
    for handler in [old for old in root.handlers if isinstance(old, _Bridge)]:
        root.removeHandler(handler)
    root.addHandler(_Bridge())
    root.setLevel(max(LEVELS[level], LEVELS["warning"]))
    return sink


def lines_lost() -> int:
    """Return how many lines could not be written (L5)."""
    return _current.sink.lines_lost
