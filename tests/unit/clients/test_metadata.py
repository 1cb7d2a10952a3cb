"""The address book of a client: what is believed, and when it is asked again."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from ottla.clients.metadata import BrokerInfo, MetadataCache
from ottla.proto.errors import ErrorCode
from ottla.proto.kafka.message import Message

ID_A, ID_B = UUID(int=1), UUID(int=2)


def _cache() -> MetadataCache:
    return MetadataCache(max_age_ms=1000, backoff_ms=10)


def _answer(*topics: Message, brokers: tuple[int, ...] = (1, 2, 3)) -> Message:
    told = [Message({"node_id": n, "host": "h", "port": 9000 + n, "rack": None}) for n in brokers]
    return Message({"brokers": told, "cluster_id": "c", "controller_id": 1, "topics": list(topics)})


def _topic(name: str, *leaders: tuple[int, int], code: int = 0, topic_id: UUID = ID_A) -> Message:
    parts = [
        Message(
            {
                "partition_index": at,
                "leader_id": leader,
                "leader_epoch": epoch,
                "replica_nodes": [1, 2],
                "isr_nodes": [1],
                "offline_replicas": [2],
            }
        )
        for at, (leader, epoch) in enumerate(leaders)
    ]
    fields: dict[str, Any] = {"name": name, "topic_id": topic_id, "error_code": code}
    return Message({**fields, "is_internal": False, "partitions": parts})


def _leader(cache: MetadataCache, partition: int = 0) -> int | None:
    found = cache.leader_of("t", partition)
    return None if found is None else found.leader


def test_leaders_replicas_and_ids_are_remembered() -> None:
    cache = _cache()
    cache.update(_answer(_topic("t", (1, 5), (2, 6))), 0)
    assert (_leader(cache), _leader(cache, 1), _leader(cache, 2)) == (1, 2, None)
    found = cache.topic("t")
    assert found is not None
    assert found.partitions[0].in_sync == (1,)
    assert cache.name_of(ID_A) == "t"


def test_an_older_epoch_is_not_believed() -> None:
    cache = _cache()
    cache.update(_answer(_topic("t", (1, 5))), 0)
    cache.update(_answer(_topic("t", (2, 4))), 1)
    assert _leader(cache) == 1
    assert not cache.hint("t", 0, 3, 4)
    assert _leader(cache) == 1


def test_a_hint_moves_a_leader_at_once_and_brings_its_address() -> None:
    cache = _cache()
    cache.update(_answer(_topic("t", (1, 5)), brokers=(1,)), 0)
    assert not cache.hint("t", 0, 9, 6), "nobody knows where broker 9 is"
    assert cache.hint("t", 0, 9, 6, [BrokerInfo(9, "h", 9009)])
    assert _leader(cache) == 9
    assert not cache.hint("t", 0, 9, 6), "it is no news any more"
    assert not cache.hint("t", 7, 9, 6)
    assert not cache.hint("other", 0, 9, 6)


def test_a_topic_that_was_made_again_keeps_nothing_of_the_one_before() -> None:
    cache = _cache()
    cache.update(_answer(_topic("t", (1, 50))), 0)
    cache.update(_answer(_topic("t", (2, 0), topic_id=ID_B)), 1)
    assert _leader(cache) == 2
    assert cache.name_of(ID_A) is None
    assert cache.name_of(ID_B) == "t"


def test_a_leader_that_is_not_a_known_broker_is_none() -> None:
    cache = _cache()
    cache.update(_answer(_topic("t", (-1, 5))), 0)
    assert _leader(cache) is None


def test_it_is_asked_at_once_and_then_by_age() -> None:
    cache = _cache()
    assert cache.due_ms(77) == 77
    cache.asked(77)
    cache.update(_answer(), 80)
    assert cache.due_ms(81) == 1080


def test_what_is_wrong_or_wanted_is_asked_soon_but_not_within_the_back_off() -> None:
    cache = _cache()
    cache.asked(100)
    cache.update(_answer(_topic("t", (1, 0))), 101)
    cache.mark_stale()
    assert cache.due_ms(101) == 110
    cache.asked(110)
    cache.update(_answer(_topic("t", (1, 0))), 111)
    cache.want("t")
    assert cache.due_ms(112) == 1111, "it is known"
    cache.want("u")
    assert cache.due_ms(112) == 120


def test_a_wanted_topic_that_is_not_there_stays_asked_for() -> None:
    cache = _cache()
    cache.want("t")
    cache.asked(0)
    cache.update(_answer(_topic("t", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)), 1)
    assert cache.errors["t"] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert cache.due_ms(1) == 10
    cache.asked(10)
    cache.update(_answer(_topic("t", (1, 0))), 11)
    assert cache.errors == {}
    assert cache.due_ms(12) == 1011


def test_what_went_wrong_while_a_question_was_under_way_is_asked_again() -> None:
    cache = _cache()
    cache.asked(0)
    cache.mark_stale()
    cache.update(_answer(), 5)
    assert cache.due_ms(6) == 10


def test_an_answer_about_all_topics_forgets_the_others() -> None:
    cache = _cache()
    cache.update(_answer(_topic("t", (1, 0)), _topic("u", (1, 0), topic_id=ID_B)), 0)
    cache.update(_answer(_topic("u", (1, 0), topic_id=ID_B)), 1, whole=True)
    assert list(cache.topics) == ["u"]
