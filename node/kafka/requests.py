"""A request on its way to whoever serves it.

Not here: who that is (`dispatch.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ottla.proto.kafka.apis import ApiRow
from ottla.proto.kafka.framing import RequestHead
from ottla.proto.kafka.message import Message

if TYPE_CHECKING:
    from ottla.node.broker import Broker


# A client may call itself anything; so much of it is passed on.
_CLIENT_ID_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class Request:
    """A decoded request, and who sent it."""

    head: RequestHead
    row: ApiRow
    version: int
    body: Message
    # The client's address.
    host: str
    # The name of the listener that it came in by.
    listener: str

    @property
    def client(self) -> str:
        """Who asks, for whoever logs it: the address, and what the client calls itself."""
        return f"{self.host}/{(self.head.client_id or '')[:_CLIENT_ID_MAX]}"


# Serves one kind of request: the answer's fields, under the names of the schema.
Handler = Callable[["Broker", Request], Awaitable[dict[str, Any]]]
