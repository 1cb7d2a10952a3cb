"""`ottla cluster`: a cluster of processes on this machine, in one command.

Each node is an `ottla node` with a file, a data directory and a log of its own, below one
directory. They can be killed, paused and brought back one by one, to see what a cluster does.

With `--json` each thing that was done is one object on a line of its own: `event` says what, and
`id` to which node. `status` is one document.

Not here: what is done (`ottla.node.local`), clusters of several machines.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
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
# Says what was done: a sentence for people, or an event and its facts for programs.
Tell = Callable[..., None]
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
_JSON: Final = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object per line for what was done."
)


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
@_JSON
@click.option(
    "--base-port",
    type=click.IntRange(0, PORT_MAX),
    help=f"Clients' port of node 1, {DEFAULT_BASE_PORT} the first time and then as before; INTERNAL"
    " is 100 above, REPLICATION 150, HTTP 200, each node one more. 0: any that are free.",
)
@click.argument("flags", nargs=-1, metavar="[KEY=VALUE]...")
def start(
    node_count: int | None,
    detach: bool,
    root: Path,
    as_json: bool,
    base_port: int | None,
    flags: tuple[str, ...],
) -> None:
    """Start all nodes, and stay until Ctrl-C, which stops them.

    Where there is a cluster already, it is started again with what it had. KEY=VALUE is an option
    for all nodes, kept in their files.
    """
    command = _Start(_local(root), as_json=as_json, detach=detach)
    code = _run(command.run(node_count, base_port, parse_flags(flags)))
    if code:
        click.get_current_context().exit(code)


@cluster.command()
@_DATA
@_JSON
def stop(root: Path, as_json: bool) -> None:
    """Stop all nodes cleanly; exit code 1 if one had to be killed."""
    if _run(_stop(_local(root), _teller(as_json))):
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
@_JSON
def kill(root: Path, as_json: bool, node_ids: tuple[int, ...]) -> None:
    """Kill nodes with SIGKILL: no good-bye, nothing is cleaned up."""
    tell = _teller(as_json)
    for node_id in _distinct(node_ids):
        pid = _run(_local(root).kill(node_id))
        tell(f"node {node_id} killed (pid {pid})", event="killed", id=node_id, pid=pid)


@cluster.command()
@_NODE_IDS
@_DATA
@_JSON
def pause(root: Path, as_json: bool, node_ids: tuple[int, ...]) -> None:
    """Let nodes hang with SIGSTOP: alive, connected, and silent."""
    tell = _teller(as_json)
    for node_id in _distinct(node_ids):
        pid = _run(_local(root).pause(node_id))
        tell(f"node {node_id} paused (pid {pid})", event="paused", id=node_id, pid=pid)


@cluster.command()
@_NODE_IDS
@_DATA
@_JSON
def resume(root: Path, as_json: bool, node_ids: tuple[int, ...]) -> None:
    """Let nodes that were paused go on, with SIGCONT."""
    tell = _teller(as_json)
    for node_id in _distinct(node_ids):
        pid = _run(_local(root).resume(node_id))
        tell(f"node {node_id} goes on (pid {pid})", event="resumed", id=node_id, pid=pid)


@cluster.command()
@_NODE_IDS
@_DATA
@_JSON
def restart(root: Path, as_json: bool, node_ids: tuple[int, ...]) -> None:
    """Bring dead nodes back on their data; running ones are stopped first."""
    _run(_restart(_local(root), _distinct(node_ids), _teller(as_json)))


def _local(root: Path) -> LocalCluster:
    return LocalCluster(root, os.environ, Clock(), SystemRandom())


def _run(work: Coroutine[Any, Any, R]) -> R:
    return asyncio.run(work)


def _teller(as_json: bool) -> Tell:
    """Return who prints a sentence for people, or what it says for programs."""

    def tell(sentence: str, **facts: object) -> None:
        if as_json:
            click.echo(json.dumps(facts, ensure_ascii=False))
        elif sentence:
            click.echo(sentence)

    return tell


def _distinct(node_ids: Sequence[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(node_ids))


# ── Start and stop ────────────────────────────────────────────────────────────────────────────


class _Start:
    """One `ottla cluster start`, until the cluster is ready or until it is stopped."""

    def __init__(self, local: LocalCluster, *, as_json: bool, detach: bool) -> None:
        self._local: Final = local
        self._as_json: Final = as_json
        self._detach: Final = detach
        self._tell: Final = _teller(as_json)
        self._stopping: Final = asyncio.Event()

    async def run(
        self, node_count: int | None, base_port: int | None, options: dict[str, str]
    ) -> int:
        """Return the exit code."""
        local, clock = self._local, Clock()
        began_ms = clock.monotonic_ms()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal)
        record = await local.launch(node_count, base_port, options)
        ready = local.until_ready(list(record.nodes), START_MS, lambda _: None)
        waiting = asyncio.create_task(ready)
        stopped = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({waiting, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                return await _stop(local, self._tell)
            waiting.result()
        except BaseException:
            await local.stop()
            raise
        finally:
            waiting.cancel()
            stopped.cancel()
        self._tell_ready(record, (clock.monotonic_ms() - began_ms) / 1000)
        return 0 if self._detach else await self._watch(record)

    def _on_signal(self) -> None:
        # Whoever presses Ctrl-C again does not want to wait.
        self._local.is_hurried = self._stopping.is_set()
        self._stopping.set()

    def _tell_ready(self, record: Record, took_s: float) -> None:
        if self._as_json:
            click.echo(json.dumps(_ready_as_json(record, took_s, self._local.place.root)))
            return
        # As it was called: who has not activated the environment needs the path.
        ottla = sys.argv[0] if sys.argv[0].endswith("ottla") else "ottla"
        place = self._local.place.option
        click.echo("\n".join(what_to_try(record, took_s, ottla=ottla, place=place)))
        click.echo(f"  its data       {self._local.place.root}")
        click.echo(
            f"`{ottla} cluster stop{place}` stops it." if self._detach else "Ctrl-C stops it."
        )

    async def _watch(self, record: Record) -> int:
        """Say who ends, until Ctrl-C or until the cluster is stopped; return the exit code.

        Nodes that are dead do not end it: whoever killed them may bring them back.
        """
        while not self._stopping.is_set():
            for node_id, one in record.nodes.items():
                # Otherwise a node that ended stays a zombie for as long as we live.
                code = None if one.process is None else end_of_child(one.process)
                if code is not None:
                    told = told_code(code)
                    self._tell(
                        f"node {node_id} ended with {told}", event="ended", id=node_id, code=told
                    )
            current = self._local.place.require()
            if all(one.process is None for one in current.nodes.values()):
                # By another command, which says whom.
                self._tell("All nodes were stopped.", event="stopped")
                return 0
            try:
                async with asyncio.timeout(_WATCH_S):
                    await self._stopping.wait()
            except TimeoutError:
                continue
        return await _stop(self._local, self._tell)


def _ready_as_json(record: Record, took_s: float, root: Path) -> dict[str, Any]:
    nodes = [
        {
            "id": node_id,
            "pid": None if one.process is None else one.process.pid,
            **{name.lower(): str(address) for name, address in one.plan.listeners.items()},
        }
        for node_id, one in record.nodes.items()
    ]
    bootstrap = ",".join(str(plan.listeners["CLIENT"]) for plan in record.plans)
    return {
        "event": "ready",
        "bootstrap.servers": bootstrap,
        "took_s": took_s,
        "data": str(root),
        "nodes": nodes,
    }


async def _stop(local: LocalCluster, tell: Tell) -> int:
    running, killed = await local.stop()
    ended = [node_id for node_id in running if node_id not in killed]
    sentence = "" if running else "No node was running."
    tell(
        f"Stopped cleanly: {listed(ended)}." if ended else sentence,
        event="stopped",
        ids=ended,
        killed=killed,
    )
    if killed:
        click.echo(f"ottla: did not end in time and had to be killed: {listed(killed)}.", err=True)
        return _EXIT_FAILED
    return 0


async def _restart(local: LocalCluster, node_ids: tuple[int, ...], tell: Tell) -> None:
    killed = await local.restart(node_ids)
    if killed:
        click.echo(f"ottla: had to be killed first: {listed(killed)}.", err=True)

    def ready(state: NodeState) -> None:
        tell(
            f"node {state.node_id} is ready (pid {state.pid})",
            event="restarted",
            id=state.node_id,
            pid=state.pid,
        )

    await local.until_ready(node_ids, _RESTART_MS, ready)


async def _states(local: LocalCluster) -> list[NodeState]:
    return await states_of(local.place.require())
