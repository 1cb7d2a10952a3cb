"""From a request's bytes to whoever serves it, and back.

One table says who serves what. Produce and Fetch are served where their bytes lie; every other
request is decoded, served by an `async` function that returns the answer's fields, and encoded.

H1  every API that is told to clients has its row, and no other has (checked at import)
H2  requests of one connection that are not Produce or Fetch are served one after another, and none
    that follows begins before they end: a client that creates a topic and writes to it may pipeline
H3  a bug in serving one request closes that connection and is told; it stops nobody else

Not here: reading and sending (`connection.py`), the codec (`ottla.proto.kafka`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from ottla.node.broker import Broker
from ottla.node.kafka import (
    cluster,
    configs,
    elections,
    features,
    group_admin,
    group_offsets,
    groups,
    logdirs,
    metadata,
    offsets,
    producers,
    quorum,
    topics,
    transaction_admin,
    transaction_offsets,
    transactions,
)
from ottla.node.kafka.connection import Connection
from ottla.node.kafka.fetch import Fetch
from ottla.node.kafka.produce import Produce
from ottla.node.kafka.requests import Handler, Request
from ottla.node.kafka.slot import Slot
from ottla.node.logs import logger
from ottla.proto.errors import InvariantError, RemoteProtocolError, ensure
from ottla.proto.kafka import apis
from ottla.proto.kafka.apis import API_TABLE, API_VERSIONS, FETCH, PRODUCE, SERVED_BY_KEY, ApiRow
from ottla.proto.kafka.decode import decode_request, prepare_request
from ottla.proto.kafka.encode import encode_response, prepare_response
from ottla.proto.kafka.framing import RequestHead, read_request_head, response_head

_log = logger("kafka.dispatch")

HANDLERS: Final[dict[ApiRow, Handler]] = {
    apis.API_VERSIONS: metadata.api_versions,
    apis.METADATA: metadata.metadata,
    apis.DESCRIBE_CLUSTER: cluster.describe_cluster,
    apis.DESCRIBE_TOPIC_PARTITIONS: metadata.describe_topic_partitions,
    apis.CREATE_TOPICS: topics.create_topics,
    apis.DELETE_TOPICS: topics.delete_topics,
    apis.CREATE_PARTITIONS: topics.create_partitions,
    apis.DESCRIBE_CONFIGS: configs.describe_configs,
    apis.ALTER_CONFIGS: configs.alter_configs,
    apis.INCREMENTAL_ALTER_CONFIGS: configs.incremental_alter_configs,
    apis.LIST_CONFIG_RESOURCES: configs.list_config_resources,
    apis.LIST_OFFSETS: offsets.list_offsets,
    apis.OFFSET_FOR_LEADER_EPOCH: offsets.offset_for_leader_epoch,
    apis.DELETE_RECORDS: offsets.delete_records,
    apis.INIT_PRODUCER_ID: producers.init_producer_id,
    apis.DESCRIBE_PRODUCERS: producers.describe_producers,
    apis.DESCRIBE_LOG_DIRS: logdirs.describe_log_dirs,
    apis.ELECT_LEADERS: elections.elect_leaders,
    apis.DESCRIBE_QUORUM: quorum.describe_quorum,
    apis.UPDATE_FEATURES: features.update_features,
    apis.UNREGISTER_BROKER: cluster.unregister_broker,
    apis.FIND_COORDINATOR: groups.find_coordinator,
    apis.JOIN_GROUP: groups.join_group,
    apis.SYNC_GROUP: groups.sync_group,
    apis.HEARTBEAT: groups.heartbeat,
    apis.LEAVE_GROUP: groups.leave_group,
    apis.OFFSET_COMMIT: group_offsets.offset_commit,
    apis.OFFSET_FETCH: group_offsets.offset_fetch,
    apis.OFFSET_DELETE: group_offsets.offset_delete,
    apis.LIST_GROUPS: group_admin.list_groups,
    apis.DESCRIBE_GROUPS: group_admin.describe_groups,
    apis.DELETE_GROUPS: group_admin.delete_groups,
    apis.ADD_PARTITIONS_TO_TXN: transactions.add_partitions_to_txn,
    apis.ADD_OFFSETS_TO_TXN: transactions.add_offsets_to_txn,
    apis.END_TXN: transactions.end_txn,
    apis.WRITE_TXN_MARKERS: transactions.write_txn_markers,
    apis.TXN_OFFSET_COMMIT: transaction_offsets.txn_offset_commit,
    apis.DESCRIBE_TRANSACTIONS: transaction_admin.describe_transactions,
    apis.LIST_TRANSACTIONS: transaction_admin.list_transactions,
}
ensure(
    {*HANDLERS, PRODUCE, FETCH} == set(API_TABLE),
    "every API that is told is served, and no other",
    rows=[row.name for row in {*HANDLERS, PRODUCE, FETCH} ^ set(API_TABLE)],
)


# What clients ask first, all of them at once when a broker has come back.
_ASKED_FIRST: Final = (API_VERSIONS, apis.METADATA, apis.INIT_PRODUCER_ID, apis.LIST_OFFSETS)
_NEWEST_VERSIONS: Final = 3


def warm_up() -> None:
    """Make the codecs of what is asked first. It takes long enough to be done beforehand."""
    for row in _ASKED_FIRST:
        for version in range(max(row.low, row.high - _NEWEST_VERSIONS + 1), row.high + 1):
            prepare_request(row, version)
            prepare_response(row, version)


def errors_in(answer: object) -> Iterator[int]:
    """Yield the error codes of an answer, wherever they stand in it."""
    match answer:
        case dict():
            if code := answer.get("error_code"):
                yield int(code)
            for field in answer.values():
                if isinstance(field, dict | list | tuple):
                    yield from errors_in(field)
        case list() | tuple():
            for one in answer:
                if isinstance(one, dict):
                    yield from errors_in(one)
        case _:
            return


class Dispatch:
    """Serves the requests of all connections of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker: Final = broker
        self.produce: Final = Produce(broker)
        self.fetch: Final = Fetch(broker)
        self._metrics: Final = broker.metrics
        # Kept, so that a task that nobody waits for is not forgotten half-way.
        self._tasks: Final[set[asyncio.Task[None]]] = set()

    def serve(self, connection: Connection, frame: memoryview) -> None:
        """Serve one request; raises `RemoteProtocolError` where only closing is left."""
        connection.served_us = self._broker.clock.monotonic_us()
        head = read_request_head(frame)
        if head.client_id != connection.client_id:
            connection.client_id = head.client_id
        row = SERVED_BY_KEY[head.api_key]
        try:
            if row is PRODUCE:
                self.produce.serve(connection, head, frame)
            elif row is FETCH:
                self.fetch.serve(connection, head, frame)
            else:
                self._serve_cold(connection, row, head, frame)
        except RemoteProtocolError:
            raise
        except InvariantError:
            connection.close("a bug")
            raise
        except Exception as error:  # noqa: BLE001  # the root of a request
            # H3: without its answer nothing behind it could be answered either.
            _log.exception("request_failed", api=row.name, version=head.api_version, error=error)
            connection.close(f"{row.name} {head.api_version} could not be served")

    def _serve_cold(
        self, connection: Connection, row: ApiRow, head: RequestHead, frame: memoryview
    ) -> None:
        version = head.api_version
        if row is API_VERSIONS and not row.speaks(version):
            # The one request whose version a client may guess wrong (KIP-511).
            slot = connection.open_slot(len(frame))
            self._send(slot, row, 0, head, metadata.unsupported_api_versions())
            return
        # A copy: the frame is lent only until this returns, and the handler waits for others.
        body = decode_request(row, version, bytes(frame[head.body_at :]))
        request = Request(head, row, version, body, connection.host, connection.listener)
        if row is API_VERSIONS:
            connection.client_software = metadata.software_of(body)
        slot = connection.open_slot(len(frame))
        connection.begin_serial()
        task = asyncio.get_running_loop().create_task(
            self._run(connection, slot, request), name=row.name
        )
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            what = {"message": f"{task.get_name()} failed", "exception": error}
            task.get_loop().call_exception_handler(what)

    async def _run(self, connection: Connection, slot: Slot, request: Request) -> None:
        row = request.row
        try:
            fields = await HANDLERS[row](self._broker, request)
            self._send(slot, row, request.version, request.head, fields)
        except InvariantError:
            # A bug that may have touched what others rely on: the process ends (style 6.9).
            slot.fail("a bug")
            raise
        except Exception as error:  # noqa: BLE001  # the root of a task
            # H3: whoever asked sees the connection close; the story is in the log.
            _log.exception("request_failed", api=row.name, version=request.version, error=error)
            slot.fail(f"{row.name} {request.version} could not be served")
        finally:
            connection.end_serial()

    def _send(
        self, slot: Slot, row: ApiRow, version: int, head: RequestHead, fields: dict[str, object]
    ) -> None:
        body = encode_response(row, version, fields)
        start = response_head(row, version, head.correlation_id)
        slot.answer(((len(start) + len(body)).to_bytes(4, "big") + start + body,))
        self._metrics.request_answered(
            row.name,
            version,
            took_ms=(self._broker.clock.monotonic_us() - slot.came_us) / 1000,
            queue_ms=(slot.began_us - slot.came_us) / 1000,
            errors=errors_in(fields),
        )

    async def stop(self) -> None:
        """Answer fetches with what there is, and wait for what is being served."""
        self.fetch.stop()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=5)
