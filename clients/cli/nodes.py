"""`ottla health --http`: what nodes say of themselves, each at its HTTP listener.

A node decides alone whether it is ready, by a table of conditions (`/health/ready`). Here it is
asked and shown; nothing is judged a second time.

Not here: what the answers make of the cluster (`verdict.py`).
"""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Sequence
from typing import Any, Final

import click

from ottla.clients.cli.output import printable, tell_table
from ottla.clients.cli.verdict import ConditionTold, NodeTold
from ottla.proto.options.endpoints import Address

_ANSWER_S: Final = 5.0
_ANSWER_BYTES_MAX: Final = 1 << 20
_PATH: Final = "/health/ready"
_NO_PAGE: Final = f"what it answers to {_PATH} is not of Ottla"


async def ask_nodes(addresses: Sequence[Address]) -> list[NodeTold]:
    """Return what each says, all asked at once."""
    return await asyncio.gather(*(asyncio.to_thread(ask_node, one) for one in addresses))


def ask_node(address: Address) -> NodeTold:
    """Return what one says, or why it says nothing."""
    connection = http.client.HTTPConnection(address.host, address.port, timeout=_ANSWER_S)
    try:
        connection.request("GET", _PATH, headers={"Connection": "close"})
        body = connection.getresponse().read(_ANSWER_BYTES_MAX)
    except TimeoutError:
        return NodeTold(str(address), silent=f"it did not answer within {_ANSWER_S:g} s")
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        return NodeTold(str(address), silent=f"it cannot be reached: {why}")
    except http.client.HTTPException:
        return NodeTold(str(address), silent="it does not speak HTTP")
    finally:
        connection.close()
    return told_in(address, body)


def told_in(address: Address, body: bytes) -> NodeTold:
    """Return what an answer says; one that is no page of a node is as good as none."""
    try:
        told = json.loads(body)
        conditions = tuple(
            ConditionTold(printable(str(one["name"])), one["holds"] is True, _sentence(one))
            for one in told["conditions"]
        )
        return NodeTold(
            str(address),
            node_id=int(told["node_id"]),
            is_ready=told["ready"] is True,
            reason=_sentence(told),
            conditions=conditions,
        )
    except (ValueError, KeyError, TypeError):
        return NodeTold(str(address), silent=_NO_PAGE)


def _sentence(told: dict[str, Any]) -> str | None:
    reason = told["reason"]
    return None if reason is None else printable(str(reason))


def tell_nodes(nodes: Sequence[NodeTold]) -> None:
    """Print the table: a row for each condition, a column for each node that has told any."""
    speaking = [one for one in nodes if one.silent is None]
    names = list(dict.fromkeys(cond.name for one in speaking for cond in one.conditions))
    if not names:
        return
    held = [{cond.name: cond.holds for cond in one.conditions} for one in speaking]
    words = {True: "yes", False: "no", None: "-"}
    rows = [(name, *(words[one.get(name)] for one in held)) for name in names]
    tell_table(("condition", *(f"node {one.node_id}" for one in speaking)), rows, indent=2)
    for one in speaking:
        for cond in one.conditions:
            if not cond.holds:
                click.echo(f"  node {one.node_id}, {cond.name}: {cond.reason}.")
