"""Who does what to a cluster while it is being broken: plans, drawn from a seed.

A workload is topics and processes. A process does one thing at a time, at its own pace, and draws
what comes next from dice of its own: the same seed gives every process the same list of things to
do, however long each takes.

| name | what it is |
| --- | --- |
| W1   | two topics of three partitions; six producers with acks=all, three consumers |
| W1S  | the same with segments that roll every second and are soon deleted from the front |
| W1R  | the same with segments that roll every second, and nothing is deleted |
| W2   | the same as W1 with acks=0, 1 and all, by lot |
| W3   | the same two topics; two groups, whose members come, leave, crash and hang |
| W4   | the same two topics; librdkafka, idempotent, retrying; consumers of both kinds |
| W5   | topics made, grown, changed and deleted, some again under the same name |
| WC   | a compacted topic with few keys |
| WT   | two topics, written in transactions; some read in them, some prepare for others to end |

Names are joined by `+`.

Half of the raw producers are stubborn: they stay with the leader that they know until it refuses
or falls silent, as long as a patient client does. They are the ones that a leader without a mandate
could deceive.

Not here: how it is done (`runner/`).

W1  the same name, seed and nodes give the same plan, and the same list of draws of each process
W2  every partition of a plan has a process that reads it
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from random import Random
from typing import Final, NamedTuple

from ottla.chaos.history import Place
from ottla.proto.errors import ConfigError

ALL: Final = -1
COPIES: Final = 3
_PARTITIONS: Final = 3
_LANES: Final = 4
# Records in a transaction, at most.
_TRANSACTION_LANES: Final = 6
# One poll of so many goes back to records that were read already.
_REWIND_ONE_OF: Final = 64
# One write of so many to a compacted topic deletes its key.
_TOMBSTONE_ONE_OF: Final = 12
# How long members live, in seconds: those of a group that rebalances all the time, and others.
_SHORT_S: Final = (3.0, 9.0)
_LONG_S: Final = (8.0, 25.0)


class Client(Enum):
    """What kind of client a process is."""

    RAW_PRODUCER = "raw producer"
    RAW_CONSUMER = "raw consumer"
    LIBRDKAFKA_PRODUCER = "librdkafka producer"
    LIBRDKAFKA_CONSUMER = "librdkafka consumer"
    RAW_MEMBER = "raw member of a group"
    OWN_MEMBER = "member of a group with our own client"
    LIBRDKAFKA_MEMBER = "librdkafka member of a group"
    LIBRDKAFKA_TRANSACTOR = "librdkafka producer of transactions"
    OWN_TRANSACTOR = "producer of transactions with our own client"
    OWN_PREPARER = "producer of transactions with our own client, which others decide"
    LIBRDKAFKA_COMMITTED_READER = "librdkafka consumer of what is committed"
    OWN_COMMITTED_READER = "consumer of what is committed with our own client"
    ADMIN = "admin"


TRANSACTORS: Final = frozenset(
    {Client.LIBRDKAFKA_TRANSACTOR, Client.OWN_TRANSACTOR, Client.OWN_PREPARER}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """A topic that is there before anything else happens."""

    name: str
    # For each partition its nodes; the first of them is to lead it.
    assignments: tuple[tuple[int, ...], ...]
    options: Mapping[str, str]

    @property
    def places(self) -> tuple[Place, ...]:
        return tuple(Place(self.name, index) for index in range(len(self.assignments)))

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.options.get("cleanup.policy", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessPlan:
    """One process; a librdkafka producer is as many as it has lanes."""

    name: str
    client: Client
    # Decides all that it draws.
    seed: str
    places: tuple[Place, ...] = ()
    per_s: float = 10.0
    # By lot for each write.
    acks: tuple[int, ...] = (ALL,)
    # Records have keys, which few share.
    is_keyed: bool = False
    is_stubborn: bool = False
    is_idempotent: bool = False
    lanes: int = 1
    # Of who writes in transactions: what it reads in them. Its offsets are those of its group.
    reads: tuple[Place, ...] = ()
    # Of a member: its group, and whether its lives are short.
    group: str = ""
    is_restless: bool = False


class SendDraw(NamedTuple):
    """What a producer does next."""

    place: Place
    acks: int
    # The key is deleted.
    is_tombstone: bool = False


class Ending(Enum):
    """How a member of a group ends."""

    LEAVE = "leave"
    # It says nothing: the group finds out by its silence.
    CRASH = "crash"
    # It falls silent for longer than the group waits, and then commits what it knows.
    HANG = "hang"


class Life(NamedTuple):
    """One time in a group, from joining to the end."""

    seconds: float
    ending: Ending


class Churn(Enum):
    """A step in the short life of a topic."""

    CREATE = "create"
    WRITE = "write"
    GROW = "grow"
    MIN_ISR_1 = "min.insync.replicas=1"
    MIN_ISR_2 = "min.insync.replicas=2"
    DELETE = "delete"
    # Made again at once, under the same name.
    CREATE_AGAIN = "create again"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadPlan:
    """All topics and all processes of a run."""

    name: str
    seed: int
    nodes: tuple[int, ...]
    topics: tuple[TopicPlan, ...]
    processes: tuple[ProcessPlan, ...] = field(default=())
    # Processes of these workloads that the system has nothing for.
    left_out: tuple[str, ...] = ()

    def options(self) -> dict[str, dict[str, str]]:
        return {topic.name: dict(topic.options) for topic in self.topics}

    def groups(self) -> dict[str, tuple[Place, ...]]:
        """Return every group, and what it reads."""
        return {one.group: one.reads or one.places for one in self.processes if one.group}

    def transactors(self) -> dict[str, str]:
        """Return by transactional id what kind of client writes under it."""
        return {one.name: one.client.value for one in self.processes if one.client in TRANSACTORS}

    def transactional_groups(self) -> tuple[str, ...]:
        """Return the groups whose offsets are committed in transactions."""
        return tuple(one.group for one in self.processes if one.client in TRANSACTORS and one.group)

    def transactional_topics(self) -> frozenset[str]:
        """Return the topics that are written in transactions."""
        writers = (one for one in self.processes if one.client in TRANSACTORS)
        return frozenset(place.topic for one in writers for place in one.places)


def plan_for(
    name: str,
    seed: int,
    nodes: Sequence[int],
    *,
    pace: float = 1.0,
    can_prepare: bool = True,
) -> WorkloadPlan:
    """Return the plan of a workload, or of several joined by `+`.

    A run of hours has a pace below 1: its history is read into memory to be judged. Who prepares
    transactions is left out where the system has none that wait for a decision.
    """
    parts = name.split("+")
    unknown = [part for part in parts if part not in _MAKERS]
    if unknown:
        raise ConfigError(
            f"There is no workload {unknown[0]!r}; there are {', '.join(sorted(_MAKERS))}."
        )
    topics, processes = dict[str, TopicPlan](), list[ProcessPlan]()
    for part in dict.fromkeys(parts):
        made_topics, made_processes = _MAKERS[part](part, seed, tuple(nodes))
        topics |= {topic.name: topic for topic in made_topics}
        processes += made_processes
    left_out = [one for one in processes if one.client is Client.OWN_PREPARER and not can_prepare]
    return WorkloadPlan(
        name=name,
        seed=seed,
        nodes=tuple(nodes),
        topics=tuple(topics.values()),
        processes=tuple(
            replace(one, per_s=one.per_s * pace) for one in processes if one not in left_out
        ),
        left_out=tuple(one.name for one in left_out),
    )


def workload_names() -> list[str]:
    return sorted(_MAKERS)


# ── Draws ─────────────────────────────────────────────────────────────────────────────────────


def sends(process: ProcessPlan) -> Iterator[SendDraw]:
    """Yield what a producer does, without end."""
    dice = Random(process.seed)
    while True:
        place, acks = dice.choice(process.places), dice.choice(process.acks)
        is_tombstone = process.is_keyed and dice.randrange(_TOMBSTONE_ONE_OF) == 0
        yield SendDraw(place, acks, is_tombstone)


def rewinds(process: ProcessPlan) -> Iterator[int]:
    """Yield, for each poll, by how many records the consumer goes back before it; mostly 0."""
    dice = Random(process.seed)
    while True:
        yield dice.randint(1, 300) if dice.randrange(_REWIND_ONE_OF) == 0 else 0


def lives(process: ProcessPlan) -> Iterator[Life]:
    """Yield the lives of a member, without end."""
    dice = Random(process.seed)
    # A library cannot be killed alone: it says goodbye when its program ends it.
    is_raw = process.client is Client.RAW_MEMBER
    endings = [*Ending] if is_raw else [Ending.LEAVE, Ending.LEAVE, Ending.HANG]
    while True:
        seconds = dice.uniform(*(_SHORT_S if process.is_restless else _LONG_S))
        yield Life(seconds, dice.choice(endings))


def churns(process: ProcessPlan) -> Iterator[list[Churn]]:
    """Yield lives of topics, without end; each begins with its creation."""
    dice = Random(process.seed)
    middle = (Churn.GROW, Churn.MIN_ISR_1, Churn.MIN_ISR_2, Churn.WRITE)
    while True:
        steps = [Churn.CREATE, Churn.WRITE, *dice.choices(middle, k=dice.randint(1, 4))]
        if dice.random() < 0.4:
            steps += [Churn.DELETE, Churn.CREATE_AGAIN, Churn.WRITE, Churn.WRITE]
        # Most go, so that the cluster stays small.
        if dice.randrange(4):
            steps.append(Churn.DELETE)
        yield steps


# ── Makers ────────────────────────────────────────────────────────────────────────────────────

_Made = tuple[list[TopicPlan], list[ProcessPlan]]


def rotations(nodes: Sequence[int], partitions: int, first: int = 0) -> tuple[tuple[int, ...], ...]:
    """Return for each partition its replicas, so that every node is first of some."""
    count = min(COPIES, len(nodes))
    return tuple(
        tuple(nodes[(first + index + step) % len(nodes)] for step in range(count))
        for index in range(partitions)
    )


def _topics(
    names: Sequence[str], nodes: Sequence[int], options: Mapping[str, str] | None = None
) -> list[TopicPlan]:
    least = min(2, len(nodes))
    chosen = {"min.insync.replicas": str(least), **(options or {})}
    return [
        TopicPlan(name=name, assignments=rotations(nodes, _PARTITIONS, at), options=chosen)
        for at, name in enumerate(names)
    ]


def _places(topics: Sequence[TopicPlan]) -> tuple[Place, ...]:
    return tuple(place for topic in topics for place in topic.places)


def _seed(seed: int, name: str) -> str:
    return f"{seed}/{name}"


def _raw_producers(
    prefix: str, count: int, seed: int, places: tuple[Place, ...], **more: object
) -> list[ProcessPlan]:
    return [
        ProcessPlan(
            name=(name := f"{prefix}{number}"),
            client=Client.RAW_PRODUCER,
            seed=_seed(seed, name),
            places=places,
            is_stubborn=number % 2 == 0,
            **more,  # type: ignore[arg-type]  # the callers below give what a plan has
        )
        for number in range(1, count + 1)
    ]


def _consumers(
    prefix: str,
    count: int,
    seed: int,
    places: tuple[Place, ...],
    client: Client = Client.RAW_CONSUMER,
) -> list[ProcessPlan]:
    """Return consumers of which each reads most partitions, and at least two read each."""
    return [
        ProcessPlan(
            name=(name := f"{prefix}{number + 1}"),
            client=client,
            seed=_seed(seed, name),
            places=tuple(one for at, one in enumerate(places) if count < 3 or at % count != number),
            per_s=8.0,
            is_stubborn=number == 0,
        )
        for number in range(count)
    ]


def _w1(name: str, seed: int, nodes: tuple[int, ...]) -> _Made:
    topics = _topics(("orders", "events"), nodes)
    return topics, [
        *_raw_producers("w", 6, seed, _places(topics), per_s=40.0),
        *_consumers("c", 3, seed, _places(topics)),
    ]


def _w1s(name: str, seed: int, nodes: tuple[int, ...]) -> _Made:
    small = {
        "segment.ms": "1000",
        "retention.ms": "20000",
        "file.delete.delay.ms": "1000",
        "index.interval.bytes": "200",
    }
    topics = _topics(("rolling-a", "rolling-b"), nodes, small)
    return topics, [
        *_raw_producers("s", 6, seed, _places(topics), per_s=40.0),
        *_consumers("sc", 3, seed, _places(topics)),
    ]


def _w1r(name: str, seed: int, nodes: tuple[int, ...]) -> _Made:
    small = {"segment.ms": "1000", "index.interval.bytes": "200"}
    topics = _topics(("rolling-a", "rolling-b"), nodes, small)
    return topics, [
        *_raw_producers("s", 6, seed, _places(topics), per_s=40.0),
        *_consumers("sc", 3, seed, _places(topics)),
    ]


def _w2(name: str, seed: int, nodes: tuple[int, ...]) -> _Made:
    topics = _topics(("orders", "events"), nodes)
    return topics, [
        *_raw_producers("m", 6, seed, _places(topics), per_s=40.0, acks=(0, 1, 1, ALL, ALL)),
        *_consumers("mc", 3, seed, _places(topics)),
    ]


def _members(
    prefix: str, count: int, client: Client, seed: int, places: tuple[Place, ...], **more: object
) -> list[ProcessPlan]:
    return [
        ProcessPlan(
            name=(name := f"{prefix}{number}"),
            client=client,
            seed=_seed(seed, name),
            places=places,
            per_s=6.0,
            **more,  # type: ignore[arg-type]  # the callers below give what a plan has
        )
        for number in range(1, count + 1)
    ]


def _w3(name: str, seed: int, nodes: tuple[int, ...]) -> _Made:
    topics = _topics(("orders", "events"), nodes)
    places = _places(topics)
    restless = {"group": "restless", "is_restless": True}
    settled = {"group": "settled"}
    return topics, [
        *_raw_producers("g", 4, seed, places, per_s=25.0),
        *_members("gr", 3, Client.RAW_MEMBER, seed, places, **restless),
        *_members("go", 2, Client.OWN_MEMBER, seed, places, **settled),
        *_members("gk", 1, Client.LIBRDKAFKA_MEMBER, seed, places, **settled),
    ]


def _w4(name: str, seed: int, nodes: tuple[int, ...]) -> _Made:
    topics = _topics(("orders", "events"), nodes)
    producers = [
        ProcessPlan(
            name=(own := f"k{number}"),
            client=Client.LIBRDKAFKA_PRODUCER,
            seed=_seed(seed, own),
            places=_places(topics),
            per_s=110.0,
            is_idempotent=True,
            lanes=_LANES,
        )
        for number in (1, 2)
    ]
    return topics, [
        *producers,
        *_consumers("kr", 1, seed, _places(topics)),
        *_consumers("kc", 1, seed, _places(topics), Client.LIBRDKAFKA_CONSUMER),
    ]


def _w5(name: str, seed: int, nodes: tuple[int, ...]) -> _Made:
    churn = [
        ProcessPlan(
            name=(own := f"a{number}"), client=Client.ADMIN, seed=_seed(seed, own), per_s=5.0
        )
        for number in (1, 2)
    ]
    return [], churn


def _wc(name: str, seed: int, nodes: tuple[int, ...]) -> _Made:
    compacted = {
        "cleanup.policy": "compact",
        "segment.ms": "1000",
        "min.cleanable.dirty.ratio": "0.01",
        "min.compaction.lag.ms": "0",
        "max.compaction.lag.ms": "2000",
        "delete.retention.ms": "1000",
        "file.delete.delay.ms": "1000",
    }
    topics = _topics(("latest",), nodes, compacted)
    return topics, [
        *_raw_producers("l", 2, seed, _places(topics), per_s=30.0, is_keyed=True),
        *_consumers("lc", 1, seed, _places(topics)),
    ]


def _wt(name: str, seed: int, nodes: tuple[int, ...]) -> _Made:
    topics = _topics(("ledger-a", "ledger-b"), nodes)
    places = _places(topics)

    def one(own: str, client: Client, per_s: float, **more: object) -> ProcessPlan:
        return ProcessPlan(
            name=own,
            client=client,
            seed=_seed(seed, own),
            places=places,
            per_s=per_s,
            **more,  # type: ignore[arg-type]  # the callers below give what a plan has
        )

    writing = {"is_idempotent": True, "lanes": _TRANSACTION_LANES}
    # Each reads what it and the other write, so that they could read in a circle.
    first = {**writing, "reads": topics[0].places + topics[1].places[:1], "group": "tx1"}
    second = {**writing, "reads": topics[1].places + topics[0].places[:1], "group": "tx2"}
    third = {**writing, "reads": topics[0].places, "group": "tp2"}
    return topics, [
        one("tk1", Client.LIBRDKAFKA_TRANSACTOR, 2.0, **writing),
        one("to1", Client.OWN_TRANSACTOR, 2.0, **writing),
        one("tx1", Client.LIBRDKAFKA_TRANSACTOR, 1.5, **first),
        one("tx2", Client.OWN_TRANSACTOR, 1.5, **second),
        one("tp1", Client.OWN_PREPARER, 1.5, **writing),
        one("tp2", Client.OWN_PREPARER, 1.0, **third),
        one("tr1", Client.LIBRDKAFKA_COMMITTED_READER, 3.0),
        one("tr2", Client.OWN_COMMITTED_READER, 3.0),
    ]


_MAKERS: Final = {
    "W1": _w1, "W1R": _w1r, "W1S": _w1s, "W2": _w2, "W3": _w3, "W4": _w4, "W5": _w5, "WC": _wc,
    "WT": _wt,
}  # fmt: skip
