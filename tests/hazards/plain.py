"""pysyncobj as it is shipped, with a transport that only remembers."""

from __future__ import annotations

from typing import Any

from pysyncobj import SyncObj, SyncObjConf, replicated  # type: ignore[import-untyped]
from pysyncobj.journal import FileJournal  # type: ignore[import-untyped]
from pysyncobj.node import Node as Node  # type: ignore[import-untyped]
from pysyncobj.transport import Transport  # type: ignore[import-untyped]

NO_OP = b"\x01"
# Its journals, which it closes only when it is asked to.
LEFT_OPEN: list[Any] = []


class Remembering(Transport):  # type: ignore[misc]
    """Keeps what was sent, and delivers nothing."""

    def __init__(self, library: Any, node: Any, others: Any) -> None:
        super().__init__(library, node, others)
        self.sent: list[tuple[str, dict[str, Any]]] = []

    def send(self, node: Any, message: dict[str, Any]) -> bool:
        self.sent.append((node.id, message))
        return True


class Counting(SyncObj):  # type: ignore[misc]
    """The simplest use of the library."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.count = 0
        self.seen: list[object] = []

    @replicated  # type: ignore[untyped-decorator]
    def put(self, what: object) -> int:
        self.count += 1
        self.seen.append(what)
        return self.count

    @replicated  # type: ignore[untyped-decorator]
    def fail(self) -> None:
        self.count += 1
        raise ValueError("poison")


def plain(me: str = "a", others: str = "bc", kind: type[Any] = Counting, **options: Any) -> Any:
    conf = SyncObjConf(autoTick=False, **options)
    nodes = [Node(other) for other in others]
    library = kind(Node(me), nodes, conf=conf, nodeClass=Node, transportClass=Remembering)
    LEFT_OPEN.append(library._SyncObj__raftLog)
    return library


def plain_journal(file: str) -> Any:
    journal = FileJournal(file)
    LEFT_OPEN.append(journal)
    return journal


def tell(library: Any, sender: str, **message: Any) -> None:
    library._SyncObj__onMessageReceived(Node(sender), message)


def sent(library: Any) -> list[tuple[str, dict[str, Any]]]:
    found: list[tuple[str, dict[str, Any]]] = library._SyncObj__transport.sent
    return found


def indexes(library: Any) -> list[int]:
    return [entry[1] for entry in library._SyncObj__raftLog]


def stand(library: Any, *voters: str) -> None:
    """Let it stand for election, and let these vote for it."""
    library._SyncObj__onNodeConnected(Node("b"))
    library._SyncObj__raftElectionDeadline = 0
    library.doTick(0)
    for each in voters:
        tell(library, each, type="response_vote", term=library.raftCurrentTerm)


def alone(ticks: int = 3, **options: Any) -> Any:
    """Return the leader of a cluster of one."""
    library = plain("a", "", **options)
    library._SyncObj__raftElectionDeadline = 0
    for _ in range(ticks):
        library.doTick(0)
    return library


def put_many(library: Any, *numbers: int) -> None:
    for number in numbers:
        library.put(number)
    for _ in range(5):
        library.doTick(0)
