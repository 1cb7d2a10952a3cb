"""What the shell of a transaction does not even ask for."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from ottla.clients.consumer.record import GroupMetadata, OffsetAndMetadata
from ottla.clients.errors import TransactionAbortableError, TransactionUnknownError
from ottla.clients.options import Role, read_options
from ottla.clients.producer.transacting import Transacting
from ottla.clients.producer.transactions import Phase, Transactions
from ottla.proto.errors import OttlaError
from ottla.proto.ids import TopicPartition

OFFSETS = {TopicPartition("t", 0): OffsetAndMetadata(5)}


class SilentCluster:
    """Counts who asks for a coordinator, and has none."""

    def __init__(self) -> None:
        self.asked = list[str]()
        self.is_asked = asyncio.Event()

    async def start(self, timeout_s: float) -> None:
        pass

    async def find_coordinator(self, name: str, kind: int) -> int:
        self.asked.append(name)
        self.is_asked.set()
        raise OttlaError("nobody is there.")


class SilentEngine:
    """An engine that has nothing to send."""

    def __init__(self) -> None:
        self.cluster: Any = SilentCluster()
        self.lock = threading.Lock()

    async def flush(self) -> None:
        pass

    async def settle(self) -> None:
        pass

    def has_live(self) -> bool:
        return False

    def pump_soon(self) -> None:
        pass


def _open(engine: SilentEngine) -> Transacting:
    core = Transactions("billing", is_two_phase=True)
    core.initialised(7, 0, is_second_dialect=True)
    core.begin()
    given = {"bootstrap.servers": "nowhere:1", "transactional.id": "billing"}
    return Transacting(core, engine, read_options(Role.PRODUCER, given))


@pytest.mark.parametrize("whose", [GroupMetadata("g"), GroupMetadata("g", -1, "m-1")])
def test_offsets_of_a_consumer_that_is_out_of_its_group_are_not_sent(whose: GroupMetadata) -> None:
    async def go() -> None:
        engine = SilentEngine()
        work = _open(engine)
        with pytest.raises(TransactionAbortableError, match="not in group g"):
            await work.send_offsets(OFFSETS, whose, 0.05)
        assert engine.cluster.asked == []
        assert work.core.phase is Phase.BROKEN

    asyncio.run(go())


@pytest.mark.parametrize("whose", ["g", GroupMetadata("g", 3, "m-1")])
def test_offsets_of_a_member_and_those_of_a_group_without_one_are_sent(whose: Any) -> None:
    async def go() -> None:
        engine = SilentEngine()
        with pytest.raises(TransactionAbortableError, match="no answer in time"):
            await _open(engine).send_offsets(OFFSETS, whose, 0.05)
        assert set(engine.cluster.asked) == {"g"}

    asyncio.run(go())


def test_what_is_prepared_has_all_the_offsets_that_were_being_sent() -> None:
    async def go() -> None:
        engine = SilentEngine()
        work = _open(engine)
        sending = asyncio.create_task(work.send_offsets(OFFSETS, "g", 0.2))
        await engine.cluster.is_asked.wait()
        with pytest.raises(TransactionAbortableError, match="no answer in time"):
            await work.prepare(5.0)
        with pytest.raises(TransactionAbortableError):
            await sending

    asyncio.run(go())


def test_a_commit_that_nobody_could_be_asked_for_can_be_aborted() -> None:
    async def go() -> None:
        engine = SilentEngine()
        work = _open(engine)
        work.core.writing()
        with pytest.raises(TransactionUnknownError, match="has not happened yet"):
            await work.end(0.05, commit=True)
        assert work.core.has_open, "no coordinator was found, so none was asked"

    asyncio.run(go())
