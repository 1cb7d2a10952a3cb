"""The command `ottla`.

A table says which command lives where. A command's module is imported when the command is called,
so that `ottla --help` starts at once and a tool that reads files never loads a network library.

Exit codes: 0 it was done; 1 it was not; 2 the options or arguments are wrong; 70 a bug; 130 Ctrl-C
ended it before it was done; 141 whoever read the output went away, as of a program that SIGPIPE
ended.

Not here: what a command does.
"""

from __future__ import annotations

import gc
import os
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any, Final

import click

from ottla.proto.errors import ConfigError, InvariantError, OttlaError

# gRPC reads it when it is first imported. Its own lines on standard error are no lines of our log,
# and strangers could cause them.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
# With its event engine a message is handed from thread to thread more often: single writes that
# wait for two followers took twice as long (docs/adr/0023).
os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_client,-event_engine_listener")

EXIT_FAILED: Final = 1
EXIT_WRONG_OPTIONS: Final = 2
EXIT_BUG: Final = 70
EXIT_INTERRUPTED: Final = 130
EXIT_READER_GONE: Final = 141


@dataclass(frozen=True, slots=True)
class CommandRow:
    """A command that has not been imported yet."""

    module: str
    attribute: str
    # One line for `ottla --help`.
    summary: str


COMMANDS: Final = {
    "chaos": CommandRow(
        "ottla.chaos.cli", "chaos", "Break a cluster on purpose, and judge what clients saw."
    ),
    "cluster": CommandRow(
        "ottla.node.commands.cluster", "cluster", "Run a cluster of several nodes on this machine."
    ),
    "config": CommandRow(
        "ottla.node.commands.config", "config", "Check a node's options, or read what they mean."
    ),
    "configs": CommandRow(
        "ottla.clients.cli.configs", "configs", "Show and change the options of topics and brokers."
    ),
    "consume": CommandRow("ottla.clients.cli.consume", "consume", "Print the records of a topic."),
    "docs": CommandRow(
        "ottla.node.commands.docs", "docs", "Write the generated pages of the documentation."
    ),
    "format": CommandRow(
        "ottla.node.commands.format", "format_", "Give a new node's data directory its identity."
    ),
    "groups": CommandRow(
        "ottla.clients.cli.groups", "groups", "List, describe, reset and delete consumer groups."
    ),
    "health": CommandRow(
        "ottla.clients.cli.health", "health", "Tell whether a cluster is healthy, and why not."
    ),
    "log": CommandRow(
        "ottla.node.commands.log", "log", "Dump segments for people, or verify a data directory."
    ),
    "node": CommandRow("ottla.node.commands.node", "node", "Run a node in the foreground."),
    "perf": CommandRow(
        "ottla.clients.cli.perf", "perf", "Measure what a cluster takes, and how soon."
    ),
    "pipeline": CommandRow(
        "ottla.clients.cli.pipeline", "pipeline", "Run pipelines that a file declares, on Spark."
    ),
    "produce": CommandRow(
        "ottla.clients.cli.produce", "produce", "Write lines to a topic, one record each."
    ),
    "quorum": CommandRow(
        "ottla.clients.cli.quorum", "quorum", "Show who leads the controllers, and who lags."
    ),
    "replicas": CommandRow(
        "ottla.clients.cli.replicas", "replicas", "Prove that the replicas of a topic are the same."
    ),
    "topics": CommandRow(
        "ottla.clients.cli.topics", "topics", "Create, list, describe, alter and delete topics."
    ),
    "transactions": CommandRow(
        "ottla.clients.cli.transactions",
        "transactions",
        "List, describe, commit and abort transactions.",
    ),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called, and whose errors are one line."""

    def __init__(self, *, rows: Mapping[str, CommandRow], **attributes: Any) -> None:
        super().__init__(**attributes)
        self._rows: Final = rows

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self._rows)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        row = self._rows.get(cmd_name)
        if row is None:
            return None
        command: click.Command = getattr(_load(row.module), row.attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        # What looks like an option is click's to complain about.
        if name not in self._rows and name[:1].isalpha() and not ctx.resilient_parsing:
            ctx.fail(self._told_unknown(name))
        return super().resolve_command(ctx, args)

    def _told_unknown(self, name: str) -> str:
        # Only whoever mistypes pays for it.
        from difflib import get_close_matches

        nearest = get_close_matches(name, self._rows, n=1)
        hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
        return f"No such command {name!r}.{hint}"

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # click would import every command to read its summary.
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._rows[name].summary) for name in sorted(self._rows)])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # `--help` and `--version` print while the arguments are read.
        try:
            return super().parse_args(ctx, args)
        except OSError as error:
            raise click.exceptions.Exit(_tell_system_error(error)) from error

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except ConfigError as error:
            for problem in error.problems:
                click.echo(f"ottla: {problem}", err=True)
            ctx.exit(EXIT_WRONG_OPTIONS)
        except InvariantError as error:
            traceback.print_exception(error)
            click.echo(f"ottla: this is a bug: {error}", err=True)
            ctx.exit(EXIT_BUG)
        except OttlaError as error:
            click.echo(f"ottla: {error}", err=True)
            ctx.exit(EXIT_FAILED)
        except KeyboardInterrupt:
            # The terminal has printed ^C; the next prompt begins its own line.
            click.echo(err=True)
            ctx.exit(EXIT_INTERRUPTED)
        except OSError as error:
            ctx.exit(_tell_system_error(error))


def _load(module: str) -> ModuleType:
    """Import without looking for garbage: what a module makes stays, and a fifth of the time went
    into finding that out."""
    gc.disable()
    try:
        return import_module(module)
    finally:
        gc.freeze()
        gc.enable()


def _tell_system_error(error: OSError) -> int:
    """Return the exit code for an error that no command expected."""
    if not _is_of_output(error):
        click.echo(f"ottla: {error}", err=True)
        return EXIT_FAILED
    _let_go_of_output()
    if isinstance(error, BrokenPipeError):
        # `ottla … | head`: the reader has seen enough, and nobody has to be told.
        return EXIT_READER_GONE
    click.echo(f"ottla: standard output cannot be written: {error.strerror}", err=True)
    return EXIT_FAILED


def _is_of_output(error: OSError) -> bool:
    # Such an error does not say to which file it happened, but every command prints with `echo`.
    frames = traceback.walk_tb(error.__traceback__)
    return any(frame.f_code is click.echo.__code__ for frame, _ in frames)


def _let_go_of_output() -> None:
    """Lead it to nowhere, or the interpreter fails to write the rest again on its way out."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


@click.group(cls=LazyGroup, rows=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="ottla", prog_name="ottla")
def main() -> None:
    """Ottla: a replicated commit log that speaks the Kafka protocol."""


if __name__ == "__main__":
    main(prog_name="ottla")
