"""A topic comes into being when a client first writes to it, where the node is told to do so."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.clients.brokers import broker
from tests.integration.clients.cases import assert_same
from tests.integration.clients.port import (
    AtBeginning,
    Client,
    produce,
)

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    options = {"auto.create.topics.enable": "true", "num.partitions": "1"}
    with broker(tmp_path_factory.mktemp("node"), options) as address:
        yield address


def test_writing_to_a_topic_creates_it(client: Client, name: str) -> None:
    produce(client, name, client.sample)

    assert_same(client.consume(name, AtBeginning()), client.sample)
