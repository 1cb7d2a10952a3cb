"""Options that every command towards a cluster has, and spellings from older courses.

An old spelling is not obeyed silently: a sentence tells the new one, so that it is learned once.

Not here: what a command does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

import click

from ottla.proto.errors import ConfigError
from ottla.proto.options.endpoints import Address, parse_address
from ottla.proto.options.option import shown, shown_name

DEFAULT_BOOTSTRAP: Final = "localhost:9092"
# The names of parameters that only stand for an old spelling.
_OLD: Final = "old_"

R = TypeVar("R")
Command = TypeVar("Command", bound=Callable[..., Any] | click.Command)


def parse_bootstrap(text: str) -> tuple[Address, ...]:
    """Return the addresses, or raise `ConfigError` with a sentence."""
    try:
        return tuple(parse_address(item.strip()) for item in text.split(","))
    except ValueError as error:
        raise ConfigError(f"--bootstrap-server must be {error}.") from None


def _bootstrap_of(_: click.Context, __: click.Parameter, value: str) -> tuple[Address, ...]:
    return parse_bootstrap(value)


def old_spelling(*names: str, instead: str, is_flag: bool = False) -> Callable[[Command], Command]:
    """Return a decorator: whoever uses one of these options is told what to say instead."""

    def decorate(command: Command) -> Command:
        for name in reversed(names):
            command = _refused(name, instead, is_flag=is_flag)(command)
        return command

    return decorate


def _refused(name: str, instead: str, *, is_flag: bool) -> Callable[[Command], Command]:
    def refuse(_: click.Context, __: click.Parameter, value: object) -> None:
        if value:
            raise ConfigError(f"{name} is not how it is said here: {instead}")

    return click.option(
        name,
        # Not the name of an argument that the command really has.
        f"{_OLD}{name.strip('-').replace('-', '_')}",
        is_flag=is_flag,
        hidden=True,
        expose_value=False,
        # Before a complaint that something else is missing.
        is_eager=True,
        callback=refuse,
    )


class _TellsNewSpelling(click.Command):
    """Tells the new spelling also where the line has options that nobody knows here.

    Whoever says one thing as to Kafka's tools says the rest so, too: "no such option" about the
    rest would hide the sentence.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = [word.partition("=")[0] for word in args]
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption:
            old = {one.opts[0]: one for one in self.params if (one.name or "").startswith(_OLD)}
            for word in given:
                if word in old:
                    old[word].callback(ctx, old[word], word)  # type: ignore[misc] # it has one
            raise


class ToolCommand(_TellsNewSpelling):
    """A command that takes the place of one of Kafka's tools."""


class ToolGroup(_TellsNewSpelling, click.Group):
    """Commands that together take the place of one of Kafka's tools."""

    command_class = ToolCommand


def for_clients(command: Command) -> Command:
    """Add `--bootstrap-server` and `--json`, as `bootstrap` and `as_json`."""
    decorators: tuple[Callable[[Command], Command], ...] = (
        click.option(
            "--bootstrap-server",
            "bootstrap",
            default=DEFAULT_BOOTSTRAP,
            show_default=True,
            metavar="HOST:PORT[,...]",
            callback=_bootstrap_of,
            help="Any nodes of the cluster; the first that answers tells of the others.",
        ),
        click.option("--json", "as_json", is_flag=True, help="Print JSON."),
        old_spelling("--broker-list", instead="say --bootstrap-server HOST:PORT."),
        old_spelling(
            "--zookeeper",
            instead="there is no ZooKeeper here; say --bootstrap-server HOST:PORT, with the "
            "address of a node.",
        ),
    )
    for decorate in reversed(decorators):
        command = decorate(command)
    return command


def parse_pairs(option: str, pairs: tuple[str, ...]) -> dict[str, str]:
    """Return KEY=VALUE arguments of an option as a mapping."""
    parsed = dict[str, str]()
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise ConfigError(f"{option} takes KEY=VALUE, and {shown(pair)} is not.")
        if name in parsed:
            raise ConfigError(f"{option} names {shown_name(name)} twice: keep one of them.")
        parsed[name] = value
    return parsed


def run(work: Coroutine[Any, Any, R]) -> R:
    """Run the part of a command that waits for the network."""
    return asyncio.run(work)
