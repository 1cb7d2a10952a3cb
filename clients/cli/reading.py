"""Our consumer as commands use it: by hand or in a group, until enough, until the end, or for ever.

X1  what is committed was printed: the position is committed only between two batches, and not
    after a batch that could not be printed
X2  Ctrl-C is a wish that is looked at between two batches; a second one ends at once
X3  the end of a partition is where it ended when it was first asked for, so that reading ends while
    others write
X4  silence begins when a leader has answered: connecting, and joining a group, is none

Not here: what is done with records (`consume.py`, `perf.py`).
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Final, Self

from ottla.clients.admin.blocking import Admin
from ottla.clients.cli.output import complain
from ottla.clients.clock import now_ms
from ottla.clients.consumer.listener import RebalanceListener
from ottla.clients.consumer.record import Record
from ottla.clients.consumer.sync_consumer import Consumer
from ottla.proto.errors import OttlaError
from ottla.proto.ids import TopicPartition
from ottla.proto.options.endpoints import Address

POLL_S: Final = 0.1
AT_ONCE: Final = 500
_COMMIT_EVERY_MS: Final = 1000.0
_LOOK_EVERY_MS: Final = 100.0
# How long a broker may take to say that it is there.
_PROBE_MS: Final = 3000
# How long it may take until the first answer of a leader.
_BEGIN_MS: Final = 60_000.0


class Wish:
    """Whether somebody has pressed Ctrl-C (X2)."""

    def __init__(self) -> None:
        self.is_over = False

    def _pressed(self, _: int, __: FrameType | None) -> None:
        if self.is_over:
            raise KeyboardInterrupt
        self.is_over = True


@contextmanager
def wish_to_stop() -> Iterator[Wish]:
    """Yield what Ctrl-C sets, instead of ending whatever happens to run."""
    wish = Wish()
    if threading.current_thread() is not threading.main_thread():
        yield wish
        return
    before = signal.signal(signal.SIGINT, wish._pressed)
    try:
        yield wish
    finally:
        signal.signal(signal.SIGINT, before)


class Reader(RebalanceListener):
    """One consumer, from its first batch to its last; a context manager."""

    def __init__(
        self,
        bootstrap: Sequence[Address],
        group: str | None,
        reset: str,
        isolation: str = "read_uncommitted",
    ) -> None:
        # What goes wrong is told by the command, in one sentence.
        logging.getLogger("ottla.clients").addHandler(logging.NullHandler())
        settings: dict[str, object] = {
            "bootstrap.servers": ",".join(map(str, bootstrap)),
            "client.id": "ottla",
            "auto.offset.reset": reset,
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "allow.auto.create.topics": False,
        }
        self._group: Final = group
        self._consumer: Final = Consumer(settings | ({"group.id": group} if group else {}))
        self._has_joined = group is None
        # When something came last; in the future as long as nobody was heard of (X4).
        self._last_ms = now_ms() + _BEGIN_MS
        self._was_heard = False
        # Everything that was taken has been printed.
        self._is_printed = True
        self._is_dirty = False
        self._committed_ms = now_ms()
        self._ends: Final = dict[TopicPartition, int]()
        self._looked_ms = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            # Nobody knows what became of the last batch (X1).
            self._is_dirty = False
        self._consumer.close()

    # --- what to read ---

    def join(self, topic: str) -> None:
        """Read as a member of the group."""
        self._consumer.subscribe([topic], self)

    def begin(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these, from these offsets."""
        self._consumer.assign(positions)
        for partition, offset in positions.items():
            self._consumer.seek(partition, offset)

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self._has_joined = True

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        why_not = self.commit()
        if why_not is not None:
            complain(f"others will read some records again: {why_not}")
        for one in partitions:
            self._ends.pop(one, None)

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        # They are somebody else's, and so is their position.
        for one in partitions:
            self._ends.pop(one, None)

    # --- records ---

    def take(self, count_max: int) -> list[Record]:
        """Return what is there, or nothing after a moment; `printed` says that it was used."""
        records = self._consumer.consume(min(count_max, AT_ONCE), POLL_S)
        if records:
            self._is_printed, self._is_dirty = False, True
            self._last_ms, self._was_heard = now_ms(), True
        elif not self._was_heard and self._is_heard():
            self._last_ms, self._was_heard = now_ms(), True
        return records

    def _is_heard(self) -> bool:
        """Return whether a leader has told where a partition ends, or there is none to ask."""
        if not self._has_joined:
            return False
        known = {name for name in self._consumer.metrics() if name.startswith("lag.")}
        mine = {f"lag.{one}" for one in self._consumer.assignment()}
        return not mine or bool(mine & known)

    def printed(self) -> None:
        """Say that what was taken is where it belongs (X1)."""
        self._is_printed = True
        if self._group and self._is_dirty and now_ms() - self._committed_ms > _COMMIT_EVERY_MS:
            self._committed_ms = now_ms()
            # What fails now is committed with the next one, or its failure is told at the end.
            self._consumer.commit(asynchronous=True, callback=_forget)

    def commit(self) -> str | None:
        """Commit what was printed, if this is a group's; return why not, if it could not be."""
        if not (self._group and self._is_dirty and self._is_printed):
            return None
        try:
            self._consumer.commit()
        except OttlaError as error:
            return str(error)
        self._is_dirty = False
        return None

    def finish(self) -> str | None:
        """Commit for the last time; leaving the group does not try again."""
        why_not = self.commit()
        self._is_dirty = False
        return why_not

    # --- how it stands ---

    def is_at_end(self, records: Sequence[Record]) -> bool:
        """Return whether all that there was is read (X3), these records included."""
        if not self._has_joined:
            return False
        mine = self._consumer.assignment()
        unknown = mine - self._ends.keys()
        if unknown:
            self._ends.update(self._consumer.end_offsets(unknown))
        if records and now_ms() - self._looked_ms < _LOOK_EVERY_MS:
            return False
        self._looked_ms = now_ms()
        return all(self._consumer.position(one) >= self._ends[one] for one in mine)

    def silent_ms(self) -> float:
        """Return for how long nothing has come, since it could have (X4)."""
        return now_ms() - self._last_ms

    def failures(self) -> int:
        """Return how often no broker at all could be reached."""
        return int(self._consumer.metrics().get("metadata.failures", 0))


def _forget(*_: object) -> None:
    return None


def is_somebody_there(brokers: Sequence[Address]) -> bool:
    """Return whether a broker answers now."""
    settings = {
        "bootstrap.servers": ",".join(map(str, brokers)),
        "default.api.timeout.ms": _PROBE_MS,
        "request.timeout.ms": _PROBE_MS,
    }
    with Admin(settings) as admin:
        try:
            admin.describe_cluster()
        except OttlaError:
            return False
    return True


class Trouble:
    """Tells once that nobody can be reached; the consumer goes on trying by itself."""

    def __init__(self, until: str) -> None:
        self._until: Final = until
        self._was_told = False

    def tell(self) -> None:
        if not self._was_told:
            self._was_told = True
            complain(f"no broker can be reached any more; trying again until {self._until}.")
