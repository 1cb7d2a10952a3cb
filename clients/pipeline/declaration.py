"""A pipeline as its file declares it: sources → steps → sinks, checked before anything starts.

A recipe is read to its end before the oven is lit. Every table of the file has its known keys, each
name is given once and used only after it, and what is wrong is told by table and key, one sentence
for each problem.

D1  whatever leaves here is complete: every `from` leads to something, every kind has what it needs
D2  an unknown key is refused, with the nearest known one: a typing error must not become a default

Not here: which keys there are (`kinds.py`), Spark (`tables.py`), the cluster (`validation.py`).
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ottla.clients.pipeline.kinds import (
    AT_LEAST_ONCE,
    CHOICES,
    EXACTLY_ONCE,
    FUNCTION_KINDS,
    PIPELINE,
    SINKS,
    SOURCES,
    STEPS,
    Rows,
)
from ottla.proto.errors import ConfigError

FILE_BYTES_MAX: Final = 1 << 20
AVAILABLE_NOW: Final = "available-now"
# Suffix of the sink that writes what a step refused.
DEAD_LETTERS: Final = "dead-letters"


@dataclass(frozen=True, slots=True)
class Part:
    """A source, a step or a sink: its name, its kind, and what else the file says of it."""

    name: str
    kind: str
    values: Mapping[str, Any]

    def text(self, key: str, default: str = "") -> str:
        return str(self.values.get(key, default))

    def names(self, key: str) -> tuple[str, ...]:
        return tuple(self.values.get(key, ()))

    @property
    def options(self) -> dict[str, str]:
        """Return its options for Spark, which does not tell capitals apart in their names."""
        given: Mapping[str, Any] = self.values.get("options", {})
        return {key.lower(): str(value) for key, value in given.items()}


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A whole file, in the order in which it is built."""

    name: str
    checkpoint: str
    # "available-now", or an interval like "5 seconds".
    trigger: str
    bootstrap: str
    # How often a row is in a topic, for readers of what is committed.
    guarantee: str
    sources: tuple[Part, ...]
    steps: tuple[Part, ...]
    sinks: tuple[Part, ...]

    def prefix_of(self, sink: Part) -> str | None:
        """Return what the transactions of a topic's sink are called; None: at least once.

        Options of the sink's own come before its guarantee, and that before the pipeline's.
        """
        own = sink.options
        is_once = sink.text("guarantee", self.guarantee) != AT_LEAST_ONCE
        if own.get("exactlyonce", str(is_once)).lower() != "true":
            return None
        # A / divides the name of a transaction from the prefix.
        return own.get("transactionalidprefix") or f"{self.name}.{sink.name}".replace("/", ".")

    @property
    def writes_exactly_once(self) -> bool:
        sinks = [one for one in self.sinks if one.kind == "topic"]
        letters = any(one.text("dead_letters") for one in self.steps)
        is_default = self.guarantee == EXACTLY_ONCE
        return (letters and is_default) or any(self.prefix_of(one) for one in sinks)

    @property
    def dropping_steps(self) -> list[str]:
        """Return the steps that have nowhere to send the rows that they cannot read."""
        parsing = (one for one in self.steps if one.kind.startswith("parse_"))
        return [one.name for one in parsing if not one.text("dead_letters")]

    @property
    def topics_read(self) -> set[str]:
        return {one.text("topic") for one in self.sources if one.kind == "topic"}

    @property
    def topics_written(self) -> set[str]:
        written = {one.text("topic") for one in self.sinks if one.kind == "topic"}
        return written | {topic for one in self.steps if (topic := one.text("dead_letters"))}


def read_pipeline(data: bytes) -> Pipeline:
    """Return the pipeline of a TOML file, or raise `ConfigError`, a sentence for each problem."""
    if len(data) > FILE_BYTES_MAX:
        raise ConfigError(f"A pipeline has at most {FILE_BYTES_MAX} bytes, not {len(data)}.")
    try:
        told = tomllib.loads(data.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"This is no TOML: {error}.") from None
    return _Reader().read(told)


class _Reader:
    """Reads one file, and gathers what is wrong with it."""

    def __init__(self) -> None:
        self._problems: Final = list[str]()

    def read(self, told: Mapping[str, Any]) -> Pipeline:
        self._known_keys("the file", told, ("pipeline", "sources", "steps", "sinks"))
        head = self._table("pipeline", told.get("pipeline"))
        self._check("pipeline", head, PIPELINE)
        self._choices("pipeline", "", head)
        found = Pipeline(
            name=str(head.get("name", "")),
            checkpoint=str(head.get("checkpoint", "")),
            trigger=str(head.get("trigger", AVAILABLE_NOW)),
            bootstrap=str(head.get("bootstrap", "localhost:9092")),
            guarantee=str(head.get("guarantee", EXACTLY_ONCE)),
            sources=self._parts("sources", told.get("sources"), SOURCES),
            steps=self._parts("steps", told.get("steps", []), STEPS),
            sinks=self._parts("sinks", told.get("sinks"), SINKS),
        )
        if not self._problems:
            self._connections(found)
        if self._problems:
            raise ConfigError(*self._problems)
        return found

    def _parts(self, where: str, told: object, kinds: Mapping[str, Rows]) -> tuple[Part, ...]:
        if not isinstance(told, list) or not (told or where == "steps"):
            self._problems.append(f"At least one [[{where}]] is needed.")
            return ()
        return tuple(
            part
            for number, one in enumerate(told, start=1)
            if (part := self._part(where, number, one, kinds)) is not None
        )

    def _part(
        self, where: str, number: int, told: object, kinds: Mapping[str, Rows]
    ) -> Part | None:
        if not isinstance(told, dict):
            self._problems.append(f"{where} {number} must be a table.")
            return None
        name = told.get("name")
        if not isinstance(name, str) or not name.isidentifier():
            self._problems.append(
                f"{where} {number} needs a name of letters, digits and underscores, "
                f"not {str(name)[:40]!r}."
            )
            return None
        kind = told.get("kind")
        if not isinstance(kind, str) or kind not in kinds:
            self._problems.append(
                f"{where} {name}: kind must be one of {', '.join(kinds)}, not {str(kind)[:40]!r}."
            )
            return None
        values = {key: value for key, value in told.items() if key not in ("name", "kind")}
        self._check(f"{where} {name}", values, kinds[kind])
        self._choices(where, name, values)
        if where == "steps" and kind in FUNCTION_KINDS:
            self._function(name, values.get("function"))
        return Part(name, kind, values)

    def _choices(self, where: str, name: str, values: Mapping[str, Any]) -> None:
        for key, value in values.items():
            allowed = CHOICES.get((where, key))
            if allowed is not None and isinstance(value, str) and value not in allowed:
                self._problems.append(
                    f"{where} {name}".rstrip()
                    + f": {key} must be one of {', '.join(allowed)}, not {value[:40]!r}."
                )
        if where == "sinks" and ("time" in values) != ("every" in values):
            self._problems.append(f"sinks {name}: time and every belong together.")

    def _function(self, name: str, told: object) -> None:
        file, _, function = told.partition(":") if isinstance(told, str) else ("", "", "")
        if told is not None and not (file.endswith(".py") and function.isidentifier()):
            self._problems.append(
                f"steps {name}: function must be like file.py:name, not {str(told)[:40]!r}."
            )

    def _table(self, where: str, told: object) -> Mapping[str, Any]:
        if isinstance(told, dict):
            return told
        self._problems.append(f"A table [{where}] is needed.")
        return {}

    def _check(self, where: str, told: Mapping[str, Any], rows: Rows) -> None:
        types = {key.rstrip("*"): kind for key, kind in rows.items()}
        self._known_keys(where, told, tuple(types))
        for key in rows:
            if key.endswith("*") and key.rstrip("*") not in told:
                self._problems.append(f"{where}: {key.rstrip('*')} is missing.")
        for key, value in told.items():
            kind = types.get(key)
            if kind is None:
                continue
            if not isinstance(value, kind) or isinstance(value, bool):
                self._problems.append(f"{where}: {key} must be {_words(kind)}, not {value!r}.")
            elif kind is list and not _are_texts(value):
                self._problems.append(f"{where}: {key} must be a list of texts, not {value!r}.")
            elif value in ("", 0):
                self._problems.append(f"{where}: {key} must not be empty.")

    def _known_keys(self, where: str, told: Mapping[str, Any], known: tuple[str, ...]) -> None:
        for key in told:
            if key not in known:
                near = difflib.get_close_matches(key[:64], known, n=1)
                hint = f"; is {near[0]} meant?" if near else f": {', '.join(known)} are."
                self._problems.append(f"{where}: {key[:64]} is no key{hint}")

    def _connections(self, found: Pipeline) -> None:
        known = set[str]()
        for part in (*found.sources, *found.steps):
            self._leads_somewhere("steps", part, known)
            if part.name in known:
                self._problems.append(f"The name {part.name} is given twice.")
            known.add(part.name)
        sinks = set[str]()
        for part in found.sinks:
            self._leads_somewhere("sinks", part, known)
            if part.name in sinks:
                self._problems.append(f"The name {part.name} is given to two sinks.")
            sinks.add(part.name)
        loops = sorted(found.topics_read & found.topics_written)
        if loops:
            self._problems.append(f"Topic {loops[0]} is read and written: it would never end.")

    def _leads_somewhere(self, where: str, part: Part, known: set[str]) -> None:
        for key in ("from", "with"):
            source = part.values.get(key)
            if source is not None and source not in known:
                near = difflib.get_close_matches(str(source), sorted(known), n=1)
                hint = f"; is {near[0]} meant?" if near else "."
                self._problems.append(
                    f"{where} {part.name}: {key} {source!r} leads to nothing before it{hint}"
                )


def _are_texts(value: Any) -> bool:
    return bool(value) and all(isinstance(one, str) for one in value)


def _words(kind: type) -> str:
    return {str: "a text", int: "a whole number", list: "a list", dict: "a table"}[kind]
