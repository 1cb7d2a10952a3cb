"""This node as a coordinator of transactions: the partitions of `__transaction_state` it leads.

C1  an id is served by the ledger of its partition, or by nobody
C2  what is decided is marked in every partition, whoever dies meanwhile: by this coordinator, or by
    the next one when it has loaded the partition

Not here: which ledgers there are (`node/groups/ledgers.py`), what one does (`ledger.py`), and
requests (`node/kafka`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from ottla.controller.image import MetadataImage, TopicInfo
from ottla.controller.port import NewTopic
from ottla.node.groups.ledgers import Ledgers, on_a_thread
from ottla.node.groups.own_topic import OwnTopic, configured_nodes
from ottla.node.kafka.leading import require_standing
from ottla.node.logs import logger
from ottla.node.metrics import Reading
from ottla.node.transactions.ledger import Ledger, World
from ottla.node.transactions.markers import Duty, Markers
from ottla.node.transactions.marking import write_markers
from ottla.node.transactions.peers import Admission, Admitted, Outcomes, WantedMarker
from ottla.node.transactions.places import (
    TRANSACTIONAL_ID_MAX,
    TRANSACTIONS_TOPIC,
    partition_of,
)
from ottla.node.transactions.readings import readings_of
from ottla.node.transactions.transaction import NO_TWO_PHASES, Transaction
from ottla.node.transactions.words import (
    EPOCH_MAX,
    NEW_CLIENT,
    Decision,
    Init,
    Place,
    Refused,
    Told,
)
from ottla.proto.errors import ErrorCode, RequestError
from ottla.proto.ids import BrokerId
from ottla.proto.options import transactions as rows
from ottla.proto.records.control import EndMarker, Marker
from ottla.replication.replica import Replica

if TYPE_CHECKING:
    from ottla.node.broker import Broker

_log = logger("transactions")

# Thousands may have begun in the same moment, and end in the same one: whoever does all of it at
# once is taken for dead meanwhile.
AT_ONCE: Final = 100
_PAUSE_S: Final = 0.005


class Transactions:
    """All transactions that this broker coordinates. `start` and `stop` once."""

    def __init__(self, broker: Broker) -> None:
        self._broker: Final = broker
        self._led: Final = Ledgers(broker, TRANSACTIONS_TOPIC, self._new_ledger)
        self.ledgers: Final[dict[int, Ledger]] = self._led.by_index
        self.topic: Final = OwnTopic(broker, TRANSACTIONS_TOPIC, self._wanted)
        self.markers: Final = Markers(lambda: broker.controller.image, self._send)
        self.timed_out = 0
        self._world: Final = World(
            clock=broker.clock,
            require_standing=lambda replica: require_standing(broker, replica),
            on_a_thread=on_a_thread,
            new_id=self._new_id,
            mark=self._mark,
        )

    def _new_ledger(self, replica: Replica) -> Ledger:
        return Ledger(replica, self._world)

    async def _new_id(self) -> int:
        return await self._broker.producer_ids.take_for_requests()

    # ── Following the replicas ────────────────────────────────────────────────────────────────

    def start(self) -> None:
        self._led.look_at_all()
        self._led.spawn(self._time_out_for_ever())
        self._led.spawn(self._expire_for_ever())

    async def stop(self) -> None:
        """Tell everybody who waits that another one coordinates."""
        await self._led.stop()
        await self.markers.stop()
        await self.topic.stop()

    def look(self, replica: Replica) -> None:
        """A replica has begun to lead, or to follow, or has failed."""
        self._led.look(replica)

    async def obey(self, _: MetadataImage) -> None:
        self._led.look_at_all()

    async def _time_out_for_ever(self) -> None:
        of = self._broker.options.current.value_of
        while True:
            has_more = self.time_out()
            interval_s = of(rows.TRANSACTION_ABORT_INTERVAL_MS) / 1000
            await asyncio.sleep(_PAUSE_S if has_more else interval_s)

    def time_out(self) -> bool:
        """Abort what took too long; return whether there may be more than was done at once."""
        left = AT_ONCE
        for ledger in tuple(self.ledgers.values()):
            gone = ledger.time_out(left)
            self.timed_out += gone
            left -= gone
            if not left:
                return True
        return False

    async def _expire_for_ever(self) -> None:
        of = self._broker.options.current.value_of
        while True:
            await asyncio.sleep(of(rows.TRANSACTION_EXPIRE_INTERVAL_MS) / 1000)
            self.expire()

    def expire(self) -> None:
        """Forget ids that nobody has used for long."""
        keep_ms = self._broker.options.current.value_of(rows.TRANSACTIONAL_ID_EXPIRATION_MS)
        gone = sum(ledger.expire(keep_ms) for ledger in tuple(self.ledgers.values()))
        if gone:
            _log.info("transactional_ids_expired", count=gone)

    # ── Markers ───────────────────────────────────────────────────────────────────────────────

    def _mark(self, ledger: Ledger, one: Transaction) -> None:
        value = one.value
        marker = Marker(value.state.is_commit, ledger.epoch)
        # The last epoch may have been that of the transaction too.
        is_bumped = value.client_version >= NEW_CLIENT and value.producer_epoch < EPOCH_MAX
        end = EndMarker(value.producer_id, value.producer_epoch, marker, is_bumped)

        def is_wanted() -> bool:
            return ledger.is_led and one.value is value

        def done() -> None:
            one.marked(value.partitions)
            ledger.complete(one)

        self.markers.add(Duty(end, value.partitions, is_wanted=is_wanted, done=done))

    async def _send(self, to: BrokerId, wanted: Sequence[WantedMarker]) -> list[Outcomes]:
        if to == self._broker.node_id:
            return await write_markers(self._broker, wanted)
        return await self._broker.peers.write_markers(to, wanted)

    # ── For requests ──────────────────────────────────────────────────────────────────────────

    def ledger_of(self, transactional_id: str) -> Ledger:
        """Return the ledger that serves an id, or raise `RequestError` (C1)."""
        require_transactional_id(transactional_id)
        topic = self.topic.known
        if topic is None:
            raise RequestError(ErrorCode.NOT_COORDINATOR)
        ledger = self.ledgers.get(partition_of(transactional_id, len(topic.partitions)))
        if ledger is None:
            raise RequestError(ErrorCode.NOT_COORDINATOR)
        ledger.require()
        return ledger

    async def leader_of(self, info: TopicInfo, name: str, until_s: float) -> BrokerId | None:
        """Return who coordinates an id, waited for until that time if need be."""
        index = partition_of(name, len(info.partitions))
        return await self.topic.leader_of(info, index, until_s)

    async def init(self, name: str, wish: Init) -> Told | Refused:
        """Give a transactional id to a producer."""
        now_ms = self._broker.clock.now_ms

        def make(producer_id: int) -> Transaction:
            return Transaction.new(name, producer_id, wish.timeout_ms, now_ms())

        def question(one: Transaction, fresh: int | None) -> Decision:
            return one.init(wish, now_ms(), fresh)

        ledger = self._asked(name)
        if not wish.only_kept:
            return await ledger.ask(name, question, make)
        # Nothing is made for whoever is going to be refused.
        is_known = name in ledger.transactions
        return await ledger.ask(name, question) if is_known else NO_TWO_PHASES

    async def add(self, asked: Admission, version: int) -> Told | Refused:
        """Take partitions into a transaction."""
        if any(topic == TRANSACTIONS_TOPIC for topic, _ in asked.places):
            # No marker is written there.
            raise RequestError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        places = frozenset(asked.places)

        def question(one: Transaction, _: int | None) -> Decision:
            now_ms = self._broker.clock.now_ms()
            return one.add(asked.producer_id, asked.producer_epoch, places, now_ms, version)

        ledger = self._asked(asked.transactional_id)
        return await ledger.ask(asked.transactional_id, question)

    async def end(
        self, name: str, producer_id: int, epoch: int, *, is_commit: bool, version: int
    ) -> Told | Refused:
        """Commit a transaction, or abort it."""

        def question(one: Transaction, fresh: int | None) -> Decision:
            return one.end(
                producer_id,
                epoch,
                self._broker.clock.now_ms(),
                is_commit=is_commit,
                version=version,
                fresh=fresh,
            )

        return await self._asked(name).ask(name, question)

    def _asked(self, name: str) -> Ledger:
        if not name:
            raise RequestError(ErrorCode.INVALID_REQUEST, "A transactional id is not empty.")
        return self.ledger_of(name)

    def verify(self, asked: Admission) -> Outcomes:
        """Return which partitions belong to the transaction; raises `RequestError`."""
        ledger = self._asked(asked.transactional_id)
        one = ledger.transactions.get(asked.transactional_id)
        if one is None:
            raise RequestError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        told = one.verify(asked.producer_id, asked.producer_epoch, asked.places)
        if isinstance(told, Refused):
            raise RequestError(told.code)
        return told

    async def admit(self, asked: Admission) -> Admitted:
        """Say for each partition whether the producer may write there in its transaction."""
        epoch = -1
        try:
            epoch = self._asked(asked.transactional_id).epoch
            outcomes = await self._admitted(asked)
        except RequestError as refusal:
            outcomes = dict.fromkeys(asked.places, refusal.code)
        return Admitted(outcomes, epoch)

    async def _admitted(self, asked: Admission) -> Outcomes:
        if not asked.adds:
            return self.verify(asked)
        unknown = self.unknown_of(asked.places)
        if unknown:
            return {
                **dict.fromkeys(asked.places, ErrorCode.OPERATION_NOT_ATTEMPTED),
                **dict.fromkeys(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            }
        told = await self.add(asked, NEW_CLIENT)
        code = told.code if isinstance(told, Refused) else ErrorCode.NONE
        return dict.fromkeys(asked.places, code)

    def unknown_of(self, places: Sequence[Place]) -> list[Place]:
        """Return those that are not there, as far as this node knows.

        They are not taken into a transaction: a marker is not sent to what is not there, so a topic
        that this node has not heard of yet would wait for its marker for ever.
        """
        image = self._broker.controller.image
        counts = {
            topic: 0 if (info := image.topic(topic)) is None else len(info.partitions)
            for topic in {topic for topic, _ in places}
        }
        return [one for one in places if not 0 <= one[1] < counts[one[0]]]

    def all(self) -> Iterator[Transaction]:
        """Yield every id here; raises `RequestError` while some are being loaded."""
        for ledger in tuple(self.ledgers.values()):
            if ledger.is_led:
                ledger.require()
                yield from tuple(ledger.transactions.values())

    def readings(self) -> list[Reading]:
        return list(readings_of(self, self._broker.clock.now_ms()))

    def _wanted(self) -> NewTopic:
        of = self._broker.options.current.value_of
        replicas = min(of(rows.TRANSACTION_LOG_REPLICATION_FACTOR), configured_nodes(self._broker))
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "min.insync.replicas": str(min(of(rows.TRANSACTION_LOG_MIN_ISR), replicas)),
            "segment.bytes": str(of(rows.TRANSACTION_LOG_SEGMENT_BYTES)),
        }
        return NewTopic(
            TRANSACTIONS_TOPIC,
            partitions=of(rows.TRANSACTION_LOG_PARTITIONS),
            replication_factor=replicas,
            configs=configs,
        )


def require_transactional_id(name: str) -> None:
    """Refuse what is too long for a name: Kafka's limit is the 32,767 bytes of a text."""
    if len(name) > TRANSACTIONAL_ID_MAX:
        most = TRANSACTIONAL_ID_MAX
        sentence = f"A transactional id has at most {most} characters, not {len(name)}."
        raise RequestError(ErrorCode.INVALID_REQUEST, sentence)
