"""What a row of an option table is made of: its kind of value, its bounds and its other names.

A row says everything once. The parser, the checks, `--help`, `docs/generated/CONFIG.md` and the
answer to DescribeConfigs are read from it.

Not here: the rows (`topic.py`, `node.py`), where values come from (`sources.py`) and what must hold
between two options (`load.py`).

O1  what `text_of` writes, `parse` reads back as the same value
O2  the default of a row passes its own check
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, Generic, TypeVar

from ottla.proto.errors import ConfigError
from ottla.proto.ids import INT32_MAX, INT64_MAX

T = TypeVar("T")

# What no value needs, and no terminal or file name should meet: control characters but the tab, and
# bytes of the environment that are no text.
_UNSPEAKABLE: Final = re.compile("[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,19}")
_DECIMAL: Final = re.compile(
    r"[+-]?([0-9]{1,19}(\.[0-9]{0,19})?|\.[0-9]{1,19})([eE][+-]?[0-9]{1,2})?"
)
# A value is quoted in errors up to this many characters; it may come from anybody.
_SHOWN_MAX: Final = 80


class WireType(IntEnum):
    """The numbers by which DescribeConfigs tells a client how to read a value."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """A kind of value: how it is read from text, and written back."""

    name: str
    wire_type: WireType
    # Raises ValueError; its words complete the sentence "<option> must be …".
    parse: Callable[[str], T]
    text_of: Callable[[T], str]


@dataclass(frozen=True, slots=True)
class Check(Generic[T]):
    """A bound on the value of an option, with the words that complete "<option> must be …"."""

    words: str
    allows: Callable[[T], bool]


@dataclass(frozen=True, slots=True)
class Synonym:
    """Another name for a row in the node's configuration, perhaps in a larger unit."""

    name: str
    # One unit of this name is so many units of the row: 3,600,000 for hours of milliseconds.
    factor: int = 1


@dataclass(frozen=True, slots=True)
class Difference:
    """What Kafka's default is, where ours is another, and why."""

    kafka: str
    because: str


def shown(text: str) -> str:
    """Return a stranger's text in quotes, safe to print and of bounded length."""
    clipped = text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "…"
    return json.dumps(clipped, ensure_ascii=not clipped.isprintable())


def shown_name(name: str) -> str:
    """Return a name as it is if it could be one, and else as any stranger's text."""
    return name if name.isprintable() and len(name) <= _SHOWN_MAX else shown(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Option(Generic[T]):
    """One row of an option table."""

    name: str
    kind: Kind[T]
    default: T
    # One sentence or two for people. It need not repeat default, unit or bounds.
    doc: str
    check: Check[Any] | None = None
    unit: str = ""
    # Other names at the node, the strongest first. For a topic's option these are the names
    # under which the node gives the value to topics that do not set it.
    synonyms: tuple[Synonym, ...] = ()
    # May be changed while the node runs. Otherwise a change needs a restart.
    dynamic: bool = False
    differs: Difference | None = None
    # Never shown: not in errors, not in DescribeConfigs.
    sensitive: bool = False
    # Of a node's option: the topic option that it is the default for.
    topic_option: str = ""

    @property
    def names(self) -> tuple[Synonym, ...]:
        """All the names at the node, the row's own first."""
        return (Synonym(self.name), *self.synonyms)

    @property
    def default_text(self) -> str:
        return self.text_of(self.default)

    def text_of(self, value: T) -> str:
        return self.kind.text_of(value)

    def parse(self, text: str, *, told_as: Synonym | None = None, where: str = "") -> T:
        """Return the value, or raise `ConfigError` with one sentence.

        `told_as` is the name it was given under, `where` the place to look at.
        """
        told_as = told_as or Synonym(self.name)
        try:
            return self._read(text.strip(), told_as.factor)
        except ValueError as error:
            it = "it is not" if self.sensitive else f"it is {shown(text)}"
            place = f" ({where})" if where else ""
            raise ConfigError(f"{told_as.name} must be {error}; {it}{place}.") from None

    def _read(self, text: str, factor: int) -> T:
        if _UNSPEAKABLE.search(text):
            raise ValueError("text without control characters")
        if factor == 1:
            value = self.kind.parse(text)
            self._require(value)
            return value
        count = INT.parse(text)
        self._require(count)
        # A negative number means "no limit" in every unit.
        return self.kind.parse(str(count * factor if count >= 0 else -1))

    def _require(self, value: object) -> None:
        if self.check is not None and not self.check.allows(value):
            raise ValueError(self.check.words)


def environment_name(name: str) -> str:
    """Return the environment variable of an option: `log.dirs` is OTTLA_LOG_DIRS."""
    return "OTTLA_" + name.removeprefix("ottla.").replace(".", "_").upper()


def rows_of(namespace: Mapping[str, object]) -> tuple[Option[Any], ...]:
    """Return the rows that a module defines, in its order, so that none can be forgotten."""
    return tuple(value for value in namespace.values() if isinstance(value, Option))


def _parse_whole(text: str, limit: int) -> int:
    if not _WHOLE.fullmatch(text):
        raise ValueError("a whole number")
    value = int(text)
    if not -limit - 1 <= value <= limit:
        raise ValueError(f"a whole number of at most {limit}")
    return value


def _parse_double(text: str) -> float:
    if not _DECIMAL.fullmatch(text):
        raise ValueError("a number")
    return float(text)


def _parse_bool(text: str) -> bool:
    # Kafka takes any mixture of capitals, and nothing but these two words.
    if text.lower() not in ("true", "false"):
        raise ValueError('"true" or "false"')
    return text.lower() == "true"


def _parse_list(text: str) -> tuple[str, ...]:
    if not text:
        return ()
    items = tuple(item.strip() for item in text.split(","))
    if "" in items:
        raise ValueError("a list with no empty item between its commas")
    return items


INT: Final = Kind("int", WireType.INT, lambda text: _parse_whole(text, INT32_MAX), str)
LONG: Final = Kind("long", WireType.LONG, lambda text: _parse_whole(text, INT64_MAX), str)
DOUBLE: Final = Kind("double", WireType.DOUBLE, _parse_double, repr)
BOOL: Final = Kind("boolean", WireType.BOOLEAN, _parse_bool, lambda value: str(value).lower())
STRING: Final = Kind("string", WireType.STRING, str, str)
LIST: Final = Kind("list", WireType.LIST, _parse_list, ",".join)


def at_least(low: int) -> Check[int]:
    return Check(f"at least {low}", lambda value: value >= low)


def between(low: float, high: float) -> Check[float]:
    return Check(f"between {low} and {high}", lambda value: low <= value <= high)


def minus_one_or_between(low: int, high: int) -> Check[int]:
    return Check(
        f"-1 or between {low} and {high}", lambda value: value == -1 or low <= value <= high
    )


def one_of(*words: str) -> Check[str]:
    return Check("one of " + ", ".join(words), lambda value: value in words)


def some_of(*words: str, empty: bool) -> Check[tuple[str, ...]]:
    """Allow a list of the given words without repetition."""

    def allows(items: Iterable[str]) -> bool:
        given = list(items)
        return (empty or bool(given)) and set(given) <= set(words) and len(set(given)) == len(given)

    told = "a list of " + " and ".join(words) + ", each at most once"
    return Check(told + (", or empty" if empty else ""), allows)
