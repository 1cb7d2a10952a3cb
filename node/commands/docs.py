"""`ottla docs`: writes generated pages and dashboards from the tables, or checks them.

Not here: the text of a page, which belongs to the table that it shows.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import click

from ottla.node.boards.grafana import dashboards
from ottla.node.metric_table import METRICS
from ottla.proto.errors import ErrorCode
from ottla.proto.kafka.apis import API_TABLE
from ottla.proto.options.render import config_markdown
from ottla.replication.storage.failpoints import FAILPOINTS

_ERRORS_INTRODUCTION: Final = """\
# Error codes

This page is made from `ErrorCode` in `proto/errors.py` by `ottla docs`: edit the rows, not the
page.

The numbers and names are Kafka's. After a code that may be tried again a client does so by itself,
most often after it has asked for the metadata again. A client reports every other code.

| code | name | try again | what happened |
| ---: | --- | --- | --- |
"""


def errors_markdown() -> str:
    """Return docs/generated/ERRORS.md."""
    rows = (
        f"| {code.value} | {code.name} | {'yes' if code.retriable else ''} | {code.sentence} |\n"
        for code in ErrorCode
    )
    return _ERRORS_INTRODUCTION + "".join(rows)


_FAILPOINTS_INTRODUCTION: Final = """\
# Failpoints

This page is made from `FAILPOINTS` in `replication/storage/failpoints.py` by `ottla docs`: edit the
rows, not the page.

A failpoint is a named place where a process can be made to fail. `OTTLA_FAILPOINTS` arms them, with
`@n` for the n-th time only:

    OTTLA_FAILPOINTS="log.sync.before=crash@3;log.append.after=sleep(20)"

The actions are `crash`, `kill`, `error(EIO)`, `sleep(20)`, `raise` and `powercut`.

| name | where the process is |
| --- | --- |
"""


def failpoints_markdown() -> str:
    """Return docs/generated/FAILPOINTS.md."""
    rows = (f"| `{point.name}` | {point.sentence} |\n" for point in FAILPOINTS)
    return _FAILPOINTS_INTRODUCTION + "".join(rows)


_METRICS_INTRODUCTION: Final = """\
# Metrics

This page is made from the rows in `node/metric_table.py` by `ottla docs`: edit the rows, not the
page.

A node tells these at `/metrics` of its HTTP listener, for Prometheus. Names that begin with
`kafka_` are those that Kafka's metrics have after the Prometheus JMX exporter with its usual rules.
Two things differ: times of requests are histograms here, so that `histogram_quantile` works over
many nodes, and there are no rates, because Prometheus makes them from counters.

A metric with the label `topic` has one series for each topic, and those that are counted also one
without the label: the sum over all topics, those deleted since the start included.

Labels are bounded. Above 1,000 topics, topics have no series of their own, and above 2,000 replicas
on a node, partitions have none: a sum that Prometheus makes over them is right, or it is not there.
The sums that a node tells itself are always there (`ottla_log_size_bytes`, and the series without
`topic`), and `/status?topic=` tells of single partitions.

What is told of the cluster (`kafka_controller_kafkacontroller_…`, but for the first of them) only
the active controller tells.
When to worry is in `compose/prometheus/rules.yml`, and what to do then in `docs/alerts.md`.

| metric | kind | labels | what it tells |
| --- | --- | --- | --- |
"""


def metrics_markdown() -> str:
    """Return docs/generated/METRICS.md."""
    rows = (
        f"| `{row.name}` | {row.kind} | {', '.join(row.labels)} | {row.doc} |\n" for row in METRICS
    )
    return _METRICS_INTRODUCTION + "".join(rows)


_APIS_INTRODUCTION: Final = """\
# APIs

This page is made from `API_TABLE` in `proto/kafka/apis.py` by `ottla docs`: edit the rows, not the
page.

What a node answers on its CLIENT listener. A client finds the same with ApiVersions. A request in a
version that is not here closes the connection, as Kafka does; only ApiVersions itself is answered,
with the versions there are.

| key | API | versions | told to clients |
| ---: | --- | --- | --- |
"""


def apis_markdown() -> str:
    """Return docs/generated/APIS.md."""
    rows = (
        f"| {row.key} | {row.name} | {row.low}–{row.high} | "
        f"{row.low if row.advertised_low is None else row.advertised_low}–{row.high} |\n"
        for row in sorted(API_TABLE, key=lambda row: row.key)
    )
    return _APIS_INTRODUCTION + "".join(rows)


PAGES: Final[dict[str, Callable[[], str]]] = {
    "APIS.md": apis_markdown,
    "CONFIG.md": config_markdown,
    "ERRORS.md": errors_markdown,
    "FAILPOINTS.md": failpoints_markdown,
    "METRICS.md": metrics_markdown,
}


@click.command()
@click.option("--check", is_flag=True, help="Write nothing; exit 1 if a page is out of date.")
@click.option(
    "--to",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("docs/generated"),
    show_default=True,
    help="Where the pages are.",
)
@click.option(
    "--boards-to",
    "boards",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("compose/grafana/dashboards"),
    show_default=True,
    help="Where the dashboards are.",
)
def docs(check: bool, folder: Path, boards: Path) -> None:
    """Write what is generated: pages of the documentation, and dashboards."""
    made = {folder / name: page() for name, page in PAGES.items()}
    made |= {boards / name: text for name, text in dashboards().items()}
    stale = [path for path, text in made.items() if _text_at(path) != text]
    if not check:
        for path in stale:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(made[path], encoding="utf-8")
            click.echo(f"wrote {path}")
    elif stale:
        told = ", ".join(map(str, stale))
        raise click.ClickException(f"out of date: {told}; run `ottla docs`")


def _text_at(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None
