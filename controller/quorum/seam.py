"""The only file that knows pysyncobj. Everything that is wrong with it ends here.

The library's module is loaded once more for each member, as a private copy, and the names that it
reads from its surroundings are given new meanings in that copy: journal, clock, dice, serializer,
poller and pickle. So a member can be ticked by hand on any clock, several can live in one process,
and whoever else imports pysyncobj finds it as it was shipped.

No pickle is written or read. The library pickles a call of a replicated method; there is only one
such method here and it takes only bytes, so those bytes are the call.

The library applies all that is committed in one tick. After a restart that is everything since the
snapshot, and a member that says nothing for seconds is taken for dead. So a tick applies a bounded
part of it. Everything else goes by the applied index: answers to calls, compaction, admission.

Not here: when to stand for election, what to do with the answers (`member.py`), which messages to
believe (`transport.py`), what is kept (`journal.py`).

R1  everything is synced before a message leaves, and before a committed entry is applied
R2  applying an entry never raises for a reason that lies in the entry
R3  the library opens no socket, forks no process, starts no thread and resolves no name
R4  a leader takes nobody for present because of an answer that it was told not to count
R5  one tick applies at least one entry that waits, and begins no other once `apply_ms` are over
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec, module_from_spec
from random import Random
from typing import Any, Final

from pysyncobj.node import Node  # type: ignore[import-untyped]
from pysyncobj.transport import Transport  # type: ignore[import-untyped]
from pysyncobj.version import VERSION  # type: ignore[import-untyped]

from ottla.controller.quorum.dialect import from_library, to_library
from ottla.controller.quorum.entries import (
    ADMIT,
    COMMAND_BYTES_MAX,
    Admit,
    Entry,
    encode_admission,
)
from ottla.controller.quorum.journal import Journal
from ottla.controller.quorum.messages import AppendAnswer, Message
from ottla.controller.quorum.port import ApplyFailed, Role, StateMachine
from ottla.controller.quorum.snapshots import Part, Snapshots
from ottla.proto.errors import StorageError, ensure

PINNED: Final = "0.3.17"
# What is replaced in the private copy.
REPLACED_NAMES: Final = (
    "createJournal",
    "createPoller",
    "logger",
    "monotonicTime",
    "pickle",
    "random",
    "Serializer",
)
# What is read, set or called though the library does not offer it.
PRIVATE_ATTRIBUTES: Final = (
    "_SyncObj__lastResponseTime",
    "_SyncObj__raftCommitIndex",
    "_SyncObj__raftElectionDeadline",
    "_SyncObj__raftLastApplied",
    "_SyncObj__raftLeader",
    "_SyncObj__raftMatchIndex",
    "_SyncObj__raftNextIndex",
    "_SyncObj__raftState",
)
PRIVATE_METHODS: Final = (
    "_SyncObj__applyLogEntries",
    "_SyncObj__onMessageReceived",
    "_SyncObj__onNodeConnected",
    "_SyncObj__onNodeDisconnected",
    "_SyncObj__sendAppendEntries",
    "_SyncObj__setCurrentTerm",
    "_SyncObj__setState",
    "_applyCommand",
    "_checkCommandsToApply",
    "_getLeader",
    "_isLeader",
)
_NEVER: Final = 10**9
_BATCH_BYTES: Final = 64 * 1024
_ROLES: Final = {0: Role.FOLLOWER, 1: Role.CANDIDATE, 2: Role.LEADER}
_OK: Final = 0
# The library's reasons that mean: it was not even put into the log.
_NOT_ATTEMPTED: Final = frozenset({1, 2, 6})

# Carries a message to a member, and tells whether it could.
Send = Callable[[int, Message], bool]


@dataclass(frozen=True, slots=True)
class Timing:
    """How patient a member is."""

    heartbeat_ms: int = 100
    election_min_ms: int = 500
    election_max_ms: int = 1000
    # What one tick applies at most: for so long, and so many entries.
    apply_ms: int = 20
    apply_entries: int = 200


@dataclass(frozen=True, slots=True)
class Applied:
    """The library's answer to a command: applied at an index, or not."""

    index: int
    answer: object
    # Whether the command is in the log of this member and was applied.
    is_applied: bool
    # Whether it was never put into the log.
    is_refused: bool


class Raft:
    """The library, as one member uses it: typed, ticked by hand, with our disk and our wire."""

    def __init__(
        self,
        *,
        journal: Journal,
        machine: StateMachine,
        send: Send,
        now_ms: Callable[[], int],
        dice: Random,
        timing: Timing,
    ) -> None:
        if VERSION != PINNED:
            raise StorageError(f"The quorum needs pysyncobj {PINNED}; this is {VERSION}.")
        self._journal = journal
        self._now_ms = now_ms
        self._machine = machine
        self.snapshots: Final = Snapshots(journal)
        membership = journal.membership
        module = _private_copy()
        module.createJournal = lambda _: _RaftLog(journal)
        module.createPoller = lambda _: _NoPoller()
        module.logger = _NoLogger
        module.monotonicTime = lambda: now_ms() / 1000
        module.pickle = _NoPickle
        module.random = dice
        module.Serializer = lambda *_: _Serializer(self.snapshots, journal, machine)
        node = Node(membership.node_id)
        others = [Node(peer) for peer in sorted(membership.voters) if peer != membership.node_id]
        wire = _Wire(None, node, others)
        wire.connect(journal, send)
        self._raft: Any = _machine_class(module)(
            node, others, conf=_conf(module, timing), nodeClass=Node, transport=wire
        )
        self._raft.apply_bytes = self._apply
        self._raft.pace = _Pace(now_ms, timing)
        if journal.snapshot is not None:
            machine.restore(journal.snapshot.state)
            self._raft._SyncObj__raftLastApplied = journal.snapshot.index

    # ── What it is ────────────────────────────────────────────────────────────────────────────

    @property
    def role(self) -> Role:
        return _ROLES[self._raft._SyncObj__raftState]

    @property
    def leads(self) -> bool:
        return bool(self._raft._isLeader())

    @property
    def leader(self) -> int | None:
        node = self._raft._getLeader()
        return None if node is None else int(node.id)

    @property
    def term(self) -> int:
        return int(self._raft.raftCurrentTerm)

    @property
    def commit_index(self) -> int:
        return int(self._raft.raftCommitIndex)

    @property
    def applied_index(self) -> int:
        return int(self._raft.raftLastApplied)

    @property
    def has_backlog(self) -> bool:
        """Whether something is committed that was not applied yet."""
        return self.applied_index < self.commit_index

    def acknowledged(self) -> Mapping[int, int]:
        """Return the last entry that each other voter holds, as far as a leader knows."""
        if not self.leads:
            return {}
        matched = self._raft._SyncObj__raftMatchIndex
        return {int(node.id): int(index) for node, index in matched.items()}

    # ── Elections ─────────────────────────────────────────────────────────────────────────────

    @property
    def due_s(self) -> float:
        """When a tick has something to do though nothing came: a heartbeat, or an election."""
        if self.leads:
            return float(self._raft._SyncObj__newAppendEntriesTime)
        return float(self._raft._SyncObj__raftElectionDeadline)

    @property
    def election_is_due(self) -> bool:
        return not self.leads and self.due_s < self._now_ms() / 1000

    def postpone_election(self, milliseconds: int) -> None:
        self._raft._SyncObj__raftElectionDeadline = (self._now_ms() + milliseconds) / 1000

    def hold_back(self, milliseconds: int) -> None:
        """Stand no sooner than that, and no sooner than it would have."""
        until = (self._now_ms() + milliseconds) / 1000
        self._raft._SyncObj__raftElectionDeadline = max(self.due_s, until)

    def stand_now(self) -> None:
        """Stand for election in the next tick."""
        self._raft._SyncObj__raftElectionDeadline = -1.0

    def step_down(self, term: int) -> None:
        """Lead no more: somebody has reached that term."""
        self.adopt_term(term)
        self._raft._SyncObj__setState(0)
        self._raft._SyncObj__raftLeader = None

    def adopt_term(self, term: int) -> None:
        """Go up to a term that others have reached already."""
        if term > self.term:
            self._raft._SyncObj__setCurrentTerm(term, None)

    # ── Work ──────────────────────────────────────────────────────────────────────────────────

    def tick(self) -> None:
        self._raft.doTick(0)

    def send_entries(self) -> None:
        """Tell the others now, instead of with the next heartbeat."""
        self._raft._SyncObj__sendAppendEntries()

    def append(self, command: bytes | Admit | None, done: Callable[[Applied], None]) -> None:
        """Put a command, an admission, or None for a no-op, into the leader's log."""
        ensure(self.leads, "only a leader appends")

        def on_done(answer: object, error: int) -> None:
            # It is called before the library counts the entry as applied. It must not raise.
            index = self.applied_index + 1
            done(Applied(index, answer, error == _OK, error in _NOT_ATTEMPTED))

        if command is None:
            self._raft._applyCommand(b"", on_done, 1)
        elif isinstance(command, Admit):
            self._raft._applyCommand(encode_admission(command), on_done, ord(ADMIT))
            # What the directory before had acknowledged is lost with it.
            self._raft._SyncObj__raftMatchIndex[Node(command.voter)] = 0
        else:
            ensure(len(command) <= COMMAND_BYTES_MAX, "commands are small", size=len(command))
            self._raft.replicate(command, callback=on_done)
        # At once, while this member still leads: a queued command could be sent to another leader.
        self._raft._checkCommandsToApply()

    def receive(self, sender: int, message: Message, *, is_counted: bool = True) -> None:
        """Take in a message that `Inbox` has let pass.

        A leader that hears from no majority steps down. Who is not counted was not heard (R4).
        """
        if isinstance(message, AppendAnswer) and message.reset:
            message = self._only_backwards(sender, message)
        told = to_library(message)
        if told is None:
            return
        heard = self._raft._SyncObj__lastResponseTime
        heard_before = heard.get(Node(sender))
        self._raft._SyncObj__onMessageReceived(Node(sender), told)
        if not is_counted and heard_before is not None:
            heard[Node(sender)] = heard_before
        snapshot = self._journal.snapshot
        # The library logs a failure to load a snapshot, and goes on with nothing.
        ensure(
            snapshot is None or self.applied_index >= snapshot.index, "a snapshot was taken over"
        )
        self._journal.sync()

    def _only_backwards(self, sender: int, answer: AppendAnswer) -> AppendAnswer:
        """Let a wish to begin anew move the leader back, and never forward.

        Of several batches on their way to a follower whose last entries are wrong, the first one
        is answered with a place before them and the others with the place after them. The library
        would obey the last answer, and send the same batches for ever.
        """
        following = self._raft._SyncObj__raftNextIndex.get(Node(sender), 0)
        return replace(answer, reset=False) if answer.next_index > following else answer

    def connected(self, peer: int) -> None:
        self._raft._SyncObj__onNodeConnected(Node(peer))

    def disconnected(self, peer: int) -> None:
        self._raft._SyncObj__onNodeDisconnected(Node(peer))

    def _apply(self, command: bytes) -> object:
        try:
            return self._machine.apply(command)
        except (MemoryError, OSError, StorageError):
            # The fault of this machine, not of the command: the others will have applied it.
            raise
        except Exception as error:  # noqa: BLE001  # the library would apply it again, for ever
            return ApplyFailed(f"{type(error).__name__}: {error}")


def _private_copy() -> Any:
    spec = find_spec("pysyncobj.syncobj")
    ensure(spec is not None and spec.loader is not None, "pysyncobj is installed")
    assert spec is not None  # for the type checker
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _conf(module: Any, timing: Timing) -> Any:
    return module.SyncObjConf(
        autoTick=False,
        commandsWaitLeader=False,
        commandsQueueSize=0,
        raftMinTimeout=timing.election_min_ms / 1000,
        raftMaxTimeout=timing.election_max_ms / 1000,
        appendEntriesPeriod=timing.heartbeat_ms / 1000,
        appendEntriesBatchSizeBytes=_BATCH_BYTES,
        # A leader that no majority answers steps down before long.
        leaderFallbackTimeout=timing.election_max_ms / 1000,
        connectionTimeout=timing.election_max_ms / 1000,
        logCompactionMinEntries=_NEVER,
        logCompactionMinTime=_NEVER,
        dynamicMembershipChange=False,
        useFork=False,
        dnsCacheTime=1,
        dnsFailCacheTime=1,
    )


def _machine_class(module: Any) -> Any:
    class Machine(module.SyncObj):  # type: ignore[misc]
        """The library's object, with the one method that it replicates."""

        apply_bytes: Callable[[bytes], object]
        pace: _Pace
        _SyncObj__raftCommitIndex: int

        @module.replicated  # type: ignore[untyped-decorator]
        def replicate(self, command: bytes) -> object:
            return self.apply_bytes(command)

        def _SyncObj__applyLogEntries(self) -> bool:  # noqa: N802
            """Apply what one tick may (R5), by letting the library see no more of it.

            It stands where the library's own loop stood, under the name by which that is called.
            """
            committed = self._SyncObj__raftCommitIndex
            tells = False
            try:
                for _ in self.pace.steps(committed - self._SyncObj__raftLastApplied):
                    self._SyncObj__raftCommitIndex = self._SyncObj__raftLastApplied + 1
                    tells = super()._SyncObj__applyLogEntries() or tells
            finally:
                self._SyncObj__raftCommitIndex = committed
            return tells

    return Machine


class _Pace:
    """How many entries one tick applies. A simulated clock stands still, so they are counted."""

    def __init__(self, now_ms: Callable[[], int], timing: Timing) -> None:
        self._now_ms = now_ms
        self._timing = timing

    def steps(self, waiting: int) -> Iterator[None]:
        """Yield once for each entry that may be applied now."""
        end_ms = self._now_ms() + self._timing.apply_ms
        for done in range(min(waiting, self._timing.apply_entries)):
            if done and self._now_ms() >= end_ms:
                return
            yield


class _NoPickle:
    """Stands where the library finds its pickle. The bytes of the one call are its argument."""

    @staticmethod
    def dumps(call: tuple[int, tuple[bytes]]) -> bytes:
        function, (command,) = call
        ensure(function == 0, "there is one replicated method")
        return command

    @staticmethod
    def loads(command: bytes) -> tuple[int, tuple[bytes]]:
        return 0, (bytes(command),)


class _NoPoller:
    """Stands where the library would wait for sockets."""

    def poll(self, _: float) -> None:
        """Return at once: there are none."""


class _NoLogger:
    """Stands where the library complains.

    It warns of truncations that our journal does not make, and everything else that it only
    complains about is looked for here, and stops the member.
    """

    @staticmethod
    def _say_nothing(*_: object) -> None: ...

    critical = error = warning = info = exception = _say_nothing


class _RaftLog:
    """Our journal, under the library's names."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.add = journal.add
        self.clear = journal.clear
        # It only marks: `add` decides (J2).
        self.deleteEntriesFrom = journal.mark_conflicts_from
        # Synced before the library can apply what it just called committed (R1).
        self.setRaftCommitIndex = journal.set_commit_index
        self.setCurrentTerm = journal.set_term

    def __len__(self) -> int:
        return len(self._journal)

    def __getitem__(self, item: Any) -> Any:
        return self._journal[item]

    def getRaftCommitIndex(self) -> int:  # noqa: N802
        return self._journal.committed_at_start

    def getCurrentTerm(self) -> int:  # noqa: N802
        return self._journal.term

    def getVotedForNodeId(self) -> int | None:  # noqa: N802
        return self._journal.vote

    def onOneSecondTimer(self) -> None:  # noqa: N802
        """Do nothing: there is nothing that may wait for a second."""


class _Serializer:
    """Our snapshots, under the library's names."""

    def __init__(self, snapshots: Snapshots, journal: Journal, machine: StateMachine) -> None:
        self._snapshots = snapshots
        self._journal = journal
        self._machine = machine
        self.cancelTransmisstion = snapshots.cancel

    def checkSerializing(self) -> tuple[int, None]:  # noqa: N802
        return 0, None

    def getTransmissionData(self, node: Any) -> tuple[Part, bool, bool] | None:  # noqa: N802
        part = self._snapshots.next_part(node)
        return None if part is None else (part, part.position == 0, part.is_last)

    def setTransmissionData(self, data: tuple[Part, bool, bool]) -> bool:  # noqa: N802
        snapshot = self._snapshots.take_part(data[0])
        if snapshot is None:
            return False
        self._machine.restore(snapshot.state)
        self._journal.install(snapshot)
        return True

    def deserialize(self) -> tuple[None, Entry, Entry, None]:
        snapshot = self._journal.snapshot
        assert snapshot is not None  # the library asks only after `setTransmissionData` said yes
        return None, snapshot.last, snapshot.previous, None


class _Wire(Transport):  # type: ignore[misc]
    """Our transport, under the library's names."""

    def connect(self, journal: Journal, send: Send) -> None:
        self._journal = journal
        self._send = send

    def send(self, node: Any, told: dict[str, Any]) -> bool:
        message = from_library(told)
        if message is None:
            return False
        self._journal.sync()
        return self._send(int(node.id), message)
