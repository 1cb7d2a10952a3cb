"""Fetch: offsets, sizes, epochs, sessions, and who asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final
from uuid import UUID

from ottla.proto.kafka.apis import FETCH
from tests.interop.differential.case import Ask, Case, Send, Talk, many, one
from tests.interop.differential.messages import Fields
from tests.interop.differential.stage import EMPTY, FILLED, TRIMMED, TRIMMED_START

# The end of FILLED.
END: Final = 12
UNKNOWN_ID: Final = UUID(int=9)
# By name, by name in flexible versions, by id, and the last.
SOME: Final = (4, 11, 12, 13, 18)
WITH_SESSIONS: Final = (7, 11, 12, 13, 18)


def partition(index: int = 0, **changes: Any) -> dict[str, Any]:
    told = {
        "partition": index,
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 100_000,
    }
    return {**told, **changes}


def request(
    *partitions: dict[str, Any], topic: str = FILLED, topic_id: UUID | None = None, **changes: Any
) -> Callable[[Ask], Fields]:
    def fields(ask: Ask) -> Fields:
        known = ask.ids.get(topic, topic_id)
        return {
            "replica_id": -1,
            "max_wait": 0,
            "min_bytes": 0,
            "max_bytes": 1_000_000,
            "isolation_level": 0,
            "session_id": 0,
            "session_epoch": -1,
            "topics": [{"topic": topic, "topic_id": known, "partitions": list(partitions)}],
            "forgotten_topics_data": [],
            **changes,
        }

    return fields


def _fetch(
    name: str, *partitions: dict[str, Any], versions: Iterable[int] | None = SOME, **changes: Any
) -> Case:
    asked = partitions or (partition(),)
    return one(name, FETCH, request(*asked, **changes), versions=versions)


def _twice(ask: Ask) -> Talk:
    """Whoever asks for a session is told in the answer whether there is one."""
    fields = request(partition(), session_epoch=0)(ask)
    answer = yield Send(FETCH, ask.version, fields)
    told = answer["session_id"] if isinstance(answer, dict) else 0
    if told == 0:
        # No session: a client goes on with full requests.
        yield Send(FETCH, ask.version, fields)
    else:
        again = {**fields, "session_id": told, "session_epoch": 1, "topics": []}
        yield Send(FETCH, ask.version, again)


_OFFSETS: Final = (
    _fetch("from the start", versions=None),
    _fetch("two partitions", partition(0), partition(1), versions=None),
    _fetch("from a batch's first record", partition(fetch_offset=6)),
    _fetch("from the middle of a batch", partition(fetch_offset=7)),
    _fetch("from the end", partition(fetch_offset=END)),
    _fetch("from behind the end", partition(fetch_offset=END + 1), versions=None),
    _fetch("offset -1", partition(fetch_offset=-1)),
    _fetch("offset 9223372036854775807", partition(fetch_offset=2**63 - 1)),
    _fetch("an empty partition", topic=EMPTY),
    _fetch("before the start of the log", partition(fetch_offset=TRIMMED_START - 1), topic=TRIMMED),
    _fetch("at the start of the log", partition(fetch_offset=TRIMMED_START), topic=TRIMMED),
)

_SIZES: Final = (
    *(
        _fetch(f"partition_max_bytes {size}", partition(partition_max_bytes=size))
        for size in (0, 1, 100, 200, 2**31 - 1)
    ),
    *(_fetch(f"max_bytes {size}", max_bytes=size) for size in (0, 1, 100, 200, 2**31 - 1)),
    _fetch("partition_max_bytes -1", partition(partition_max_bytes=-1)),
    _fetch("max_bytes -1", max_bytes=-1),
    _fetch(
        "max_bytes 1 for two partitions", partition(0), partition(0, fetch_offset=3), max_bytes=1
    ),
    _fetch("min_bytes more than there is", min_bytes=2**31 - 1),
    _fetch("min_bytes -1", min_bytes=-1),
    _fetch("max_wait -1", max_wait=-1),
    _fetch("max_wait 2147483647 and data there", max_wait=2**31 - 1, min_bytes=1),
    _fetch("waits in vain", partition(fetch_offset=END), max_wait=50, min_bytes=1),
)

_EPOCHS: Final = (
    *(
        _fetch(
            f"current leader epoch {epoch}",
            partition(current_leader_epoch=epoch),
            versions=(9, 12, 13, 18),
        )
        for epoch in (0, 1, 2**31 - 1, -2)
    ),
    *(
        _fetch(
            f"last fetched epoch {epoch}",
            partition(last_fetched_epoch=epoch),
            versions=(12, 13, 18),
        )
        for epoch in (0, 1, 2**31 - 1, -2)
    ),
    _fetch(
        "last fetched epoch 0, behind the end",
        partition(last_fetched_epoch=0, fetch_offset=99),
        versions=(12, 13, 18),
    ),
)

_WHO: Final = (
    *(
        _fetch(f"replica id {replica}", replica_id=replica, versions=(4, 11, 12, 14))
        for replica in (0, 1, 2, 99)
    ),
    *(
        _fetch(f"replica id {replica}", replica_id=replica, versions=(4, 12))
        for replica in (-2, -3)
    ),
    *(
        _fetch(
            f"replica state {replica}",
            replica_state={"replica_id": replica, "replica_epoch": -1},
            versions=(15, 18),
        )
        for replica in (0, 1, 2)
    ),
    *(_fetch(f"isolation level {level}", isolation_level=level) for level in (1, 2, -1)),
    _fetch("a rack", rack_id="somewhere", versions=(11, 12, 18)),
)

_TOPICS: Final = (
    _fetch("an unknown topic", topic="missing", topic_id=UNKNOWN_ID, versions=None),
    _fetch("an empty name, or the zero id", topic=""),
    _fetch("a name that cannot be", topic="../../etc/x", topic_id=UUID(int=10)),
    *(_fetch(f"partition {index}", partition(index)) for index in (2, -1, 2**31 - 1)),
    _fetch("a known and an unknown partition", partition(0), partition(9)),
    _fetch("a partition twice", partition(), partition(fetch_offset=3)),
    one("no topics", FETCH, lambda ask: {**request()(ask), "topics": []}, versions=SOME),
    one("no partitions in a topic", FETCH, request(), versions=SOME),
    _fetch("3000 partitions", *(partition(index) for index in range(3000)), versions=(4, 18)),
)

_SESSIONS: Final = (
    many("a session is asked for", FETCH, _twice, versions=WITH_SESSIONS),
    _fetch("an unknown session", session_id=77, session_epoch=1, versions=WITH_SESSIONS),
    _fetch("an unknown session, epoch 0", session_id=77, session_epoch=0, versions=WITH_SESSIONS),
    _fetch("an unknown session, epoch -1", session_id=77, versions=WITH_SESSIONS),
    _fetch("no session, epoch 5", session_epoch=5, versions=WITH_SESSIONS),
    _fetch("session -1, epoch 1", session_id=-1, session_epoch=1, versions=WITH_SESSIONS),
    _fetch("epoch -2", session_epoch=-2, versions=WITH_SESSIONS),
    _fetch(
        "a forgotten topic that was never fetched",
        forgotten_topics_data=[{"topic": "missing", "topic_id": UNKNOWN_ID, "partitions": [1]}],
        versions=WITH_SESSIONS,
    ),
)

FETCH_CASES: Final[tuple[Case, ...]] = (
    *_OFFSETS,
    *_SIZES,
    *_EPOCHS,
    *_WHO,
    *_TOPICS,
    *_SESSIONS,
)
