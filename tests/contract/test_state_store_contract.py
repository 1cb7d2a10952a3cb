"""One suite for everything that claims to be a `StateStore`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.proto.errors import StorageError
from ottla.replication.storage import failpoints
from ottla.replication.storage.faults import FaultPlan, FaultRule, FaultyStore, Power
from ottla.replication.storage.lmdb_store import LmdbStateStore
from ottla.replication.storage.memory import MemoryStateStore
from ottla.replication.storage.ports import StateStore

# Opens the store; a second call opens the same data again, after the first was closed.
OpenStore = Callable[[], StateStore]
KINDS = ("memory", "lmdb", "faulty memory", "faulty lmdb")


def opener(kind: str, tmp_path: Path, plan: FaultPlan | None = None) -> OpenStore:
    disk: dict[bytes, bytes] = {}

    def open_inner() -> StateStore:
        if "memory" in kind:
            return MemoryStateStore(disk)
        return LmdbStateStore(str(tmp_path / "state"), map_size=1 << 17)

    if "faulty" in kind:
        return lambda: FaultyStore(open_inner(), Power(), plan)
    return open_inner


@pytest.fixture(params=KINDS)
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> OpenStore:
    return opener(request.param, tmp_path)


def test_a_new_store_is_empty(open_store: OpenStore) -> None:
    store = open_store()
    assert store.get(b"a") is None
    assert list(store.scan(b"")) == []
    store.close()


def test_what_was_committed_is_there_and_still_there_after_a_restart(
    open_store: OpenStore,
) -> None:
    store = open_store()
    store.commit({b"a": b"1", b"empty": b"", b"b": b"2" * 100_000})
    store.commit({b"a": b"3", b"b": None, b"never": None})
    for _ in range(2):
        assert (store.get(b"a"), store.get(b"b"), store.get(b"empty")) == (b"3", None, b"")
        store.close()
        store = open_store()
    store.close()


def test_a_scan_yields_one_prefix_in_order(open_store: OpenStore) -> None:
    store = open_store()
    store.commit({b"p/2": b"x", b"p/10": b"y", b"p": b"z", b"q": b"w", b"p0": b"v"})
    assert list(store.scan(b"p/")) == [(b"p/10", b"y"), (b"p/2", b"x")]
    assert [key for key, _ in store.scan(b"")] == [b"p", b"p/10", b"p/2", b"p0", b"q"]
    assert list(store.scan(b"r")) == []
    store.commit({b"p/10": None, b"p/3": b"u"})
    assert [key for key, _ in store.scan(b"p/")] == [b"p/2", b"p/3"]
    store.close()


def test_a_scan_shows_the_state_at_its_beginning(open_store: OpenStore) -> None:
    store = open_store()
    store.commit({b"a": b"1", b"b": b"2"})
    pairs = store.scan(b"")
    store.commit({b"a": b"9", b"b": None})
    assert list(pairs) == [(b"a", b"1"), (b"b", b"2")]
    store.close()


@pytest.mark.parametrize("key", [b"", b"k" * 512])
def test_a_key_that_lmdb_could_not_hold_is_refused_and_nothing_of_the_commit_happens(
    open_store: OpenStore, key: bytes
) -> None:
    store = open_store()
    with pytest.raises(StorageError, match="1 to 511 bytes"):
        store.commit({b"good": b"1", key: b"2"})
    assert store.get(b"good") is None
    store.commit({b"k" * 511: b"3"})
    assert store.get(b"k" * 511) == b"3"
    store.close()


def test_a_closed_store_refuses(open_store: OpenStore) -> None:
    store = open_store()
    store.close()
    with pytest.raises(StorageError):
        store.commit({b"a": b"1"})
    with pytest.raises(StorageError):
        store.get(b"a")


@pytest.mark.parametrize("operation", ["commit", "committed"])
@pytest.mark.parametrize("kind", ["faulty memory", "faulty lmdb"])
def test_after_a_commit_error_every_later_commit_is_refused(
    tmp_path: Path, kind: str, operation: str
) -> None:
    plan = FaultPlan([FaultRule(operation, "*", nth=2)])
    open_store = opener(kind, tmp_path, plan)
    store = open_store()
    store.commit({b"a": b"1"})
    with pytest.raises(StorageError, match="failed to commit"):
        store.commit({b"a": b"2"})
    with pytest.raises(StorageError, match="nothing any more"):
        store.commit({b"b": b"3"})
    store.close()
    store = open_store()
    # All or nothing: the outcome of the failed one is unknown, of the refused one it is not.
    assert store.get(b"a") == (b"1" if operation == "commit" else b"2")
    assert store.get(b"b") is None
    store.close()


@pytest.mark.parametrize("name", ["state.commit.before", "state.commit.after"])
def test_lmdb_has_failpoints_around_its_commit(tmp_path: Path, name: str) -> None:
    store = LmdbStateStore(str(tmp_path / "state"))
    store.commit({b"a": b"1"})
    failpoints.arm(name, "error(EIO)@1")
    try:
        with pytest.raises(StorageError, match="failed to commit"):
            store.commit({b"a": b"2"})
    finally:
        failpoints.disarm_all()
    with pytest.raises(StorageError, match="nothing any more"):
        store.commit({b"b": b"3"})
    store.close()
    again = LmdbStateStore(str(tmp_path / "state"))
    assert again.get(b"a") == (b"1" if name.endswith("before") else b"2")
    again.close()
