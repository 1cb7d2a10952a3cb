"""`ottla log`: the human view of a segment, and the proof that a data directory is sound.

Both only read. `dump` ends with 1 if something could not be told; `verify` with 0 if all is sound,
1 if not, and 2 if it could not look.

An error of a file is caught where the file is read, and nowhere else: a full standard output is not
the segment's fault.

Not here: reading and judging (`replication/inspect/`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeVar

import click

from ottla.proto.errors import ConfigError, StorageError
from ottla.replication.inspect.dump import DumpChoice, ProblemItem, dump_file, kind_of
from ottla.replication.inspect.overview import Overview, open_state, overviews
from ottla.replication.inspect.partition import PartitionReport
from ottla.replication.inspect.places import NO_LOG, find_place
from ottla.replication.inspect.verify import CannotLookError, VerifyReport, verify_directory
from ottla.replication.inspect.words import counted, in_words
from ottla.replication.storage.disk import DiskFiles
from ottla.replication.storage.ports import Files

_EXIT_FAILED: Final = 1
_EXIT_CANNOT_LOOK: Final = 2
_Told = TypeVar("_Told")
_PATH: Final = click.Path(path_type=Path)
_STATE: Final = click.option(
    "--state", "state", type=_PATH, help="Where the state store is; else `state` beside the logs."
)


@click.group()
def log() -> None:
    """Dump segments for people, or verify a data directory."""


@log.command()
@click.argument("paths", nargs=-1, required=True, type=_PATH, metavar="FILE...")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@click.option(
    "--records/--no-records",
    default=None,
    help="Open the batches. People get records unless they refuse; JSON has them if asked for.",
)
@click.option(
    "--from",
    "from_offset",
    type=click.IntRange(min=0),
    default=0,
    metavar="OFFSET",
    help="Begin here.",
)
@click.option("--max-batches", type=click.IntRange(min=0), help="At most so many of each file.")
@click.option("--full", is_flag=True, help="Do not shorten keys, values and headers.")
@_STATE
def dump(
    paths: tuple[Path, ...],
    as_json: bool,
    records: bool | None,
    from_offset: int,
    max_batches: int | None,
    full: bool,
    state: Path | None,
) -> None:
    """Tell what is in segments (.log), indexes (.index, .timeindex), or directories of logs.

    Exit code 1 if something could not be read; it is told where that stands.
    """
    choice = DumpChoice(
        records=not as_json if records is None else records,
        from_offset=from_offset,
        batches_max=max_batches,
    )
    files = DiskFiles()
    is_whole = True
    for path in paths:
        _require_exists(path)
        if path.is_dir():
            is_whole &= _tell_directory(files, path, state, as_json=as_json)
            continue
        if kind_of(str(path)) is None:
            raise ConfigError(f"{path}: only .log, .index and .timeindex files can be dumped.")
        if not as_json and len(paths) > 1:
            click.echo(f"{path}:")
        is_whole &= _tell_file(files, path, choice, as_json=as_json, full=full)
    if not is_whole:
        click.get_current_context().exit(_EXIT_FAILED)


def _require_exists(path: Path) -> None:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigError(f"{path}: no such file or directory.") from None
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror}.") from error


def _reading(path: Path, items: Iterator[_Told]) -> Iterator[_Told]:
    """Yield what is read of `path`; an error in the reading, not in the telling, is its own."""
    try:
        yield from items
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror or error}.") from error


def _tell_file(files: Files, path: Path, choice: DumpChoice, *, as_json: bool, full: bool) -> bool:
    """Return whether all of it could be told."""
    is_whole, is_silent = True, choice.batches_max != 0
    for item in _reading(path, dump_file(files, str(path), choice)):
        is_whole = is_whole and not isinstance(item, ProblemItem)
        is_silent = False
        click.echo(json.dumps(item.as_json()) if as_json else in_words(item, full=full))
    if is_silent and choice.from_offset and not as_json:
        click.echo(f"nothing at or above {choice.from_offset}")
    return is_whole


def _tell_directory(files: Files, path: Path, state: Path | None, *, as_json: bool) -> bool:
    is_whole = True
    for overview in _reading(path, _overviews(files, path, state)):
        is_whole = is_whole and not overview.known.problems
        if as_json:
            click.echo(json.dumps(overview.as_json()))
        else:
            click.echo("\n".join(overview.lines()))
    return is_whole


def _overviews(files: Files, path: Path, state: Path | None) -> Iterator[Overview]:
    place = find_place(files, _absolute(path), has_state=state is not None)
    if place is None:
        raise ConfigError(f"{path} {NO_LOG}")
    store = open_state(files, place.root, str(state) if state else None)
    yield from overviews(files, place, store)


def _absolute(path: Path) -> str:
    # The name of a partition is the name of its directory, also when that is called ".".
    return str(path.resolve())


@log.command()
@click.argument("path", type=_PATH, metavar="DIR")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--force", is_flag=True, help="Look even while a node uses the directory.")
@click.option(
    "--gaps", is_flag=True, help="Gaps in the offsets are normal: the logs are compacted."
)
@_STATE
def verify(path: Path, as_json: bool, force: bool, gaps: bool, state: Path | None) -> None:
    """Prove that a data directory, or the directory of one partition, is sound.

    Every byte is read and nothing is written. It takes the directory of a Kafka broker as well.
    Exit code 0 if all is sound, 1 if there are problems, 2 if it could not look.
    """
    context = click.get_current_context()
    try:
        report = verify_directory(
            DiskFiles(),
            _absolute(path),
            state_path=str(state) if state else None,
            force=force,
            gaps_allowed=gaps,
        )
    except CannotLookError as error:
        if as_json:
            report = VerifyReport(problems=[str(error)])
            click.echo(json.dumps(report.as_json(), indent=2))
        click.echo(f"ottla: {error}", err=True)
        context.exit(_EXIT_CANNOT_LOOK)
    if as_json:
        click.echo(json.dumps(report.as_json(), indent=2))
    else:
        click.echo("\n".join(_report_lines(report)))
    if not report.ok:
        context.exit(_EXIT_FAILED)


def _report_lines(report: VerifyReport) -> Iterator[str]:
    width = max((len(partition.partition) for partition in report.partitions), default=0)
    for partition in report.partitions:
        yield _verdict(partition, width)
        yield from (f"    problem: {problem}" for problem in partition.problems)
        yield from (f"    note: {note}" for note in partition.notes)
    yield from (f"problem: {problem}" for problem in report.problems)
    unsound = sum(not partition.ok for partition in report.partitions)
    size = sum(partition.bytes for partition in report.partitions)
    read = f"{counted(len(report.partitions), 'partition')}, {size} bytes read"
    if report.ok:
        yield f"sound: {read}"
    else:
        yield f"NOT SOUND: {unsound} of {read}"


def _verdict(partition: PartitionReport, width: int) -> str:
    verdict = "ok" if partition.ok else "BAD"
    return (
        f"{partition.partition:<{width}}  {verdict:<3}  offsets {partition.start_offset} to "
        f"{partition.end_offset}, {partition.records} records in {partition.batches} batches, "
        f"{partition.bytes} bytes"
    )
