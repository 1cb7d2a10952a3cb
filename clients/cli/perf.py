"""`ottla perf`: how many records a cluster takes, and how long one is on its way.

`produce` sends as fast as it can, and measures one record in a hundred from `send` to its
acknowledgement; `latency` sends one record at a time. On a terminal the figures are shown as they
grow. They are of this machine, this moment and our own producer, which is written in Python.

P1  exit code 0 only if every record was acknowledged (with --acks 0: sent)

Not here: comparing clients (`bench/clients.py`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import click

from ottla.clients.cli.options import for_clients
from ottla.clients.cli.output import complain, tell_json
from ottla.clients.clock import now_ms
from ottla.clients.errors import DeliveryError
from ottla.clients.producer.batch import Report
from ottla.clients.producer.client import Producer
from ottla.proto.options.endpoints import Address
from ottla.proto.options.option import shown_name

_ONE_IN: Final = 100
_SHOW_EVERY_MS: Final = 500.0
_LOOK_EVERY: Final = 500
_PERCENTILES: Final = (50.0, 95.0, 99.0, 99.9)
_EXIT_FAILED: Final = 1
_COUNT: Final = click.IntRange(min=1)


@dataclass(slots=True)
class Figures:
    """What was measured so far. A core: it is told the times."""

    size: int
    began_ms: float
    sent: int = 0
    failed: int = 0
    first_failure: str = ""
    # Milliseconds from `send` to the acknowledgement, of those that were measured.
    waits_ms: list[float] = field(default_factory=list)

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
            "records": self.sent,
            "failed": self.failed,
            "seconds": round(seconds, 3),
            "records_per_s": round(self.sent / seconds, 1),
            "mb_per_s": round(self.sent * self.size / seconds / 1e6, 3),
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
        return ", ".join([f"{self.sent:,} records", rate, *waits])


@click.group()
def perf() -> None:
    """Measure what a cluster takes, and how soon."""


def _for_perf(default_records: int) -> Callable[[Any], Any]:
    decorators = (
        click.argument("topic"),
        click.option("--records", type=_COUNT, default=default_records, show_default=True),
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
    with Producer(_settings(bootstrap, acks, compression)) as producer:
        producer.partitions_for(topic)
        figures, shown_ms = Figures(size, now_ms()), now_ms()
        for at in range(records):
            told = partial(_both, figures, now_ms()) if at % _ONE_IN == 0 else figures.fail
            producer.send(topic, value, on_delivery=told)
            figures.sent += 1
            if at % _LOOK_EVERY == 0 and now_ms() - shown_ms > _SHOW_EVERY_MS:
                shown_ms = now_ms()
                _show(figures, shown_ms)
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
    with Producer(settings) as producer:
        producer.partitions_for(topic)
        figures, shown_ms = Figures(size, now_ms()), now_ms()
        for _ in range(records):
            sent_ms = now_ms()
            delivery = producer.send(topic, value)
            figures.sent += 1
            try:
                figures.take(sent_ms, now_ms, delivery.result())
            except DeliveryError as error:
                figures.failed += 1
                figures.first_failure = figures.first_failure or str(error)
            if now_ms() - shown_ms > _SHOW_EVERY_MS:
                shown_ms = now_ms()
                _show(figures, shown_ms)
        ended_ms = now_ms()
    _end(topic, figures, ended_ms, as_json=as_json)


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


def _show(figures: Figures, moment_ms: float) -> None:
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{figures.line(moment_ms)}", nl=False, err=True)


def _end(topic: str, figures: Figures, moment_ms: float, *, as_json: bool) -> None:
    if sys.stderr.isatty():
        click.echo("\r\x1b[K", nl=False, err=True)
    if as_json:
        tell_json({"topic": topic, **figures.told(moment_ms)})
    else:
        click.echo(f"{shown_name(topic)}: {figures.line(moment_ms)}")
    if figures.failed:
        complain(f"{figures.failed} records not acknowledged: {figures.first_failure}")
        click.get_current_context().exit(_EXIT_FAILED)
