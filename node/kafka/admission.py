"""Produce in a transaction: the coordinator is asked first, where a transaction would begin.

Most batches need no question: their transaction is open in the partition already. For the others
the request waits, and with it whatever its connection sends after it, so that batches stay in their
order.

Not here: the question itself (`node/transactions/admitting.py`), and appending (`produce.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ottla.controller.names import is_internal
from ottla.node.kafka.leading import name_of
from ottla.node.transactions.admitting import admit
from ottla.node.transactions.peers import Admission
from ottla.node.transactions.words import Place
from ottla.proto.errors import ErrorCode, RequestError
from ottla.proto.kafka.produce import ProduceRequest
from ottla.replication.replica import Replica

if TYPE_CHECKING:
    from ottla.node.broker import Broker

# Where a batch says that it is transactional, and whose it is (proto/records/header.py).
_ATTRIBUTES_AT: Final = 22
_TRANSACTIONAL: Final = 0x10
_PRODUCER_AT: Final = 43
_EPOCH_AT: Final = 51
_EPOCH_END: Final = 53
_HEADER_BYTES: Final = 61

_ABORTABLE_SINCE: Final = 11
# Since then a partition is added to its transaction by writing to it.
_ADDS_SINCE: Final = 12

# Producer id and epoch, and the partitions in which it would begin a transaction.
Questions = dict[tuple[int, int], dict[Place, Replica]]
Refusals = Mapping[Place, RequestError]

_SENTENCES: Final = {
    ErrorCode.INVALID_TXN_STATE: "The partition does not belong to an open transaction.",
    ErrorCode.CONCURRENT_TRANSACTIONS: "The transaction before has not all its markers yet.",
    ErrorCode.TRANSACTION_ABORTABLE: "The partition was not added to the transaction.",
    ErrorCode.NOT_ENOUGH_REPLICAS: "The coordinator of the transaction gave no answer yet.",
}


def questions_of(broker: Broker, request: ProduceRequest) -> Questions:
    """Return what has to be asked before this can be written."""
    questions: Questions = {}
    image = broker.controller.image
    for topic in request.topics:
        name, _ = name_of(image, topic.name, topic.topic_id)
        if name is None or is_internal(name):
            continue
        for index, records in topic.partitions:
            if records is None or len(records) < _HEADER_BYTES:
                continue
            if not records[_ATTRIBUTES_AT] & _TRANSACTIONAL:
                continue
            replica = broker.replicas.get(name, index)
            if replica is None:
                continue
            # Asked now, and not when it is written: whoever begins to lead there has asked nobody.
            broker.hurry(replica.partition)
            if not replica.is_leader:
                continue
            producer_id = int.from_bytes(records[_PRODUCER_AT:_EPOCH_AT], "big", signed=True)
            epoch = int.from_bytes(records[_EPOCH_AT:_EPOCH_END], "big", signed=True)
            if not replica.log.producers.may_write(producer_id, epoch):
                questions.setdefault((producer_id, epoch), {})[name, index] = replica
    return questions


async def refusals_of(
    broker: Broker, transactional_id: str, version: int, questions: Questions
) -> Refusals:
    """Ask, and return which partitions are not to be written to."""
    refusals = dict[Place, RequestError]()
    for (producer_id, epoch), replicas in questions.items():
        asked = Admission(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            places=(),
            adds=version >= _ADDS_SINCE,
        )
        for place, code in (await admit(broker, asked, replicas)).items():
            if code is not ErrorCode.NONE:
                told = _told(code, version)
                refusals[place] = RequestError(told, _SENTENCES.get(told, ""))
    return refusals


def _told(code: ErrorCode, version: int) -> ErrorCode:
    """Return what a producer of that version is told; as in Kafka."""
    match code:
        case ErrorCode.TRANSACTION_ABORTABLE if version < _ABORTABLE_SINCE:
            return ErrorCode.INVALID_TXN_STATE
        case ErrorCode.PRODUCER_FENCED:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        case ErrorCode.CONCURRENT_TRANSACTIONS if version >= _ADDS_SINCE:
            return code
        case (
            ErrorCode.CONCURRENT_TRANSACTIONS
            | ErrorCode.NOT_COORDINATOR
            | ErrorCode.COORDINATOR_NOT_AVAILABLE
            | ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            | ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            | ErrorCode.OPERATION_NOT_ATTEMPTED
            | ErrorCode.UNKNOWN_SERVER_ERROR
        ):
            # A producer sends again after this, and looks for no other leader. What the coordinator
            # does not know is led here; and what nobody can name costs no transaction (rule 63).
            return ErrorCode.NOT_ENOUGH_REPLICAS
        case _:
            return code
