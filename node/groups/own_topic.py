"""A topic that brokers keep for themselves: made on first need, and where its partitions are led.

B1  it is made once, and with the replicas it is to have for ever
B2  who asks for a leader that is gone, as far as can be seen from here, waits a moment for the
    next one: a client that is sent to a dead node needs longer to come back than that takes

Not here: what is in it (`coordinator.py`, `node/transactions/coordinator.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.controller.image import TopicInfo
from ottla.controller.port import NewTopic
from ottla.node.logs import logger
from ottla.proto.errors import ErrorCode, RequestError
from ottla.proto.ids import BrokerId
from ottla.proto.options import node

if TYPE_CHECKING:
    from ottla.node.broker import Broker

_log = logger("groups")

_CONTROLLER: Final = "controller"
# So long is waited for another coordinator, and so often it is looked (B2).
PATIENCE_S: Final = 0.5
_LOOK_S: Final = 0.02


class OwnTopic:
    """One such topic. Belongs to one event loop; `stop` once."""

    def __init__(self, broker: Broker, name: str, wanted: Callable[[], NewTopic]) -> None:
        self._broker: Final = broker
        self.name: Final = name
        self._wanted: Final = wanted
        self._making: asyncio.Task[None] | None = None

    @property
    def known(self) -> TopicInfo | None:
        return self._broker.controller.image.topic(self.name)

    async def info(self, client: str, until_s: float) -> TopicInfo:
        """Return the topic, made now if there is none; raises `RequestError`.

        It is waited for until that time; it is made all the same, for whoever asks again.
        """
        found = self.known
        if found is not None:
            return found
        if self._making is None:
            self._making = asyncio.get_running_loop().create_task(self._make(client))
            self._making.add_done_callback(_ended)
        left_s = max(0.0, until_s - asyncio.get_running_loop().time())
        await asyncio.wait({self._making}, timeout=left_s)
        found = self.known
        if found is None:
            raise RequestError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return found

    async def leader_of(self, info: TopicInfo, index: int, until_s: float) -> BrokerId | None:
        """Return who leads a partition, waited for until that time if need be (B2)."""
        loop = asyncio.get_running_loop()
        while True:
            leader = info.partitions[index].leader
            if self._is_in_reach(leader) or loop.time() >= until_s:
                return leader
            await asyncio.sleep(_LOOK_S)
            # Deleted meanwhile: what was last known.
            info = self.known or info

    def _is_in_reach(self, leader: BrokerId | None) -> bool:
        known = None if leader is None else self._broker.controller.image.brokers.get(leader)
        if leader is None or known is None or known.is_fenced:
            return False
        return not self._broker.is_out_of_reach(leader)

    async def _make(self, client: str) -> None:
        try:
            (made,) = await self._broker.controller.create_topics(
                [self._wanted()], validate_only=False, client=client
            )
        finally:
            self._making = None
        if isinstance(made, RequestError) and made.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            _log.warning(
                "coordinators_have_no_topic",
                topic=self.name,
                error=made.code.name,
                why=made.sentence,
            )

    async def stop(self) -> None:
        making = self._making
        if making is not None:
            making.cancel()
            await asyncio.gather(making, return_exceptions=True)


def configured_nodes(broker: Broker) -> int:
    """Return how many nodes there are to be, also those that are down at this moment (B1)."""
    static = broker.options.static.value_of
    # Where controllers are brokers too, all of them will be: this one is.
    is_combined = _CONTROLLER in static(node.PROCESS_ROLES)
    voters = len(static(node.CONTROLLER_VOTERS)) if is_combined else 0
    return max(1, voters, len(broker.controller.image.brokers))


def _ended(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        what = {"message": "making a topic failed", "exception": error}
        task.get_loop().call_exception_handler(what)
