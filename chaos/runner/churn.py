"""Makes topics, writes to them, changes them and deletes them, some again under the same name.

Each request is sent once. What is not answered stays unknown, and its topic is left alone from then
on: it may be there or not, and nothing is claimed of it.

Of the topics that outlived their story each process leaves so many, and deletes the oldest beyond:
a mix of an hour would otherwise be one of thousands of partitions.

Writes name the topic by its id: to a broker that has not heard of the deletion yet, the name alone
would mean the topic that is gone.

Not here: the topics that are there all the time (`runner.py`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.chaos.clock import wall_ms
from ottla.chaos.history import Kind, Place
from ottla.chaos.outcomes import is_kept, outcome_of
from ottla.chaos.payload import LIFE_MARK, encode_payload
from ottla.chaos.runner.lines import Lines
from ottla.chaos.runner.pace import Pace
from ottla.chaos.runner.raw_producer import ANSWER_S, NOT_SENT, REQUEST_MS, told_code
from ottla.chaos.runner.recorder import ADMIN, SEND, Recorder
from ottla.chaos.runner.requests import (
    PRODUCE_BY_ID,
    create_fields,
    delete_fields,
    grow_fields,
    leaders_in,
    option_fields,
    produce_fields,
    produce_result,
)
from ottla.chaos.workload import ALL, Churn, ProcessPlan, churns, rotations
from ottla.clients.connection import error_code_of
from ottla.clients.errors import NotSentError, OutcomeUnknownError
from ottla.proto.errors import ErrorCode
from ottla.proto.kafka.apis import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    INCREMENTAL_ALTER_CONFIGS,
    PRODUCE,
    ApiRow,
)
from ottla.proto.kafka.message import Message
from ottla.proto.kafka.uuids import UUID

_CHANGE_S: Final = 10.0
_WRITES: Final = 3
_LEADER_TRIES: Final = 20
_PAUSE_S: Final = 0.05
_MIN_ISR: Final = "min.insync.replicas"
_LEFT: Final = 12


@dataclass(slots=True)
class _Topic:
    """A topic that this process made, and has not deleted."""

    name: str
    # Counts its lives.
    life: int
    topic_id: UUID
    partitions: int
    options: dict[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return f"{self.name}{LIFE_MARK}{self.life}"


class AdminChurn:
    """One process, from `live` until somebody says that it is over."""

    def __init__(
        self,
        plan: ProcessPlan,
        addresses: Mapping[int, str],
        recorder: Recorder,
        is_over: Callable[[], bool],
    ) -> None:
        self._plan: Final = plan
        self._lines: Final = Lines(addresses, plan.name)
        self._nodes: Final = sorted(addresses)
        self._recorder: Final = recorder
        self._is_over: Final = is_over
        self._turn = 0
        self._counter = 0
        # Topics that are there or may be, the oldest first.
        self._left: Final = deque[_Topic]()
        # By label: topics that are surely there, and their options.
        self.kept: Final = dict[str, dict[str, str]]()
        self._partitions: Final = dict[str, int]()

    def places(self) -> list[Place]:
        """Return the partitions that are surely there, whatever any node says."""
        return [
            Place(label, partition)
            for label in self.kept
            for partition in range(self._partitions[label])
        ]

    async def live(self) -> None:
        pace, number = Pace(self._plan.per_s), 0
        try:
            for steps in churns(self._plan):
                number += 1
                if not await self._life(pace, f"churn-{self._plan.name}-{number}", steps):
                    return
                await self._delete_oldest(pace)
        finally:
            await self._lines.close()

    async def _life(self, pace: Pace, name: str, steps: list[Churn]) -> bool:
        """Lead one topic through its life; return false when it is all over."""
        topic: _Topic | None = None
        lives = 0
        for step in steps:
            await pace.due()
            if self._is_over():
                self._keep(topic)
                return False
            if step in (Churn.CREATE, Churn.CREATE_AGAIN):
                lives += 1
                topic = await self._create(name, lives)
            elif topic is not None:
                before, topic = topic, await self._step(topic, step)
                if topic is None and step is not Churn.DELETE:
                    self._left.append(before)
            if topic is None and step is not Churn.DELETE:
                return True
        self._keep(topic)
        return True

    def _keep(self, topic: _Topic | None) -> None:
        if topic is not None:
            self.kept[topic.label] = topic.options
            self._partitions[topic.label] = topic.partitions
            self._left.append(topic)

    async def _delete_oldest(self, pace: Pace) -> None:
        while len(self._left) > _LEFT and not self._is_over():
            await pace.due()
            topic = self._left.popleft()
            self.kept.pop(topic.label, None)
            await self._step(topic, Churn.DELETE)

    async def _step(self, topic: _Topic, step: Churn) -> _Topic | None:
        """Return the topic as it is afterwards; None if it is gone, or nobody knows."""
        match step:
            case Churn.WRITE:
                for _ in range(_WRITES):
                    await self._write(topic)
                return topic
            case Churn.GROW:
                fields = grow_fields(topic.name, topic.partitions + 1)
                done, _ = await self._change(CREATE_PARTITIONS, fields, "results", step, topic)
                topic.partitions += done
                return topic if done else None
            case Churn.DELETE:
                fields = delete_fields(topic.name)
                done, _ = await self._change(DELETE_TOPICS, fields, "responses", step, topic)
                return None
            case _:
                value = step.value.partition("=")[2]
                fields = option_fields(topic.name, _MIN_ISR, value)
                done, _ = await self._change(
                    INCREMENTAL_ALTER_CONFIGS, fields, "responses", step, topic
                )
                # The least that it ever was is what all its writes can be held to.
                topic.options[_MIN_ISR] = min(topic.options[_MIN_ISR], value)
                return topic if done else None

    async def _create(self, name: str, life: int) -> _Topic | None:
        options = {_MIN_ISR: str(min(2, len(self._nodes)))}
        assignments = rotations(self._nodes, 1, self._turn)
        made = _Topic(name, life, UUID(int=0), 1, options)
        fields = create_fields(name, assignments, options)
        done, result = await self._change(CREATE_TOPICS, fields, "topics", Churn.CREATE, made)
        if not done or result is None:
            return None
        made.topic_id = result.topic_id
        return made

    # -- requests --------------------------------------------------------------------------------

    def _next_node(self) -> int:
        self._turn += 1
        return self._nodes[self._turn % len(self._nodes)]

    async def _change(
        self, row: ApiRow, fields: Mapping[str, Any], results: str, step: Churn, topic: _Topic
    ) -> tuple[bool, Message | None]:
        """Ask one node for a change; return whether it was done, and what was answered."""
        node = self._next_node()
        told = f"{step.value} {topic.label}"
        index = self._recorder.begin(self._plan.name, ADMIN, value=told, node=node)
        try:
            line = await self._lines.to(node)
            answer = await line.call(row, fields, timeout_s=_CHANGE_S)
        except NotSentError:
            self._recorder.end(index, Kind.FAIL, error=NOT_SENT)
        except OutcomeUnknownError as error:
            self._recorder.end(
                index, Kind.UNKNOWN, error=type(error).__name__.removesuffix("Error")
            )
            self._lines.cut(node)
        else:
            (result,) = answer.get(results)
            code = result.error_code
            is_done = code == ErrorCode.NONE
            kind = Kind.UNKNOWN if code == ErrorCode.REQUEST_TIMED_OUT else Kind.FAIL
            error_name = None if is_done else error_code_of(code).name
            self._recorder.end(index, Kind.OK if is_done else kind, error=error_name)
            return is_done, result
        return False, None

    async def _leader(self, place: Place) -> int | None:
        for _ in range(_LEADER_TRIES):
            answer = await self._lines.metadata(self._next_node(), [place.topic])
            seen = None if answer is None else leaders_in(answer).get(place)
            if seen is not None and seen.leader in self._lines.addresses:
                return seen.leader
            if self._is_over():
                return None
            await asyncio.sleep(_PAUSE_S)
        return None

    async def _write(self, topic: _Topic) -> None:
        self._counter += 1
        partition = self._counter % topic.partitions
        node = await self._leader(Place(topic.name, partition))
        if node is None:
            return
        place, value = Place(topic.label, partition), f"{self._plan.name}-{self._counter}"
        index = self._recorder.begin(
            self._plan.name, SEND, place=place, value=value, acks=ALL, node=node
        )
        fields = produce_fields(
            Place(topic.name, partition),
            encode_payload(place, value),
            key=None,
            acks=ALL,
            timeout_ms=REQUEST_MS,
            now_ms=wall_ms(),
            topic_id=topic.topic_id,
        )
        was_sent = False
        try:
            line = await self._lines.to(node)
            was_sent = True
            answer = await line.call(PRODUCE, fields, PRODUCE_BY_ID, timeout_s=ANSWER_S)
        except NotSentError:
            self._recorder.end(index, Kind.FAIL, error=NOT_SENT)
        except OutcomeUnknownError as error:
            told = type(error).__name__.removesuffix("Error")
            self._recorder.end(index, outcome_of(None, was_sent, ALL), error=told)
            self._lines.cut(node)
        else:
            result = produce_result(answer)
            code = None if result is None else result.code
            offset = -1 if result is None else result.offset
            kind = outcome_of(code, True, ALL, offset=offset)
            self._recorder.end(
                index,
                kind,
                offset=offset if kind is Kind.OK else None,
                error=told_code(code),
                is_kept=is_kept(code),
            )
