"""Asks coordinators on behalf of a transaction, until they have answered or the time is up.

I1  one question about the transaction is under way at a time: an end is never asked for while a
    partition is being added
I2  an end is asked for when every batch has its outcome and nothing is in flight
I3  an end without an answer is asked for again, and reported as unknown only when the time is up
I4  offsets of a consumer that is in no group are not sent: coordinators take those without a check

Not here: what may be asked, and what answers mean (`transactions.py`).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol

from ottla.clients import options as rows
from ottla.clients.clock import now_ms
from ottla.clients.cluster import GROUP_KEY_TYPE, TRANSACTION_KEY_TYPE, ClusterClient
from ottla.clients.connection import Connection, error_code_of
from ottla.clients.consumer.protocol import partitions_by_topic
from ottla.clients.consumer.record import GroupMetadata, OffsetAndMetadata
from ottla.clients.consumer.requests import commit_errors
from ottla.clients.dialects import (
    ADD_PARTITIONS_MAX,
    INIT_ROW,
    TWO_PHASE_FROM,
    is_second_dialect,
    version_in,
)
from ottla.clients.errors import (
    NoCommonVersionError,
    NotSentError,
    TransactionError,
    TransactionFailedError,
)
from ottla.clients.options import ClientOptions
from ottla.clients.producer.prepared import PreparedTransaction
from ottla.clients.producer.transactions import Phase, Transactions
from ottla.clients.producer.verdicts import Step, Verdict, judge
from ottla.clients.retrying import STALE_COORDINATOR, Backoff, is_retriable
from ottla.proto.errors import OttlaError, RequestError
from ottla.proto.ids import INT32_MAX, TopicPartition
from ottla.proto.kafka.apis import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    TXN_OFFSET_COMMIT,
    ApiRow,
)
from ottla.proto.kafka.message import Message

_FIRST_WAIT_MS: Final = 20.0

# What an answer means; it may raise instead.
Reader = Callable[[Message], Verdict]
# Whose offsets: a member's, or by its id those of a group that has no say in who reads.
Group = GroupMetadata | str


class EnginePort(Protocol):
    """What is needed of the engine that sends the records."""

    @property
    def cluster(self) -> ClusterClient: ...
    @property
    def lock(self) -> threading.Lock: ...
    async def flush(self) -> None: ...
    async def settle(self) -> None: ...
    def has_live(self) -> bool: ...
    def pump_soon(self) -> None: ...


class Transacting:
    """The coordinators of one producer, for as long as it lives."""

    def __init__(self, core: Transactions, engine: EnginePort, options: ClientOptions) -> None:
        self.core: Final = core
        self._engine: Final = engine
        self._cluster: Final = engine.cluster
        value_of = options.value_of
        self._max_block_s: Final = value_of(rows.MAX_BLOCK_MS) / 1000
        self._timeout_ms: Final = (
            INT32_MAX if core.is_two_phase else value_of(rows.TRANSACTION_TIMEOUT_MS)
        )
        self._wait_max_ms: Final = value_of(rows.RETRY_BACKOFF_MAX_MS)
        self._coordinators: Final = dict[tuple[int, str], int]()
        # Held while something about the transaction is asked (I1).
        self._turn: Final = asyncio.Lock()

    # --- the life of the producer ---

    async def init(
        self, timeout_s: float | None, *, keep_prepared: bool
    ) -> PreparedTransaction | None:
        """Get an identity, which fences whoever had it before; return what was kept prepared."""
        with self._engine.lock:
            self.core.require_new()
        await self._require_served()
        await self._identify(self._deadline(timeout_s), -1, -1, keep_prepared=keep_prepared)
        return self.core.found

    async def _require_served(self) -> None:
        """Raise `TransactionFailedError` at once if the cluster has no transactions."""
        await self._cluster.start(self._max_block_s)
        with suppress(NotSentError):
            connection = await self._cluster.connection(self._cluster.any_broker())
            if END_TXN.key not in connection.versions:
                raise TransactionFailedError(
                    f"{connection} does not serve {END_TXN.name}: this cluster has no transactions."
                )

    async def _identify(
        self, end_ms: float, producer_id: int, epoch: int, *, keep_prepared: bool = False
    ) -> None:
        fields = {
            "transactional_id": self.core.transactional_id,
            "transaction_timeout": self._timeout_ms,
            "producer_id": producer_id,
            "producer_epoch": epoch,
            "enable2_pc": self.core.is_two_phase,
            "keep_prepared_txn": keep_prepared,
        }
        needs_two_phase = self.core.is_two_phase or keep_prepared
        is_second = False

        def version_of(connection: Connection) -> int:
            nonlocal is_second
            is_second = is_second_dialect(connection.features)
            version = connection.version_of(INIT_ROW)
            if needs_two_phase and version < TWO_PHASE_FROM:
                raise NoCommonVersionError(
                    f"transaction.two.phase.commit.enable=true needs a cluster that serves "
                    f"{INIT_ROW.name} in version {TWO_PHASE_FROM}, and {connection} serves it up "
                    f"to {version}. Apache Kafka 4.3 does with unstable.api.versions.enable=true."
                )
            return version

        def read(answer: Message) -> Verdict:
            with self._engine.lock:
                verdict = self.core.answered(Step.INIT, error_code_of(answer.error_code))
                if verdict is Verdict.DONE:
                    kept = answer.get("ongoing_txn_producer_id", -1)
                    self.core.initialised(
                        answer.producer_id,
                        answer.producer_epoch,
                        is_second_dialect=is_second,
                        found=(kept, answer.ongoing_txn_producer_epoch) if kept >= 0 else None,
                    )
            return verdict

        why = await self._ask(INIT_ROW, fields, read, end_ms, version_of=version_of)
        if why is not None:
            raise TransactionError(
                f"the producer {self.core.transactional_id} got no identity in time ({why}); it may"
                " be asked for again."
            )

    async def add_partitions(self) -> None:
        """Tell the coordinator of partitions until it has taken all, or none will be needed."""
        backoff = self._backoff()
        while self.core.to_add:
            async with self._turn:
                with self._engine.lock:
                    wanted = self.core.adding()
                if not wanted:
                    return
                verdict = await self._add(wanted)
            if verdict in (Verdict.AGAIN, Verdict.ELSEWHERE):
                await asyncio.sleep(backoff.failed() / 1000)
            self._engine.pump_soon()

    async def _add(self, wanted: list[TopicPartition]) -> Verdict:
        fields = {
            "v3_and_below_transactional_id": self.core.transactional_id,
            "v3_and_below_producer_id": self.core.producer_id,
            "v3_and_below_producer_epoch": self.core.epoch,
            "v3_and_below_topics": [
                {"name": topic, "partitions": numbers}
                for topic, numbers in partitions_by_topic(wanted).items()
            ],
        }
        try:
            answer = await self._once(
                ADD_PARTITIONS_TO_TXN,
                fields,
                TRANSACTION_KEY_TYPE,
                self.core.transactional_id,
                lambda connection: min(
                    ADD_PARTITIONS_MAX, connection.version_of(ADD_PARTITIONS_TO_TXN)
                ),
            )
        except OttlaError:
            return Verdict.ELSEWHERE
        codes = {
            TopicPartition(topic.name, one.partition_index): error_code_of(one.partition_error_code)
            for topic in answer.results_by_topic_v3_and_below
            for one in topic.results_by_partition
        }
        with self._engine.lock:
            verdict = self.core.added(codes)
        if verdict is Verdict.ELSEWHERE:
            self._coordinators.clear()
        return verdict

    # --- offsets ---

    async def send_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        whose: Group,
        timeout_s: float | None,
    ) -> None:
        """Make a group's offsets part of the transaction; raises if they are not taken."""
        if not offsets:
            return
        end_ms = self._deadline(timeout_s)
        group = self._require_member(whose)
        async with self._turn:
            with self._engine.lock:
                self.core.offsets_begun()
            if not self.core.is_second_dialect:
                fields = {**self._identity(), "group_id": group.group_id}
                why = await self._ask(
                    ADD_OFFSETS_TO_TXN,
                    fields,
                    lambda answer: self._answered(Step.ADD_OFFSETS, answer.error_code, group),
                    end_ms,
                )
                self._require_answer(why, ADD_OFFSETS_TO_TXN)
            why = await self._ask(
                TXN_OFFSET_COMMIT,
                {**self._identity(), **_offset_fields(offsets, group)},
                lambda answer: self._offsets_answered(answer, group),
                end_ms,
                key=(GROUP_KEY_TYPE, group.group_id),
            )
            self._require_answer(why, TXN_OFFSET_COMMIT)

    def _require_member(self, whose: Group) -> GroupMetadata:
        """Return for whom; a coordinator would believe a consumer that is out (I4)."""
        if isinstance(whose, str):
            return GroupMetadata(whose)
        if not whose.is_in:
            with self._engine.lock:
                self.core.require_open()
                self.core.broke(
                    f"the consumer is not in group {whose.group_id}, which may have given its "
                    "partitions to others. Who reads without being a member gives the group's id"
                )
            self.core.raise_error()
        return whose

    def _offsets_answered(self, answer: Message, group: GroupMetadata) -> Verdict:
        codes = map(error_code_of, commit_errors(answer).values())
        worst = max(codes, key=lambda code: judge(Step.COMMIT_OFFSETS, code))
        return self._answered(Step.COMMIT_OFFSETS, worst, group)

    def _answered(self, step: Step, number: int, group: GroupMetadata) -> Verdict:
        with self._engine.lock:
            return self.core.answered(step, error_code_of(number), f"group {group.group_id}")

    def _require_answer(self, why: str | None, row: ApiRow) -> None:
        if why is not None:
            with self._engine.lock:
                self.core.broke(f"{row.name} got no answer in time ({why})")
            self.core.raise_error()

    # --- ends ---

    async def prepare(self, timeout_s: float | None) -> PreparedTransaction | None:
        """Flush, and keep the transaction until somebody decides; None if it is empty."""
        with self._engine.lock:
            self.core.require_two_phase()
            self.core.require_open()
        async with asyncio.timeout_at(self._loop_time(self._deadline(timeout_s))):
            while True:
                await self._engine.flush()
                # Offsets that are being sent are part of it (I1).
                async with self._turn:
                    with self._engine.lock:
                        if not self._engine.has_live():
                            return self.core.prepare()

    async def complete(self, prepared: PreparedTransaction, timeout_s: float | None) -> bool:
        """Commit what is prepared if it is this one, else abort it; return which (KIP-939)."""
        with self._engine.lock:
            is_it = self.core.is_prepared(prepared)
        await self.end(timeout_s, commit=is_it)
        return is_it

    async def end(self, timeout_s: float | None, *, commit: bool) -> None:
        """Commit or abort; `TransactionUnknownError` if that is not certain in time (I3)."""
        waits_s = self._max_block_s if timeout_s is None else timeout_s
        end_ms = self._deadline(timeout_s)
        with self._engine.lock:
            self.core.begin_end(commit=commit)
        try:
            async with asyncio.timeout_at(self._loop_time(end_ms)):
                await self._engine.flush()
                await self._engine.settle()
                await self._turn.acquire()
        except TimeoutError:
            raise self.core.end_unknown(waits_s, "records have no outcome yet") from None
        try:
            await self._end(end_ms, waits_s, commit=commit)
            if self.core.needs_epoch:
                await self._identify(end_ms, self.core.producer_id, self.core.epoch)
        finally:
            self._turn.release()

    async def _end(self, end_ms: float, waits_s: float, *, commit: bool) -> None:
        with self._engine.lock:
            if self.core.phase is not (Phase.COMMITTING if commit else Phase.ABORTING):
                self.core.raise_error()
            if self.core.needs_epoch:
                return
            if not self.core.has_begun:
                self.core.ended()
                return
            self.core.end_asked()

        def read(answer: Message) -> Verdict:
            with self._engine.lock:
                return self.core.end_answered(
                    error_code_of(answer.error_code),
                    answer.get("producer_id", -1),
                    answer.get("producer_epoch", -1),
                )

        fields = {**self._identity(), "committed": commit}
        why = await self._ask(END_TXN, fields, read, end_ms, on_lost=self.core.end_lost)
        if why is not None:
            with self._engine.lock:
                self.core.end_given_up()
            raise self.core.end_unknown(waits_s, why)

    # --- asking ---

    async def _ask(
        self,
        row: ApiRow,
        fields: Mapping[str, Any],
        read: Reader,
        end_ms: float,
        *,
        key: tuple[int, str] | None = None,
        version_of: Callable[[Connection], int] | None = None,
        on_lost: Callable[[], None] = lambda: None,
    ) -> str | None:
        """Ask a coordinator until the answer is final; return why not, if the time is up first."""
        kind, name = key or (TRANSACTION_KEY_TYPE, self.core.transactional_id)
        backoff = self._backoff()
        why = "the coordinator did not answer"
        while True:
            try:
                async with asyncio.timeout_at(self._loop_time(end_ms)):
                    answer = await self._once(row, fields, kind, name, version_of, on_lost)
            except NoCommonVersionError:
                raise
            except TimeoutError:
                return why
            except OttlaError as error:
                verdict, why = Verdict.ELSEWHERE, str(error)
                _raise_if_hopeless(error)
            else:
                verdict = read(answer)
                if verdict not in (Verdict.AGAIN, Verdict.ELSEWHERE):
                    if verdict is not Verdict.DONE:
                        self.core.raise_error()
                    return None
                why = f"{row.name} is refused for the moment"
            if verdict is Verdict.ELSEWHERE:
                self._coordinators.pop((kind, name), None)
            wait_ms = backoff.failed()
            if now_ms() + wait_ms > end_ms:
                return why
            await asyncio.sleep(wait_ms / 1000)

    async def _once(
        self,
        row: ApiRow,
        fields: Mapping[str, Any],
        kind: int,
        name: str,
        version_of: Callable[[Connection], int] | None = None,
        on_lost: Callable[[], None] = lambda: None,
    ) -> Message:
        node_id = self._coordinators.get((kind, name))
        if node_id is None:
            await self._cluster.start(self._max_block_s)
            node_id = await self._cluster.find_coordinator(name, kind)
            self._coordinators[kind, name] = node_id
        try:
            connection = await self._cluster.connection(node_id)
            version = (version_of or self._version_of(row))(connection)
        except OttlaError:
            self._coordinators.pop((kind, name), None)
            raise
        is_answered = False
        try:
            answer = await connection.call(row, fields, version)
            is_answered = True
            return answer
        finally:
            if not is_answered:
                # Also if the time is up: it may have been done.
                on_lost()
                self._coordinators.pop((kind, name), None)

    def _version_of(self, row: ApiRow) -> Callable[[Connection], int]:
        def version_of(connection: Connection) -> int:
            highest = connection.version_of(row)
            return version_in(row, highest, is_second=self.core.is_second_dialect)

        return version_of

    def _identity(self) -> dict[str, Any]:
        return {
            "transactional_id": self.core.transactional_id,
            "producer_id": self.core.producer_id,
            "producer_epoch": self.core.epoch,
        }

    def _backoff(self) -> Backoff:
        return Backoff(_FIRST_WAIT_MS, self._wait_max_ms)

    def _deadline(self, timeout_s: float | None) -> float:
        return now_ms() + (self._max_block_s if timeout_s is None else timeout_s) * 1000

    def _loop_time(self, end_ms: float) -> float:
        return asyncio.get_running_loop().time() + max(0.0, end_ms - now_ms()) / 1000


def _raise_if_hopeless(error: OttlaError) -> None:
    """Raise a refusal to tell the coordinator, unless asking again may help."""
    if isinstance(error, RequestError) and not (
        error.code in STALE_COORDINATOR or is_retriable(error.code)
    ):
        raise TransactionFailedError(
            f"the coordinator cannot be found: {error}", error.code
        ) from error


def _offset_fields(
    offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata
) -> dict[str, Any]:
    topics = [
        {
            "name": topic,
            "partitions": [
                {
                    "partition_index": number,
                    "committed_offset": offsets[TopicPartition(topic, number)].offset,
                    "committed_leader_epoch": offsets[TopicPartition(topic, number)].leader_epoch,
                    "committed_metadata": offsets[TopicPartition(topic, number)].metadata,
                }
                for number in numbers
            ],
        }
        for topic, numbers in partitions_by_topic(offsets).items()
    ]
    return {
        "group_id": group.group_id,
        "generation_id": group.generation,
        "member_id": group.member_id,
        "group_instance_id": group.group_instance_id,
        "topics": topics,
    }
