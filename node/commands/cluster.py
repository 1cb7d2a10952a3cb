"""`ottla cluster`: a cluster of processes on this machine, in one command.

Each node is an `ottla node` with a file, a data directory and a log of its own, below one
directory. They can be killed, paused and brought back one by one, to see what a cluster does.

Not here: what is done (`ottla.node.local`), clusters of several machines.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Coroutine, Sequence
from pathlib import Path
from random import SystemRandom
from typing import Any, Final, TypeVar

import click

from ottla.node.clock import Clock
from ottla.node.commands.config import parse_flags
from ottla.node.local.cluster import START_MS, LocalCluster
from ottla.node.local.layout import DEFAULT_BASE_PORT, NODES_MAX, PORT_MAX
from ottla.node.local.processes import end_of_child
from ottla.node.local.record import DEFAULT_DATA, Record
from ottla.node.local.states import NodeState, active_controller, states_of
from ottla.node.local.words import listed, table_of, told_active, told_code, what_to_try

R = TypeVar("R")
_WATCH_S: Final = 0.25
_RESTART_MS: Final = 30_000
_EXIT_FAILED: Final = 1

_DATA: Final = click.option(
    "--data",
    "root",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(DEFAULT_DATA),
    show_default=True,
    help="Where the cluster keeps everything.",
)
_NODE_IDS: Final = click.argument("node_ids", nargs=-1, required=True, type=int, metavar="ID...")


@click.group()
def cluster() -> None:
    """Run a cluster of several nodes on this machine, and try what it bears."""


@cluster.command()
@click.option(
    "--nodes",
    "node_count",
    type=click.IntRange(1, NODES_MAX),
    help="How many; needed the first time. Of 1 or 2 nodes one votes, of 3 or 4 three, else five.",
)
@click.option("--detach", is_flag=True, help="Return when the cluster is ready, and let it run.")
@_DATA
@click.option(
    "--base-port",
    type=click.IntRange(0, PORT_MAX),
    help=f"Clients' port of node 1, {DEFAULT_BASE_PORT} the first time and then as before; INTERNAL"
    " is 100 above, HTTP 200 above, each node one more. 0: any that are free.",
)
@click.argument("flags", nargs=-1, metavar="[KEY=VALUE]...")
def start(
    node_count: int | None,
    detach: bool,
    root: Path,
    base_port: int | None,
    flags: tuple[str, ...],
) -> None:
    """Start all nodes, and stay until Ctrl-C, which stops them.

    Where there is a cluster already, it is started again with what it had. KEY=VALUE is an option
    for all nodes, kept in their files.
    """
    local = _local(root)
    code = _run(_start(local, node_count, base_port, parse_flags(flags), detach=detach))
    if code:
        click.get_current_context().exit(code)


@cluster.command()
@_DATA
def stop(root: Path) -> None:
    """Stop all nodes cleanly; exit code 1 if one had to be killed."""
    if _run(_stop(_local(root))):
        click.get_current_context().exit(_EXIT_FAILED)


@cluster.command()
@_DATA
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def status(root: Path, as_json: bool) -> None:
    """Tell how each node is, and which is the active controller."""
    states = _run(_states(_local(root)))
    active = active_controller(states)
    if as_json:
        told = {"active_controller": active, "nodes": [one.as_json() for one in states]}
        click.echo(json.dumps(told, indent=2))
        return
    click.echo(table_of(states, active))
    click.echo(f"\n{told_active(states, active)}")


@cluster.command()
@_NODE_IDS
@_DATA
def kill(root: Path, node_ids: tuple[int, ...]) -> None:
    """Kill nodes with SIGKILL: no good-bye, nothing is cleaned up."""
    for node_id in _distinct(node_ids):
        click.echo(f"node {node_id} killed (pid {_run(_local(root).kill(node_id))})")


@cluster.command()
@_NODE_IDS
@_DATA
def pause(root: Path, node_ids: tuple[int, ...]) -> None:
    """Let nodes hang with SIGSTOP: alive, connected, and silent."""
    for node_id in _distinct(node_ids):
        click.echo(f"node {node_id} paused (pid {_run(_local(root).pause(node_id))})")


@cluster.command()
@_NODE_IDS
@_DATA
def resume(root: Path, node_ids: tuple[int, ...]) -> None:
    """Let nodes that were paused go on, with SIGCONT."""
    for node_id in _distinct(node_ids):
        click.echo(f"node {node_id} goes on (pid {_run(_local(root).resume(node_id))})")


@cluster.command()
@_NODE_IDS
@_DATA
def restart(root: Path, node_ids: tuple[int, ...]) -> None:
    """Bring dead nodes back on their data; running ones are stopped first."""
    _run(_restart(_local(root), _distinct(node_ids)))


def _local(root: Path) -> LocalCluster:
    return LocalCluster(root, os.environ, Clock(), SystemRandom())


def _run(work: Coroutine[Any, Any, R]) -> R:
    return asyncio.run(work)


def _distinct(node_ids: Sequence[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(node_ids))


# ── Start and stop ────────────────────────────────────────────────────────────────────────────


async def _start(
    local: LocalCluster,
    node_count: int | None,
    base_port: int | None,
    options: dict[str, str],
    *,
    detach: bool,
) -> int:
    """Return the exit code."""
    clock = Clock()
    began_ms = clock.monotonic_ms()
    stopping = asyncio.Event()

    def on_signal() -> None:
        # Whoever presses Ctrl-C again does not want to wait.
        local.is_hurried = stopping.is_set()
        stopping.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, on_signal)
    record = await local.launch(node_count, base_port, options)
    waiting = asyncio.create_task(local.until_ready(list(record.nodes), START_MS, lambda _: None))
    stopped = asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait({waiting, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            return await _stop(local)
        waiting.result()
    except BaseException:
        await local.stop()
        raise
    finally:
        waiting.cancel()
        stopped.cancel()
    _tell_people(local, record, clock.monotonic_ms() - began_ms, detach=detach)
    return 0 if detach else await _watch(local, record, stopping)


def _tell_people(local: LocalCluster, record: Record, took_ms: int, *, detach: bool) -> None:
    # As it was called: who has not activated the environment needs the path.
    ottla = sys.argv[0] if sys.argv[0].endswith("ottla") else "ottla"
    place = local.place.option
    click.echo("\n".join(what_to_try(record, took_ms / 1000, ottla=ottla, place=place)))
    click.echo(f"  its data       {local.place.root}")
    click.echo(f"`{ottla} cluster stop{place}` stops it." if detach else "Ctrl-C stops it.")


async def _watch(local: LocalCluster, record: Record, stopping: asyncio.Event) -> int:
    """Say who ends, until Ctrl-C or until the cluster is stopped; return the exit code.

    Nodes that are dead do not end it: whoever killed them may bring them back.
    """
    while not stopping.is_set():
        for node_id, one in record.nodes.items():
            # Otherwise a node that ended stays a zombie for as long as we live.
            code = None if one.process is None else end_of_child(one.process)
            if code is not None:
                click.echo(f"node {node_id} ended with {told_code(code)}")
        current = local.place.require()
        if all(one.process is None for one in current.nodes.values()):
            click.echo("All nodes were stopped.")
            return 0
        try:
            async with asyncio.timeout(_WATCH_S):
                await stopping.wait()
        except TimeoutError:
            continue
    return await _stop(local)


async def _stop(local: LocalCluster) -> int:
    running, killed = await local.stop()
    if not running:
        click.echo("No node was running.")
        return 0
    ended = [node_id for node_id in running if node_id not in killed]
    if ended:
        click.echo(f"Stopped cleanly: {listed(ended)}.")
    if killed:
        click.echo(f"ottla: did not end in time and had to be killed: {listed(killed)}.", err=True)
        return _EXIT_FAILED
    return 0


async def _restart(local: LocalCluster, node_ids: tuple[int, ...]) -> None:
    killed = await local.restart(node_ids)
    if killed:
        click.echo(f"ottla: had to be killed first: {listed(killed)}.", err=True)

    def tell(state: NodeState) -> None:
        click.echo(f"node {state.node_id} is ready (pid {state.pid})")

    await local.until_ready(node_ids, _RESTART_MS, tell)


async def _states(local: LocalCluster) -> list[NodeState]:
    return await states_of(local.place.require())
