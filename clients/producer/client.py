"""`Producer` and `AsyncProducer`: the same producer for threads and for event loops.

    with Producer({"bootstrap.servers": "localhost:9092"}) as producer:
        producer.send("orders", b"one", key=b"7").result()

    async with AsyncProducer({"bootstrap.servers": "localhost:9092"}) as producer:
        await producer.send("orders", b"one", key=b"7")

`send` puts a record into a batch and comes back at once. What becomes of it is told by the
`Delivery` that it returns, by a callback, or not at all, as one likes.

Not here: how records are sent (`engine.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, Self, TypeVar

from ottla.clients import options as rows
from ottla.clients.clock import wall_ns
from ottla.clients.errors import BufferFullError, ClientClosedError, SerdeError
from ottla.clients.loop_thread import LoopThread
from ottla.clients.metadata import PartitionInfo
from ottla.clients.options import ClientOptions, Role, read_options
from ottla.clients.producer.batch import Headers, Report
from ottla.clients.producer.delivery import AsyncDelivery, Delivery
from ottla.clients.producer.engine import Engine
from ottla.clients.producer.transactional import AsyncTransactional, Transactional
from ottla.clients.serdes import BYTES, SERDES, Serializer
from ottla.proto.errors import OttlaError

R = TypeVar("R")
OnDelivery = Callable[[Report], object]
AnyHeaders = Headers | Mapping[str, bytes | None]


class _Writing:
    """What both producers do before a record has a batch: bytes and times."""

    def __init__(self, config: Mapping[str, object]) -> None:
        self._options: Final = read_options(Role.PRODUCER, config)
        self._key: Final = _serializer(self._options.value_of(rows.KEY_SERIALIZER))
        self._value: Final = _serializer(self._options.value_of(rows.VALUE_SERIALIZER))


class AsyncProducer(_Writing, AsyncTransactional):
    """A producer on an event loop; it is made anywhere, and used on one loop until `close`."""

    def __init__(self, config: Mapping[str, object]) -> None:
        """Take options under Kafka's names, or raise `ConfigError`; nothing is connected yet."""
        super().__init__(config)
        self._engine: Engine | None = None

    async def __aenter__(self) -> Self:
        self._working()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: AnyHeaders = (),
        on_delivery: OnDelivery | None = None,
    ) -> AsyncDelivery:
        """Put a record into a batch; await what is returned to know what became of it.

        Raises `BufferFullError` when buffer.memory is used up: `await producer.room()` first.
        """
        engine = self._engine or self._working()
        if value.__class__ is not bytes or self._value is not BYTES:
            value = _to_bytes(self._value, topic, value, "value")
        if key is not None and (key.__class__ is not bytes or self._key is not BYTES):
            key = _to_bytes(self._key, topic, key, "key")
        batch, index = engine.append(
            topic,
            key,
            value,
            partition,
            wall_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms,
            _headers(headers) if headers else (),
            on_delivery,
            timestamp_ms is not None,
        )
        return AsyncDelivery(batch, index)

    async def room(self) -> None:
        """Return when records may be sent: at once, unless buffer.memory is nearly used up.

        Raises `BufferFullError` after max.block.ms.
        """
        engine = self._working()
        try:
            async with asyncio.timeout(engine.max_block_s):
                while (
                    engine.accumulator.used_bytes > engine.accumulator.settings.buffer_memory // 2
                ):
                    await engine.room()
        except TimeoutError:
            raise _no_room(self._options) from None

    async def flush(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as the other
        """Return when all that was sent before has an outcome; `TimeoutError` if not in time."""
        async with asyncio.timeout(timeout):
            await self._working().flush()

    async def partitions_for(self, topic: str) -> list[PartitionInfo]:
        """Return the partitions of a topic, or raise `NoTopicError` after max.block.ms."""
        return list((await self._working().know(topic)).partitions)

    def metrics(self) -> dict[str, float]:
        """Return what the producer has counted and measured of itself."""
        return {} if self._engine is None else _metrics(self._engine)

    async def close(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as the other
        """Flush, for so many seconds at most, and end; what is left has failed or is unknown."""
        await self._working().close(timeout)

    def _working(self) -> Engine:
        if self._engine is None:
            self._engine = Engine(self._options)
        return self._engine

    def _engine_at_work(self) -> Engine:
        return self._working()


class Producer(_Writing, Transactional):
    """A producer for threads: any of them may use it. Its own thread sends, until `close`."""

    def __init__(self, config: Mapping[str, object]) -> None:
        """Take options under Kafka's names, or raise `ConfigError`; nothing is connected yet."""
        super().__init__(config)
        self._thread: Final = LoopThread("ottla-producer")
        self._engine: Final = self._thread.run(_make_engine(self._options))
        self._knows: Final = self._engine.accumulator.knows

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: AnyHeaders = (),
        on_delivery: OnDelivery | None = None,
    ) -> Delivery:
        """Put a record into a batch, and return at once.

        Waits up to max.block.ms for a topic that is not known yet (`NoTopicError`, or
        `BootstrapError` if nobody can be reached), and for room (`BufferFullError`); but not in a
        callback of its own, which may not wait.
        """
        if value.__class__ is not bytes or self._value is not BYTES:
            value = _to_bytes(self._value, topic, value, "value")
        if key is not None and (key.__class__ is not bytes or self._key is not BYTES):
            key = _to_bytes(self._key, topic, key, "key")
        if not self._knows(topic):
            self._know(topic)
        place = (
            topic,
            key,
            value,
            partition,
            wall_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms,
            _headers(headers) if headers else (),
            on_delivery,
            timestamp_ms is not None,
        )
        try:
            batch, index = self._engine.append(*place)
        except BufferFullError:
            batch, index = self._append_later(place)
        return Delivery(batch, index)

    def flush(self, timeout: float | None = None) -> None:
        """Return when all that was sent before has an outcome; `TimeoutError` if not in time."""
        self._thread.run(_in_time(self._engine, timeout))

    def partitions_for(self, topic: str) -> list[PartitionInfo]:
        """Return the partitions of a topic, or raise `NoTopicError` after max.block.ms."""
        return list(self._thread.run(self._engine.know(topic)).partitions)

    def metrics(self) -> dict[str, float]:
        """Return what the producer has counted and measured of itself."""
        return _metrics(self._engine)

    def close(self, timeout: float | None = None) -> None:
        """Flush, for so many seconds at most, and end; what is left has failed or is unknown."""
        if self._thread.loop.is_closed():
            return
        try:
            self._thread.run(self._engine.close(timeout))
        except ClientClosedError:
            return
        self._thread.stop()

    def _engine_at_work(self) -> Engine:
        return self._engine

    def _wait_for(self, work: Coroutine[Any, Any, R]) -> R:
        return self._thread.run(work)

    def _know(self, topic: str) -> None:
        if self._thread.is_current:
            # A callback may not wait; the record will.
            return
        self._thread.run(self._engine.know(topic))

    def _append_later(self, place: tuple[Any, ...]) -> Any:
        if self._thread.is_current:
            raise _no_room(self._options)
        return self._thread.run(_append_with_room(self._engine, self._options, place))


async def _make_engine(options: ClientOptions) -> Engine:
    return Engine(options)


async def _in_time(engine: Engine, timeout_s: float | None) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await engine.flush()
    except TimeoutError:
        left = len(engine.accumulator.live)
        raise TimeoutError(f"{left} batches have no outcome after {timeout_s:g} s") from None


async def _append_with_room(engine: Engine, options: ClientOptions, place: tuple[Any, ...]) -> Any:
    try:
        async with asyncio.timeout(engine.max_block_s):
            while True:
                try:
                    return engine.append(*place)
                except BufferFullError:
                    await engine.room()
    except TimeoutError:
        raise _no_room(options) from None


def _no_room(options: ClientOptions) -> BufferFullError:
    return BufferFullError(
        f"buffer.memory ({options.value_of(rows.BUFFER_MEMORY)}) is used up by records that are "
        f"not acknowledged, and max.block.ms ({options.value_of(rows.MAX_BLOCK_MS)}) is over: the "
        "cluster takes records more slowly than they are sent, or not at all."
    )


def _metrics(engine: Engine) -> dict[str, float]:
    engine.metrics.set("buffer.used.bytes", engine.accumulator.used_bytes)
    engine.metrics.set("batches.live", len(engine.accumulator.live))
    return engine.metrics.snapshot()


def _serializer(chosen: object) -> Serializer:
    if isinstance(chosen, str):
        return SERDES[chosen]
    if isinstance(chosen, Serializer):
        return chosen
    raise SerdeError(f"{chosen!r} is no serializer.")


def _to_bytes(serializer: Serializer, topic: str, value: Any, part: str) -> bytes | None:
    try:
        made = serializer.serialize(topic, value)
    except OttlaError:
        raise
    except Exception as error:
        raise SerdeError(f"{topic}: the {part} cannot be written as bytes: {error}.") from error
    if made is None or type(made) is bytes:
        return made
    raise SerdeError(f"{topic}: the serializer of the {part} made a {type(made).__name__}.")


def _headers(headers: AnyHeaders) -> Headers:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return tuple((name, _header_value(name, content)) for name, content in pairs)


def _header_value(name: str, content: Any) -> bytes | None:
    if content is None or type(content) is bytes:
        return content
    if isinstance(content, str):
        return content.encode()
    raise SerdeError(f"header {name}: bytes or text are needed, not {type(content).__name__}.")
