r"""Reads Java's .properties format, in which Kafka's files are written.

    # comment        ! comment too
    key=value        key: value        key value
    list=one,\
         two         a backslash at the end joins the next line, without its indent
    text=\t\u00e9    escapes; a backslash before any other character vanishes

Two things are stricter than Java: size and number of keys have a limit, and a key that is given
twice is refused, because which of the two its writer meant is anybody's guess.

Not here: what the keys mean (`sources.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ottla.proto.errors import ConfigError
from ottla.proto.options.option import shown

FILE_BYTES_MAX: Final = 1024**2
KEYS_MAX: Final = 1000
# Enough for a person to go on with.
_PROBLEMS_MAX: Final = 20

_BLANK: Final = " \t\f"
_LINE_END: Final = re.compile(r"\r\n|\n|\r")
# The key ends before the first separator that no backslash protects.
_KEY: Final = re.compile(r"(?:\\.|[^\\=: \t\f])*")
_SEPARATOR: Final = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.?))", re.DOTALL)
_NAMED_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


@dataclass(frozen=True, slots=True)
class Property:
    """One value, and the line on which its key begins, counted from 1."""

    value: str
    line: int


def parse_properties(data: bytes, *, file_name: str) -> dict[str, Property]:
    """Return the properties in the order of the file, or raise `ConfigError` with the line."""
    if len(data) > FILE_BYTES_MAX:
        raise ConfigError(f"{file_name} is too large: at most {FILE_BYTES_MAX} bytes are read.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{file_name}, line {line}: this is not UTF-8 text.") from None
    properties: dict[str, Property] = {}
    problems: list[str] = []
    for number, logical in _logical_lines(text):
        if len(properties) >= KEYS_MAX or len(problems) >= _PROBLEMS_MAX:
            problems.append(f"{file_name} is not read beyond line {number}: it has too much in it.")
            break
        try:
            key, value = _split(logical)
        except ValueError as error:
            problems.append(f"{file_name}, line {number}: {error}.")
            continue
        if key in properties:
            first = properties[key].line
            problems.append(
                f"{file_name} gives {shown(key)} twice, on line {first} and on line {number}: "
                "keep one of them."
            )
            continue
        properties[key] = Property(value, number)
    if problems:
        raise ConfigError(*problems)
    return properties


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that hold a property, joined where they continue, with their numbers."""
    lines = enumerate(_LINE_END.split(text), start=1)
    for number, natural in lines:
        line = natural.lstrip(_BLANK)
        if not line or line[0] in "#!":
            continue
        parts = []
        while _continues(line):
            parts.append(line[:-1])
            line = next(lines, (0, ""))[1].lstrip(_BLANK)
        parts.append(line)
        if joined := "".join(parts):
            yield number, joined


def _continues(line: str) -> bool:
    # Not a search for `\\*$`, which takes the square of a long run of backslashes.
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(logical: str) -> tuple[str, str]:
    key = _KEY.match(logical)
    # The pattern matches the empty string, so it always matches.
    key_end = key.end() if key else 0
    separator = _SEPARATOR.match(logical, key_end)
    value_start = separator.end() if separator else key_end
    name = _unescape(logical[:key_end])
    if not name:
        raise ValueError(f"there is no key before the value in {shown(logical)}")
    return name, _unescape(logical[value_start:])


def _unescape(text: str) -> str:
    def replaced(match: re.Match[str]) -> str:
        code, other = match[1], match[2]
        if code is not None:
            return chr(int(code, 16))
        if other == "u":
            raise ValueError(r"four hexadecimal digits must follow \u")
        return _NAMED_ESCAPES.get(other, other)

    unescaped = _ESCAPE.sub(replaced, text)
    # Java's characters are UTF-16: two escapes may be halves of one character.
    try:
        return unescaped.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise ValueError(r"half of a \uXXXX pair stands alone") from None
