"""Producers that nobody has heard of for long are forgotten; what they wrote is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.clients.admin.answers import NewTopic
from ottla.clients.admin.blocking import Admin
from tests.integration.clusters import running_cluster
from tests.integration.transactions.forgetting import (
    OFTEN,
    ended_ids,
    forget_producers,
    remembered,
)
from tests.integration.transactions.ledger_clients import (
    OPTIONS,
    new_id,
    producer_of,
    read,
    words,
    write,
)

pytestmark = [pytest.mark.integration, pytest.mark.transactions]
PARTITIONS = 3


def committed(bootstrap: str, name: str, word: str) -> None:
    producer = producer_of(bootstrap, name)
    producer.begin_transaction()
    write(producer, "t", PARTITIONS, word)
    producer.commit_transaction()


def test_silent_producers_are_forgotten_and_their_records_stay(tmp_path: Path) -> None:
    names = [new_id(), new_id()]
    with (
        running_cluster(tmp_path, options={**OPTIONS, **OFTEN}) as cluster,
        Admin({"bootstrap.servers": cluster.bootstrap}) as admin,
    ):
        admin.create_topics([NewTopic("t", PARTITIONS)])
        for name in names:
            committed(cluster.bootstrap, name, name)
        assert {partition for partition, _ in remembered(admin, "t")} == {0, 1, 2}
        assert set(names) <= set(ended_ids(admin))
        assert forget_producers(cluster, admin, "t") >= len(names)
        assert (remembered(admin, "t"), ended_ids(admin)) == ([], [])
        committed(cluster.bootstrap, names[0], "again")
        assert words(read(cluster.bootstrap, "t")) == [{*names, "again"}] * PARTITIONS
