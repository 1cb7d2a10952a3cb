from __future__ import annotations

import pytest

from ottla.controller.quorum.formatting import format_voter
from ottla.controller.quorum.journal import Journal
from ottla.controller.quorum.layout import is_blank
from ottla.controller.quorum.membership import Standing
from ottla.proto.errors import ConfigError, StorageError
from ottla.replication.storage.memory import MemoryStateStore

VOTERS = {1: "d1", 2: "d2", 3: "d3"}


def made(voters: dict[int, str | None], cluster_id: str = "c") -> MemoryStateStore:
    store = MemoryStateStore()
    try:
        format_voter(store, cluster_id=cluster_id, node_id=2, directory_id="d2", voters=voters)
    except ConfigError:
        assert is_blank(store)
        raise
    return store


def test_with_every_directory_a_voter_is_made() -> None:
    store = made({**VOTERS})
    found = Journal(store)
    assert found.membership.standing is Standing.VOTER
    assert (found.membership.cluster_id, found.membership.voters) == ("c", VOTERS)
    assert found.admissions.newest == VOTERS
    with pytest.raises(StorageError, match="already"):
        format_voter(store, cluster_id="c", node_id=2, directory_id="d2", voters=VOTERS)


@pytest.mark.parametrize(
    ("voters", "sentence"),
    [
        ({}, "missing: all"),
        ({1: "d1", 2: "d2", 3: None}, "missing: 3"),
        ({1: "", 2: "d2", 3: None}, "missing: 1, 3"),
        ({1: "d1", 3: "d3"}, "node 2 with the data directory none, and this is d2"),
        ({1: "d1", 2: "other", 3: "d3"}, "node 2 with the data directory other"),
        ({1: "d2", 2: "d2", 3: "d3"}, "same data directory"),
        ({1: "d" * 256, 2: "d2", 3: "d3"}, "at most 255 bytes"),
    ],
)
def test_with_less_nothing_is_made(voters: dict[int, str | None], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        made(voters)


def test_a_voter_belongs_to_a_cluster() -> None:
    with pytest.raises(ConfigError, match="no cluster id"):
        made({**VOTERS}, cluster_id="")
