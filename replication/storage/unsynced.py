"""What a power cut may take: every change that was not synced, and how to take it back.

A file is followed page by page: before a page changes, its durable bytes are put aside. A
directory is followed name by name, in order. At a cut, dice choose for each file and for each
directory what had reached the disk, and the rest is undone on the real files underneath.

Not here: when a cut happens, and who writes (`faults.py`).

U1  bytes that were synced and not touched since are never changed by a cut
U2  of the name changes of a directory a prefix survives, whatever its length; directories
    are independent of each other, and names are independent of the bytes they lead to
U3  what a later sync of a file covers is what was written before that sync began
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Final

from ottla.proto.errors import ensure
from ottla.replication.storage.ports import File, Files, KernelSync

PAGE_SIZE: Final = 4096
SECTOR_SIZE: Final = 512
_COPY_SIZE: Final = 1 << 20


class Style(Enum):
    """How unkind a cut is to what was not synced."""

    DROP = "drop"  # all of it is gone
    KEEP = "keep"  # all of it had reached the disk by luck
    TORN = "torn"  # a prefix had, down to a sector inside a page
    REORDER = "reorder"  # each page had or had not; the size is any that the file has had
    MIXED = "mixed"  # each file meets its own style


_PLAIN_STYLES: Final = (Style.DROP, Style.KEEP, Style.TORN, Style.REORDER)


class _Span:
    """Changes between the beginnings of two syncs, and how it was before them."""

    __slots__ = ("high", "low", "pages", "size")

    def __init__(self, size: int) -> None:
        # Page number → its bytes at the beginning, never beyond the size at the beginning.
        self.pages: dict[int, bytes] = {}
        self.size = size
        # The smallest and the largest size that the file has had since.
        self.low = size
        self.high = size


class TrackedFile:
    """The unsynced changes of one file, whatever it is called."""

    __slots__ = ("_forgotten", "_spans", "keeper", "name", "parent", "size")

    def __init__(self, size: int) -> None:
        self.name = ""
        self.parent: TrackedDirectory | None = None
        self.size = size
        # A handle to get at the bytes, while there is something to undo.
        self.keeper: File | None = None
        # Pages that a failed sync did not write, with what the disk holds instead (D4). The kernel
        # calls them clean: no later sync covers them, unless they are written anew first.
        self._forgotten: dict[int, bytes] = {}
        self._spans = [_Span(size)]

    def before_write(self, file: File, position: int, count: int) -> None:
        span = self._spans[-1]
        first = position // PAGE_SIZE
        for number in range(first, -(-(position + count) // PAGE_SIZE)):
            if number in self._forgotten:
                span.pages.setdefault(number, self._forgotten.pop(number))
        last_durable = -(-span.size // PAGE_SIZE)
        stop = min(-(-(position + count) // PAGE_SIZE), last_durable)
        for number in range(first, stop):
            self._put_aside(span, file, number)
        self.keeper = file
        self.resize(max(self.size, position + count))

    def before_truncate(self, file: File, size: int) -> None:
        span = self._spans[-1]
        for number in range(size // PAGE_SIZE, -(-span.size // PAGE_SIZE)):
            self._put_aside(span, file, number)
        self.keeper = file
        self.resize(size)

    def resize(self, size: int) -> None:
        span = self._spans[-1]
        self.size = size
        span.low = min(span.low, size)
        span.high = max(span.high, size)

    @staticmethod
    def _put_aside(span: _Span, file: File, number: int) -> None:
        if number not in span.pages:
            start = number * PAGE_SIZE
            span.pages[number] = file.read_at(start, min(PAGE_SIZE, span.size - start))

    def begin_sync(self) -> object:
        """Return a mark for `end_sync`: changes from now on are not covered (U3)."""
        span = _Span(self.size)
        self._spans.append(span)
        return span

    def fail_sync(self) -> None:
        """A sync failed: what was dirty is on no disk, and from now on nobody remembers that."""
        durable = self._spans[0].size
        old: dict[int, bytes] = {}
        for span in reversed(self._spans):
            old.update(span.pages)
        for number in range(-(-durable // PAGE_SIZE), -(-self.size // PAGE_SIZE)):
            old.setdefault(number, b"")
        for number, page in old.items():
            if number * PAGE_SIZE < self.size:
                self._forgotten.setdefault(number, page[: max(0, durable - number * PAGE_SIZE)])
        self._spans = [_Span(self.size)]

    def end_sync(self, mark: object) -> None:
        for position, span in enumerate(self._spans):
            if span is mark:
                del self._spans[:position]
                break
        if self.parent is not None and not self.is_dirty():
            self.keeper = None

    def is_dirty(self) -> bool:
        changed = any(span.pages or span.low != span.high for span in self._spans)
        return changed or bool(self._forgotten)

    def settle(self, dice: Random, style: Style) -> None:
        """Make the bytes what the disk holds after a cut."""
        if self.is_dirty():
            ensure(self.keeper is not None, "a dirty file is kept open", name=self.name)
            assert self.keeper is not None  # for the type checker
            self._undo(self.keeper, dice, style)
            self.size = self.keeper.size()
        self._spans = [_Span(self.size)]
        self._forgotten.clear()

    def _undo(self, file: File, dice: Random, style: Style) -> None:
        old: dict[int, bytes] = {}
        durable = self._spans[0].size
        old.update(self._forgotten)
        for span in reversed(self._spans):
            old.update(span.pages)
        old = {
            # A page that a failed sync did not write may have been shorter, or not there at all.
            number: old[number].ljust(PAGE_SIZE, b"\0")[: durable - number * PAGE_SIZE]
            for number in sorted(old)
            if number * PAGE_SIZE < durable
        }
        if style is Style.MIXED:
            style = dice.choice(_PLAIN_STYLES)
        if style is Style.DROP:
            self._restore_from(file, old, durable, 0)
        elif style is Style.TORN:
            self._tear(file, old, durable, dice)
        elif style is Style.REORDER:
            self._reorder(file, old, durable, dice)

    @staticmethod
    def _restore_from(file: File, old: dict[int, bytes], durable: int, cut: int) -> None:
        """Keep what is new below `cut`; from there on the old bytes are back."""
        for number, page in old.items():
            start = max(cut, number * PAGE_SIZE)
            rest = page[start - number * PAGE_SIZE :]
            if rest:
                file.write_at(start, [rest])
        file.truncate(max(cut, durable))

    def _tear(self, file: File, old: dict[int, bytes], durable: int, dice: Random) -> None:
        first = min([durable, self.size, *(number * PAGE_SIZE for number in old)])
        last = max(durable, self.size)
        cut = SECTOR_SIZE * dice.randint(first // SECTOR_SIZE, -(-last // SECTOR_SIZE))
        if cut < self.size:
            self._restore_from(file, old, durable, cut)

    def _reorder(self, file: File, old: dict[int, bytes], durable: int, dice: Random) -> None:
        low = min(span.low for span in self._spans)
        high = max(span.high for span in self._spans)
        size = dice.choice((durable, self.size, dice.randint(low, high)))
        fresh = range(-(-durable // PAGE_SIZE), -(-self.size // PAGE_SIZE))
        for number in [*old, *fresh]:
            if dice.random() < 0.5:
                page = old.get(number, b"").ljust(PAGE_SIZE, b"\0")
                file.write_at(number * PAGE_SIZE, [page])
        file.truncate(size)


class WatchedSync:
    """A sync that the kernel does by itself, of a file whose unsynced bytes are known."""

    __slots__ = ("_inner", "_on_ended")

    def __init__(self, inner: KernelSync, on_ended: Callable[[OSError | None], None]) -> None:
        self._inner = inner
        self._on_ended = on_ended

    @property
    def fd(self) -> int:
        return self._inner.fd

    def ended(self, error: OSError | None) -> None:
        self._inner.ended(error)
        self._on_ended(error)


class TrackedDirectory:
    """The names of one directory that were met so far, and their unsynced changes in order."""

    __slots__ = ("changes", "name", "names", "parent", "poisoned")

    def __init__(self) -> None:
        self.name = ""
        self.parent: TrackedDirectory | None = None
        self.names: dict[str, Tracked] = {}
        self.changes: list[NameChange] = []
        self.poisoned = False

    def attach(self, name: str, node: Tracked) -> None:
        self.names[name] = node
        node.name, node.parent = name, self

    def detach(self, node: Tracked) -> None:
        del self.names[node.name]
        node.parent = None

    def begin_sync(self) -> NameChange | None:
        """Return a mark for `end_sync`: the last change that the sync covers."""
        return self.changes[-1] if self.changes else None

    def end_sync(self, mark: NameChange | None) -> None:
        if mark is None or self.poisoned or mark not in self.changes:
            return
        covered = self.changes.index(mark) + 1
        for change in self.changes[:covered]:
            if isinstance(change.lost, TrackedFile):
                change.lost.keeper = None
        del self.changes[:covered]


Tracked = TrackedFile | TrackedDirectory


@dataclass(frozen=True, slots=True, eq=False)
class NameChange:
    """One step in the life of a directory: `source` became `target`, at the cost of `lost`.

    No source: `node` was made. No target: `lost` was removed.
    """

    number: int
    directory: TrackedDirectory
    source: str | None
    target: str | None
    node: Tracked | None
    lost: Tracked | None


class Tree:
    """All that is followed, over the files that really hold it."""

    def __init__(self, files: Files) -> None:
        self._files = files
        # Absolute and relative paths never meet.
        self._roots = {True: TrackedDirectory(), False: TrackedDirectory()}
        self._changes = 0

    def directory(self, path: str) -> TrackedDirectory:
        node = self._roots[path.startswith("/")]
        for part in path.split("/"):
            if part:
                child = node.names.get(part)
                if child is None:
                    child = TrackedDirectory()
                    node.attach(part, child)
                ensure(isinstance(child, TrackedDirectory), "a file has no names", path=path)
                assert isinstance(child, TrackedDirectory)  # for the type checker
                node = child
        return node

    def place(self, path: str) -> tuple[TrackedDirectory, str]:
        parent, _, name = path.rstrip("/").rpartition("/")
        return self.directory(f"{parent}/" if path.startswith("/") else parent), name

    def node(self, path: str) -> Tracked:
        """Return what is followed under this name. Something must be there."""
        parent, name = self.place(path)
        node = parent.names.get(name)
        if node is None:
            is_dir = self._files.is_dir(path)
            node = TrackedDirectory() if is_dir else TrackedFile(self._files.size_of(path))
            parent.attach(name, node)
        return node

    def made(self, path: str, node: Tracked) -> None:
        parent, name = self.place(path)
        parent.attach(name, node)
        self._note(parent, None, name, node, None)

    def removed(self, path: str, node: Tracked) -> None:
        parent, name = self.place(path)
        parent.detach(node)
        self._note(parent, name, None, None, node)

    def renamed(self, node: Tracked, target: str, lost: Tracked | None) -> None:
        parent, name = self.place(target)
        source = node.name
        if lost is not None:
            parent.detach(lost)
        parent.detach(node)
        parent.attach(name, node)
        self._note(parent, source, name, node, lost)

    def _note(
        self,
        parent: TrackedDirectory,
        source: str | None,
        target: str | None,
        node: Tracked | None,
        lost: Tracked | None,
    ) -> None:
        self._changes += 1
        parent.changes.append(NameChange(self._changes, parent, source, target, node, lost))

    def settle(self, dice: Random, style: Style) -> None:
        """Make everything what the disk holds after a cut."""
        directories = [
            *self._directories(self._roots[True]),
            *self._directories(self._roots[False]),
        ]
        lost_bytes: set[int] = set()
        undone: list[NameChange] = []
        for directory in directories:
            for node in self._files_of(directory):
                if id(node) not in lost_bytes:
                    lost_bytes.add(id(node))
                    node.settle(dice, style)
            undone += directory.changes[self._survivors(directory, dice, style) :]
            directory.changes = []
            directory.poisoned = False
        # Backwards through all directories at once: a name comes back before what was below it.
        for change in sorted(undone, key=lambda change: -change.number):
            if self._is_reachable(change.directory):
                self._undo(change)
        for directory in directories:
            for named in directory.names.values():
                if isinstance(named, TrackedFile):
                    named.keeper = None

    @staticmethod
    def _survivors(directory: TrackedDirectory, dice: Random, style: Style) -> int:
        if style is Style.DROP:
            return 0
        if style is Style.KEEP:
            return len(directory.changes)
        return dice.randint(0, len(directory.changes))

    def _directories(self, root: TrackedDirectory) -> Iterator[TrackedDirectory]:
        """Yield directories that are there or may come back, each once."""
        yield root
        below = [root.names[name] for name in sorted(root.names)]
        below += [change.lost for change in root.changes if change.lost is not None]
        for node in below:
            if isinstance(node, TrackedDirectory):
                yield from self._directories(node)

    @staticmethod
    def _files_of(directory: TrackedDirectory) -> list[TrackedFile]:
        nodes = [directory.names[name] for name in sorted(directory.names)]
        nodes += [change.lost for change in directory.changes if change.lost is not None]
        return [node for node in nodes if isinstance(node, TrackedFile)]

    def _is_reachable(self, directory: TrackedDirectory) -> bool:
        while directory.parent is not None:
            directory = directory.parent
        return directory in self._roots.values()

    def _path(self, directory: TrackedDirectory, name: str) -> str:
        parts = [name]
        while directory.parent is not None:
            parts.append(directory.name)
            directory = directory.parent
        root = "/" if directory is self._roots[True] else ""
        return root + "/".join(reversed(parts))

    def _undo(self, change: NameChange) -> None:
        parent = change.directory
        if change.target is not None and change.node is not None:
            path = self._path(parent, change.target)
            parent.detach(change.node)
            if change.source is None:
                self._erase(path)
            else:
                self._files.rename(path, self._path(parent, change.source))
                parent.attach(change.source, change.node)
        if change.lost is not None:
            name = change.target if change.target is not None else change.source
            ensure(name is not None, "what is lost had a name")
            assert name is not None  # for the type checker
            self._bring_back(self._path(parent, name), change.lost)
            parent.attach(name, change.lost)

    def _erase(self, path: str) -> None:
        if not self._files.is_dir(path):
            self._files.remove(path)
            return
        for name in self._files.list_dir(path):
            self._erase(f"{path}/{name}")
        self._files.remove_dir(path)

    def _bring_back(self, path: str, node: Tracked) -> None:
        if isinstance(node, TrackedDirectory):
            self._files.make_dir(path)
            return
        ensure(node.keeper is not None, "a removed file is kept open", path=path)
        assert node.keeper is not None  # for the type checker
        file = self._files.open(path, create=True)
        for position in range(0, node.size, _COPY_SIZE):
            file.write_at(position, [node.keeper.read_at(position, _COPY_SIZE)])
        file.close()
