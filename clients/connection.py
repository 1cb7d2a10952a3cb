"""One connection to one broker: requests out, answers back in the same order.

It works against Apache Kafka and against our own nodes. Many tasks may call at once: requests are
pipelined, and answers are matched by their order and checked by their correlation ids.

C1  answers are given out strictly in the order of the requests; one that does not fit ends the
    connection, and nothing after it is believed
C2  an answer larger than `answer_size_max` is refused before it is read (CVE-2026-10142)
C3  at most `outstanding_max` requests wait for answers; further callers wait for a place
C4  every call ends by its deadline: with an answer, with `NotSentError` (surely nothing happened)
    or with `OutcomeUnknownError` (it may have happened). A call that waits in vain ends the
    connection, because nothing behind it could be answered either
C5  the answer to a caller that was cancelled is read and dropped: the others keep their order

Not here: which broker to ask, what an error code means, when to try again.
"""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from typing import Any, Final, NamedTuple, Self

from ottla.clients.dial import connect, system_reason
from ottla.clients.errors import (
    AnswerTimeoutError,
    BrokenAnswerError,
    ClosedByPeerError,
    NoCommonVersionError,
    NotSentError,
    OutcomeUnknownError,
)
from ottla.clients.stream import Stream
from ottla.proto.errors import (
    ErrorCode,
    LocalProtocolError,
    OttlaError,
    RemoteProtocolError,
    RequestError,
)
from ottla.proto.ids import INT32_MAX
from ottla.proto.kafka.apis import (
    API_VERSIONS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    DESCRIBE_GROUPS,
    DESCRIBE_LOG_DIRS,
    DESCRIBE_PRODUCERS,
    DESCRIBE_TOPIC_PARTITIONS,
    DESCRIBE_TRANSACTIONS,
    FETCH,
    FIND_COORDINATOR,
    LIST_CONFIG_RESOURCES,
    LIST_GROUPS,
    LIST_OFFSETS,
    LIST_TRANSACTIONS,
    METADATA,
    OFFSET_FETCH,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
    ApiRow,
)
from ottla.proto.kafka.decode import decode_response
from ottla.proto.kafka.encode import encode_request
from ottla.proto.kafka.framing import read_response_head, request_frame
from ottla.proto.kafka.message import Message
from ottla.proto.options.endpoints import Address

CLIENT_ID: Final = "ottla"
CONNECT_TIMEOUT_S: Final = 10.0
REQUEST_TIMEOUT_S: Final = 30.0
ANSWER_SIZE_MAX: Final = 100 << 20
OUTSTANDING_MAX: Final = 100
_CLOSE_TIMEOUT_S: Final = 1.0
_SIZE_BYTES: Final = 4
_TLS_ALERT: Final = b"\x15\x03"
# These change nothing, so nobody has to wonder whether they happened.
_READS: Final = frozenset(
    {
        API_VERSIONS,
        DESCRIBE_CLUSTER,
        DESCRIBE_CONFIGS,
        DESCRIBE_GROUPS,
        DESCRIBE_LOG_DIRS,
        DESCRIBE_PRODUCERS,
        DESCRIBE_TOPIC_PARTITIONS,
        DESCRIBE_TRANSACTIONS,
        FETCH,
        FIND_COORDINATOR,
        LIST_CONFIG_RESOURCES,
        LIST_GROUPS,
        LIST_OFFSETS,
        LIST_TRANSACTIONS,
        METADATA,
        OFFSET_FETCH,
        OFFSET_FOR_LEADER_EPOCH,
    }
)


class VersionRange(NamedTuple):
    """The versions of one API that a broker says it serves, both ends included."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class _Slot:
    """A request that has been written and not been answered."""

    row: ApiRow
    version: int
    correlation_id: int
    # The body of the answer. Cancelled if nobody waits for it any more.
    answer: asyncio.Future[memoryview]


class Connection:
    """One broker, from `open` to `close`; as a context manager it closes itself."""

    def __init__(
        self,
        address: Address,
        stream: Stream,
        *,
        client_id: str | None,
        request_timeout_s: float,
        answer_size_max: int,
        outstanding_max: int,
    ) -> None:
        self.address: Final = address
        # By API key; empty until the broker has been asked.
        self.versions: dict[int, VersionRange] = {}
        # Levels that the whole cluster has agreed on, by the names of features.
        self.features: dict[str, int] = {}
        self._stream: Final = stream
        self._client_id: Final = client_id
        self._request_timeout_s: Final = request_timeout_s
        self._answer_size_max: Final = answer_size_max
        self._places: Final = asyncio.Semaphore(outstanding_max)
        self._slots: Final = deque[_Slot]()
        self._last_correlation_id = 0
        # Why nothing more comes, once that is so.
        self._end_reason: OttlaError | None = None
        self._reading: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        *,
        client_id: str | None = CLIENT_ID,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        answer_size_max: int = ANSWER_SIZE_MAX,
        outstanding_max: int = OUTSTANDING_MAX,
        negotiate: bool = True,
    ) -> Self:
        """Connect, and ask which versions the broker serves unless told not to.

        Raises `UnreachableError` if there is nobody, `BrokenAnswerError` if it is not Kafka.
        """
        address = Address(host, port)
        stream = await connect(address, connect_timeout_s)
        connection = cls(
            address,
            stream,
            client_id=client_id,
            request_timeout_s=request_timeout_s,
            answer_size_max=answer_size_max,
            outstanding_max=outstanding_max,
        )
        if negotiate:
            try:
                await connection._negotiate()
            except BaseException:
                connection.abort()
                raise
        return connection

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __str__(self) -> str:
        return str(self.address)

    @property
    def is_closed(self) -> bool:
        """Whether either side has ended it, as far as we have heard."""
        return self._end_reason is not None

    @property
    def outstanding(self) -> int:
        """How many requests wait for their answers."""
        return len(self._slots)

    def version_of(self, row: ApiRow) -> int:
        """Return the highest version that both sides speak, or raise `NoCommonVersionError`."""
        offered = self.versions.get(row.key)
        if offered is None:
            raise NoCommonVersionError(f"{self} does not serve {row.name} (API key {row.key}).")
        highest = min(row.high, offered.high)
        if highest < max(row.low, offered.low):
            raise NoCommonVersionError(
                f"{self} serves {row.name} in versions {offered.low} to {offered.high}, and we "
                f"speak {row.low} to {row.high}."
            )
        return highest

    async def call(
        self,
        row: ApiRow,
        fields: Mapping[str, Any] | Message,
        version: int | None = None,
        *,
        timeout_s: float | None = None,
    ) -> Message:
        """Return the answer, whatever its error codes say.

        Without a version, the highest that both sides speak. The deadline includes the wait for a
        place among the outstanding requests.
        """
        chosen = self.version_of(row) if version is None else version
        if _is_unanswered(row, fields):
            raise LocalProtocolError("Produce with acks=0 is not answered: use `send`.")
        body = encode_request(row, chosen, fields)
        answer = await self.exchange(row, chosen, body, timeout_s=timeout_s)
        try:
            return decode_response(row, chosen, answer)
        except RemoteProtocolError as error:
            raise BrokenAnswerError(
                f"{self} answered {row.name} version {chosen} with bytes that cannot be read: "
                f"{error}"
            ) from error

    async def exchange(
        self, row: ApiRow, version: int, body: bytes, *, timeout_s: float | None = None
    ) -> memoryview:
        """Return the body of the answer, undecoded, for a request body that is already encoded."""
        allowed_s = self._request_timeout_s if timeout_s is None else timeout_s
        slot = None
        try:
            async with asyncio.timeout(allowed_s):
                await self._places.acquire()
                slot = self._begin(row, version, body)
                await self._drain()
                return await slot.answer
        except TimeoutError:
            told = f"{self} did not answer {row.name} within {allowed_s:g} s"
            if slot is None:
                raise NotSentError(
                    f"{row.name} was not sent to {self}: {self.outstanding} requests before it "
                    f"were not answered within {allowed_s:g} s."
                ) from None
            self._end(AnswerTimeoutError(told))
            raise AnswerTimeoutError(f"{told}{_doubt(row)}.") from None
        finally:
            if slot is not None:
                slot.answer.cancel()

    async def send(
        self, row: ApiRow, fields: Mapping[str, Any] | Message, version: int | None = None
    ) -> None:
        """Send a request that no broker answers: Produce with acks=0, and nothing else."""
        if not _is_unanswered(row, fields):
            raise LocalProtocolError(f"{row.name} is answered: use `call`.")
        chosen = self.version_of(row) if version is None else version
        await self.post(row, chosen, encode_request(row, chosen, fields))

    async def post(self, row: ApiRow, version: int, body: bytes) -> None:
        """Send a request body that is already encoded, and to which no answer will come."""
        self._require_open(row)
        self._stream.write(
            request_frame(row, version, self._next_correlation_id(), self._client_id, body)
        )
        await self._drain()

    async def send_raw(self, data: bytes) -> None:
        """Send any bytes; what comes back is for `read_frame`. `call` may be used again later."""
        await self._stop_reading()
        self._stream.write(data)
        await self._drain()

    async def read_frame(self, *, timeout_s: float | None = None) -> bytes:
        """Return the next frame without its length; only after `send_raw`.

        Raises `ClosedByPeerError`, `AnswerTimeoutError`, or `BrokenAnswerError` if it is too large.
        """
        await self._stop_reading()
        allowed_s = self._request_timeout_s if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(allowed_s):
                return bytes(await self._read_frame())
        except TimeoutError:
            raise AnswerTimeoutError(f"{self} sent nothing within {allowed_s:g} s.") from None

    async def close(self) -> None:
        """End the connection; whoever still waits for an answer is told that it is unknown."""
        self._end(OutcomeUnknownError(f"the connection to {self} was closed on this side"))
        await self._stop_reading()
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await self._stream.wait_closed()
        except (OSError, TimeoutError):
            # It was broken already, or the broker does not take what we still had to say.
            self.abort()

    def abort(self) -> None:
        """End the connection at once; bytes not yet sent are dropped."""
        self._end(OutcomeUnknownError(f"the connection to {self} was cut on this side"))
        self._stream.abort()
        # Nobody may hold the connection any more: then its reader would be left in the middle.
        if self._reading is not None:
            self._reading.cancel()

    async def _negotiate(self) -> None:
        version = API_VERSIONS.high
        answer = await self._ask_versions(version)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            ranges = _ranges_of(answer)
            # The oldest brokers do not even say which versions they would take: all take 0.
            offered = ranges.get(API_VERSIONS.key, VersionRange(0, 0))
            version = min(version, offered.high)
            answer = await self._ask_versions(version)
        if answer.error_code != ErrorCode.NONE:
            raise RequestError(error_code_of(answer.error_code))
        self.versions = _ranges_of(answer)
        self.features = {
            one.name: one.max_version_level for one in answer.get("finalized_features") or ()
        }

    async def _ask_versions(self, version: int) -> Message:
        fields = {
            "client_software_name": "ottla",
            "client_software_version": _software_version(),
        }
        row = API_VERSIONS
        body = await self.exchange(row, version, encode_request(row, version, fields))
        # A broker that does not know our version answers in version 0, whatever we asked in.
        # Every version begins with the error code.
        refused = int.from_bytes(body[:2], signed=True) == ErrorCode.UNSUPPORTED_VERSION
        try:
            return decode_response(row, 0 if refused else version, body)
        except RemoteProtocolError as error:
            raise BrokenAnswerError(
                f"{self} answered ApiVersions with bytes that cannot be read; is it a Kafka "
                f"listener? ({error})"
            ) from error

    def _begin(self, row: ApiRow, version: int, body: bytes) -> _Slot:
        # No `await` between the place in the queue and the bytes in the buffer: C1.
        try:
            self._require_open(row)
            correlation_id = self._next_correlation_id()
            frame = request_frame(row, version, correlation_id, self._client_id, body)
        except BaseException:
            self._places.release()
            raise
        answer = asyncio.get_running_loop().create_future()
        slot = _Slot(row, version, correlation_id, answer)
        self._slots.append(slot)
        self._stream.write(frame)
        if self._reading is None:
            self._reading = asyncio.create_task(self._read_answers())
        return slot

    def _require_open(self, row: ApiRow) -> None:
        if self._end_reason is not None:
            raise NotSentError(f"{row.name} was not sent: {self._end_reason}.")

    def _next_correlation_id(self) -> int:
        self._last_correlation_id = (self._last_correlation_id + 1) & INT32_MAX
        return self._last_correlation_id

    async def _drain(self) -> None:
        # A broken connection is told by the reader, which knows who waits for what.
        with suppress(OSError):
            await self._stream.drain()

    async def _read_answers(self) -> None:
        while not self.is_closed:
            try:
                self._take(await self._read_frame())
            except (OutcomeUnknownError, RemoteProtocolError) as error:
                self._end(error)

    async def _read_frame(self) -> bytearray:
        try:
            head = await self._stream.read_exactly(_SIZE_BYTES)
            size = int.from_bytes(head, signed=True)
            if not 0 <= size <= self._answer_size_max:
                raise BrokenAnswerError(self._size_complaint(head, size))
            return await self._stream.read_exactly(size)
        except asyncio.IncompleteReadError as error:
            half = " in the middle of an answer" if error.partial else ""
            raise ClosedByPeerError(f"{self} closed the connection{half}") from None
        except OSError as error:
            raise ClosedByPeerError(
                f"the connection to {self} broke ({system_reason(error)})"
            ) from error

    def _size_complaint(self, head: bytearray, size: int) -> str:
        if head == b"HTTP":
            return (
                f"{self} speaks HTTP, not Kafka's protocol; a node serves Kafka clients on another "
                "port, 9092 by default"
            )
        if head.startswith(_TLS_ALERT):
            return (
                f"{self} speaks TLS, and this client plain text only; name a plain-text listener "
                "in bootstrap.servers"
            )
        return (
            f"{self} announced an answer of {size} bytes; at most {self._answer_size_max} are read"
        )

    def _take(self, frame: bytearray) -> None:
        if not self._slots:
            raise BrokenAnswerError(f"{self} sent an answer to nothing that was asked")
        slot = self._slots[0]
        correlation_id, body_at = read_response_head(slot.row, slot.version, memoryview(frame))
        if correlation_id != slot.correlation_id:
            raise BrokenAnswerError(
                f"{self} sent the answer to request {correlation_id} where that to "
                f"{slot.correlation_id} ({slot.row.name}) was due"
            )
        self._slots.popleft()
        self._places.release()
        if not slot.answer.done():
            slot.answer.set_result(memoryview(frame)[body_at:])

    def _end(self, reason: OttlaError) -> None:
        """Fail all who wait. The first reason stays."""
        if self._end_reason is not None:
            return
        self._end_reason = reason
        while self._slots:
            slot = self._slots.popleft()
            self._places.release()
            if not slot.answer.done():
                slot.answer.set_exception(_unknown_outcome(slot.row, reason))
        self._stream.close()

    async def _stop_reading(self) -> None:
        task, self._reading = self._reading, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def _unknown_outcome(row: ApiRow, reason: OttlaError) -> OutcomeUnknownError:
    kind = type(reason) if isinstance(reason, OutcomeUnknownError) else BrokenAnswerError
    if row is API_VERSIONS:
        # Nobody asked for it: it is our own first question on every connection.
        return kind(f"{reason}.")
    return kind(f"{row.name} was sent, and {reason}{_doubt(row)}.")


def _doubt(row: ApiRow) -> str:
    return "" if row in _READS else ": it may or may not have happened"


def _is_unanswered(row: ApiRow, fields: Mapping[str, Any] | Message) -> bool:
    return row.key == PRODUCE.key and fields.get("acks") == 0


def _ranges_of(answer: Message) -> dict[int, VersionRange]:
    return {one.api_key: VersionRange(one.min_version, one.max_version) for one in answer.api_keys}


def error_code_of(number: int) -> ErrorCode:
    """Return the code with this number; one that we do not know is an unknown error."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


@functools.cache
def _software_version() -> str:
    try:
        return metadata.version("ottla")
    except metadata.PackageNotFoundError:
        return "0"
