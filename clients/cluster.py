"""The cluster behind `bootstrap.servers`, for as long as a client lives: whom to ask, and asking.

Producer, consumer and admin stand on this. It finds the cluster, keeps `metadata.py` fresh with one
task, and gives out one connection per broker (`peers.py`).

K1  an address list that leads nowhere is told as `BootstrapError` by the deadline, with a reason
    for each address; one at which something speaks that is not Kafka is told at once
K2  metadata is asked by one task only, when `MetadataCache.due_ms` says so; everybody else waits
K3  when no known broker answers any more, the addresses of `bootstrap.servers` are tried again

Everything runs on one event loop. Not here: what an error code in an answer means.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from ottla.clients import options as rows
from ottla.clients.clock import now_ms
from ottla.clients.connection import Connection, error_code_of
from ottla.clients.errors import (
    BootstrapError,
    BrokenAnswerError,
    ClientClosedError,
    NoTopicError,
    NotSentError,
    UnreachableError,
)
from ottla.clients.metadata import BrokerInfo, MetadataCache, TopicInfo
from ottla.clients.metrics import Metrics
from ottla.clients.options import ClientOptions
from ottla.clients.peers import Peers
from ottla.clients.retrying import Backoff
from ottla.proto.errors import ErrorCode, OttlaError, RequestError
from ottla.proto.kafka.apis import FIND_COORDINATOR, METADATA, ApiRow
from ottla.proto.kafka.message import Message
from ottla.proto.kafka.uuids import ZERO_UUID
from ottla.proto.options.endpoints import Address
from ottla.proto.options.option import shown_name

GROUP_KEY_TYPE: Final = 0
TRANSACTION_KEY_TYPE: Final = 1
_ADVICE: Final = (
    "Is a broker running there? bootstrap.servers must name the address that brokers give to "
    "clients, 9092 by default."
)
# No topic by these codes, however often it is asked for.
_NEVER: Final = frozenset({ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.TOPIC_AUTHORIZATION_FAILED})


class ClusterClient:
    """The cluster as one client uses it; started once, closed once."""

    def __init__(self, options: ClientOptions, metrics: Metrics | None = None) -> None:
        self.options: Final = options
        self.metrics: Final = metrics if metrics is not None else Metrics()
        value_of = options.value_of
        self.metadata: Final = MetadataCache(
            max_age_ms=value_of(rows.METADATA_MAX_AGE_MS),
            backoff_ms=value_of(rows.RETRY_BACKOFF_MS),
        )
        self.peers: Final = Peers(options, self.metrics)
        # Called on the event loop after each answer about metadata, and after each hint.
        self.listeners: Final = list[Callable[[], None]]()
        self._may_create = options.role is not rows.Role.ADMIN and value_of(
            rows.ALLOW_AUTO_CREATE_TOPICS
        )
        self._wants_all = False
        self._wake: Final = asyncio.Event()
        self._waiters: Final = set[asyncio.Future[None]]()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False
        # Why the last question about metadata failed.
        self._last_error: OttlaError | None = None

    # --- life ---

    async def start(self, timeout_s: float) -> None:
        """Find the cluster, or raise `BootstrapError` by the deadline (K1)."""
        self._require_open()
        if self._task is None:
            self._task = asyncio.create_task(self._keep_metadata())
        try:
            async with asyncio.timeout(timeout_s):
                while not self.metadata.brokers:
                    self._raise_if_hopeless()
                    await self.metadata_changed()
        except TimeoutError:
            raise self._bootstrap_error(timeout_s) from None

    async def close(self) -> None:
        """End every connection; whoever waits is told that the client is closed."""
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        await self.peers.close()
        self._tell_waiters()

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    # --- metadata ---

    def refresh_soon(self) -> None:
        """Say that something known is wrong; the task asks as soon as the back-off allows."""
        self.metadata.mark_stale()
        self._wake.set()

    def want(self, *names: str) -> None:
        """Keep these topics known from now on."""
        self.metadata.want(*names)
        self._wake.set()

    def want_all(self, *, wanted: bool = True) -> None:
        """Keep all topics known, as a pattern needs it; or no longer."""
        self._wants_all = wanted
        self.refresh_soon()

    def hint(
        self, topic: str, partition: int, leader: int, epoch: int, endpoints: list[BrokerInfo]
    ) -> bool:
        """Take what a broker says of a leader (KIP-951); return whether it was news."""
        is_news = self.metadata.hint(topic, partition, leader, epoch, endpoints)
        if is_news:
            self.metrics.count("metadata.hints")
            self._changed()
        return is_news

    async def metadata_changed(self) -> None:
        """Return after the next answer about metadata, good or bad."""
        self._require_open()
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)
        self._require_open()

    async def refresh(self) -> None:
        """Return when what is wanted has been asked once more; errors are in the cache."""
        self.refresh_soon()
        await self.metadata_changed()

    async def topic(self, name: str, timeout_s: float) -> TopicInfo:
        """Return what is known of a topic, asked for if need be; or raise `NoTopicError`.

        A cluster that makes topics when they are needed is given time to do so. Where nobody can be
        reached, `BootstrapError` says so.
        """
        self.want(name)
        await self.start(timeout_s)
        refusals = 0
        try:
            async with asyncio.timeout(timeout_s):
                while (found := self.metadata.topic(name)) is None:
                    code = self.metadata.errors.get(name)
                    refusals += code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    if code in _NEVER or (refusals > 1 and not self._may_create):
                        break
                    await self.metadata_changed()
        except TimeoutError:
            pass
        found = self.metadata.topic(name)
        if found is None:
            raise self._no_topic(name, timeout_s)
        return found

    # --- asking ---

    async def connection(self, node_id: int) -> Connection:
        """Return the connection to this broker, or raise `NotSentError`."""
        broker = self.metadata.broker(node_id)
        if broker is None:
            raise NotSentError(f"broker {node_id} is not in the cluster, as far as is known.")
        try:
            return await self.peers.to(broker)
        except OttlaError:
            self.refresh_soon()
            raise

    async def call(
        self,
        node_id: int,
        row: ApiRow,
        fields: Mapping[str, Any],
        version: int | None = None,
        *,
        timeout_s: float | None = None,
    ) -> Message:
        """Ask this broker once. Returns its answer, or raises as `Connection.call` does."""
        connection = await self.connection(node_id)
        began_ms = now_ms()
        answer = await connection.call(row, fields, version, timeout_s=timeout_s)
        self.metrics.count("requests")
        self.metrics.observe("request.ms", now_ms() - began_ms)
        return answer

    async def ask(
        self, row: ApiRow, fields: Mapping[str, Any], *, timeout_s: float | None = None
    ) -> Message:
        """Ask any broker once: the one with the fewest unanswered requests."""
        return await self.call(self.any_broker(), row, fields, timeout_s=timeout_s)

    def any_broker(self) -> int:
        """Return a broker to ask; one that is connected if there is any."""
        if not self.metadata.brokers:
            raise NotSentError("no broker is known.")

        def rank(broker: BrokerInfo) -> tuple[bool, int]:
            waiting = self.peers.outstanding(broker)
            return waiting is None, waiting or 0

        return min(self.metadata.brokers.values(), key=rank).node_id

    async def find_coordinator(self, key: str, key_type: int = GROUP_KEY_TYPE) -> int:
        """Return the node id of a coordinator, asked for once; or raise `RequestError`."""
        fields = {"key": key, "key_type": key_type, "coordinator_keys": [key]}
        answer = await self.ask(FIND_COORDINATOR, fields)
        told = answer.get("coordinators")
        found = told[0] if told else answer
        code = error_code_of(found.error_code)
        if code is not ErrorCode.NONE:
            raise RequestError(code, found.get("error_message") or "")
        node_id: int = found.node_id
        broker = BrokerInfo(node_id, found.host, found.port)
        self.metadata.brokers.setdefault(node_id, broker)
        return node_id

    # --- the task that asks for metadata ---

    async def _keep_metadata(self) -> None:
        value_of = self.options.value_of
        backoff = Backoff(value_of(rows.RETRY_BACKOFF_MS), value_of(rows.RETRY_BACKOFF_MAX_MS))
        while True:
            wait_ms = self.metadata.due_ms(now_ms()) - now_ms()
            if wait_ms > 0:
                self._wake.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait_ms / 1000):
                        await self._wake.wait()
                continue
            self.metadata.asked(now_ms())
            try:
                await self._ask_metadata()
            except OttlaError as error:
                self._last_error = error
                self.metadata.failed()
                self.metrics.count("metadata.failures")
                self._changed()
                await asyncio.sleep(backoff.failed() / 1000)
            else:
                self._last_error = None
                backoff.succeeded()
                self._changed()

    async def _ask_metadata(self) -> None:
        whole = self._wants_all
        names = None if whole else sorted(self.metadata.wanted)
        fields = {
            "topics": None
            if names is None
            else [{"name": n, "topic_id": ZERO_UUID} for n in names],
            "allow_auto_topic_creation": self._may_create and not whole,
            "include_cluster_authorized_operations": False,
            "include_topic_authorized_operations": False,
        }
        answer = await self._ask_anybody(METADATA, fields)
        self.metrics.count("metadata.refreshes")
        self.metadata.update(answer, now_ms(), whole=whole)

    async def _ask_anybody(self, row: ApiRow, fields: Mapping[str, Any]) -> Message:
        """Ask who is connected, then the other brokers, then the bootstrap addresses (K3)."""
        known = sorted(
            self.metadata.brokers.values(), key=lambda one: self.peers.existing(one) is None
        )
        for broker in known:
            with suppress(OttlaError):
                return await (await self.peers.to(broker)).call(row, fields)
        return await self._ask_bootstrap(row, fields)

    async def _ask_bootstrap(self, row: ApiRow, fields: Mapping[str, Any]) -> Message:
        errors = list[OttlaError]()
        for address in self.options.value_of(rows.BOOTSTRAP_SERVERS):
            try:
                connection = await self.peers.open(address)
            except OttlaError as error:
                errors.append(error)
                continue
            try:
                answer = await connection.call(row, fields)
            except OttlaError as error:
                errors.append(error)
                connection.abort()
                continue
            await self._keep_or_close(address, connection, answer)
            return answer
        raise _UnansweredError(errors)

    async def _keep_or_close(
        self, address: Address, connection: Connection, answer: Message
    ) -> None:
        for one in answer.brokers:
            broker = BrokerInfo(one.node_id, one.host, one.port)
            if broker.address == address and self.peers.adopt(broker, connection):
                return
        await connection.close()

    # --- telling ---

    def _changed(self) -> None:
        for listener in self.listeners:
            listener()
        self._tell_waiters()

    def _tell_waiters(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _require_open(self) -> None:
        if self._is_closed:
            raise ClientClosedError("the client is closed.")

    def _raise_if_hopeless(self) -> None:
        error = self._last_error
        if isinstance(error, _UnansweredError) and error.is_hopeless:
            raise BootstrapError(str(error)) from error

    def _bootstrap_error(self, timeout_s: float) -> BootstrapError:
        why = self._last_error
        if why is None:
            servers = self.options.value_of(rows.BOOTSTRAP_SERVERS)
            told = ", ".join(str(one) for one in servers)
            return BootstrapError(f"{told} did not answer within {timeout_s:g} s. {_ADVICE}")
        return BootstrapError(str(why))

    def _no_topic(self, name: str, timeout_s: float) -> NoTopicError:
        code = self.metadata.errors.get(name)
        shown = shown_name(name)
        if code is None:
            return NoTopicError(f"topic {shown}: nothing was heard of it within {timeout_s:g} s.")
        hint = (
            f" `ottla topics create {shown}` makes it."
            if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else ""
        )
        return NoTopicError(f"topic {shown}: {code.sentence} ({code.name}){hint}")


class _UnansweredError(UnreachableError):
    """Nobody at the bootstrap addresses answers."""

    def __init__(self, errors: list[OttlaError]) -> None:
        super().__init__(" ".join([*map(str, errors), _ADVICE]))
        # Something is there that is not Kafka: to wait does not help.
        self.is_hopeless: Final = all(isinstance(one, BrokenAnswerError) for one in errors)
