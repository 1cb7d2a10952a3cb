"""The partitions of one topic that this node leads, each with its ledger.

Whoever leads a partition of the topic coordinates what is in it. So this follows the replicas here:
one that begins to lead is loaded, one that stops is let go of at once.

Not here: what a ledger does (`ledger.py`, `node/transactions/ledger.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from ottla.node.logs import logger
from ottla.proto.errors import CorruptionError, RequestError, StorageError
from ottla.replication.replica import Replica

if TYPE_CHECKING:
    from ottla.node.broker import Broker

_log = logger("groups")

# After a load that failed.
_AGAIN_S: Final = 1.0


class OneLedger(Protocol):
    """What is asked of a ledger here."""

    @property
    def replica(self) -> Replica: ...
    @property
    def is_led(self) -> bool: ...

    async def load(self) -> None: ...
    def close(self) -> None: ...


L = TypeVar("L", bound=OneLedger)
T = TypeVar("T")


class Ledgers(Generic[L]):
    """All ledgers of one topic. Belongs to one event loop; `stop` once."""

    def __init__(self, broker: Broker, topic: str, make: Callable[[Replica], L]) -> None:
        self._broker: Final = broker
        self._topic: Final = topic
        self._make: Final = make
        self.by_index: Final[dict[int, L]] = {}
        self._tasks: Final[set[asyncio.Task[None]]] = set()
        self.is_stopped = False

    def look(self, replica: Replica) -> None:
        """A replica has begun to lead, or to follow, or has failed."""
        if replica.partition.topic == self._topic and not self.is_stopped:
            self._look(replica.partition.partition, replica)

    def look_at_all(self) -> None:
        topic = self._broker.controller.image.topic(self._topic)
        count = 0 if topic is None else len(topic.partitions)
        for index in {*range(count), *self.by_index}:
            self._look(index, self._broker.replicas.get(self._topic, index))

    def _look(self, index: int, replica: Replica | None) -> None:
        ledger = self.by_index.get(index)
        if ledger is not None and (ledger.replica is not replica or not ledger.is_led):
            ledger.close()
            del self.by_index[index]
            ledger = None
        if ledger is None and replica is not None and replica.is_leader and not self.is_stopped:
            ledger = self.by_index[index] = self._make(replica)
            self.spawn(self._load(ledger))

    async def _load(self, ledger: L) -> None:
        while ledger.is_led:
            try:
                await ledger.load()
            except (StorageError, CorruptionError, RequestError) as error:
                _tell_not_loaded(ledger, error)
                await asyncio.sleep(_AGAIN_S)
            else:
                return

    async def stop(self) -> None:
        """Tell everybody who waits that another one coordinates."""
        self.is_stopped = True
        for ledger in self.by_index.values():
            ledger.close()
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run something until it ends, or until `stop`."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            what = {"message": "a task of a coordinator failed", "exception": error}
            task.get_loop().call_exception_handler(what)


def _tell_not_loaded(ledger: OneLedger, error: Exception) -> None:
    # Who leads no more has nothing to load, and that is no error.
    if ledger.is_led:
        where = str(ledger.replica.partition)
        _log.error("ledger_not_loaded", partition=where, error=str(error))


async def on_a_thread(work: Callable[[], T]) -> T:
    return await asyncio.to_thread(work)
