"""A machine: a disk with its power switch, the log on it, and syncs that take their time.

The real log over the real fault seam. What is not synced is lost or torn when the power goes; what
a process wrote survives the process.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from ottla.proto.errors import StorageError, ensure
from ottla.proto.ids import Offset
from ottla.proto.kafka.uuids import UUID
from ottla.replication.log.log import Log
from ottla.replication.log.manager import LogManager, StartReport
from ottla.replication.log.sync import SyncJob
from ottla.replication.settings import LogSettings
from ottla.replication.storage.faults import FaultPlan, FaultyFiles, FaultyStore, Power
from ottla.replication.storage.memory import MemoryFiles, MemoryStateStore
from ottla.replication.storage.unsynced import Style
from tests.builders import NOW_MS
from tests.sim.cluster.schedule import Work

STYLES = (Style.DROP, Style.KEEP, Style.TORN, Style.REORDER, Style.MIXED)
ROOT = "/data"


class Machine:
    """What outlives the processes on it."""

    def __init__(self, node_id: int, new_id: Callable[[], UUID]) -> None:
        self.node_id = node_id
        self._new_id = new_id
        self.boot_id = new_id()
        self.wipe()

    def wipe(self) -> None:
        """Another disk, empty."""
        self.directory_id = self._new_id()
        self.power = Power()
        self.plan = FaultPlan()
        self.memory = MemoryFiles()
        self.memory.make_dir(ROOT)
        self.files = FaultyFiles(self.memory, self.power, self.plan)
        self.records: dict[bytes, bytes] = {}

    def lose_power(self, dice: Random) -> None:
        self.power.cut(dice, dice.choice(STYLES))
        self.boot_id = self._new_id()

    def open(
        self, settings_of: Callable[[str], LogSettings], now_ms: int
    ) -> tuple[LogManager, StartReport]:
        store = FaultyStore(MemoryStateStore(self.records), self.power, self.plan)
        manager = LogManager(self.files, store, ROOT, settings_of)
        return manager, manager.open(now_ms=NOW_MS + now_ms)


class SlowSyncs:
    """The syncs of one log: one at a time, each done some time after it began."""

    def __init__(
        self,
        log: Log,
        on_synced: Callable[[Offset], None],
        on_failed: Callable[[StorageError], None],
        *,
        after: Callable[[int, str, Work], None],
        duration_ms: Callable[[], int],
    ) -> None:
        self._log = log
        self._on_synced = on_synced
        self._on_failed = on_failed
        self._after = after
        self._duration_ms = duration_ms
        self._told: Offset | None = None
        self.is_busy = False

    def request(self) -> None:
        if not self.is_busy and self._log.offline is None:
            self.is_busy = True
            # As in a real loop, what comes in the same turn shares the sync.
            self._after(0, "sync", self._begin)

    def _begin(self) -> None:
        job = None if self._log.offline is not None else self._log.begin_sync()
        if job is None:
            self.is_busy = False
            if self._log.offline is None and self._told != self._log.synced_offset:
                self._tell()
            return
        # The bytes reach the disk at the end: until then a power cut takes them.
        self._after(self._duration_ms(), "synced", lambda: self._end(job))

    def _end(self, job: SyncJob) -> None:
        try:
            job.run()
        except OSError as error:
            self.is_busy = False
            self._on_failed(self._log.abandon(error))
            return
        self._log.finish_sync(job)
        self._tell()
        self._begin()

    def _tell(self) -> None:
        self._told = self._log.synced_offset
        self._on_synced(self._told)

    async def close(self) -> None:
        """Nothing to wait for: a simulated process is asked to end when no sync runs."""
        ensure(not self.is_busy, "a simulated process is closed when it is idle")
