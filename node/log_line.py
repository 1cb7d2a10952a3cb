"""One event as one line, of text or of JSON, whatever strangers have put into its values.

Invariants L1, L2 and L4 of `logs.py` are kept here.

Not here: when a line is written, and where to.
"""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from enum import Enum
from itertools import islice
from typing import Final, Literal

Level = Literal["debug", "info", "warning", "error"]
Plain = str | int | float | bool | None

VALUE_CHARS_MAX: Final = 256
# Of the fact `reason`: a sentence, whose end says what to do.
REASON_CHARS_MAX: Final = 1_024
TRACE_LINES_MAX: Final = 40
TRACE_LINE_CHARS_MAX: Final = 400
FACTS_MAX: Final = 32
_SECRET: Final = re.compile(r"password|passwd|secret|token|credential|private_key|authorization")
# What can stand without quotes: no space, no quote, no "=", nothing that a terminal obeys.
_BARE: Final = re.compile(r"[A-Za-z0-9_.,:;/@+*#%~^()\[\]{}<>|!?&-]+")
_SHORT_ESCAPES: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "\\": "\\\\"}
_RESERVED: Final = frozenset({"time", "level", "logger", "event", "traceback"})


def moment_text(now_ms: int) -> str:
    moment = datetime.fromtimestamp(now_ms / 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{now_ms % 1000:03}Z"


def text_line(
    moment: str,
    level: Level,
    logger: str,
    event: str,
    facts: Mapping[str, object],
    trace: tuple[str, ...],
) -> str:
    told = "".join(f" {key}={_quoted(value)}" for key, value in _told(facts))
    # The bar keeps a line of somebody's exception from being taken for a line of ours.
    below = "".join(f"    | {line}\n" for line in trace)
    return f"{moment[11:23]} {level.upper():5} {logger} {event}{told}\n{below}"


def json_line(
    moment: str,
    level: Level,
    logger: str,
    event: str,
    facts: Mapping[str, object],
    trace: tuple[str, ...],
) -> str:
    line: dict[str, Plain] = {"time": moment, "level": level, "logger": logger, "event": event}
    for key, value in _told(facts):
        line[f"{key}_" if key in _RESERVED else key] = value
    if trace:
        line["traceback"] = "\n".join(trace)
    # Not-a-number is no JSON; `_plain` has made text of it.
    return json.dumps(line, ensure_ascii=True, allow_nan=False) + "\n"


def _told(facts: Mapping[str, object]) -> Iterator[tuple[str, Plain]]:
    for number, (key, value) in enumerate(facts.items()):
        if number >= FACTS_MAX:
            yield "facts_left_out", len(facts) - FACTS_MAX
            return
        if _SECRET.search(key.lower()):
            yield key, "[hidden]"
        elif key == "reason" and isinstance(value, str):
            yield key, _clipped(value, REASON_CHARS_MAX)
        else:
            yield key, _plain(value)


def _plain(value: object) -> Plain:
    """Return a value as what JSON has, bounded (L2); whatever it is (L5)."""
    try:
        return _bounded(value)
    except Exception:  # noqa: BLE001  (any object's `__str__` may fail in any way)
        return f"[a {type(value).__name__}]"


def _bounded(value: object) -> Plain:
    match value:
        case None | bool():
            return value
        case Enum():
            return value.name.lower()
        case int():
            # A number of a stranger's may have any length, and more digits than `str` makes.
            return int(value) if -(2**63) <= value < 2**64 else "[large number]"
        case float():
            return value if -1e308 < value < 1e308 else str(value)
        case str():
            return _clipped(str(value), VALUE_CHARS_MAX)
        case bytes() | bytearray() | memoryview():
            return _clipped(bytes(value[: VALUE_CHARS_MAX // 2]).hex(), VALUE_CHARS_MAX)
        case list() | tuple() | set() | frozenset():
            parts = ",".join(str(part) for part in islice(value, VALUE_CHARS_MAX))
            return _clipped(parts, VALUE_CHARS_MAX)
        case BaseException():
            return _clipped(f"{type(value).__name__}: {value}", VALUE_CHARS_MAX)
        case _:
            return _clipped(str(value), VALUE_CHARS_MAX)


def _clipped(text: str, chars_max: int) -> str:
    if len(text) <= chars_max:
        return text
    return f"{text[:chars_max]}…(+{len(text) - chars_max})"


def _quoted(value: Plain) -> str:
    if isinstance(value, bool) or value is None:
        return {None: "none", True: "true", False: "false"}[value]
    text = str(value)
    return text if _BARE.fullmatch(text) else f'"{_escaped(text)}"'


def _escaped(text: str) -> str:
    return "".join(_escaped_char(char) for char in text)


def _escaped_char(char: str) -> str:
    if char in _SHORT_ESCAPES:
        return _SHORT_ESCAPES[char]
    # Controls, the marks that turn the direction of a line, and halves of characters are not
    # printable; letters of any language are.
    return char if char.isprintable() else f"\\u{ord(char):04x}"


def trace_lines(error: BaseException | None) -> Iterator[str]:
    """Yield the end of a traceback, which is where it says what happened."""
    if error is None:
        return
    lines = [line for part in traceback.format_exception(error) for line in part.splitlines()]
    if len(lines) > TRACE_LINES_MAX:
        yield f"… {len(lines) - TRACE_LINES_MAX} lines above"
    for line in lines[-TRACE_LINES_MAX:]:
        clipped = _clipped(line, TRACE_LINE_CHARS_MAX)
        yield "".join(char if char.isprintable() else _escaped_char(char) for char in clipped)
