"""Transactions from outside: which there are, what they hold, and ending them.

A transactional id is asked of its coordinator; what is open in a partition, of its leader. The two
should agree. Where they do not, the transaction hangs: readers that ask for what is committed wait
behind it, and nobody will end it.

X1  to decide a prepared transaction is harmless to repeat: it is named by producer id and epoch.
    After an attempt without an answer a refusal leaves it open: `TransactionUnknownError`
X2  a marker is written into a partition only with the epochs that the leader told

Not here: being a transactional producer (`clients/producer`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Final

from ottla.clients.admin.answers import (
    HangingTransaction,
    ProducerInfo,
    TransactionInfo,
    TransactionListing,
)
from ottla.clients.admin.asking import Asker, only, refusal_of, retry_on
from ottla.clients.clock import wall_ns
from ottla.clients.cluster import TRANSACTION_KEY_TYPE
from ottla.clients.connection import error_code_of
from ottla.clients.dialects import INIT_ROW, TWO_PHASE_FROM, is_second_dialect, version_in
from ottla.clients.errors import NoTopicError, OutcomeUnknownError, TransactionUnknownError
from ottla.clients.producer.prepared import PreparedTransaction
from ottla.clients.producer.verdicts import SURELY_NOT_ENDED
from ottla.clients.retrying import is_retriable, is_transient
from ottla.proto.errors import ErrorCode, OttlaError, RequestError
from ottla.proto.ids import TopicPartition
from ottla.proto.kafka.apis import (
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    LIST_TRANSACTIONS,
    WRITE_TXN_MARKERS,
)
from ottla.proto.kafka.message import Message

# The time-out of an id that was terminated. Long enough for any coordinator; no transaction of it
# begins unless a producer takes it over.
TERMINATED_TIMEOUT_MS: Final = 1000
_FENCED: Final = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)


class Transactions:
    """Questions about transactions, and their ends, asked from outside."""

    def __init__(self, asker: Asker) -> None:
        self._asker: Final = asker

    # --- looking ---

    async def all(
        self, states: Sequence[str], open_for_ms: int | None, producer_ids: Sequence[int] = ()
    ) -> list[TransactionListing]:
        fields = {
            "state_filters": list(states),
            "producer_id_filters": list(producer_ids),
            "duration_filter": -1 if open_for_ms is None else open_for_ms,
            "transactional_id_pattern": None,
        }

        async def once() -> dict[str, TransactionListing]:
            # All again after a failure: what a node that died coordinated is another's now.
            found = dict[str, TransactionListing]()
            for node_id in tuple(self._asker.cluster.metadata.brokers):
                answer = await self._asker.cluster.call(node_id, LIST_TRANSACTIONS, fields)
                retry_on(answer.error_code)
                refusal = refusal_of(answer)
                if refusal is not None:
                    raise refusal
                found |= {
                    one.transactional_id: TransactionListing(
                        one.transactional_id, one.producer_id, one.transaction_state, node_id
                    )
                    for one in answer.transaction_states
                }
            return found

        listed: dict[str, TransactionListing] = await self._asker.patiently(once, is_transient)
        return [listed[name] for name in sorted(listed)]

    async def describe(self, names: Sequence[str]) -> dict[str, TransactionInfo | RequestError]:
        answers = await asyncio.gather(*map(self._describe, names))
        return dict(zip(names, answers, strict=True))

    async def _describe(self, name: str) -> TransactionInfo | RequestError:
        async def once() -> TransactionInfo | RequestError:
            node_id = await self._asker.coordinator(name, TRANSACTION_KEY_TYPE)
            fields = {"transactional_ids": [name]}
            answer = await self._asker.cluster.call(node_id, DESCRIBE_TRANSACTIONS, fields)
            told = only(answer.transaction_states)
            retry_on(told.error_code)
            return refusal_of(told) or _info(told, node_id)

        found: TransactionInfo | RequestError = await self._answer_of(once)
        return found

    async def producers(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, list[ProducerInfo] | RequestError]:
        answers = await asyncio.gather(*map(self._producers, partitions))
        return dict(zip(partitions, answers, strict=True))

    async def _producers(self, partition: TopicPartition) -> list[ProducerInfo] | RequestError:
        fields = {"topics": [_place(partition)]}

        async def once() -> list[ProducerInfo] | RequestError:
            leader = await self._asker.leader(partition)
            answer = await self._asker.cluster.call(leader, DESCRIBE_PRODUCERS, fields)
            told = only(only(answer.topics).partitions)
            retry_on(told.error_code)
            return refusal_of(told) or [_producer(one) for one in told.active_producers]

        found: list[ProducerInfo] | RequestError = await self._answer_of(once)
        return found

    async def hanging(
        self, partitions: Sequence[TopicPartition], older_than_ms: int
    ) -> list[HangingTransaction]:
        """As Kafka's own tool finds them: open here for long, and not open at a coordinator."""
        told = await self.producers(partitions)
        before_ms = wall_ns() // 1_000_000 - older_than_ms
        suspects = [
            (where, one)
            for where, found in told.items()
            if not isinstance(found, RequestError)
            for one in found
            if one.open_since_offset is not None and one.last_timestamp_ms <= before_ms
        ]
        if not suspects:
            return []
        listed = await self.all((), None, sorted({one.producer_id for _, one in suspects}))
        infos = await self.describe([one.transactional_id for one in listed])
        return hanging_among(
            suspects, [o for o in infos.values() if isinstance(o, TransactionInfo)]
        )

    # --- ending ---

    async def complete(
        self, prepared: PreparedTransaction, *, commit: bool, take_over: bool = False
    ) -> None:
        try:
            await self._complete(prepared, commit=commit)
        except RequestError as refusal:
            if not take_over or refusal.code not in _FENCED:
                raise
            found = await self._describe(prepared.transactional_id)
            if isinstance(found, RequestError) or not _is_kept(found, prepared):
                raise
            holder = await self._hold(prepared)
            await self._complete(holder, commit=commit)

    async def _hold(self, prepared: PreparedTransaction) -> PreparedTransaction:
        """Take it over without ending it, if it is still what is open; return who decides it."""
        name, named = prepared.transactional_id, (prepared.producer_id, prepared.epoch)
        fields = {
            "transactional_id": name,
            "transaction_timeout": TERMINATED_TIMEOUT_MS,
            # By its own name: meanwhile it may have been decided, and another one have begun.
            "producer_id": prepared.producer_id,
            "producer_epoch": prepared.epoch,
            "enable2_pc": True,
            "keep_prepared_txn": True,
        }

        async def once() -> PreparedTransaction:
            node_id = await self._asker.coordinator(name, TRANSACTION_KEY_TYPE)
            answer = await self._asker.cluster.call(node_id, INIT_ROW, fields, TWO_PHASE_FROM)
            retry_on(answer.error_code)
            refusal = refusal_of(answer)
            if refusal is not None:
                raise refusal
            if (answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch) != named:
                raise RequestError(
                    ErrorCode.PRODUCER_FENCED,
                    f"{prepared} is not open any more: somebody else has decided it.",
                )
            return PreparedTransaction(name, answer.producer_id, answer.producer_epoch)

        held: PreparedTransaction = await self._asker.patiently(once, is_transient)
        return held

    async def _complete(self, prepared: PreparedTransaction, *, commit: bool) -> None:
        fields = {
            "transactional_id": prepared.transactional_id,
            "producer_id": prepared.producer_id,
            "producer_epoch": prepared.epoch,
            "committed": commit,
        }
        is_in_doubt = False

        async def once() -> None:
            nonlocal is_in_doubt
            node_id = await self._asker.coordinator(prepared.transactional_id, TRANSACTION_KEY_TYPE)
            connection = await self._asker.cluster.connection(node_id)
            is_second = is_second_dialect(connection.features)
            version = version_in(END_TXN, connection.version_of(END_TXN), is_second=is_second)
            try:
                answer = await self._asker.cluster.call(node_id, END_TXN, fields, version)
            except OutcomeUnknownError:
                is_in_doubt = True
                raise
            code = error_code_of(answer.error_code)
            is_in_doubt |= is_retriable(code) and code not in SURELY_NOT_ENDED
            retry_on(code)
            refusal = refusal_of(answer)
            if refusal is not None:
                raise refusal

        try:
            await self._asker.patiently(once, is_transient)
        except OttlaError as error:
            verb = "commit" if commit else "abort"
            if is_in_doubt:
                # X1
                raise TransactionUnknownError(
                    f"an attempt to {verb} {prepared} got no answer, and then: {error} Ask again to"
                    " find out.",
                    error.code if isinstance(error, RequestError) else None,
                ) from error
            if isinstance(error, RequestError):
                raise RequestError(error.code, _why_not(prepared, verb, error.code)) from error
            raise

    async def terminate(self, name: str) -> None:
        found = await self._describe(name)
        if isinstance(found, RequestError):
            # Or an id that is not there would be made.
            raise found
        fields = {
            "transactional_id": name,
            "transaction_timeout": TERMINATED_TIMEOUT_MS,
            "producer_id": -1,
            "producer_epoch": -1,
            "enable2_pc": False,
            "keep_prepared_txn": False,
        }

        async def once() -> None:
            node_id = await self._asker.coordinator(name, TRANSACTION_KEY_TYPE)
            # To take an id over twice is the same as once, when nobody uses it in between.
            answer = await self._asker.cluster.call(node_id, INIT_ROW, fields)
            retry_on(answer.error_code)
            refusal = refusal_of(answer)
            if refusal is not None:
                raise refusal

        await self._asker.patiently(once, is_transient)

    async def abort(self, partition: TopicPartition, producer: ProducerInfo) -> None:
        marker = {
            "producer_id": producer.producer_id,
            "producer_epoch": producer.epoch,
            "transaction_result": False,
            "topics": [_place(partition)],
            # A coordinator that ended something here before is the one that speaks (X2).
            "coordinator_epoch": max(0, producer.coordinator_epoch),
            "transaction_version": 0,
        }

        async def once() -> None:
            leader = await self._asker.leader(partition)
            fields = {"markers": [marker]}
            answer = await self._asker.cluster.call(leader, WRITE_TXN_MARKERS, fields)
            told = only(only(only(answer.markers).topics).partitions)
            retry_on(told.error_code)
            refusal = refusal_of(told)
            if refusal is not None:
                raise refusal

        await self._asker.patiently(once, is_transient)

    async def _answer_of(self, once: Any) -> Any:
        try:
            return await self._asker.patiently(once, is_transient)
        except RequestError as error:
            return error
        except NoTopicError as error:
            return RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(error))


def hanging_among(
    suspects: Iterable[tuple[TopicPartition, ProducerInfo]], known: Sequence[TransactionInfo]
) -> list[HangingTransaction]:
    """Return the suspects whose coordinator knows nothing of the partition, or of them."""
    by_producer = {one.producer_id: one for one in known}
    found = list[HangingTransaction]()
    for where, producer in suspects:
        info = by_producer.get(producer.producer_id)
        if info is None:
            found.append(HangingTransaction(where, producer, None))
        elif not (_will_end(info) and where in info.partitions):
            found.append(HangingTransaction(where, producer, info.transactional_id))
    return found


def _will_end(info: TransactionInfo) -> bool:
    """Whether the coordinator has a transaction that it will write markers for."""
    return info.is_open or info.state.startswith("Prepare")


def _why_not(prepared: PreparedTransaction, verb: str, code: ErrorCode) -> str:
    told = {
        ErrorCode.PRODUCER_FENCED: "its producer was fenced, so it is aborted, or it had ended",
        ErrorCode.INVALID_PRODUCER_EPOCH: "its producer was fenced, so it is aborted, or it had "
        "ended",
        ErrorCode.INVALID_TXN_STATE: "it is not open, or was decided the other way",
        ErrorCode.INVALID_PRODUCER_ID_MAPPING: "the coordinator does not know it",
    }
    return f"{verb} of {prepared}: {told.get(code, code.sentence.rstrip('.'))}."


def _is_kept(info: TransactionInfo, prepared: PreparedTransaction) -> bool:
    """Whether this very transaction is open, and somebody else is to decide it."""
    named = (prepared.producer_id, prepared.epoch)
    return info.is_open and (info.producer_id, info.epoch) == named


def _place(partition: TopicPartition) -> dict[str, Any]:
    return {"name": partition.topic, "partition_indexes": [partition.partition]}


def _info(told: Message, node_id: int) -> TransactionInfo:
    partitions = tuple(
        sorted(
            TopicPartition(topic.topic, number)
            for topic in told.topics
            for number in topic.partitions
        )
    )
    started_ms = told.transaction_start_time
    return TransactionInfo(
        told.transactional_id,
        told.producer_id,
        told.producer_epoch,
        told.transaction_state,
        told.transaction_timeout,
        started_ms if started_ms >= 0 else None,
        partitions,
        node_id,
    )


def _producer(told: Message) -> ProducerInfo:
    since = told.current_txn_start_offset
    return ProducerInfo(
        told.producer_id,
        told.producer_epoch,
        told.last_sequence,
        told.last_timestamp,
        told.coordinator_epoch,
        since if since >= 0 else None,
    )
