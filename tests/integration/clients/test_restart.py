"""A producer that stays open does not notice, except by waiting, that its node was restarted.

Not here: kafka-python, which leaves the socket of every refused connection to the garbage
collector: Python's warning about it would hit whatever test runs then.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.clients.aio import AioKafka
from tests.integration.clients.cases import assert_same, numbered
from tests.integration.clients.confluent import ConfluentAdmin, ConfluentKafka
from tests.integration.clients.port import AtBeginning, Client, Sending
from tests.integration.nodes import running_node

pytestmark = pytest.mark.integration

RECORDS = numbered(9)


@pytest.mark.parametrize("make", [ConfluentKafka, AioKafka])
def test_an_idempotent_producer_goes_on_after_a_stop_and_after_a_kill(
    make: Callable[[str], Client], tmp_path: Path
) -> None:
    with running_node(tmp_path) as node:
        address = node.bootstrap
        ConfluentAdmin(address).create_topic("events")
        client = make(address)
        with client.producing(Sending(idempotent=True)) as send:
            assert send("events", RECORDS[:3]) == [0, 1, 2]
            assert node.stop() == 0
            with running_node(tmp_path, options=_listening_at(address)) as second:
                assert send("events", RECORDS[3:6]) == [3, 4, 5]
                second.kill()
            with running_node(tmp_path, options=_listening_at(address)):
                assert send("events", RECORDS[6:]) == [6, 7, 8]
                assert_same(client.consume("events", AtBeginning()), RECORDS)


def _listening_at(address: str) -> dict[str, str]:
    return {"listeners": f"CLIENT://{address},INTERNAL://127.0.0.1:0,HTTP://127.0.0.1:0"}
