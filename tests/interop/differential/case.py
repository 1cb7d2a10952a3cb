"""What is asked: a case is a short conversation, held once in each version of its API.

A conversation is a generator. It yields what to send and is given the answer, so a later request
can use a number that an earlier answer told. Most are one request, which `one` makes.

Cases know nothing of Kafka or of our node, and need no Java: `tests/integration` holds the same
conversations with our node and compares with what was recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from ottla.proto.kafka.apis import INIT_PRODUCER_ID, ApiRow
from tests.interop.differential.messages import Fields, Plain

# What is in the place of an answer when there is none.
CLOSED: Final = "closed"
NO_ANSWER: Final = "no answer"
ANSWERED: Final = "answered"

Answer = Plain | str


@dataclass(frozen=True, slots=True)
class Send:
    """One request: fields for the codec, or a body, or a whole frame with its length."""

    row: ApiRow
    version: int
    fields: Fields | None = None
    body: bytes | None = None
    frame: bytes | None = None
    # Bytes after the body.
    tail: bytes = b""
    client_id: bytes | None = b"differential"
    # The tagged fields of the header, where it has them.
    tags: bytes = b"\x00"
    # A node may say nothing at all, for example to acks=0: do not wait long for it.
    may_be_silent: bool = False
    # Asked again until the answer is like this: a broker of Kafka learns of a change a little later
    # than the controller that has answered.
    until: Callable[[Any], bool] | None = None
    # Only there to get somewhere: its answer is not compared.
    is_recorded: bool = True


Talk = Generator[Send, Answer, None]


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic that a case wants for itself before it begins."""

    partitions: int = 1
    settings: Mapping[str, str] | None = None
    # Batches of three records each in partition 0.
    batches: int = 0


@dataclass(frozen=True, slots=True)
class Ask:
    """What a conversation knows: the version, and the topics."""

    version: int
    # A name that no other conversation uses; the topic exists if the case has a `NewTopic`.
    topic: str
    ids: Mapping[str, UUID]

    @property
    def topic_id(self) -> UUID:
        return self.ids[self.topic]


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the table."""

    name: str
    row: ApiRow
    talk: Callable[[Ask], Talk]
    versions: tuple[int, ...]
    topic: NewTopic | None = None
    # Of an answer about all topics, only those are compared that every run has.
    about_all_topics: bool = False
    # Whether there is an answer is compared, and not what it is.
    only_how_it_ends: bool = False


# What Kafka 4.3 serves, where that is less than what we do.
_HIGH_OF_KAFKA: Final = {INIT_PRODUCER_ID: 5}


def versions_of(row: ApiRow) -> tuple[int, ...]:
    """Return the versions that both serve."""
    return tuple(range(row.low, _HIGH_OF_KAFKA.get(row, row.high) + 1))


def ends_of(row: ApiRow) -> tuple[int, ...]:
    """The lowest and the highest version: enough where only the encoding differs."""
    return tuple(sorted({row.low, versions_of(row)[-1]}))


def one(
    name: str,
    row: ApiRow,
    fields: Callable[[Ask], Fields],
    *,
    versions: Iterable[int] | None = None,
    topic: NewTopic | None = None,
    about_all_topics: bool = False,
    **send: Any,
) -> Case:
    """Return a case that is a single request."""

    def talk(ask: Ask) -> Talk:
        yield Send(row, ask.version, fields(ask), **send)

    chosen = versions_of(row) if versions is None else tuple(versions)
    return Case(f"{row.name}: {name}", row, talk, chosen, topic, about_all_topics)


def many(
    name: str,
    row: ApiRow,
    talk: Callable[[Ask], Talk],
    *,
    versions: Iterable[int] | None = None,
    topic: NewTopic | None = None,
) -> Case:
    """Return a case that is a longer conversation."""
    chosen = versions_of(row) if versions is None else tuple(versions)
    return Case(f"{row.name}: {name}", row, talk, chosen, topic)
