"""The command `ottla`.

A table says which command lives where. A command's module is imported when the command is called,
so that `ottla --help` starts at once and a tool that reads files never loads a network library.

Exit codes: 0 it was done; 1 it was not; 2 the options or arguments are wrong; 70 a bug.

Not here: what a command does.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

import click

from ottla.proto.errors import ConfigError, InvariantError, OttlaError

EXIT_FAILED: Final = 1
EXIT_WRONG_OPTIONS: Final = 2
EXIT_BUG: Final = 70


@dataclass(frozen=True, slots=True)
class CommandRow:
    """A command that has not been imported yet."""

    module: str
    attribute: str
    # One line for `ottla --help`.
    summary: str


COMMANDS: Final = {
    "config": CommandRow(
        "ottla.node.commands.config", "config", "Check a node's options, or read what they mean."
    ),
    "docs": CommandRow(
        "ottla.node.commands.docs", "docs", "Write the generated pages of the documentation."
    ),
    "log": CommandRow(
        "ottla.node.commands.log", "log", "Dump segments for people, or verify a data directory."
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
        command: click.Command = getattr(import_module(row.module), row.attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # click would import every command to read its summary.
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._rows[name].summary) for name in sorted(self._rows)])

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


@click.group(cls=LazyGroup, rows=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="ottla", prog_name="ottla")
def main() -> None:
    """Ottla: a replicated commit log that speaks the Kafka protocol."""


if __name__ == "__main__":
    main(prog_name="ottla")
