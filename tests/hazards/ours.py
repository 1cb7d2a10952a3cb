"""One of our members, with a wire that only remembers and a pen to write letters to it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from ottla.controller.quorum.entries import COMMAND, Entry
from ottla.controller.quorum.layout import StateStore
from ottla.controller.quorum.member import Compaction, QuorumMember
from ottla.controller.quorum.membership import Standing
from ottla.controller.quorum.messages import (
    Append,
    AskPreVote,
    Envelope,
    Message,
    PreVote,
    Vote,
)
from ottla.controller.quorum.port import Outcome
from ottla.controller.quorum.transport import Drop
from ottla.replication.storage.memory import MemoryStateStore
from tests.unit.controller.quorum.cluster import (
    CLUSTER_ID,
    Notes,
    directory_of,
    open_journal,
    voter,
)


class Ours:
    """Member 1 of `voters`."""

    def __init__(
        self,
        voters: int = 3,
        *,
        disk: dict[bytes, bytes] | None = None,
        store: StateStore | None = None,
        compaction: Compaction | None = None,
        standing: Standing = Standing.VOTER,
    ) -> None:
        self.disk: dict[bytes, bytes] = {} if disk is None else disk
        self.now_ms = 1_000
        self.sent: list[Envelope] = []
        # Called with each envelope, before it is taken.
        self.on_send: Callable[[Envelope], None] = lambda _: None
        self.machine = Notes()
        self.journal = open_journal(
            store or MemoryStateStore(self.disk), voter(1, voters, standing)
        )
        self.member = QuorumMember(
            journal=self.journal,
            machine=self.machine,
            link=self,
            now_ms=lambda: self.now_ms,
            dice=Random(1),
            compaction=compaction,
        )
        self._voters = voters
        self._sequence = 0
        for peer in range(2, voters + 1):
            self.member.open_stream(peer)
            self.member.accept_stream(peer, f"stream-{peer}")

    def send(self, envelope: Envelope) -> bool:
        self.on_send(envelope)
        self.sent.append(envelope)
        return True

    @property
    def messages(self) -> list[Message]:
        return [envelope.message for envelope in self.sent]

    def letter(self, sender: int, message: Message, sender_term: int | None = None) -> Envelope:
        self._sequence += 1
        return Envelope(
            cluster_id=CLUSTER_ID,
            sender=sender,
            receiver=1,
            directory_id=directory_of(sender),
            stream=f"stream-{sender}",
            sequence=self._sequence,
            sender_term=self.term if sender_term is None else sender_term,
            message=message,
        )

    def tell(self, sender: int, message: Message, sender_term: int | None = None) -> Drop | None:
        return self.member.receive(self.letter(sender, message, sender_term))

    @property
    def term(self) -> int:
        return self.member.status().term

    @property
    def leads(self) -> bool:
        return self.member.leader == 1

    def tick(self, milliseconds: int = 10) -> None:
        self.now_ms += milliseconds
        self.member.tick()

    def stand(self) -> None:
        """Wait until it asks for a pre-vote, say yes, and let it stand."""
        while not any(isinstance(message, AskPreVote) for message in self.messages):
            self.tick()
        for peer in range(2, self._voters + 1):
            self.tell(peer, PreVote(self.term, self.term, granted=True))
        self.tick()

    def lead(self) -> None:
        """Have it elected."""
        if self._voters == 1:
            self.tick()
        else:
            self.stand()
            for peer in range(2, self._voters // 2 + 2):
                self.tell(peer, Vote(self.term))
        assert self.leads

    def propose(self, command: bytes, timeout_ms: int = 5_000) -> list[Outcome]:
        found: list[Outcome] = []
        self.member.propose(command, timeout_ms, found.append)
        return found


def entries(first: int, last: int, term: int = 1) -> tuple[Entry, ...]:
    return tuple(Entry(COMMAND + b"%d" % index, index, term) for index in range(first, last + 1))


def append(
    previous: int, previous_term: int, *new: Entry, term: int = 1, commit: int = 1
) -> Append:
    return Append(term, commit, previous, previous_term, new)
