"""The rows as people and clients see them: CONFIG.md, the text of one option, DescribeConfigs.

Not here: the commands that print it (`ottla.node.commands`), and the message that carries the
answer to a client.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from ottla.proto.ids import INT32_MAX, INT64_MAX
from ottla.proto.options import ignored, node, topic
from ottla.proto.options.option import Option, WireType, environment_name
from ottla.proto.options.sources import Options, Setting, Source

_LARGER_UNITS: Final = {
    "ms": ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s")),
    "bytes": ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB")),
}
_INTRODUCTION: Final = """\
# Options

This page is made from the option tables in `proto/options` by `ottla docs`: edit the rows, not the
page.

Options are read from a file in Kafka's format (`--config server.properties`), from the environment
(`log.dirs` is `OTTLA_LOG_DIRS`) and from the command line (`log.dirs=/var/lib/ottla`). The command
line wins over the environment, the environment over the file, the file over the defaults. A name
that is not here stops the start. `ottla config check` tells what a node would use, and from where.

Some options can be changed while a node runs, by AlterConfigs and IncrementalAlterConfigs
(`kafka-configs.sh`, any admin client): those of a topic, and for all brokers or for one those of a
node that say *at once* below. A value for one broker wins over a value for all, and both win over
the command line. They are kept with the metadata of the cluster, and hold after a restart.

The defaults are Kafka's, except where a row says what Kafka's is, and why ours is another.
"""


class ConfigSource(IntEnum):
    """Kafka's numbers for where a value came from."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5


_SOURCES: Final = {
    Source.DEFAULT: ConfigSource.DEFAULT_CONFIG,
    Source.FILE: ConfigSource.STATIC_BROKER_CONFIG,
    Source.ENVIRONMENT: ConfigSource.STATIC_BROKER_CONFIG,
    Source.FLAG: ConfigSource.STATIC_BROKER_CONFIG,
    Source.ALL_BROKERS: ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
    Source.THIS_BROKER: ConfigSource.DYNAMIC_BROKER_CONFIG,
    Source.TOPIC: ConfigSource.DYNAMIC_TOPIC_CONFIG,
}


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """One of the values that an option could have had, and has if nothing stronger is given."""

    name: str
    # None: it is a secret.
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """What DescribeConfigs says of one option."""

    name: str
    # None: it is a secret.
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    # Strongest first; the value in force is the first.
    synonyms: tuple[ConfigSynonym, ...]
    wire_type: WireType
    documentation: str

    @property
    def is_default(self) -> bool:
        return self.source is ConfigSource.DEFAULT_CONFIG


def describe_node(options: Options) -> tuple[ConfigEntry, ...]:
    return tuple(_entry(s, s.option.name, s) for s in options.settings.values())


def describe_all_brokers(given: Mapping[str, str]) -> tuple[ConfigEntry, ...]:
    """Return what was changed for all brokers while they run, and nothing below it."""
    entries = []
    for name, text in given.items():
        if row := node.BY_NAME.get(name):
            told = None if row.sensitive else text
            source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
            synonyms = (ConfigSynonym(name, told, source),)
            entries.append(_entry_of(row, told, source, synonyms))
    return tuple(entries)


def describe_topic(
    options: Options, node_options: Options, own: Mapping[str, str] | None = None
) -> tuple[ConfigEntry, ...]:
    """Return a topic's options; those of its `own` that have no effect here stand at the end."""
    entries = []
    for setting in options.settings.values():
        at_node = node.OF_TOPIC_OPTION[setting.option.name].name
        entries.append(_entry(setting, at_node, node_options.settings[at_node]))
    entries += [_without_row(name, text) for name, text in (own or {}).items() if _is_strange(name)]
    return tuple(entries)


def _is_strange(name: str) -> bool:
    return name not in topic.BY_NAME


def _without_row(name: str, text: str) -> ConfigEntry:
    source = ConfigSource.DYNAMIC_TOPIC_CONFIG
    reason = ignored.reason_of(ignored.TOPIC, name) or "this version does not know it"
    return ConfigEntry(
        name=name,
        value=text,
        source=source,
        read_only=False,
        sensitive=False,
        synonyms=(ConfigSynonym(name, text, source),),
        wire_type=WireType.STRING,
        documentation=f"It has no effect here: {reason}.",
    )


def _entry(setting: Setting, name_at_node: str, at_node: Setting) -> ConfigEntry:
    row = setting.option
    synonyms = []
    if setting.source is Source.TOPIC:
        synonyms.append(_synonym(setting))
    above: Setting | None = at_node
    while above is not None and above.given is not None:
        synonyms.append(_synonym(above))
        above = above.hides
    default = None if row.sensitive else row.default_text
    synonyms.append(ConfigSynonym(name_at_node, default, ConfigSource.DEFAULT_CONFIG))
    return _entry_of(
        row, None if row.sensitive else setting.text, synonyms[0].source, tuple(synonyms)
    )


def _synonym(setting: Setting) -> ConfigSynonym:
    """Return a value under the name it was given by, so in that name's unit."""
    if setting.given is None:
        return ConfigSynonym(setting.option.name, setting.text, _SOURCES[setting.source])
    told = None if setting.option.sensitive else setting.given.text.strip()
    return ConfigSynonym(setting.given.name, told, _SOURCES[setting.source])


def _entry_of(
    row: Option[Any],
    value: str | None,
    source: ConfigSource,
    synonyms: tuple[ConfigSynonym, ...],
) -> ConfigEntry:
    return ConfigEntry(
        name=row.name,
        value=value,
        source=source,
        read_only=not row.dynamic,
        sensitive=row.sensitive,
        synonyms=synonyms,
        wire_type=row.kind.wire_type,
        documentation=row.doc,
    )


def readable(row: Option[Any], value: object) -> str:
    """Return a value as it is written, with a larger unit beside it where that helps."""
    text = row.text_of(value)
    if text == "":
        return "(empty)"
    if row.unit and value in (INT32_MAX, INT64_MAX):
        return f"{text} (no limit)"
    if isinstance(value, int) and value > 0:
        for size, unit in _LARGER_UNITS.get(row.unit, ()):
            if value % size == 0:
                return f"{text} ({value // size} {unit})"
    return text


def help_text(row: Option[Any]) -> str:
    """Return all that a row says, for a terminal."""
    lines = [row.name, f"  {row.doc}"]
    lines += [f"  {label + ':':<13}{text}" for label, text in facts(row)]
    return "\n".join(lines)


def facts(row: Option[Any]) -> Iterator[tuple[str, str]]:
    """Yield what else there is to know of a row, as label and text."""
    yield "type", row.kind.name + (f", {row.unit}" if row.unit else "")
    yield "default", readable(row, row.default)
    if row.differs:
        yield "in Kafka", f"{row.differs.kafka}; ours differs because {row.differs.because}"
    if row.check:
        yield "allowed", row.check.words
    if _is_of_topic(row):
        yield "at the node", ", then ".join(name.name for name in row.synonyms)
    else:
        if row.synonyms:
            yield "also as", ", then ".join(name.name for name in row.synonyms)
        yield "environment", environment_name(row.name)
    yield "a change", "takes effect at once" if row.dynamic else "needs a restart"


def config_markdown() -> str:
    """Return docs/generated/CONFIG.md."""
    return "\n".join(
        (
            _INTRODUCTION,
            "## Topics\n",
            "A topic that does not set an option takes the node's value, under the first of the "
            "names in the third column that is given, and else the default. A change takes effect "
            "at once; at the node too, under the first of the names.\n",
            *_table(topic.TABLE, "at the node"),
            "\n## Nodes\n",
            "A change needs a restart, unless a row says *at once*.\n",
            *_table(node.OWN_TABLE, "also as"),
            "\n## Kafka's options that have no effect here\n",
            "They are accepted with a warning, so that a file written for Kafka can be used. A `*` "
            "stands for any ending.\n",
            "| for | options | why |",
            "| --- | --- | --- |",
            *(f"| topics | {_patterns(row)} | {row.reason} |" for row in ignored.TOPIC),
            *(f"| nodes | {_patterns(row)} | {row.reason} |" for row in ignored.NODE),
            "\n## Kafka's options that are refused\n",
            "| options | why |",
            "| --- | --- |",
            *(f"| {_patterns(row)} | {row.reason} |" for row in ignored.REFUSED),
            "",
        )
    )


def _table(rows: Iterable[Option[Any]], other_names: str) -> Iterator[str]:
    yield f"| option | default | {other_names} | allowed | what it does |"
    yield "| --- | --- | --- | --- | --- |"
    for row in rows:
        kind = row.kind.name + (f", {row.unit}" if row.unit else "")
        names = ", ".join(f"`{name.name}`" for name in row.synonyms)
        allowed = row.check.words if row.check else "any"
        yield (
            f"| `{row.name}` ({kind}) | {readable(row, row.default)} | {names} | {allowed} "
            f"| {_told(row)} |"
        )


def _told(row: Option[Any]) -> str:
    told = row.doc
    if row.differs is not None:
        told += f" *In Kafka {row.differs.kafka}; ours differs because {row.differs.because}*"
    if row.dynamic and not _is_of_topic(row):
        told += " A change takes effect *at once*."
    return told


def _is_of_topic(row: Option[Any]) -> bool:
    return topic.BY_NAME.get(row.name) is row


def _patterns(row: ignored.WithoutRow) -> str:
    return ", ".join(f"`{name}*`" if name.endswith(".") else f"`{name}`" for name in row.names)
