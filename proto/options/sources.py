"""Merges the sources of a node's options: defaults < file < environment < flags.

Every name is either a row, another name of a row, a known option of Kafka's without effect here
(a warning), refused with its reason, or a mistake. A typo must stop the start, not become a
default.

A later source wins over an earlier one, whatever names they use; within one source the strongest
name wins (log.retention.ms over .minutes over .hours, as in Kafka).

Options that may change while a node runs are laid over the result, for all brokers and then for
one (`overlay`).

Not here: reading files and the environment, whose texts are handed in, and what must hold between
two options (`load.py`).

S1  all problems are told, not only the first
S2  every value returned has passed its row's check
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, TypeVar

from ottla.proto.errors import ConfigError
from ottla.proto.options import ignored, node, topic
from ottla.proto.options.option import Option, Synonym, environment_name, shown, shown_name
from ottla.proto.options.properties import parse_properties

T = TypeVar("T")

_ENVIRONMENT_PREFIX: Final = "OTTLA_"
# Switches for tests that are not options of a node.
RESERVED_VARIABLES: Final = frozenset(
    {
        "OTTLA_DIAL",
        "OTTLA_FAILPOINTS",
        "OTTLA_FAULTS",
        "OTTLA_FAULTS_FILE",
        "OTTLA_INTEROP_CACHE",
    }
)

# Longer names are not compared in full: nobody misspells a thousand letters.
_NAME_MAX: Final = 200
_OTHER_PLACE: Final = {row.topic_option: row.name for row in node.DEFAULTS_FOR_TOPICS} | {
    name.name: row.topic_option for row in node.DEFAULTS_FOR_TOPICS for name in row.names
}


class Source(IntEnum):
    """Where a value came from; the greater wins."""

    DEFAULT = 0
    FILE = 1
    ENVIRONMENT = 2
    FLAG = 3
    # Changed while the node runs: for all brokers, and for this one.
    ALL_BROKERS = 4
    THIS_BROKER = 5
    # A topic's own value.
    TOPIC = 6


@dataclass(frozen=True, slots=True)
class Given:
    """A value as somebody wrote it."""

    name: str
    text: str
    source: Source
    # For people: "server.properties, line 3".
    where: str


@dataclass(frozen=True, slots=True)
class Setting:
    """The value of one row, and how it came to be."""

    option: Option[Any]
    value: Any
    source: Source = Source.DEFAULT
    # The name and text it was given as; None for a default.
    given: Given | None = None
    # What would be in force without this one, if somebody gave that too.
    hides: Setting | None = None

    @property
    def text(self) -> str:
        return self.option.text_of(self.value)


@dataclass(frozen=True, slots=True)
class Options:
    """All the rows of a table with their values."""

    settings: Mapping[str, Setting]
    warnings: tuple[str, ...] = ()

    def value_of(self, option: Option[T]) -> T:
        value: T = self.settings[option.name].value
        return value

    def is_given(self, option: Option[Any]) -> bool:
        return self.settings[option.name].source is not Source.DEFAULT

    def given(self) -> tuple[Setting, ...]:
        """Return what somebody has set, in the order of the table."""
        return tuple(s for s in self.settings.values() if s.source is not Source.DEFAULT)


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A file's name, for people, and its bytes."""

    name: str
    data: bytes


def read_node_options(
    *,
    file: ConfigFile | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, str] | None = None,
) -> Options:
    """Return the node's options from all sources, or raise `ConfigError` with every problem.

    Each option is looked at alone; `load.py` sees to what must hold between them.
    """
    given = [*_from_environment(environment or {})]
    given += [
        Given(name, text, Source.FLAG, "command line") for name, text in (flags or {}).items()
    ]
    if file is not None:
        for name, found in parse_properties(file.data, file_name=file.name).items():
            where = f"{file.name}, line {found.line}"
            given.append(Given(name, found.value, Source.FILE, where))
    return _read(node.TABLE, node.BY_ANY_NAME, given, ignored.NODE)


def read_topic_options(given: Mapping[str, str], node_options: Options) -> Options:
    """Return a topic's options: its own, else the node's, else the defaults."""
    own = [Given(name, text, Source.TOPIC, "") for name, text in given.items()]
    names = {row.name: (row, Synonym(row.name)) for row in topic.TABLE}
    read = _read(topic.TABLE, names, own, ignored.TOPIC)
    merged = {
        name: setting if setting.source is Source.TOPIC else _inherited(setting, node_options)
        for name, setting in read.settings.items()
    }
    return Options(merged, read.warnings)


def overlay(options: Options, given: Mapping[str, str], source: Source) -> Options:
    """Return the options with what was changed while the node runs, or raise `ConfigError`."""
    settings = dict(options.settings)
    problems: list[str] = []
    for name, text in given.items():
        try:
            row = dynamic_row(name)
            value = row.parse(text)
        except ConfigError as error:
            problems.extend(error.problems)
            continue
        under = settings[row.name]
        hidden = under if under.given is not None else None
        settings[row.name] = Setting(row, value, source, Given(name, text, source, ""), hidden)
    if problems:
        raise ConfigError(*problems)
    return Options(settings, options.warnings)


def dynamic_row(name: str) -> Option[Any]:
    """Return the row that may be changed under this name while a node runs, or raise `ConfigError`.

    Each row has one such name: which of two would win could not be told from the order of changes.
    """
    found = node.BY_ANY_NAME.get(name)
    if found is None:
        if reason := ignored.reason_of(ignored.NODE, name):
            raise ConfigError(f"{shown_name(name)} has no effect here: {reason}.")
        raise ConfigError(_refusal(Given(name, "", Source.THIS_BROKER, ""), node.BY_NAME))
    row, _ = found
    if row.dynamic and row.name == name:
        return row
    instead = f", but {row.name} can be changed while the node runs" if row.dynamic else ""
    raise ConfigError(f"{name} can only be changed in the file and by a restart{instead}.")


def _inherited(setting: Setting, node_options: Options) -> Setting:
    above = node_options.settings[node.OF_TOPIC_OPTION[setting.option.name].name]
    return Setting(setting.option, above.value, above.source, above.given)


def _from_environment(environment: Mapping[str, str]) -> Iterator[Given]:
    for variable, text in environment.items():
        if variable.startswith(_ENVIRONMENT_PREFIX) and variable not in RESERVED_VARIABLES:
            yield Given(
                _option_of(variable),
                text,
                Source.ENVIRONMENT,
                f"environment {shown_name(variable)}",
            )


def _option_of(variable: str) -> str:
    name = variable.removeprefix(_ENVIRONMENT_PREFIX).lower().replace("_", ".")
    ours = f"ottla.{name}"
    return ours if ours in node.BY_ANY_NAME else name


def _read(
    table: Iterable[Option[Any]],
    names: Mapping[str, tuple[Option[Any], Synonym]],
    given: Iterable[Given],
    without_effect: Iterable[ignored.WithoutRow],
) -> Options:
    problems: list[str] = []
    warnings: list[str] = []
    candidates: dict[str, list[Given]] = {}
    for one in given:
        if one.name in names:
            candidates.setdefault(names[one.name][0].name, []).append(one)
        elif reason := ignored.reason_of(without_effect, one.name):
            warnings.append(f"{shown_name(one.name)} has no effect: {reason}{_place(one)}.")
        else:
            problems.append(_refusal(one, names))
    settings: dict[str, Setting] = {}
    for row in table:
        rank = {name.name: rank for rank, name in enumerate(row.names)}
        ordered = sorted(candidates.get(row.name, ()), key=lambda g: (-g.source, rank[g.name]))
        settings[row.name] = Setting(row, row.default)
        for one in ordered:
            try:
                value = row.parse(one.text, told_as=names[one.name][1], where=one.where)
            except ConfigError as error:
                problems.extend(error.problems)
                continue
            if one is ordered[0]:
                settings[row.name] = Setting(row, value, one.source, one)
        warnings.extend(_overridden(ordered))
    if problems:
        raise ConfigError(*problems)
    return Options(settings, tuple(warnings))


def _overridden(ordered: list[Given]) -> Iterator[str]:
    """Yield a warning for every name that loses to another name in the same source."""
    for one in ordered[1:]:
        if one.source == ordered[0].source:
            yield f"{one.name} has no effect beside {ordered[0].name}{_place(one)}."


def _place(given: Given) -> str:
    return f" ({given.where})" if given.where else ""


def _refusal(given: Given, names: Iterable[str]) -> str:
    if reason := ignored.reason_of(ignored.REFUSED, given.name):
        return f"{shown_name(given.name)} is refused: {reason}{_place(given)}."
    near = nearest(given.name, names)
    if near is None:
        told = "`ottla config describe` lists those there are."
    else:
        is_variable = given.source is Source.ENVIRONMENT
        told = f"did you mean {environment_name(near) if is_variable else near}?"
    return f"unknown option {shown(given.name)}{_place(given)}: {told}"


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the known name that a misspelt one was probably meant to be."""
    known = list(names)
    # A topic's option in a node's file, or the other way round, is a mistake of place.
    if (elsewhere := _OTHER_PLACE.get(name)) in known:
        return elsewhere
    found = difflib.get_close_matches(name[:_NAME_MAX].lower(), known, n=1, cutoff=0.6)
    return found[0] if found else None
