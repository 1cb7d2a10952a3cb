"""A stream of topic creations, deletions and changes, and a notebook of what was answered.

Every request is sent once. Only if it surely did not happen (it never left, or no controller was
active) is it sent again, perhaps elsewhere. What was not answered stays unknown, and its topic is
left alone from then on: it may have happened, or may yet.

So a request is answered `acknowledged`, or its fate is unknown, or somebody applied it twice: a
name that was asked for once can be refused as taken for no other reason.

Not here: what happens to the nodes in the meantime.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from ottla.clients.connection import Connection
from ottla.clients.errors import NotSentError, OutcomeUnknownError
from ottla.proto.errors import ErrorCode
from ottla.proto.kafka.apis import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    METADATA,
    ApiRow,
)
from ottla.proto.kafka.message import Message
from ottla.proto.kafka.uuids import UUID, ZERO_UUID

OPTION: Final = "retention.ms"
# So that a value tells how many changes were made.
FIRST_VALUE: Final = 1_000_000
ANSWER_S: Final = 10.0
CONNECT_S: Final = 2.0
GIVE_UP_S: Final = 30.0
_CHANGE_MS: Final = 8_000
_PAUSE_S: Final = 0.01
_STOP_S: Final = 30.0
_TOPIC: Final = 2
_SET: Final = 0
_KEPT_ONE_OF: Final = 4
_PROBES_MAX: Final = 5


class Fate(Enum):
    """What is known of a request."""

    ACKNOWLEDGED = "acknowledged"
    UNKNOWN = "unknown"
    # It surely did not happen, and nobody is left to ask.
    NOT_DONE = "not done"


@dataclass(slots=True)
class TopicNotes:
    """One topic: what must hold of it, and what may."""

    created: Fate | None = None
    deleted: Fate | None = None
    topic_id: UUID = ZERO_UUID
    # What was acknowledged last; and what may have come after it.
    value: int | None = None
    value_maybe: int | None = None
    partitions: int = 1
    partitions_maybe: int | None = None

    @property
    def values(self) -> set[int]:
        return {one for one in (self.value, self.value_maybe) if one is not None}

    @property
    def counts(self) -> set[int]:
        return {one for one in (self.partitions, self.partitions_maybe) if one is not None}


@dataclass(slots=True)
class Notebook:
    """What was asked and what was answered."""

    topics: dict[str, TopicNotes] = field(default_factory=dict)
    # Answers that an honest cluster cannot give.
    strange: list[str] = field(default_factory=list)
    fates: Counter[str] = field(default_factory=Counter)
    # When each acknowledged request began and was answered.
    times: list[tuple[float, float]] = field(default_factory=list)


class Asker:
    """Asks one node after the other, and knows what an answer means."""

    def __init__(
        self,
        addresses: Sequence[str],
        first: int,
        notebook: Notebook,
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        self._addresses: Final = addresses
        # Nobody has to try again any more.
        self._is_over: Final = is_over
        self._at = first
        self._notebook: Final = notebook
        self._connection: Connection | None = None

    async def ask(
        self, row: ApiRow, fields: Mapping[str, Any], results: str, what: str
    ) -> tuple[Fate, Message | None]:
        """Return the fate of one request; it is sent again only if it surely did not happen."""
        end = time.monotonic() + GIVE_UP_S
        while (began := time.monotonic()) < end:
            try:
                connection = await self._connected()
                answer = await connection.call(row, fields, timeout_s=ANSWER_S)
            except NotSentError:
                if self._is_over():
                    return self._noted(Fate.NOT_DONE), None
                await self._go_on()
                continue
            except OutcomeUnknownError:
                await self._go_on()
                return self._noted(Fate.UNKNOWN), None
            (result,) = answer.get(results)
            if result.error_code == ErrorCode.NOT_CONTROLLER:
                if self._is_over():
                    return self._noted(Fate.NOT_DONE), None
                await asyncio.sleep(_PAUSE_S)
                continue
            if result.error_code == ErrorCode.REQUEST_TIMED_OUT:
                return self._noted(Fate.UNKNOWN), None
            if result.error_code != ErrorCode.NONE:
                code = ErrorCode(result.error_code).name
                self._notebook.strange.append(f"{what}: {code} {result.get('error_message')}")
                return self._noted(Fate.UNKNOWN), None
            self._notebook.times.append((began, time.monotonic()))
            return self._noted(Fate.ACKNOWLEDGED), result
        raise AssertionError(f"{what}: nobody took it within {GIVE_UP_S:.0f} s")

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()

    def _noted(self, fate: Fate) -> Fate:
        self._notebook.fates[fate.value] += 1
        return fate

    async def _connected(self) -> Connection:
        if self._connection is None or self._connection.is_closed:
            host, _, port = self._addresses[self._at % len(self._addresses)].rpartition(":")
            self._connection = await Connection.open(host, int(port), connect_timeout_s=CONNECT_S)
        return self._connection

    async def _go_on(self) -> None:
        """Turn to the next node."""
        await self.close()
        self._connection = None
        self._at += 1
        await asyncio.sleep(_PAUSE_S)


def set_value(topic: str, value: int) -> dict[str, Any]:
    config = {"name": OPTION, "config_operation": _SET, "value": str(value)}
    resource = {"resource_type": _TOPIC, "resource_name": topic, "configs": [config]}
    return {"resources": [resource], "validate_only": False}


def new_topic(name: str, partitions: int = 1) -> dict[str, Any]:
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": 1,
        "assignments": [],
        "configs": [{"name": OPTION, "value": str(FIRST_VALUE)}],
    }


def create_fields(*topics: dict[str, Any]) -> dict[str, Any]:
    return {"topics": list(topics), "timeout": _CHANGE_MS, "validate_only": False}


class AdminStream:
    """Several clients in a thread, each with topics of its own, until `stop`."""

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        clients: int = 3,
        name: str = "client",
        notebook: Notebook | None = None,
    ) -> None:
        self.notebook: Final = Notebook() if notebook is None else notebook
        self._name: Final = name
        self._addresses: Final = tuple(addresses)
        self._clients: Final = clients
        self._stopping: Final = threading.Event()
        self._error: BaseException | None = None
        self._thread: Final = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> Notebook:
        """End it when the requests on the way are answered; raises what went wrong in it."""
        self._stopping.set()
        self._thread.join(_STOP_S)
        if self._error is not None:
            raise self._error
        assert not self._thread.is_alive(), "the stream does not end"
        return self.notebook

    def _run(self) -> None:
        try:
            asyncio.run(self._live())
        except BaseException as error:  # noqa: BLE001  (handed to whoever stops the stream)
            self._error = error

    async def _live(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(self._clients):
                group.create_task(self._client(number))

    async def _client(self, number: int) -> None:
        asker = Asker(self._addresses, number, self.notebook, self._stopping.is_set)
        try:
            made = 0
            while not self._stopping.is_set():
                await self._topic_life(asker, f"{self._name}-{number}-{made}", made)
                made += 1
        finally:
            await asker.close()

    async def _topic_life(self, asker: Asker, name: str, number: int) -> None:
        notes = self.notebook.topics[name] = TopicNotes()
        fields = create_fields(new_topic(name))
        notes.created, result = await asker.ask(CREATE_TOPICS, fields, "topics", f"create {name}")
        notes.value = FIRST_VALUE
        if result is None:
            return
        notes.topic_id = result.topic_id
        for step in (self._change, self._change, self._grow):
            await asyncio.sleep(_PAUSE_S)
            if not await step(asker, name, notes):
                return
        # Most go again, so that the cluster stays small.
        if number % _KEPT_ONE_OF:
            named = {"name": name, "topic_id": ZERO_UUID}
            fields = {"topics": [named], "topic_names": [name], "timeout": _CHANGE_MS}
            notes.deleted, _ = await asker.ask(DELETE_TOPICS, fields, "responses", f"delete {name}")

    async def _change(self, asker: Asker, name: str, notes: TopicNotes) -> bool:
        assert notes.value is not None
        notes.value_maybe = notes.value + 1
        fields = set_value(name, notes.value_maybe)
        what = f"set {name} to {notes.value_maybe}"
        fate, _ = await asker.ask(INCREMENTAL_ALTER_CONFIGS, fields, "responses", what)
        if fate is Fate.ACKNOWLEDGED:
            notes.value, notes.value_maybe = notes.value_maybe, None
        elif fate is Fate.NOT_DONE:
            notes.value_maybe = None
        return fate is Fate.ACKNOWLEDGED

    async def _grow(self, asker: Asker, name: str, notes: TopicNotes) -> bool:
        notes.partitions_maybe = notes.partitions + 1
        wish = {"name": name, "count": notes.partitions_maybe, "assignments": None}
        fields = {"topics": [wish], "timeout": _CHANGE_MS, "validate_only": False}
        fate, _ = await asker.ask(CREATE_PARTITIONS, fields, "results", f"grow {name}")
        if fate is Fate.ACKNOWLEDGED:
            notes.partitions, notes.partitions_maybe = notes.partitions_maybe, None
        elif fate is Fate.NOT_DONE:
            notes.partitions_maybe = None
        return fate is Fate.ACKNOWLEDGED


@dataclass(frozen=True, slots=True)
class TopicSeen:
    """A topic as one node tells of it."""

    topic_id: UUID
    partitions: int
    value: int | None


def read_topics(address: str) -> dict[str, TopicSeen]:
    """Return all topics as one node knows them."""
    return asyncio.run(_read_topics(address))


async def _read_topics(address: str) -> dict[str, TopicSeen]:
    host, _, port = address.rpartition(":")
    async with await Connection.open(host, int(port), connect_timeout_s=CONNECT_S) as connection:
        fields = {
            "topics": None,
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": False,
        }
        found = (await connection.call(METADATA, fields)).topics
        values = dict[str, int]()
        names = [one.name for one in found]
        for start in range(0, len(names), 100):
            values |= await _values_of(connection, names[start : start + 100])
    return {
        one.name: TopicSeen(one.topic_id, len(one.partitions), values.get(one.name))
        for one in found
    }


async def _values_of(connection: Connection, names: Sequence[str]) -> dict[str, int]:
    resources = [
        {"resource_type": _TOPIC, "resource_name": name, "configuration_keys": [OPTION]}
        for name in names
    ]
    fields = {
        "resources": resources,
        "include_synonyms": False,
        "include_documentation": False,
    }
    results = (await connection.call(DESCRIBE_CONFIGS, fields)).results
    return {
        result.resource_name: int(config.value)
        for result in results
        for config in result.configs
        if config.name == OPTION and config.value is not None
    }


def judge(notebook: Notebook, seen: Mapping[str, TopicSeen], *, others: set[str]) -> None:
    """Raise unless what is seen follows from what was answered."""
    assert not notebook.strange, f"applied twice, or refused for no reason: {notebook.strange[:5]}"
    for name, notes in notebook.topics.items():
        found = seen.get(name)
        if notes.deleted is Fate.ACKNOWLEDGED:
            assert found is None, f"{name} was deleted, and is there again"
            continue
        if found is None:
            is_lost = notes.created is Fate.ACKNOWLEDGED and notes.deleted is not Fate.UNKNOWN
            assert not is_lost, f"{name} was acknowledged, and is gone"
            continue
        assert notes.created is not Fate.NOT_DONE, f"{name} was never sent, and is there"
        if notes.created is Fate.ACKNOWLEDGED:
            assert found.topic_id == notes.topic_id, f"{name} is another topic now"
        assert found.partitions in notes.counts, f"{name} has {found.partitions} partitions"
        assert found.value in notes.values, f"{name} has {found.value}, and not {notes.values}"
    strangers = set(seen) - set(notebook.topics) - others
    assert not strangers, f"nobody made these: {sorted(strangers)[:5]}"


def make_topics(address: str, *topics: dict[str, Any]) -> None:
    """Create topics, or fail."""

    async def make() -> None:
        host, _, port = address.rpartition(":")
        async with await Connection.open(host, int(port)) as connection:
            answer = await connection.call(CREATE_TOPICS, create_fields(*topics))
            assert all(one.error_code == ErrorCode.NONE for one in answer.topics), answer

    asyncio.run(make())


def first_acknowledged(addresses: Sequence[str], topic: str, value: int) -> float:
    """Set an option through every node; return when one of them acknowledged it first."""

    async def one(address: str) -> float:
        notebook = Notebook()
        asker = Asker([address], 0, notebook)
        try:
            for _ in range(_PROBES_MAX):
                fields = set_value(topic, value)
                fate, _ = await asker.ask(INCREMENTAL_ALTER_CONFIGS, fields, "responses", "probe")
                if fate is Fate.ACKNOWLEDGED:
                    return notebook.times[-1][1]
        finally:
            await asker.close()
        raise AssertionError(f"{address} acknowledged nothing: {notebook.strange}")

    async def all_of_them() -> float:
        return min(await asyncio.gather(*map(one, addresses)))

    return asyncio.run(all_of_them())
