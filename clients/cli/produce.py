"""`ottla produce`: lines of standard input, or of a file, become records.

P1  exit code 0 only if every line was acknowledged as --acks asks for
P2  after the first failure nothing more is read, and what is still on its way is waited for
P3  with --acks all a line is written once: what is sent again is recognised

On a terminal, what comes from a file or a pipe is shown as it goes: a bar if its size is known.

Not here: how a line is cut (`text.py`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

import click

from ottla.clients.cli.cluster import NoTopicError, open_cluster
from ottla.clients.cli.options import ToolCommand, for_clients, old_spelling, parse_pairs, run
from ottla.clients.cli.output import complain, tell_json
from ottla.clients.cli.progress import Progress, bytes_left, hide, show
from ottla.clients.cli.text import BadLineError, JsonRule, LineRule, Parsed, parse_separator
from ottla.clients.clock import now_ms
from ottla.clients.producer.batch import Report, State
from ottla.clients.producer.client import Producer
from ottla.proto.errors import ConfigError, ErrorCode, OttlaError
from ottla.proto.options.endpoints import Address
from ottla.proto.options.option import shown_name

LINE_BYTES_MAX: Final = 100 << 20
# The broker decides what is too large; it may have been told to take more than usual.
_MESSAGE_BYTES_MAX: Final = 100 << 20
# How long a batch waits for company, and how long the last words may take after Ctrl-C.
_LINGER_MS: Final = 5
_LAST_WORDS_S: Final = 0.1
# Lines between two looks at the clock.
_LOOK_EVERY: Final = 100
_EXIT_FAILED: Final = 1
_EXIT_INTERRUPTED: Final = 130


class NotAllWrittenError(OttlaError):
    """Some lines were not acknowledged."""


@dataclass(slots=True)
class _Tally:
    """What became of the lines so far."""

    written: int = 0
    failed: int = 0
    # Why the first one failed.
    first_failure: str | None = None
    # Partition → first and last offset; None where a broker was not asked to tell.
    offsets: dict[int, tuple[int, int] | None] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)

    def take(self, report: Report) -> None:
        # With acks=0 nobody is asked: its state is unknown, and that is no error.
        if report.error is not None or report.state is State.FAILED:
            self.failed += 1
            self.first_failure = self.first_failure or str(report.error)
            return
        self.written += 1
        partition, offset = report.partition, report.offset
        self.counts[partition] = self.counts.get(partition, 0) + 1
        if offset is None:
            self.offsets[partition] = None
            return
        known = self.offsets.get(partition) or (offset, offset)
        self.offsets[partition] = (min(known[0], offset), max(known[1], offset))


@click.command(cls=ToolCommand)
@click.argument("topic")
@click.option(
    "--format",
    "line_format",
    type=click.Choice(["lines", "json"]),
    default="lines",
    show_default=True,
    help="What a line is: a value, or a record as `ottla consume --json` prints it.",
)
@click.option("--key-separator", metavar="TEXT", help="Cut lines here into a key and a value.")
@click.option(
    "--null-marker", metavar="TEXT", help="A key or value that is this text is sent as null."
)
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="On every record.")
@click.option("--partition", type=click.IntRange(min=0), help="Write to this one only.")
@click.option(
    "--acks",
    type=click.Choice(["all", "1", "0"]),
    default="all",
    show_default=True,
    help="Who must hold a record: all in-sync replicas, the leader, or nobody that tells.",
)
@click.option(
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    show_default=True,
)
@click.option("--file", "path", metavar="FILE", help="Read this file instead of standard input.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0.1),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="Give a record up after so long.",
)
@old_spelling("--topic", instead="say the name alone: `ottla produce NAME`.")
@old_spelling(
    "--property",
    "--reader-property",
    instead="say --key-separator TEXT and --null-marker TEXT.",
)
@old_spelling(
    "--producer-property",
    "--command-property",
    instead="what can be chosen has an option, as --acks and --compression have.",
)
@old_spelling("--request-required-acks", instead="say --acks all, 1 or 0.")
@old_spelling("--compression-codec", instead="say --compression WHICH.")
@for_clients
def produce(
    bootstrap: tuple[Address, ...],
    as_json: bool,
    topic: str,
    line_format: str,
    key_separator: str | None,
    null_marker: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    acks: str,
    compression: str,
    path: str | None,
    timeout_s: float,
) -> None:
    """Write lines to TOPIC, one record each."""
    rule = _rule(line_format, key_separator, null_marker)
    named = parse_pairs("--header", headers)
    fixed = {
        "headers": tuple((name, content.encode()) for name, content in named.items()),
        "partition": partition,
    }
    with _lines_of(path) as lines:
        run(_require_topic(bootstrap, topic, partition))
        producer = Producer(_settings(bootstrap, acks, compression, int(timeout_s * 1000)))
        tally = _Tally()
        progress = None if lines.isatty() else Progress(now_ms(), bytes_left(lines))
        ending = _write(producer, topic, lines, rule, fixed, tally, progress)
        hide()
    _tell(topic, tally, acks, as_json=as_json)
    if tally.failed:
        complain(f"{_counted(tally.failed)} not acknowledged: {tally.first_failure}")
    if isinstance(ending, OttlaError):
        complain(str(ending))
    if tally.failed or isinstance(ending, OttlaError):
        click.get_current_context().exit(_EXIT_FAILED)
    if ending is not None:
        click.get_current_context().exit(_EXIT_INTERRUPTED)


def _rule(
    line_format: str, key_separator: str | None, null_marker: str | None
) -> LineRule | JsonRule:
    if line_format == "json":
        if key_separator is not None or null_marker is not None:
            raise ConfigError(
                "--format json: a line says itself what is key, value and null; leave "
                "--key-separator and --null-marker away."
            )
        return JsonRule()
    return LineRule(
        None if key_separator is None else parse_separator(key_separator),
        None if null_marker is None else null_marker.encode(),
    )


def _settings(
    bootstrap: Sequence[Address], acks: str, compression: str, timeout_ms: int
) -> dict[str, object]:
    return {
        "bootstrap.servers": ",".join(map(str, bootstrap)),
        "acks": acks,
        "compression.type": compression,
        "max.request.size": _MESSAGE_BYTES_MAX,
        "buffer.memory": 2 * _MESSAGE_BYTES_MAX,
        "linger.ms": _LINGER_MS,
        "request.timeout.ms": max(1, min(30_000, timeout_ms - _LINGER_MS)),
        "delivery.timeout.ms": timeout_ms,
        "max.block.ms": timeout_ms,
    }


@contextmanager
def _lines_of(path: str | None) -> Iterator[BinaryIO]:
    if path is None or path == "-":
        if sys.stdin.isatty():
            click.echo("One record per line; Ctrl-D on an empty line ends.", err=True)
        yield sys.stdin.buffer
        return
    try:
        file = Path(path).open("rb")  # noqa: SIM115 (closed below; only opening it is guarded)
    except OSError as error:
        raise ConfigError(f"--file {shown_name(path)}: {error.strerror}.") from None
    with file:
        yield file


async def _require_topic(bootstrap: Sequence[Address], topic: str, partition: int | None) -> None:
    """Find out at once what the producer would wonder about until its time is over."""
    async with open_cluster(bootstrap) as cluster:
        try:
            found = await cluster.topic(topic, create=True)
        except NoTopicError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            advice = f"`ottla topics create {shown_name(topic)}` makes it."
            sentence = f"there is none, and the cluster does not make it by itself; {advice}"
            raise NoTopicError(topic, error.code, sentence) from None
    count = len(found.partitions)
    if partition is not None and partition >= count:
        raise ConfigError(
            f"--partition {partition}: {shown_name(topic)} has partitions 0 to {count - 1}."
        )


def _write(
    producer: Producer,
    topic: str,
    lines: BinaryIO,
    rule: LineRule | JsonRule,
    fixed: dict[str, Any],
    tally: _Tally,
    progress: Progress | None,
) -> OttlaError | KeyboardInterrupt | None:
    """Write until the lines end; return what ended it before, if anything did."""
    ending: OttlaError | KeyboardInterrupt | None = None
    try:
        for number, line in enumerate(iter(lambda: lines.readline(LINE_BYTES_MAX), b""), 1):
            _require_whole(line, number)
            _enqueue(producer, topic, rule.parse(line, number), fixed, tally)
            if tally.failed:
                break
            if progress is not None:
                _show(progress, tally, number, len(line))
    except (OttlaError, KeyboardInterrupt) as error:
        ending = error
    try:
        # Each record has its own time limit, after which it is given up; so this ends.
        producer.close()
    except KeyboardInterrupt as error:
        producer.close(_LAST_WORDS_S)
        ending = ending or error
    return ending


def _show(progress: Progress, tally: _Tally, number: int, size: int) -> None:
    progress.bytes_read += size
    if number % _LOOK_EVERY == 0 and progress.is_due(now_ms()):
        show(progress.line(tally.written, now_ms()))


def _require_whole(line: bytes, number: int) -> None:
    if len(line) == LINE_BYTES_MAX and not line.endswith(b"\n"):
        raise BadLineError(f"line {number} is longer than {LINE_BYTES_MAX} bytes.")


def _enqueue(
    producer: Producer, topic: str, parsed: Parsed, fixed: dict[str, Any], tally: _Tally
) -> None:
    own: dict[str, Any] = {"timestamp_ms": parsed.timestamp_ms}
    if parsed.headers is not None:
        # The names of both: what was said for every record, then its own.
        own["headers"] = (*fixed["headers"], *parsed.headers)
    try:
        producer.send(topic, parsed.value, parsed.key, on_delivery=tally.take, **{**fixed, **own})
    except OttlaError as error:
        raise NotAllWrittenError(f"a record was refused: {error}") from None


def _tell(topic: str, tally: _Tally, acks: str, *, as_json: bool) -> None:
    if as_json:
        tell_json(
            {
                "topic": topic,
                "written": tally.written,
                "failed": tally.failed,
                "partitions": [_partition(at, tally) for at in sorted(tally.counts)],
            }
        )
        return
    # Nobody was asked to tell whether they arrived.
    word = "sent" if acks == "0" else "written"
    click.echo(f"{shown_name(topic)}: {_counted(tally.written)} {word}", err=True)


def _partition(partition: int, tally: _Tally) -> dict[str, int | None]:
    first, last = tally.offsets.get(partition) or (None, None)
    return {
        "partition": partition,
        "written": tally.counts[partition],
        "first_offset": first,
        "last_offset": last,
    }


def _counted(count: int) -> str:
    return f"{count} record" if count == 1 else f"{count} records"
