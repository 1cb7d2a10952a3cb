"""`ottla consume`: prints the records of a topic, until it is told to stop.

All partitions are read, or one; those that are added later are not. With --group, the members of
the group share them out, also those that are added later, and go on where the group stopped. Order
holds within a partition.

R1  exit code 0 if it ended as it was asked to: by --max-messages, at the end, after silence while
    a broker was there to speak, or by Ctrl-C when it was asked to go on for ever
R2  a record is printed as it is, byte for byte, and a newline after it
R3  a group's position is behind what was printed, and never behind what was not

Not here: what a record looks like (`text.py`), where reading begins (`positions.py`), and reading
itself (`reading.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import click

from ottla.clients.cli.options import ToolCommand, for_clients, old_spelling, run
from ottla.clients.cli.output import complain, reader_is_gone
from ottla.clients.cli.positions import (
    Found,
    ReadError,
    find_positions,
    find_topic,
    parse_start,
)
from ottla.clients.cli.reading import (
    AT_ONCE,
    Reader,
    Trouble,
    Wish,
    is_somebody_there,
    wish_to_stop,
)
from ottla.clients.cli.text import DEFAULT_FORMAT, Printed, as_json, parse_template
from ottla.clients.cli.text import NULL_TEXT as _NULL
from ottla.clients.consumer.record import Record
from ottla.proto.errors import ConfigError
from ottla.proto.ids import TopicPartition
from ottla.proto.options.endpoints import Address

_EXIT_FAILED: Final = 1
_EXIT_INTERRUPTED: Final = 130
_EXIT_READER_GONE: Final = 141
Render = Callable[[Printed], bytes]


@dataclass(frozen=True, slots=True)
class _Until:
    """When to stop; what is None or false is no reason."""

    records_max: int | None
    silence_s: float | None
    at_end: bool

    @property
    def is_endless(self) -> bool:
        return self.records_max is None and not self.at_end


@click.command(cls=ToolCommand)
@click.argument("topic")
@click.option("--from-beginning", is_flag=True, help="From the first record that is kept.")
@click.option("--partition", type=click.IntRange(min=0), help="Read this one only.")
@click.option(
    "--offset",
    metavar="WHERE",
    help="Where to begin: earliest, latest, @TIME (milliseconds since 1970, or "
    "2026-11-16T09:00:00Z), or with --partition a number.  [default: latest]",
)
@click.option("--max-messages", type=click.IntRange(min=1), help="Stop after so many records.")
@click.option("--until-end", is_flag=True, help="Stop when everything there is has been read.")
@click.option(
    "--timeout",
    "silence_s",
    type=click.FloatRange(min=0.1),
    metavar="SECONDS",
    help="Stop when nothing has come for so long.",
)
@click.option(
    "--format",
    "template",
    default=DEFAULT_FORMAT,
    show_default=True,
    help="What to print: {topic} {partition} {offset} {timestamp} {time} {key} {value} {headers} "
    r"{size}, \t, \n. A newline is added.",
)
@click.option("--null-marker", default=_NULL, show_default=True, help="What null is printed as.")
@click.option(
    "--group",
    help="Share partitions with the others of this group, and go on where it stopped. Where it "
    "has been nowhere: from now on, or with --from-beginning from the first record.",
)
@click.option(
    "--isolation-level",
    "isolation",
    type=click.Choice(["read_uncommitted", "read_committed"]),
    default="read_uncommitted",
    show_default=True,
    help="read_committed: nothing of transactions that are open or aborted.",
)
@old_spelling("--topic", instead="say the name alone: `ottla consume NAME`.")
@old_spelling("--timeout-ms", instead="say --timeout SECONDS.")
@old_spelling("--property", "--formatter-property", instead="say --format '{key} {value}'.")
@old_spelling(
    "--consumer-property",
    "--command-property",
    instead="what can be chosen has an option, as --group and --isolation-level have.",
)
@for_clients
def consume(
    bootstrap: tuple[Address, ...],
    as_json: bool,
    topic: str,
    from_beginning: bool,
    partition: int | None,
    offset: str | None,
    max_messages: int | None,
    until_end: bool,
    silence_s: float | None,
    template: str,
    null_marker: str,
    group: str | None,
    isolation: str,
) -> None:
    """Print the records of TOPIC, from now on unless told otherwise."""
    render = _as_line if as_json else parse_template(template, null=null_marker).render
    until = _Until(max_messages, silence_s, until_end)
    if group is None:
        start = parse_start(offset, from_beginning=from_beginning, partition=partition)
        found = run(find_positions(bootstrap, topic, partition, start))
    else:
        _require_no_place(group, offset, partition)
        found = run(find_topic(bootstrap, topic))
    # By hand, offsets are known: one that is gone is told and not replaced.
    reset = "none" if group is None else "earliest" if from_beginning else "latest"
    with wish_to_stop() as wish, Reader(bootstrap, group, reset, isolation) as reader:
        if group is None:
            reader.begin({TopicPartition(topic, at): one for at, one in found.positions.items()})
        else:
            reader.join(topic)
        count = _print_all(reader, found, until, render, wish)
        why_not = reader.finish()
    _end(count, until, wish, why_not)


def _require_no_place(group: str, offset: str | None, partition: int | None) -> None:
    if not group:
        raise ConfigError("--group: a group has a name.")
    if partition is not None:
        raise ConfigError("--group shares partitions out by itself: leave --partition away.")
    if offset is not None:
        raise ConfigError(
            "--group goes on where the group stopped: leave --offset away, or move the group with "
            "`ottla groups reset`."
        )


def _end(count: int, until: _Until, wish: Wish, why_not: str | None) -> None:
    """End with the exit code that says whether it was done (R1)."""
    leave = click.get_current_context().exit
    if why_not is not None:
        complain(f"the group's position was not committed: {why_not}")
        leave(_EXIT_FAILED)
    if wish.is_over:
        # Somebody who asked for everything to come has said when it was enough.
        leave(0 if until.is_endless else _EXIT_INTERRUPTED)
    if until.records_max is not None and count < until.records_max:
        complain(f"there were fewer than {until.records_max} records.")
        leave(_EXIT_FAILED)


def _as_line(record: Printed) -> bytes:
    return json.dumps(as_json(record), ensure_ascii=False).encode()


def _print_all(reader: Reader, found: Found, until: _Until, render: Render, wish: Wish) -> int:
    """Print until it is enough; return how many there were."""
    trouble = Trouble("Ctrl-C" if until.silence_s is None else "--timeout is over")
    printed = 0
    while not wish.is_over and (until.records_max is None or printed < until.records_max):
        left = AT_ONCE if until.records_max is None else until.records_max - printed
        records = reader.take(left)
        if records:
            _print(records, render)
            printed += len(records)
            reader.printed()
        else:
            _look_around(reader, trouble)
        if until.at_end and reader.is_at_end(records):
            break
        if _is_silent(reader, found.brokers, until.silence_s, trouble):
            break
    return printed


def _print(records: Sequence[Record], render: Render) -> None:
    click.echo(b"".join(render(_printed(one)) + b"\n" for one in records), nl=False)


def _look_around(reader: Reader, trouble: Trouble) -> None:
    """See whether anybody is there at both ends, while no record comes."""
    if reader.failures():
        trouble.tell()
    if reader_is_gone():
        # `… | head -1` has its line, and the next record may never come.
        reader.finish()
        click.get_current_context().exit(_EXIT_READER_GONE)


def _is_silent(
    reader: Reader, brokers: Sequence[Address], silence_s: float | None, trouble: Trouble
) -> bool:
    """Return whether it has been silent for long enough, or raise if nobody is there to speak."""
    if silence_s is None or reader.silent_ms() < silence_s * 1000:
        return False
    if not is_somebody_there(brokers):
        trouble.tell()
        raise ReadError(f"nothing came for {silence_s:g} s, and no broker can be reached.")
    return True


def _printed(record: Record) -> Printed:
    return Printed(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        timestamp_ms=None if record.timestamp_ms < 0 else record.timestamp_ms,
        key=record.key,
        value=record.value,
        headers=record.headers,
    )
