"""`ottla node`: run a node in the foreground until it is told to stop.

Standard output gets the few lines a person needs; the log goes to standard error.

Not here: what a node is (`ottla.node.lifecycle`).
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from importlib.metadata import version
from pathlib import Path
from typing import cast

import click

from ottla.node.allocator import keep_memory
from ottla.node.commands.config import parse_flags
from ottla.node.config import load_node_options
from ottla.node.data import data_dir_of
from ottla.node.last_words import exit_code_of, sentences_of, wants_json
from ottla.node.lifecycle import Node
from ottla.node.log_line import Level
from ottla.node.logs import Format, logger, setup
from ottla.node.options import NodeOptions
from ottla.proto.errors import InvariantError, OttlaError
from ottla.proto.options import node as rows
from ottla.proto.options.endpoints import Address, is_for_clients
from ottla.proto.options.properties import FILE_BYTES_MAX
from ottla.replication.storage import failpoints

_log = logger("node")


@click.command()
@click.option("--config", "path", type=click.Path(path_type=Path), help="A file in Kafka's format.")
@click.option("--quiet", is_flag=True, help="Do not tell what to type next; only log.")
@click.argument("flags", nargs=-1, metavar="[KEY=VALUE]...")
def node(path: Path | None, quiet: bool, flags: tuple[str, ...]) -> None:
    """Run a node in the foreground. Ctrl-C, or SIGTERM, stops it cleanly.

    KEY=VALUE sets an option, such as log.dirs=/var/lib/ottla; `ottla config describe` lists them.

    Exit code 0 after a clean stop; 2 if a setting must be changed, 1 if the data directory or the
    cluster refuses it, 70 for a bug. The last line on standard error says why.
    """
    try:
        code = _live(path, flags, quiet=quiet)
    except InvariantError:
        raise
    except OttlaError as error:
        code = _tell_end(error, path, flags)
    if code:
        click.get_current_context().exit(code)


def _live(path: Path | None, flags: tuple[str, ...], *, quiet: bool) -> int:
    """Be a node until its end; return the exit code. Raises what makes that impossible."""
    keep_memory()
    failpoints.arm_from_environment(os.environ)
    given = load_node_options(path=path, environment=os.environ, flags=parse_flags(flags))
    options = NodeOptions(given)
    # The rows allow these words and no other.
    form = cast("Format", given.value_of(rows.LOG_FORMAT))
    level = cast("Level", given.value_of(rows.LOG_LEVEL))
    sink = setup(form, level)
    _raise_descriptor_limit()
    for warning in given.warnings:
        _log.warning("option_warning", reason=warning)
    for setting in given.given():
        _log.info("option_given", name=setting.option.name, value=setting.text)

    async def live() -> int:
        tell = _tell_nobody if quiet else _tell_people
        return await Node(options, os.environ, version=version("ottla"), on_serving=tell).run()

    try:
        return asyncio.run(live())
    finally:
        sink.flush()


def _tell_end(error: OttlaError, path: Path | None, flags: tuple[str, ...]) -> int:
    """Say why the node ends, as a line of its log if that is JSON; return the exit code."""
    code, pairs = exit_code_of(error), (flag.partition("=") for flag in flags)
    given = {name: text for name, _, text in pairs}
    is_json = wants_json(os.environ, given, None if path is None else _bytes_of(path))
    sink = setup("json" if is_json else "text", "error")
    for sentence in sentences_of(error, os.environ, given):
        if is_json:
            _log.error("node_ended", reason=sentence, exit_code=code)
        else:
            click.echo(f"ottla: {sentence}", err=True)
    sink.flush()
    return code


def _bytes_of(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            return file.read(FILE_BYTES_MAX)
    except OSError:
        return None


def _raise_descriptor_limit() -> None:
    """Take all the descriptors that this process may have: connections and segments need them."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _tell_nobody(_: Node) -> None:
    """Whoever reads this output reads a log."""


def _tell_people(running: Node) -> None:
    if not running.is_broker:
        internal = running.addresses["INTERNAL"]
        click.echo(
            f"Ottla votes at {internal}, and serves no clients: process.roles has no broker.\n"
            f"  look inside    http://{running.addresses['HTTP']}/\n"
            "Ctrl-C stops it."
        )
        return
    # Of several listeners for clients, the one that it is known by.
    address = next(one for name, one in running.addresses.items() if is_for_clients(name))
    told = "" if str(address) == "127.0.0.1:9092" else f" --bootstrap-server {address}"
    # As it was called: who has not activated the environment needs the path.
    ottla = sys.argv[0] if sys.argv[0].endswith("ottla") else "ottla"
    click.echo(
        f"Ottla listens at {address}; bootstrap.servers={_bootstrap(address)}\n"
        f"  make a topic   {ottla} topics create greetings{told}\n"
        f"  produce        echo hello | {ottla} produce greetings{told}\n"
        f"  consume        {ottla} consume greetings --from-beginning{told}\n"
        f"  look inside    http://{running.addresses['HTTP']}/\n"
        f"  its data       {data_dir_of(running.options)}\n"
        "Ctrl-C stops it."
    )


def _bootstrap(address: Address) -> str:
    return f"localhost:{address.port}" if address.is_loopback else str(address)
