"""`ottla config`: what a node would use and from where, and what each option means.

`check` reads the sources exactly as a node does, so that a mistake is found before the start.

Not here: changing anything.
"""

from __future__ import annotations

import errno
import json
import os
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from ottla.node.config import load_node_options
from ottla.proto.errors import ConfigError
from ottla.proto.options import ignored, node, topic
from ottla.proto.options.endpoints import Address
from ottla.proto.options.load import opened_by
from ottla.proto.options.option import Option, shown, shown_name
from ottla.proto.options.render import facts, help_text, readable
from ottla.proto.options.sources import Options, Setting, nearest


@click.group()
def config() -> None:
    """Check a node's options, or read what they mean."""


@config.command()
@click.option("--config", "path", type=click.Path(path_type=Path), help="A file in Kafka's format.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.argument("flags", nargs=-1, metavar="[KEY=VALUE]...")
def check(path: Path | None, as_json: bool, flags: tuple[str, ...]) -> None:
    """Tell what a node would use, from where, and whether it could start.

    Exit code 0 if it could, 2 if not, with one line for each problem.
    """
    try:
        options = load_node_options(path=path, environment=os.environ, flags=parse_flags(flags))
    except ConfigError as error:
        _tell(None, error.problems, as_json=as_json)
    else:
        _tell(options, tuple(_ports_taken(options)), as_json=as_json)


def parse_flags(flags: Iterable[str]) -> dict[str, str]:
    """Return KEY=VALUE arguments as a mapping."""
    parsed: dict[str, str] = {}
    for flag in flags:
        name, equals, text = flag.partition("=")
        if not equals or not name:
            raise ConfigError(f"arguments must be KEY=VALUE, and {shown(flag)} is not.")
        if name in parsed:
            raise ConfigError(
                f"{shown_name(name)} is given twice on the command line: keep one of them."
            )
        parsed[name] = text
    return parsed


def _tell(options: Options | None, problems: tuple[str, ...], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(_as_json(options, problems), indent=2))
        if problems:
            click.get_current_context().exit(2)
        return
    if options is not None:
        for line in _lines(options):
            click.echo(line)
        for warning in options.warnings:
            click.echo(f"warning: {warning}", err=True)
    if problems:
        raise ConfigError(*problems)
    click.echo("ok")


def _lines(options: Options) -> Iterator[str]:
    for setting in options.given():
        yield f"{setting.option.name} = {_shown_value(setting)}    {_origin(setting)}"
    others = len(options.settings) - len(options.given())
    yield f"{others} options have their defaults"


def _shown_value(setting: Setting) -> str:
    return "(hidden)" if setting.option.sensitive else setting.text


def _origin(setting: Setting) -> str:
    if setting.given is None:
        return "default"
    renamed = "" if setting.given.name == setting.option.name else f", as {setting.given.name}"
    return f"({setting.given.where}{renamed})"


def _as_json(options: Options | None, problems: tuple[str, ...]) -> dict[str, Any]:
    given = options.given() if options else ()
    return {
        "ok": not problems,
        "problems": list(problems),
        "warnings": list(options.warnings) if options else [],
        "options": [
            {
                "name": setting.option.name,
                "value": _shown_value(setting),
                "source": setting.source.name.lower(),
                "where": setting.given.where if setting.given else None,
            }
            for setting in given
        ],
    }


def _ports_taken(options: Options) -> Iterator[str]:
    """Yield a sentence for every listener that could not be opened now."""
    for name, address in opened_by(options).items():
        try:
            _try_to_listen(address)
        except OSError as error:
            in_use = error.errno == errno.EADDRINUSE
            reason = "the port is in use" if in_use else error.strerror or str(error)
            yield f"listeners: {name} cannot listen on {address}: {reason}."


def _try_to_listen(address: Address) -> None:
    """Raise `OSError` if a port is taken, or if none of the host's addresses can be used."""
    found = socket.getaddrinfo(
        address.host or None, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    errors = []
    for family, _, _, _, where in found:
        try:
            _bind(family, where)
        except OSError as error:
            # A machine without IPv6 still has names that resolve to it.
            if error.errno == errno.EADDRINUSE:
                raise
            errors.append(error)
    if len(errors) == len(found):
        raise errors[0]


def _bind(family: int, where: tuple[Any, ...]) -> None:
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As the node does it: connections of an earlier life do not hold a port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # Otherwise the second of 0.0.0.0 and :: would find the first.
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        probe.bind(where)
        # Where another socket listens with the same option set, only this tells.
        probe.listen(1)


@config.command()
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def describe(name: str | None, as_json: bool) -> None:
    """Tell what the option NAME means, or list them all."""
    found = [*_of_name(name)] if name else [*_everything()]
    if as_json:
        click.echo(json.dumps([_row_as_json(scope, row) for scope, row in found], indent=2))
    elif name:
        click.echo("\n\n".join(f"{scope} option {help_text(row)}" for scope, row in found))
    else:
        for scope, row in found:
            click.echo(f"{scope:<6} {row.name:<46} {readable(row, row.default)}")


def _everything() -> Iterator[tuple[str, Option[Any]]]:
    yield from (("topic", row) for row in topic.TABLE)
    yield from (("node", row) for row in node.TABLE)


def _of_name(name: str) -> Iterator[tuple[str, Option[Any]]]:
    at_node = node.BY_ANY_NAME.get(name)
    if name in topic.BY_NAME:
        yield "topic", topic.BY_NAME[name]
    if at_node:
        yield "node", at_node[0]
    if name in topic.BY_NAME or at_node:
        return
    if reason := ignored.reason_of((*ignored.TOPIC, *ignored.NODE), name):
        raise ConfigError(
            f"{shown_name(name)} is an option of Kafka's that has no effect here: {reason}."
        )
    if reason := ignored.reason_of(ignored.REFUSED, name):
        raise ConfigError(f"{shown_name(name)} is refused: {reason}.")
    near = nearest(name, (*topic.BY_NAME, *node.BY_ANY_NAME))
    told = f"did you mean {near}?" if near else "`ottla config describe` lists those there are."
    raise ConfigError(f"unknown option {shown(name)}: {told}")


def _row_as_json(scope: str, row: Option[Any]) -> dict[str, Any]:
    return {
        "name": row.name,
        "scope": scope,
        "doc": row.doc,
        "default": row.default_text,
        "type": row.kind.name,
        "unit": row.unit or None,
        "synonyms": [name.name for name in row.synonyms],
        "dynamic": row.dynamic,
        "facts": dict(facts(row)),
    }
