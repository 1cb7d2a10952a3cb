"""`ottla pipeline check|run|replay FILE`: pipelines on Spark, and their dead letters.

Not here: what a pipeline is (`clients/pipeline`).
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from pathlib import Path
from typing import Final

import click

from ottla.clients.pipeline.declaration import FILE_BYTES_MAX, Pipeline, read_pipeline
from ottla.clients.pipeline.validation import require_exactly_once, require_topics
from ottla.proto.errors import ConfigError

_FILE: Final = click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
_BOOTSTRAP: Final = click.option(
    "--bootstrap-server", "bootstrap", metavar="HOST:PORT,…", help="Instead of what FILE says."
)


@click.group()
def pipeline() -> None:
    """Run pipelines that a file declares, on Spark."""


@pipeline.command()
@_FILE
def check(path: Path) -> None:
    """Read a pipeline's file, and tell what is wrong with it; nothing is started or asked."""
    found = _read(path)
    parts = len(found.sources), len(found.steps), len(found.sinks)
    click.echo(f"{found.name}: {parts[0]} sources, {parts[1]} steps, {parts[2]} sinks.")
    for name in found.dropping_steps:
        click.echo(f"steps {name} has no dead_letters: rows that it cannot read are dropped.")


@pipeline.command()
@_FILE
@click.option("--master", "url", default="local[*]", show_default=True, help="Where Spark runs.")
@click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A setting of Spark.")
@_BOOTSTRAP
@click.option(
    "--into",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where its checkpoint and its files go, if they are not beside FILE.",
)
@click.option(
    "--take-over",
    "takes_over",
    is_flag=True,
    help="Its last checkpoint is gone for good: begin anew under the names of its transactions.",
)
def run(
    path: Path,
    url: str,
    conf: tuple[str, ...],
    bootstrap: str | None,
    into: Path | None,
    *,
    takes_over: bool,
) -> None:
    """Run a pipeline until it has read everything, or until Ctrl-C if it has an interval."""
    found = _read(path, bootstrap)
    settings = dict(_setting(one) for one in conf)
    if takes_over and not found.writes_exactly_once:
        raise ConfigError(
            f"--take-over is for topics that are written exactly once, and {found.name} writes "
            "none so."
        )
    require_topics(found)
    require_exactly_once(found)
    # Loaded only now: what is wrong with the file is told at once.
    from ottla.clients.pipeline.running import Run
    from ottla.clients.spark.session import start_session

    spark = start_session(f"ottla-{found.name}", url=url, conf=settings)
    _quieten_spark()
    try:
        spark.sparkContext.setLogLevel("ERROR")
        folder = path.resolve().parent
        place = folder if into is None else into.resolve()
        running = Run(spark, found, folder, place, takes_over=takes_over)
        running.start()
        try:
            asyncio.run(running.wait(click.echo))
        finally:
            running.stop()
        for line in running.summary():
            click.echo(line)
    finally:
        spark.stop()


@pipeline.command()
@_FILE
@_BOOTSTRAP
def replay(path: Path, bootstrap: str | None) -> None:
    """Send a pipeline's dead letters back to the topics they came from, each once.

    For when the cause is mended: letters that are still broken become dead letters again.
    """
    found = _read(path, bootstrap)
    from ottla.clients.pipeline.replay import replay as send_back

    done = send_back(found)
    click.echo(f"{found.name}: {done.sent} dead letters sent back.")
    if done.left:
        click.echo(f"{found.name}: {done.left} left: they came from no topic that it reads.")


def _quieten_spark() -> None:
    """Let Spark's Python not print pages about an error of which we tell one sentence."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)


def _read(path: Path, bootstrap: str | None = None) -> Pipeline:
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from None
    try:
        found = read_pipeline(data)
    except ConfigError as error:
        raise ConfigError(*(f"{path}: {problem}" for problem in error.problems)) from None
    return found if bootstrap is None else replace(found, bootstrap=bootstrap)


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ConfigError(f"--conf must be KEY=VALUE, not {text!r}.")
    return key, value
