"""What `ottla cluster` says: the table of nodes, and what to try next.

Not here: finding out (`states.py`).
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from ottla.node.local.record import Record
from ottla.node.local.states import NodeState, State

_LOG_LINES: Final = 8
# How the command begins the line that says why it ends.
_REASON: Final = "ottla: "


def what_to_try(record: Record, took_s: float, *, ottla: str, place: str) -> Iterator[str]:
    """Yield lines that can be typed as they are; `place` is the option that names the cluster."""
    ports = [plan.listeners["CLIENT"].port for plan in record.plans]
    bootstrap = ",".join(f"localhost:{port}" for port in ports)
    # All of them, also at the default port: what is typed must work while one of them is dead.
    towards = f" --bootstrap-server {bootstrap}"
    count = len(ports)
    nodes = "1 node is" if count == 1 else f"{count} nodes are"
    yield f"{nodes} ready after {took_s:.1f} s; bootstrap.servers={bootstrap}"
    yield f"  make a topic   {ottla} topics create greetings{towards}"
    yield f"  produce        echo hello | {ottla} produce greetings{towards}"
    yield f"  consume        {ottla} consume greetings --from-beginning{towards}"
    yield f"  its nodes      {ottla} cluster status{place}"
    yield f"  its health     {ottla} health{towards}"
    yield f"  its replicas   {ottla} topics describe{towards}"
    yield f"  its quorum     {ottla} quorum{towards}"
    yield f"  break it       {ottla} cluster kill {count}{place}"
    yield f"  mend it        {ottla} cluster restart {count}{place}"


def table_of(states: Sequence[NodeState], active: int | None) -> str:
    """Return columns. Reasons come last, because they are sentences."""
    heading = ("node", "pid", "roles", "client", "internal", "replication", "http", "state", "")
    lines = [heading]
    for one in states:
        plan = one.record.plan
        lines.append(
            (
                str(one.node_id),
                "-" if one.pid is None else str(one.pid),
                "+".join(plan.roles),
                str(plan.listeners["CLIENT"]),
                str(plan.listeners["INTERNAL"]),
                str(plan.listeners["REPLICATION"]),
                str(plan.listeners["HTTP"]),
                one.state.value,
                one.reason or ("active controller" if one.node_id == active else ""),
            )
        )
    widths = [max(len(line[at]) for line in lines) for at in range(len(heading))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def told_active(states: Sequence[NodeState], active: int | None) -> str:
    """Return a sentence about who is the active controller."""
    if active is not None:
        return f"The active controller is node {active}."
    if not any(one.state in (State.READY, State.RUNNING) for one in states):
        return "No node is running."
    return "No active controller is known."


def told_code(code: int) -> str:
    """Return how a process ended."""
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name


def told_end(node_id: int, path: Path, lines: Sequence[str]) -> str:
    """Return why a node ended, as it said itself, and then the end of its log."""
    said = [line.removeprefix(_REASON) for line in lines if line.startswith(_REASON)]
    tail = "\n".join(f"    {line}" for line in lines[-_LOG_LINES:])
    reason = f": {said[-1]}\n" if said else ". "
    return f"node {node_id} ended while it started{reason}Its log, {path}, ends:\n{tail}"


def listed(node_ids: Sequence[int]) -> str:
    return ", ".join(f"node {node_id}" for node_id in node_ids)
