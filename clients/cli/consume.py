"""`ottla consume`: prints the records of a topic, until it is told to stop.

All partitions are read, or one; those that are added later are not. Order holds within a partition.

R1  exit code 0 if it ended as it was asked to: by --max-messages, at the end, after silence while
    a broker was there to speak, or by Ctrl-C when it was asked to go on for ever
R2  a record is printed as it is, byte for byte, and a newline after it

Not here: what a record looks like (`text.py`), where reading begins (`positions.py`), and groups,
which are not there yet.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import click
from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from ottla.clients.cli.librdkafka import sentence_of, settings
from ottla.clients.cli.options import for_clients, old_spelling, run
from ottla.clients.cli.output import complain, reader_is_gone
from ottla.clients.cli.positions import ReadError, find_positions, parse_start
from ottla.clients.cli.text import DEFAULT_FORMAT, Printed, as_json, parse_template
from ottla.clients.cli.text import NULL_TEXT as _NULL
from ottla.proto.errors import ConfigError
from ottla.proto.options.endpoints import Address
from ottla.proto.options.option import shown_name

_POLL_S: Final = 0.1
_AT_ONCE: Final = 500
# How long a broker may take to say that it is there.
_PROBE_S: Final = 3.0
_EXIT_FAILED: Final = 1
_EXIT_INTERRUPTED: Final = 130
_EXIT_READER_GONE: Final = 141
# librdkafka wants a name even where no group is joined. Nothing is ever stored under it.
_NO_GROUP: Final = "ottla-consume"


@dataclass(frozen=True, slots=True)
class _Until:
    """When to stop; what is None or false is no reason."""

    records_max: int | None
    silence_s: float | None
    at_end: bool


@click.command()
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
@click.option("--group", help="Not there yet.", hidden=True)
@old_spelling("--topic", instead="say the name alone: `ottla consume NAME`.")
@old_spelling("--timeout-ms", instead="say --timeout SECONDS.")
@old_spelling("--property", "--consumer-property", instead="say --format '{key} {value}'.")
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
) -> None:
    """Print the records of TOPIC, from now on unless told otherwise."""
    if group is not None:
        raise ConfigError(
            "--group: consumer groups are not there yet; without it all partitions are read, and "
            "no position is kept."
        )
    start = parse_start(offset, from_beginning=from_beginning, partition=partition)
    render = _as_line if as_json else parse_template(template, null=null_marker).render
    positions = run(find_positions(bootstrap, topic, partition, start))
    consumer = Consumer(
        settings(
            bootstrap,
            group_id=_NO_GROUP,
            enable_auto_commit=False,
            enable_auto_offset_store=False,
            enable_partition_eof=True,
            auto_offset_reset="error",
            isolation_level="read_uncommitted",
            check_crcs=True,
            fetch_queue_backoff_ms=10,
            error_cb=_tell_trouble(silence_s),
        )
    )
    until = _Until(max_messages, silence_s, until_end)
    try:
        consumer.assign([TopicPartition(topic, at, offset) for at, offset in positions.items()])
        is_complete = _print_all(consumer, len(positions), until, render)
    except KafkaException as error:
        raise ReadError(f"{shown_name(topic)}: {sentence_of(error.args[0])}") from None
    except KeyboardInterrupt:
        # Somebody who asked for everything to come has said when it was enough.
        is_endless = max_messages is None and not until_end
        click.get_current_context().exit(0 if is_endless else _EXIT_INTERRUPTED)
    finally:
        consumer.close()
    if not is_complete:
        complain(f"there were fewer than {max_messages} records.")
        click.get_current_context().exit(_EXIT_FAILED)


def _as_line(record: Printed) -> bytes:
    return json.dumps(as_json(record), ensure_ascii=False).encode()


def _tell_trouble(silence_s: float | None) -> Callable[[KafkaError], None]:
    """Return what tells once that nobody can be reached; it goes on trying by itself."""
    was_told = False
    until = "Ctrl-C" if silence_s is None else "--timeout is over"

    def tell(error: KafkaError) -> None:
        nonlocal was_told
        if error.code() == KafkaError._ALL_BROKERS_DOWN and not was_told:
            was_told = True
            complain(f"no broker can be reached any more; trying again until {until}.")

    return tell


def _print_all(
    consumer: Any, partition_count: int, until: _Until, render: Callable[[Printed], bytes]
) -> bool:
    """Print until it is enough; return false if fewer came than were asked for."""
    printed, silent_polls = 0, 0
    ended = set[int]()
    while until.records_max is None or printed < until.records_max:
        left = _AT_ONCE if until.records_max is None else until.records_max - printed
        events = _next_events(consumer, min(left, _AT_ONCE))
        # No clock is needed: a poll that brings nothing has lasted its whole time.
        silent_polls = 0 if events else silent_polls + 1
        records = [_printed(event) for event in events if not _is_end(event, ended)]
        if records:
            click.echo(b"".join(render(record) + b"\n" for record in records), nl=False)
            printed += len(records)
        elif reader_is_gone():
            # `… | head -1` has its line, and the next record may never come.
            click.get_current_context().exit(_EXIT_READER_GONE)
        is_at_end = until.at_end and len(ended) == partition_count
        if is_at_end or _is_silent(consumer, silent_polls, until.silence_s):
            return until.records_max is None or printed >= until.records_max
    return True


def _is_silent(consumer: Any, silent_polls: int, silence_s: float | None) -> bool:
    """Return whether it has been silent for long enough, or raise if nobody is there to speak."""
    if silence_s is None or silent_polls * _POLL_S < silence_s:
        return False
    try:
        consumer.list_topics(timeout=_PROBE_S)
    except KafkaException:
        raise ReadError(
            f"nothing came for {silence_s:g} s, and no broker can be reached."
        ) from None
    return True


def _next_events(consumer: Any, count_max: int) -> list[Any]:
    first = consumer.poll(_POLL_S)
    if first is None:
        return []
    return [first, *(consumer.consume(count_max - 1, timeout=0) if count_max > 1 else ())]


def _is_end(event: Any, ended: set[int]) -> bool:
    """Return whether it is no record but the news that a partition ends here."""
    error = event.error()
    if error is None:
        ended.discard(event.partition())
        return False
    if error.code() == KafkaError._PARTITION_EOF:
        ended.add(event.partition())
        return True
    if error.retriable() or error.code() == KafkaError._TRANSPORT:
        # It tries again by itself.
        return True
    raise KafkaException(error)


def _printed(event: Any) -> Printed:
    kind, timestamp_ms = event.timestamp()
    return Printed(
        topic=event.topic(),
        partition=event.partition(),
        offset=event.offset(),
        timestamp_ms=None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms,
        key=event.key(),
        value=event.value(),
        headers=event.headers() or (),
    )
