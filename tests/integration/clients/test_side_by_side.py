"""Clients of every kind write to one partition at the same time, while all of them follow it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from tests.integration.clients.port import AtBeginning, Client, NewTopic, Record, Sending

pytestmark = pytest.mark.integration

BATCH = 5


def _batches(client: Client) -> int:
    # kcat starts a process for each record.
    return 1 if client.name == "kcat" else 10


def _write(client: Client, topic: str) -> None:
    with client.producing(Sending(idempotent=True, codec="lz4")) as send:
        for number in range(_batches(client)):
            values = range(number * BATCH, (number + 1) * BATCH)
            send(topic, [Record(b"%d" % value, key=client.name.encode()) for value in values])


def test_all_see_the_same_order(readers: list[Client], new_topic: NewTopic) -> None:
    topic = new_topic()
    total = sum(BATCH * _batches(client) for client in readers)

    with ExitStack() as stack, ThreadPoolExecutor(2 * len(readers)) as threads:
        followers = [stack.enter_context(client.follow(topic)) for client in readers]
        writing = [threads.submit(_write, client, topic) for client in readers]
        reading = [threads.submit(following, total) for following in followers]
        for future in writing:
            future.result()
        seen = [future.result() for future in reading]

    log = readers[0].consume(topic, AtBeginning())
    assert [record.offset for record in log] == list(range(total))
    assert all(each == log for each in seen)
    for client in readers:
        mine = [record.value for record in log if record.key == client.name.encode()]
        assert mine == [b"%d" % value for value in range(BATCH * _batches(client))]
