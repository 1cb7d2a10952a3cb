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
from ottla.node.lifecycle import Node
from ottla.node.log_line import Level
from ottla.node.logs import Format, logger, setup
from ottla.node.options import NodeOptions
from ottla.proto.options import node as rows
from ottla.proto.options.endpoints import Address
from ottla.replication.storage import failpoints

_log = logger("node")


@click.command()
@click.option("--config", "path", type=click.Path(path_type=Path), help="A file in Kafka's format.")
@click.option("--quiet", is_flag=True, help="Do not tell what to type next; only log.")
@click.argument("flags", nargs=-1, metavar="[KEY=VALUE]...")
def node(path: Path | None, quiet: bool, flags: tuple[str, ...]) -> None:
    """Run a node in the foreground. Ctrl-C, or SIGTERM, stops it cleanly.

    KEY=VALUE sets an option, such as log.dirs=/var/lib/ottla; `ottla config describe` lists them.
    """
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
        code = asyncio.run(live())
    finally:
        sink.flush()
    if code:
        click.get_current_context().exit(code)


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
    address = running.addresses["CLIENT"]
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
