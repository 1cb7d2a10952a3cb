"""Carries the in-sync sets that leaders want to the controller, and brings the answers back.

Every replica that has something to propose says so; what has gathered by the next turn of the loop
goes as one command, a few hundred partitions at most. One command is under way at a time: what
comes meanwhile waits for the next one, so a failover of a thousand partitions costs a few commands.

Not here: who is in sync (`ottla.replication.leader`), and who decides (the controller).

K1  a proposal that was sent is answered exactly once, if only with "nobody knows" (rule 38)
K2  what nobody answered is sent again after a pause, not at once
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from ottla.controller.commands import AlterPartitions, Command, PartitionChange
from ottla.controller.outcome import Outcome
from ottla.node.logs import logger
from ottla.proto.errors import ErrorCode, RequestError
from ottla.proto.ids import BrokerId
from ottla.proto.kafka.uuids import uuid_of
from ottla.replication.leader import IsrProposal
from ottla.replication.replica import Replica
from ottla.replication.storage.failpoints import hit

_log = logger("node.isr")

# Of one command: well below what a command may have (32 KiB).
CHANGES_MAX: Final = 200
# Before what was not answered is sent again.
PAUSE_S: Final = 0.2
# For one command. A controller that is being elected takes less.
ANSWER_MS: Final = 3_000


class Asks(Protocol):
    """Has commands committed: `Asking`."""

    async def commit(self, command: Command, *, client: str, deadline_ms: int) -> Outcome: ...


class IsrListener:
    """Told of proposals and what became of them. Here: nobody listens."""

    def isr_proposed(self, replica: Replica, proposal: IsrProposal) -> None: ...

    def isr_answered(self, replica: Replica, proposal: IsrProposal, code: ErrorCode) -> None: ...


class IsrKeeper:
    """The in-sync sets of all partitions that are led here. `start` once, `stop` once."""

    def __init__(
        self,
        broker_id: BrokerId,
        asks: Asks,
        *,
        broker_epoch: Callable[[], int | None],
        now_ms: Callable[[], int],
        replicas: Callable[[], Sequence[Replica]],
        lag_ms: Callable[[], int],
        listener: IsrListener,
    ) -> None:
        self._broker_id: Final = broker_id
        self._asks: Final = asks
        self._broker_epoch: Final = broker_epoch
        self._now_ms: Final = now_ms
        self._replicas: Final = replicas
        self._lag_ms: Final = lag_ms
        self._listener: Final = listener
        # In the order in which they asked.
        self._wanting: dict[Replica, None] = {}
        self._wanted: Final = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        for work in (self._send_all(), self._check_all()):
            task = loop.create_task(work)
            task.add_done_callback(_report)
            self._tasks.append(task)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def wanted(self, replica: Replica) -> None:
        """A replica has an in-sync set to propose."""
        self._wanting[replica] = None
        self._wanted.set()

    async def _check_all(self) -> None:
        """Look for followers that lag for too long (rule 36)."""
        while True:
            await asyncio.sleep(max(self._lag_ms() // 2, 1) / 1000)
            for number, replica in enumerate(self._replicas()):
                replica.check_isr()
                if number % CHANGES_MAX == 0:
                    await asyncio.sleep(0)

    async def _send_all(self) -> None:
        while True:
            await self._wanted.wait()
            sent = self._take()
            if not sent:
                self._wanted.clear()
                continue
            codes = await self._commit(sent)
            is_open = False
            for number, (replica, proposal) in enumerate(sent):
                code = codes.get(number, ErrorCode.REQUEST_TIMED_OUT)
                replica.isr_answered(proposal, code)
                # Nobody knows what became of it, whatever the code: it is to be sent again.
                is_open = is_open or (
                    replica.leader is not None and replica.leader.unsent is proposal
                )
                self._listener.isr_answered(replica, proposal, code)
            if is_open:
                await asyncio.sleep(PAUSE_S)

    def _take(self) -> list[tuple[Replica, IsrProposal]]:
        """Return what is to be sent now, which counts as sent."""
        taken = list[tuple[Replica, IsrProposal]]()
        for replica in tuple(self._wanting):
            if len(taken) >= CHANGES_MAX:
                break
            del self._wanting[replica]
            core = replica.leader
            if core is None or core.unsent is None:
                continue
            taken.append((replica, core.unsent))
            self._listener.isr_proposed(replica, core.unsent)
            core.sent()
        return taken

    async def _commit(self, sent: Sequence[tuple[Replica, IsrProposal]]) -> Mapping[int, ErrorCode]:
        """Return the answers by place; what is missing was not answered."""
        epoch = self._broker_epoch()
        if epoch is None:
            return {}
        hit("isr.propose.before")
        command = AlterPartitions(self._broker_id, epoch, tuple(_change(*one) for one in sent))
        try:
            outcome = await self._asks.commit(
                command, client="", deadline_ms=self._now_ms() + ANSWER_MS
            )
        except RequestError as error:
            _log.debug("isr_not_answered", partitions=len(sent), error=str(error))
            return {}
        hit("isr.propose.after")
        if outcome.refusal is not None:
            return dict.fromkeys(range(len(sent)), outcome.refusal.code)
        codes = [
            ErrorCode.NONE if one.refusal is None else one.refusal.code for one in outcome.results
        ]
        return dict(enumerate(codes))


def _change(replica: Replica, proposal: IsrProposal) -> PartitionChange:
    return PartitionChange(
        uuid_of(replica.topic_id),
        replica.partition.partition,
        proposal.leader_epoch,
        proposal.partition_epoch,
        proposal.isr,
        is_synced=proposal.is_synced,
    )


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        context = {"message": "the keeper of in-sync sets ended", "exception": error}
        task.get_loop().call_exception_handler(context)
