"""Patterns of names, matched in time that grows with the length of the name and no faster.

Python's own `re` tries one way after another, and a stranger's pattern may have more ways than
there is time. Here all ways are walked side by side, as by RE2, which Kafka uses: a name is read
once, and after each character there is a set of places in the pattern where one may be.

What is understood: characters, `.`, `[…]`, `(…)`, `(?:…)`, `|`, `*`, `+`, `?`, `{m,n}`, `^`, `$`,
and `\\d`, `\\w`, `\\s`, their opposites, and `\\` before what is no letter or digit. Anything else
is refused, not guessed. A pattern fits a whole name.

E1  a pattern has at most `PLACES_MAX` places, however it is written
E2  each character of a name costs at most one step for each place; `steps` counts them

Not here: whose names (`node/kafka/transaction_admin.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ottla.proto.errors import ErrorCode, RequestError

PATTERN_MAX: Final = 1_000
PLACES_MAX: Final = 500
_DEPTH_MAX: Final = 50
# Sets of places and the characters that lead on from them, remembered.
_KNOWN_MAX: Final = 1_000
_REPEATS: Final = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_CLASSES: Final = {
    "d": (("0", "9"),),
    "w": (("0", "9"), ("A", "Z"), ("_", "_"), ("a", "z")),
    "s": (("\t", "\n"), ("\f", "\r"), (" ", " ")),
}
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}

_Ranges = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class _Chars:
    """One character of some."""

    ranges: _Ranges
    is_not: bool = False

    def has(self, one: str) -> bool:
        return any(low <= one <= high for low, high in self.ranges) != self.is_not


@dataclass(frozen=True, slots=True)
class _Edge:
    """The beginning of the name, or its end."""

    is_end: bool


@dataclass(frozen=True, slots=True)
class _All:
    """One after the other."""

    parts: tuple[_Node, ...]


@dataclass(frozen=True, slots=True)
class _Any:
    """One of them."""

    parts: tuple[_Node, ...]


@dataclass(frozen=True, slots=True)
class _Times:
    """So often; None: as often as one likes."""

    part: _Node
    least: int
    most: int | None


_Node = _Chars | _Edge | _All | _Any | _Times


def _refuse(why: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_REGULAR_EXPRESSION, f"The pattern {why}.")


class _Reader:
    """Reads a pattern once, from left to right."""

    def __init__(self, text: str) -> None:
        self._text: Final = text
        self._at = 0
        self._depth = 0

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self) -> str:
        one = self._peek()
        if not one:
            raise _refuse("ends too early")
        self._at += 1
        return one

    def _takes(self, wanted: str) -> bool:
        is_here = self._text.startswith(wanted, self._at)
        self._at += len(wanted) if is_here else 0
        return is_here

    def whole(self) -> _Node:
        found = self._any()
        if self._peek():
            raise _refuse("closes what it has not opened")
        return found

    def _any(self) -> _Node:
        parts = [self._all()]
        while self._takes("|"):
            parts.append(self._all())
        return parts[0] if len(parts) == 1 else _Any(tuple(parts))

    def _all(self) -> _Node:
        parts = list[_Node]()
        while self._peek() and self._peek() not in "|)":
            parts.append(self._repeated(self._one()))
        return _All(tuple(parts))

    def _one(self) -> _Node:
        match one := self._take():
            case "(":
                return self._group()
            case "[":
                return self._class()
            case ".":
                return _Chars((("\n", "\n"),), is_not=True)
            case "^" | "$":
                return _Edge(is_end=one == "$")
            case "\\":
                return self._escaped()
            case "*" | "+" | "?":
                raise _refuse(f"has a {one} with nothing before it")
            case _:
                return _Chars(((one, one),))

    def _group(self) -> _Node:
        if self._takes("?") and not self._takes(":"):
            raise _refuse("has a kind of group that is not served here")
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise _refuse(f"has groups in groups, more than {_DEPTH_MAX} deep")
        found = self._any()
        self._depth -= 1
        if not self._takes(")"):
            raise _refuse("does not close what it opens")
        return found

    def _escaped(self) -> _Chars:
        one = self._take()
        if one.lower() in _CLASSES:
            return _Chars(_CLASSES[one.lower()], is_not=one.isupper())
        if one in _CONTROLS:
            return _Chars(((_CONTROLS[one], _CONTROLS[one]),))
        if one.isalnum() or not one.isascii():
            raise _refuse(f"has a \\{one}, which is not served here")
        return _Chars(((one, one),))

    def _class(self) -> _Chars:
        is_not = self._takes("^")
        ranges = list[tuple[str, str]]()
        while not ranges or self._peek() != "]":
            low = self._member()
            if len(low.ranges) > 1 or low.is_not or low.ranges[0][0] != low.ranges[0][1]:
                if low.is_not:
                    raise _refuse("has an opposite inside of brackets, which is not served here")
                ranges += low.ranges
            elif self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._take()
                ranges.append(self._range(low.ranges[0][0], self._member()))
            else:
                ranges += low.ranges
        self._take()
        return _Chars(tuple(ranges), is_not)

    def _member(self) -> _Chars:
        one = self._take()
        if one == "[" and self._peek() == ":":
            raise _refuse("has a class by name, which is not served here")
        return self._escaped() if one == "\\" else _Chars(((one, one),))

    def _range(self, low: str, high: _Chars) -> tuple[str, str]:
        last = high.ranges[0][1]
        if len(high.ranges) > 1 or high.is_not or last < low:
            raise _refuse("has a range that goes backwards")
        return low, last

    def _repeated(self, part: _Node) -> _Node:
        times = self._times()
        if times is None:
            return part
        # Whether the shortest or the longest is looked for makes no difference to a whole name.
        self._takes("?")
        if self._peek() in ("*", "+", "?") or self._times() is not None:
            raise _refuse("repeats a repetition")
        return _Times(part, *times)

    def _times(self) -> tuple[int, int | None] | None:
        for sign, times in _REPEATS.items():
            if self._takes(sign):
                return times
        end = self._text.find("}", self._at)
        if self._peek() != "{" or end < 0:
            return None
        least, comma, most = self._text[self._at + 1 : end].partition(",")
        if not _is_number(least) or not (_is_number(most) or most == ""):
            # A brace like any other character.
            return None
        self._at = end + 1
        if not comma:
            return int(least), int(least)
        if most and int(most) < int(least):
            raise _refuse("has a repetition that goes backwards")
        return int(least), int(most) if most else None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 5


@dataclass(slots=True)
class _Net:
    """The places of a pattern: from each, one character leads on, or nothing but a step does."""

    # By place: what is read there, and where it leads.
    reads: dict[int, tuple[_Chars, int]] = field(default_factory=dict)
    steps: dict[int, list[int]] = field(default_factory=dict)
    edges: dict[int, tuple[_Edge, int]] = field(default_factory=dict)
    count: int = 1

    def new(self) -> int:
        self.count += 1
        if self.count > PLACES_MAX:
            raise _refuse(f"has more than {PLACES_MAX} places, with what it repeats")
        return self.count - 1

    def join(self, one: int, other: int) -> None:
        self.steps.setdefault(one, []).append(other)

    def build(self, node: _Node, at: int) -> int:
        """Put a part behind a place, and return the place behind it."""
        match node:
            case _Chars():
                end = self.new()
                self.reads[at] = node, end
                return end
            case _Edge():
                end = self.new()
                self.edges[at] = node, end
                return end
            case _All(parts):
                for part in parts:
                    begin = self.new()
                    self.join(at, begin)
                    at = self.build(part, begin)
                return at
            case _Any(parts):
                end = self.new()
                for part in parts:
                    begin = self.new()
                    self.join(at, begin)
                    self.join(self.build(part, begin), end)
                return end
            case _Times():
                return self._build_times(node, at)

    def _build_times(self, node: _Times, at: int) -> int:
        for _ in range(node.least):
            at = self._build_apart(node.part, at)
        if node.most is None:
            loop, end = self.new(), self.new()
            self.join(at, loop)
            self.join(self._build_apart(node.part, loop), loop)
            self.join(loop, end)
            return end
        end = self.new()
        self.join(at, end)
        for _ in range(node.most - node.least):
            at = self._build_apart(node.part, at)
            self.join(at, end)
        return end

    def _build_apart(self, node: _Node, at: int) -> int:
        begin = self.new()
        self.join(at, begin)
        return self.build(node, begin)


# Where one may be in a pattern, after what was read so far.
Places = frozenset[int]


class Pattern:
    """A pattern, ready to be matched; raises `RequestError` for what is none, or not served."""

    def __init__(self, text: str) -> None:
        if len(text) > PATTERN_MAX:
            raise _refuse(f"has {len(text)} characters, more than {PATTERN_MAX}")
        self._net: Final = _Net()
        self._last: Final = self._net.build(_Reader(text).whole(), 0)
        self._known: Final[dict[tuple[Places, str], Places]] = {}
        self.steps = 0

    @property
    def begin(self) -> Places:
        return frozenset((0,))

    def matches(self, name: str) -> bool:
        return self.is_end(self.after(self.begin, name, is_begin=True), name)

    def after(self, places: Places, piece: str, *, is_begin: bool) -> Places:
        """Return where one may be after a further piece of a name; nowhere: it does not fit."""
        for one in piece:
            if not places:
                break
            places, is_begin = self._after(places, one, is_begin=is_begin), False
        return places

    def is_end(self, places: Places, name: str) -> bool:
        """Return whether a name may end there."""
        return self._last in self._reached(places, is_begin=not name, is_end=True)

    def _after(self, places: Places, one: str, *, is_begin: bool) -> Places:
        known = None if is_begin else self._known.get((places, one))
        self.steps += 1
        if known is not None:
            return known
        reads = self._net.reads
        reached = self._reached(places, is_begin=is_begin, is_end=False)
        found = frozenset(
            reads[place][1] for place in reached if place in reads and reads[place][0].has(one)
        )
        if not is_begin:
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            self._known[places, one] = found
        return found

    def _reached(self, places: Places, *, is_begin: bool, is_end: bool) -> set[int]:
        """Return all places that are reached from these without reading."""
        net, reached, left = self._net, set(places), list(places)
        while left:
            place = left.pop()
            more = list(net.steps.get(place, ()))
            if place in net.edges:
                edge, behind = net.edges[place]
                if is_end if edge.is_end else is_begin:
                    more.append(behind)
            for one in more:
                if one not in reached:
                    reached.add(one)
                    left.append(one)
        self.steps += len(reached)
        return reached
