"""`ottla perf`: how many records a cluster takes, and how long one is on its way.

`produce` sends as fast as it can, and measures one record in a hundred from `send` to its
acknowledgement; `latency` sends one record at a time; `consume` reads from the beginning, and
measures how long each batch of records was waited for. On a terminal the figures are shown as they
grow. They are of this machine, this moment and our own clients, which are written in Python.

P1  exit code 0 only if every record was acknowledged (with --acks 0: sent), or read

Not here: comparing clients (`bench/clients.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import click

from ottla.clients.cli.cluster import require_topic
from ottla.clients.cli.options import ToolGroup, for_clients, old_spelling, run
from ottla.clients.cli.output import complain, tell_json
from ottla.clients.cli.positions import ReadError, find_positions, parse_start
from ottla.clients.cli.progress import SHOW_EVERY_MS, hide, show
from ottla.clients.cli.reading import AT_ONCE, Reader, Wish, wish_to_stop
from ottla.clients.clock import now_ms
from ottla.clients.consumer.record import Record
from ottla.clients.errors import DeliveryError
from ottla.clients.producer.batch import Report
from ottla.clients.producer.client import Producer
from ottla.proto.ids import TopicPartition
from ottla.proto.options.endpoints import Address
from ottla.proto.options.option import shown_name

_ONE_IN: Final = 100
_LOOK_EVERY: Final = 500
_PERCENTILES: Final = (50.0, 95.0, 99.0, 99.9)
_EXIT_FAILED: Final = 1
_EXIT_INTERRUPTED: Final = 130
_COUNT: Final = click.IntRange(min=1)


@dataclass(slots=True)
class Figures:
    """What was measured so far. A core: it is told the times."""

    began_ms: float
    # Records sent or read, and their bytes.
    records: int = 0
    bytes_moved: int = 0
    failed: int = 0
    first_failure: str = ""
    # Milliseconds from `send` to the acknowledgement, or for a batch, of those that were measured.
    waits_ms: list[float] = field(default_factory=list)

    def moved(self, size: int, count: int = 1) -> None:
        """Note records that were sent or read, and their bytes in all."""
        self.records += count
        self.bytes_moved += size

    def take(self, sent_ms: float, clock: Callable[[], float], report: Report) -> None:
        if report.error is None:
            self.waits_ms.append(clock() - sent_ms)

    def fail(self, report: Report) -> None:
        if report.error is not None:
            self.failed += 1
            self.first_failure = self.first_failure or str(report.error)

    def percentile(self, percent: float) -> float | None:
        """Return the wait that so many per cent did not exceed."""
        ranked = sorted(self.waits_ms)
        if not ranked:
            return None
        return ranked[min(len(ranked) - 1, int(len(ranked) * percent / 100))]

    def told(self, moment_ms: float) -> dict[str, Any]:
        seconds = max(1e-9, (moment_ms - self.began_ms) / 1000)
        waits = {f"p{percent:g}_ms": self.percentile(percent) for percent in _PERCENTILES}
        return {
            "records": self.records,
            "failed": self.failed,
            "seconds": round(seconds, 3),
            "records_per_s": round(self.records / seconds, 1),
            "mb_per_s": round(self.bytes_moved / seconds / 1e6, 3),
            **{name: None if wait is None else round(wait, 3) for name, wait in waits.items()},
        }

    def line(self, moment_ms: float) -> str:
        told = self.told(moment_ms)
        waits = [
            f"p{percent:g} {wait:.1f} ms"
            for percent in _PERCENTILES
            if (wait := self.percentile(percent)) is not None
        ]
        rate = f"{told['records_per_s']:,.0f} records/s, {told['mb_per_s']:.1f} MB/s"
        return ", ".join([f"{self.records:,} records", rate, *waits])


@click.group(cls=ToolGroup)
def perf() -> None:
    """Measure what a cluster takes, and how soon."""


def _for_perf(default_records: int) -> Callable[[Any], Any]:
    decorators = (
        click.argument("topic"),
        click.option("--records", type=_COUNT, default=default_records, show_default=True),
        old_spelling("--topic", instead="say the name alone, as in `ottla perf produce NAME`."),
        old_spelling("--num-records", instead="say --records N."),
        old_spelling("--record-size", instead="say --size BYTES."),
        old_spelling("--producer-props", instead="say --acks WHICH and --compression WHICH."),
        click.option(
            "--size", type=click.IntRange(min=0), default=100, show_default=True, help="Bytes each."
        ),
        click.option(
            "--acks", type=click.Choice(["all", "1", "0"]), default="all", show_default=True
        ),
        click.option(
            "--compression",
            type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
            default="none",
            show_default=True,
        ),
        for_clients,
    )

    def decorate(command: Any) -> Any:
        for one in reversed(decorators):
            command = one(command)
        return command

    return decorate


@perf.command("produce")
@_for_perf(100_000)
def produce(
    bootstrap: tuple[Address, ...],
    as_json: bool,
    topic: str,
    records: int,
    size: int,
    acks: str,
    compression: str,
) -> None:
    """Write records to TOPIC as fast as possible."""
    value = b"x" * size
    run(require_topic(bootstrap, topic))
    with Producer(_settings(bootstrap, acks, compression)) as producer:
        producer.partitions_for(topic)
        figures, shown_ms = Figures(now_ms()), now_ms()
        for at in range(records):
            told = partial(_both, figures, now_ms()) if at % _ONE_IN == 0 else figures.fail
            producer.send(topic, value, on_delivery=told)
            figures.moved(size)
            if at % _LOOK_EVERY == 0 and now_ms() - shown_ms > SHOW_EVERY_MS:
                shown_ms = now_ms()
                show(figures.line(shown_ms))
        producer.flush()
    _end(topic, figures, now_ms(), as_json=as_json)


@perf.command("latency")
@_for_perf(1000)
def latency(
    bootstrap: tuple[Address, ...],
    as_json: bool,
    topic: str,
    records: int,
    size: int,
    acks: str,
    compression: str,
) -> None:
    """Write records to TOPIC one at a time, and measure each."""
    value = b"x" * size
    settings = {**_settings(bootstrap, acks, compression), "linger.ms": 0}
    run(require_topic(bootstrap, topic))
    with Producer(settings) as producer:
        producer.partitions_for(topic)
        figures, shown_ms = Figures(now_ms()), now_ms()
        for _ in range(records):
            sent_ms = now_ms()
            delivery = producer.send(topic, value)
            figures.moved(size)
            try:
                figures.take(sent_ms, now_ms, delivery.result())
            except DeliveryError as error:
                figures.failed += 1
                figures.first_failure = figures.first_failure or str(error)
            if now_ms() - shown_ms > SHOW_EVERY_MS:
                shown_ms = now_ms()
                show(figures.line(shown_ms))
        ended_ms = now_ms()
    _end(topic, figures, ended_ms, as_json=as_json)


@perf.command("consume")
@click.argument("topic")
@click.option("--records", type=_COUNT, help="How many; else all there are.")
@old_spelling("--topic", instead="say the name alone: `ottla perf consume NAME`.")
@old_spelling("--messages", "--num-records", instead="say --records N.")
@click.option(
    "--timeout",
    "silence_s",
    type=click.FloatRange(min=0.1),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="Give up when nothing has come for so long.",
)
@for_clients
def consume(
    bootstrap: tuple[Address, ...],
    as_json: bool,
    topic: str,
    records: int | None,
    silence_s: float,
) -> None:
    """Read the records of TOPIC from the beginning, as fast as possible."""
    start = parse_start(None, from_beginning=True, partition=None)
    positions = run(find_positions(bootstrap, topic, None, start)).positions
    with wish_to_stop() as wish, Reader(bootstrap, None, "none") as reader:
        reader.begin({TopicPartition(topic, at): one for at, one in positions.items()})
        figures = _read_all(reader, wish, records, silence_s)
        ended_ms = now_ms()
    _end(topic, figures, ended_ms, as_json=as_json)
    if wish.is_over:
        click.get_current_context().exit(_EXIT_INTERRUPTED)
    if records is not None and figures.records < records:
        complain(f"there were fewer than {records} records.")
        click.get_current_context().exit(_EXIT_FAILED)


def _read_all(reader: Reader, wish: Wish, records: int | None, silence_s: float) -> Figures:
    """Read until there are so many, or all there are."""
    figures, shown_ms = Figures(now_ms()), now_ms()
    while not wish.is_over and (records is None or figures.records < records):
        asked_ms = now_ms()
        found = reader.take(AT_ONCE if records is None else records - figures.records)
        moment_ms = now_ms()
        if found:
            figures.waits_ms.append(moment_ms - asked_ms)
            figures.moved(sum(map(_size, found)), len(found))
        if reader.is_at_end(found):
            break
        if reader.silent_ms() > silence_s * 1000:
            raise ReadError(f"nothing came for {silence_s:g} s.")
        if moment_ms - shown_ms > SHOW_EVERY_MS:
            shown_ms = moment_ms
            show(figures.line(moment_ms))
    return figures


def _size(record: Record) -> int:
    return len(record.key or b"") + len(record.value or b"")


def _both(figures: Figures, sent_ms: float, report: Report) -> None:
    figures.take(sent_ms, now_ms, report)
    figures.fail(report)


def _settings(bootstrap: Sequence[Address], acks: str, compression: str) -> dict[str, object]:
    return {
        "bootstrap.servers": ",".join(map(str, bootstrap)),
        "acks": acks,
        "compression.type": compression,
        "max.block.ms": 30_000,
        "allow.auto.create.topics": False,
    }


def _end(topic: str, figures: Figures, moment_ms: float, *, as_json: bool) -> None:
    hide()
    if as_json:
        tell_json({"topic": topic, **figures.told(moment_ms)})
    else:
        click.echo(f"{shown_name(topic)}: {figures.line(moment_ms)}")
    if figures.failed:
        complain(f"{figures.failed} records not acknowledged: {figures.first_failure}")
        click.get_current_context().exit(_EXIT_FAILED)
