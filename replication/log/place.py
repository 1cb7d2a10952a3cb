"""Where a log lives, and how an empty one is made there.

Not here: opening one that exists (`recovery.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ottla.proto.ids import FIRST_OFFSET, Offset
from ottla.replication.epochs import EpochHistory
from ottla.replication.log.handles import Handles
from ottla.replication.log.log import Log
from ottla.replication.log.segment import Segment
from ottla.replication.log.state import (
    NO_TOPIC_ID,
    PartitionState,
    encode_state,
    new_state,
    partition_key,
)
from ottla.replication.producers import ProducerStates
from ottla.replication.settings import LogSettings
from ottla.replication.storage.ports import Files, StateStore


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPlace:
    """Where a log lives, and what it is opened with."""

    name: str
    directory: str
    files: Files
    store: StateStore
    handles: Handles
    settings: LogSettings
    # Of a log that is to be made; one that exists knows its own.
    topic_id: bytes = NO_TOPIC_ID
    on_failure: Callable[[Log, Exception], None] = lambda log, error: None

    def segment(self, base_offset: Offset, *, size: int = 0) -> Segment:
        return Segment(
            self.files,
            self.directory,
            base_offset,
            self.settings,
            size=size,
            handles=self.handles,
        )

    def log(
        self,
        segments: list[Segment],
        end_offset: Offset,
        epochs: EpochHistory,
        producers: ProducerStates,
        state: PartitionState,
        snapshots: list[Offset],
    ) -> Log:
        return Log(
            name=self.name,
            directory=self.directory,
            files=self.files,
            store=self.store,
            handles=self.handles,
            settings=self.settings,
            segments=segments,
            end_offset=end_offset,
            epochs=epochs,
            producers=producers,
            state=state,
            snapshots=snapshots,
            on_failure=self.on_failure,
        )


def create_log(place: LogPlace, *, start_offset: Offset = FIRST_OFFSET) -> Log:
    """Make an empty log. Durable when it returns: directory, first segment, state."""
    (log,) = create_logs([place], start_offset=start_offset)
    return log


def create_logs(places: Sequence[LogPlace], *, start_offset: Offset = FIRST_OFFSET) -> list[Log]:
    """Make empty logs in one data directory, with one transaction for all of them.

    Each directory is synced once it has its files, then the one above, then the states are
    committed: a state without files would be taken for lost data.
    """
    logs = list[Log]()
    for place in places:
        state = new_state(start_offset, place.topic_id)
        place.files.make_dir(place.directory)
        segment = place.segment(start_offset)
        segment.create()
        place.files.sync_dir(place.directory)
        # Its file is opened when something is written to it.
        segment.release()
        empty = (EpochHistory(), ProducerStates())
        logs.append(place.log([segment], start_offset, *empty, state, []))
    first = places[0]
    first.files.sync_dir(first.directory.rpartition("/")[0] or "/")
    first.store.commit({partition_key(log.name): encode_state(log.state) for log in logs})
    return logs
