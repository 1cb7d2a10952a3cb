"""A broker that died is listed a moment longer, to whoever names its topics and to nobody else."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from ottla.proto.kafka.apis import METADATA
from ottla.proto.kafka.message import Message
from tests.integration.clusters import running_cluster
from tests.integration.nodes import wait_until
from tests.integration.replicated.wire import Lines, create_topic, look, metadata_fields

pytestmark = pytest.mark.integration

TOPIC = "t"
DEADLINE_S = 30.0
_STEP_S = 0.02


async def _ask(lines: Lines, node_id: int, fields: dict[str, Any]) -> Message:
    return await (await lines.to(node_id)).call(METADATA, fields)


def _listed(answer: Message) -> set[int]:
    return {int(one.node_id) for one in answer.brokers}


async def _watch(addresses: dict[int, str], survivor: int, victim: int) -> None:
    """Raise unless the first answer that names another leader lists the dead one, too."""
    lines, named = Lines(addresses), metadata_fields([TOPIC])
    end_s = time.monotonic() + DEADLINE_S
    try:
        while time.monotonic() < end_s:
            answer = await _ask(lines, survivor, named)
            if answer.topics[0].partitions[0].leader_id not in (-1, victim):
                assert victim in _listed(answer)
                for asked in ({**named, "topics": []}, {**named, "topics": None}):
                    assert victim not in _listed(await _ask(lines, survivor, asked))
                return
            await asyncio.sleep(_STEP_S)
    finally:
        await lines.close()
    raise AssertionError("nobody else leads")


def test_a_leader_that_died_is_listed_a_moment_longer(tmp_path: Path) -> None:
    """V3 of `node/kafka/metadata.py`."""
    with running_cluster(tmp_path) as cluster:
        addresses = {node.node_id: node.bootstrap for node in cluster.running}
        create_topic(addresses, TOPIC, [list(addresses)])
        ((place, _),) = look(addresses, [TOPIC]).items()
        wait_until(lambda: look(addresses, [TOPIC])[place].is_whole, DEADLINE_S, "all are in sync")
        victim = look(addresses, [TOPIC])[place].leader
        survivor = next(one for one in addresses if one != victim)
        cluster[victim].kill()
        asyncio.run(_watch(addresses, survivor, victim))
