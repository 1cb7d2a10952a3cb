from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.controller.image import ALL_BROKERS, BrokerInfo, MetadataImage, TopicInfo
from ottla.controller.port import (
    ConfigChange,
    ConfigKind,
    Controller,
    NewPartitions,
    NewTopic,
    TopicDefaults,
)
from ottla.controller.solo import SoloController
from ottla.controller.stored import StateStore
from ottla.proto.errors import (
    ConfigError,
    CorruptionError,
    ErrorCode,
    InvariantError,
    RequestError,
    StorageError,
)
from ottla.proto.ids import BrokerId
from ottla.proto.kafka.uuids import UUID
from ottla.replication.storage.lmdb_store import LmdbStateStore
from ottla.replication.storage.memory import MemoryStateStore

T = TypeVar("T")
HERE = BrokerInfo(BrokerId(1), "127.0.0.1", 9092)


class Ids:
    """Ids in order, and a few that must not be used."""

    def __init__(self) -> None:
        self._given = iter([UUID(int=0), UUID(int=1), UUID(int=62 << 122)])
        self._count = 0

    def __call__(self) -> UUID:
        self._count += 1
        return next(self._given, UUID(int=self._count << 64))


class BrokenStore:
    """A store that keeps what it has and commits nothing more once it is broken."""

    def __init__(self, disk: dict[bytes, bytes]) -> None:
        self._store = MemoryStateStore(disk)
        self.error: Exception | None = None

    def get(self, key: bytes) -> bytes | None:
        return self._store.get(key)

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self._store.scan(prefix)

    def commit(self, changes: Mapping[bytes, bytes | None]) -> None:
        if self.error is not None:
            raise self.error
        self._store.commit(changes)


def _check(kind: ConfigKind, name: str, configs: Mapping[str, str]) -> None:
    if "bad" in configs.values():
        raise ConfigError(f"{kind} {name} must not be bad.")


def _solo(store: StateStore | dict[bytes, bytes], ids: Ids | None = None) -> SoloController:
    return SoloController(
        MemoryStateStore(store) if isinstance(store, dict) else store,
        cluster_id="test",
        broker=HERE,
        check_configs=_check,
        defaults=lambda: TopicDefaults(partitions=2, replication_factor=3),
        new_uuid=ids or Ids(),
    )


def _run(call: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(call)


def _make(controller: Controller, *names: str) -> list[TopicInfo | RequestError]:
    return _run(controller.create_topics([NewTopic(name) for name in names], validate_only=False))


def _content(image: MetadataImage) -> tuple[object, ...]:
    """What must survive a restart; epochs grow then."""
    topics = {
        name: (topic.topic_id, [one.replicas for one in topic.partitions], topic.configs)
        for name, topic in image.topics.items()
    }
    return topics, image.topic_names, image.broker_configs, image.next_producer_id


def test_what_was_answered_is_there_after_a_restart() -> None:
    disk: dict[bytes, bytes] = {}
    controller = _solo(disk)
    _make(controller, "a", "b", "c")
    _run(controller.delete_topics(["b"]))
    _run(controller.create_partitions([NewPartitions("a", 5)], validate_only=False))
    changes = [
        ConfigChange("topic", "a", {"x": "1"}),
        ConfigChange("broker", ALL_BROKERS, {"y": "2"}),
        ConfigChange("broker", "1", {"z": "3"}),
    ]
    assert _run(controller.change_configs(changes, validate_only=False)) == [None] * 3
    assert _run(controller.take_producer_ids()) == range(1000)
    again = _solo(disk)
    assert _content(again.image) == _content(controller.image)
    assert again.image.version > controller.image.version
    assert _run(again.take_producer_ids()) == range(1000, 2000)


def test_the_store_of_a_real_node_keeps_it_too(tmp_path: Path) -> None:
    store = LmdbStateStore(str(tmp_path / "metadata"))
    controller = _solo(store)
    _make(controller, "a", "b" * 249)
    _run(controller.delete_topics(["a"]))
    store.close()
    store = LmdbStateStore(str(tmp_path / "metadata"))
    assert _content(_solo(store).image) == _content(controller.image)
    store.close()


def test_a_restart_leads_under_new_epochs() -> None:
    disk: dict[bytes, bytes] = {}
    controller = _solo(disk)
    _make(controller, "a")
    assert controller.image.topics["a"].partitions[0].leader_epoch == 0
    assert controller.broker_epoch == 1
    again = _solo(disk)
    assert again.image.topics["a"].partitions[0].leader_epoch == 1
    assert again.broker_epoch == 2
    assert _solo(disk).image.topics["a"].partitions[0].leader_epoch == 2


def test_a_change_writes_its_own_topic_and_the_counters_only() -> None:
    disk: dict[bytes, bytes] = {}
    controller = _solo(disk)
    _make(controller, *(f"t{number}" for number in range(50)))
    before = dict(disk)
    _make(controller, "new")
    differing = {key for key in disk if disk[key] != before.get(key)}
    assert differing == {b"metadata/topic/new", b"metadata/counters"}


def test_a_topic_id_is_never_reserved_and_never_begins_with_a_dash() -> None:
    controller = _solo({})
    _make(controller, "a", "b")
    assert all(topic_id.int > 1 for topic_id in controller.image.topic_names)
    assert UUID(int=62 << 122) not in controller.image.topic_names


def test_dice_that_always_show_the_same_are_a_bug() -> None:
    controller = SoloController(
        MemoryStateStore(),
        cluster_id="test",
        broker=HERE,
        check_configs=_check,
        defaults=lambda: TopicDefaults(1, 1),
        new_uuid=lambda: UUID(int=0),
    )
    with pytest.raises(InvariantError):
        _make(controller, "a")


def test_a_refused_wish_does_not_spoil_its_neighbours() -> None:
    controller = _solo({})
    first, second, third = _make(controller, "a", "a/b", "c")
    assert isinstance(first, TopicInfo)
    assert isinstance(second, RequestError)
    assert second.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert isinstance(third, TopicInfo)
    assert controller.image.topics.keys() == {"a", "c"}


def test_validating_changes_nothing() -> None:
    disk: dict[bytes, bytes] = {}
    controller = _solo(disk)
    _make(controller, "a")
    before, image = dict(disk), controller.image
    _run(controller.create_topics([NewTopic("b")], validate_only=True))
    _run(controller.create_partitions([NewPartitions("a", 9)], validate_only=True))
    _run(controller.change_configs([ConfigChange("topic", "a", {"x": "1"})], validate_only=True))
    assert controller.image is image
    assert disk == before


def test_options_that_cannot_be_obeyed_are_refused_with_the_sentence() -> None:
    controller = _solo({})
    wanted = NewTopic("a", configs={"x": "bad"})
    (answer,) = _run(controller.create_topics([wanted], validate_only=False))
    assert isinstance(answer, RequestError)
    assert answer.code is ErrorCode.INVALID_CONFIG
    assert answer.sentence == "topic a must not be bad."
    _make(controller, "b")
    (refused,) = _run(
        controller.change_configs([ConfigChange("topic", "b", {"x": "bad"})], validate_only=False)
    )
    assert refused is not None
    assert refused.code is ErrorCode.INVALID_CONFIG
    assert controller.image.topics.keys() == {"b"}
    assert not controller.image.topics["b"].configs


def test_a_change_is_checked_together_with_what_stands_already() -> None:
    seen: list[dict[str, str]] = []
    controller = SoloController(
        MemoryStateStore(),
        cluster_id="test",
        broker=HERE,
        check_configs=lambda _kind, _name, configs: seen.append(dict(configs)),
        defaults=lambda: TopicDefaults(1, 1),
        new_uuid=Ids(),
    )
    _make(controller, "a")
    for key in ("x", "y"):
        change = ConfigChange("topic", "a", {key: "1"})
        _run(controller.change_configs([change], validate_only=False))
    assert seen[-1] == {"x": "1", "y": "1"}


@pytest.mark.parametrize("counts", [[10_001], [6_000, 6_000], [1, 10**9]])
def test_too_many_partitions_at_once_refuse_the_whole_request(counts: list[int]) -> None:
    controller = _solo({})
    wanted = [NewTopic(f"t{at}", partitions=count) for at, count in enumerate(counts)]
    answers = _run(controller.create_topics(wanted, validate_only=False))
    assert [getattr(one, "code", None) for one in answers] == [44] * len(counts)
    _make(controller, "a", "b")
    more = [NewPartitions(name, 6_000) for name in ("a", "b")]
    added = _run(controller.create_partitions(more, validate_only=False))
    assert [getattr(one, "code", None) for one in added] == [44, 44]


def test_listeners_have_followed_before_the_answer_comes() -> None:
    controller = _solo({})
    seen: list[int] = []

    async def slow(image: MetadataImage) -> None:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        seen.append(len(image.topics))

    controller.watch(slow)
    _make(controller, "a")
    assert seen == [1]
    _run(controller.delete_topics(["a"]))
    assert seen == [1, 0]


def test_calls_at_the_same_time_take_turns_and_lose_nothing() -> None:
    controller = _solo({})
    versions: list[int] = []

    async def listen(image: MetadataImage) -> None:
        await asyncio.sleep(0)
        versions.append(image.version)

    async def all_at_once() -> list[list[TopicInfo | RequestError]]:
        names = [f"t{number % 10}" for number in range(20)]
        calls = [controller.create_topics([NewTopic(n)], validate_only=False) for n in names]
        return await asyncio.gather(*calls)

    controller.watch(listen)
    answers = [answer for (answer,) in _run(all_at_once())]
    assert sum(isinstance(answer, TopicInfo) for answer in answers) == 10
    refused = [answer for answer in answers if isinstance(answer, RequestError)]
    assert {error.code for error in refused} == {ErrorCode.TOPIC_ALREADY_EXISTS}
    assert len(controller.image.topics) == 10
    assert versions == sorted(set(versions))


@pytest.mark.parametrize("error", [OSError(5, "bad disk"), StorageError("The store is closed.")])
def test_an_error_of_the_store_is_final(error: Exception) -> None:
    disk: dict[bytes, bytes] = {}
    store = BrokenStore(disk)
    controller = _solo(store)
    _make(controller, "a")
    image = controller.image
    store.error = error
    with pytest.raises(StorageError, match="could not be stored"):
        _make(controller, "b")
    store.error = None
    with pytest.raises(StorageError, match="could not be stored"):
        _make(controller, "c")
    with pytest.raises(StorageError):
        _run(controller.take_producer_ids())
    assert controller.image is image
    assert _solo(disk).image.topics.keys() == {"a"}


def test_a_listener_that_fails_is_told_to_the_caller_and_gets_another_chance() -> None:
    controller = _solo({})
    seen: list[set[str]] = []

    async def fails_once(image: MetadataImage) -> None:
        if not seen:
            seen.append(set())
            raise OSError(28, "No space left on device")
        seen.append(set(image.topics))

    followed: list[int] = []

    async def follows(image: MetadataImage) -> None:
        followed.append(image.version)

    controller.watch(fails_once)
    controller.watch(follows)
    with pytest.raises(StorageError, match="is made, but"):
        _make(controller, "a")
    assert controller.image.topics.keys() == {"a"}
    _make(controller, "b")
    assert seen[-1] == {"a", "b"}
    assert len(followed) == 2


def test_a_caller_that_goes_away_does_not_stop_its_change() -> None:
    async def leave_half_way() -> MetadataImage:
        controller = _solo({})
        reached, go_on, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def wait(image: MetadataImage) -> None:
            reached.set()
            await go_on.wait()
            done.set()

        controller.watch(wait)
        call = controller.create_topics([NewTopic("a")], validate_only=False)
        task = asyncio.ensure_future(call)
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go_on.set()
        await done.wait()
        return controller.image

    assert _run(leave_half_way()).topics.keys() == {"a"}


def test_a_stored_value_that_is_garbage_stops_the_start() -> None:
    disk: dict[bytes, bytes] = {}
    _make(_solo(disk), "a")
    damaged = {**disk, b"metadata/topic/a": b"\x01\x02\x03"}
    with pytest.raises(CorruptionError, match="stored topic 'a'"):
        _solo(damaged)


def test_metadata_that_lost_its_counters_stops_the_start() -> None:
    disk: dict[bytes, bytes] = {}
    _make(_solo(disk), "a")
    del disk[b"metadata/counters"]
    with pytest.raises(CorruptionError, match="lost its counters"):
        _solo(disk)


def test_two_topics_of_one_id_stop_the_start() -> None:
    disk: dict[bytes, bytes] = {}
    _make(_solo(disk), "a")
    disk[b"metadata/topic/b"] = disk[b"metadata/topic/a"]
    with pytest.raises(CorruptionError, match="same id"):
        _solo(disk)


def test_a_later_format_stops_the_start_with_a_sentence() -> None:
    disk: dict[bytes, bytes] = {}
    _solo(disk)
    disk[b"metadata/counters"] = b"\x09" + disk[b"metadata/counters"][1:]
    with pytest.raises(StorageError, match="format 9"):
        _solo(disk)


_wishes = st.lists(
    st.tuples(
        st.sampled_from(["create", "delete", "grow", "topic", "broker", "ids"]),
        st.sampled_from(["a", "b", "a.b", "a_b", "1", ""]),
        st.integers(0, 6),
    ),
    max_size=15,
)


async def _wish(controller: SoloController, what: str, name: str, number: int) -> None:
    match what:
        case "create":
            await controller.create_topics([NewTopic(name, number)], validate_only=False)
        case "delete":
            await controller.delete_topics([name])
        case "grow":
            await controller.create_partitions([NewPartitions(name, number)], validate_only=False)
        case "ids":
            await controller.take_producer_ids()
        case _:
            kind: ConfigKind = "topic" if what == "topic" else "broker"
            change = ConfigChange(kind, name, {"x": str(number)}, replace=number == 0)
            await controller.change_configs([change], validate_only=False)


@settings(max_examples=50, deadline=None)
@given(_wishes)
def test_any_history_is_the_same_after_a_restart(history: list[tuple[str, str, int]]) -> None:
    disk: dict[bytes, bytes] = {}
    controller = _solo(disk)

    async def live() -> None:
        for what, name, number in history:
            await _wish(controller, what, name, number)

    _run(live())
    assert _content(_solo(disk).image) == _content(controller.image)
