"""TxnOffsetCommit: how far a group has come, if a transaction is committed.

The offsets are written at once and shown with the commit marker. That the partition of the group
belongs to the transaction is asked of the transaction's coordinator; new clients leave it to that
question to add it (KIP-890).

Not here: OffsetCommit (`group_offsets.py`), and keeping offsets (`node/groups/in_transactions.py`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from ottla.node.groups.group import Group
from ottla.node.groups.in_transactions import TransactionalProducer, commit_in_transaction
from ottla.node.groups.ledger import Ledger
from ottla.node.groups.writing import into
from ottla.node.kafka.group_offsets import changes_of, judged
from ottla.node.kafka.requests import Request
from ottla.node.transactions.admitting import admit
from ottla.node.transactions.peers import Admission
from ottla.proto.errors import ErrorCode, RequestError
from ottla.proto.kafka.message import Message

if TYPE_CHECKING:
    from ottla.node.broker import Broker

_ABORTABLE_SINCE: Final = 4
_ADDS_SINCE: Final = 5
_NO_GENERATION: Final = -1
# The coordinator of the transaction, or what it knows.
_AWAY: Final = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.OPERATION_NOT_ATTEMPTED,
    ErrorCode.UNKNOWN_SERVER_ERROR,
)


async def txn_offset_commit(broker: Broker, request: Request) -> dict[str, Any]:
    body = request.body
    topics = judged(broker, body, by_id=False)
    code: ErrorCode | None
    try:
        code = await _committed(broker, request, changes_of(broker, body, topics, by_id=False))
    except RequestError as refusal:
        code = refusal.code
    told = [
        {
            "name": topic.name,
            "partitions": [
                {
                    "partition_index": one.partition_index,
                    "error_code": wrong or code or ErrorCode.NONE,
                }
                for one, wrong in partitions
            ],
        }
        for topic, partitions in topics
    ]
    return {"throttle_time": 0, "topics": told}


async def _committed(broker: Broker, request: Request, changes: Any) -> ErrorCode | None:
    body = request.body
    if not body.transactional_id:
        raise RequestError(ErrorCode.INVALID_REQUEST)
    ledger = broker.groups.ledger_of(body.group_id)
    _require_member(broker, ledger, body)
    if not changes:
        return None
    await _admit(broker, ledger, request)
    # Asked again: others were served while the coordinator answered.
    ledger.require()
    group = _require_member(broker, ledger, body)
    ledger.groups.setdefault(group.group_id, group)
    by = TransactionalProducer(body.producer_id, body.producer_epoch)
    future: asyncio.Future[ErrorCode | None] = asyncio.get_running_loop().create_future()
    commit_in_transaction(ledger, body.group_id, by, changes, into(future))
    code = await future
    is_large = code is ErrorCode.UNKNOWN_SERVER_ERROR
    return ErrorCode.INVALID_COMMIT_OFFSET_SIZE if is_large else code


def _require_member(broker: Broker, ledger: Ledger, body: Message) -> Group:
    """Return the group, or raise `RequestError` if this is no word of a member of it now."""
    generation = body.get("generation_id", _NO_GENERATION)
    group = ledger.groups.get(body.group_id)
    if group is None:
        if generation >= 0:
            raise RequestError(ErrorCode.ILLEGAL_GENERATION)
        return Group(body.group_id)
    code = group.commit_refusal(
        body.get("member_id", ""),
        body.get("group_instance_id", None),
        generation,
        broker.clock.monotonic_ms(),
        in_transaction=True,
    )
    if code is not ErrorCode.NONE:
        raise RequestError(code)
    return group


async def _admit(broker: Broker, ledger: Ledger, request: Request) -> None:
    body, version, replica = request.body, request.version, ledger.replica
    if replica.log.producers.may_write(body.producer_id, body.producer_epoch):
        return
    asked = Admission(
        transactional_id=body.transactional_id,
        producer_id=body.producer_id,
        producer_epoch=body.producer_epoch,
        places=(),
        adds=version >= _ADDS_SINCE,
    )
    place = (replica.partition.topic, replica.partition.partition)
    code = (await admit(broker, asked, {place: replica}))[place]
    if code is not ErrorCode.NONE:
        raise RequestError(_told(code, version))


def _told(code: ErrorCode, version: int) -> ErrorCode:
    """Return what a client of that version is told; as in Kafka."""
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code in _AWAY or (code is ErrorCode.CONCURRENT_TRANSACTIONS and version < _ADDS_SINCE):
        # This one is the right coordinator, of the group: the other one is not to be looked for.
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return code
