"""A disk that misbehaves, in front of any other: one fault model for simulator and real process.

`FaultyFiles` and `FaultyStore` pass everything on, remember what is not durable yet, and fail when
they are told to: by a power cut, or by a plan of errors, a full disk and slow syncs.

`Power` is the switch. It counts moments: one before and one after each sync of a file, sync of a
directory and commit of a store. Cutting at every one of them in turn covers every order in which
things become durable; what happens between two is covered by the dice of the cut.

Not here: what exactly a cut takes (`unsynced.py`); how the environment of a real process asks for
faults (`open.py`). Names move within one directory only; another rename is refused (EXDEV).

F1  without a cut and without a plan nobody can tell them from what is behind them
F2  after a failed sync of a file later syncs answer "done", and keep nothing that was not written
    anew; after a failed sync of a directory later ones fail until the machine starts anew
F3  a store that failed to commit refuses every later commit
F4  between a cut and the restart everything raises `PowerCutError`; after it, old handles do
F5  the boot id changes with each cut, and with nothing else (rule 8)
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from random import Random
from threading import RLock
from typing import Final, Protocol

from ottla.proto.errors import StorageError, ensure
from ottla.replication.storage.errors import os_error
from ottla.replication.storage.failpoints import CrashError
from ottla.replication.storage.ports import Buffer, File, Files, StateStore
from ottla.replication.storage.unsynced import (
    Style,
    Tracked,
    TrackedDirectory,
    TrackedFile,
    Tree,
    WatchedSync,
)

# What a rule can be about. `committed` fails a commit that did happen: its outcome is unknown.
OPERATIONS: Final = (
    "open", "list", "read", "write", "truncate", "sync", "sync_dir", "rename", "remove", "make_dir",
    "lock", "commit", "committed",
)  # fmt: skip


class PowerCutError(CrashError):
    """The machine lost power here. Nothing catches it but the simulator."""


class PoweredDisk(Protocol):
    """What a switch is connected to."""

    def lose_power(self, dice: Random, style: Style) -> None:
        """Become what the disk holds after a cut."""

    def let_go(self) -> None:
        """Give back what a dead process held: its locks."""


class Power:
    """The power of one machine. It outlives the simulated processes that run on it."""

    def __init__(
        self,
        *,
        cut_at: int | None = None,
        machine: str = "machine",
    ) -> None:
        # Moments so far. The first one has number 1.
        self.moments = 0
        # Cut at the moment with this number.
        self.cut_at = cut_at
        # Counts the processes: a handle belongs to one of them.
        self.life = 0
        self.cuts = 0
        # Held while anything changes, so that a cut in one thread sees no half-done write.
        self.lock: Final = RLock()
        # Called instead of raising, in a real process. It does not return.
        self.on_cut: Callable[[], None] | None = None
        self._machine = machine
        self._is_on = True
        self._disks: list[PoweredDisk] = []

    @property
    def boot_id(self) -> str:
        return f"{self._machine}/{self.cuts}"

    def connect(self, disk: PoweredDisk) -> None:
        self._disks.append(disk)

    def moment(self, what: str) -> None:
        """Count a moment, and go dark if it is the one."""
        with self.lock:
            self.require(self.life)
            self.moments += 1
            if self.moments == self.cut_at:
                self.switch_off(f"moment {self.moments}: {what}")

    def switch_off(self, what: str) -> None:
        """Go dark now. In a simulation `cut` then decides what is left."""
        with self.lock:
            if self.on_cut is not None:
                self.on_cut()
            self._is_on = False
            raise PowerCutError(what)

    def require(self, life: int) -> None:
        """Raise unless the power is on and the process of that life still runs."""
        if not self._is_on or life != self.life:
            raise PowerCutError("the power is off, or this process is gone")

    def cut(self, dice: Random, style: Style) -> None:
        """Lose what the disk had not written, end all processes, and switch on again."""
        with self.lock:
            for disk in self._disks:
                disk.let_go()
                disk.lose_power(dice, style)
            self.cuts += 1
            self._start_over()

    def crash(self) -> None:
        """End all processes and lose nothing: the page cache belongs to the kernel."""
        with self.lock:
            for disk in self._disks:
                disk.let_go()
            self._start_over()

    def _start_over(self) -> None:
        self.life += 1
        self.cut_at = None
        self._is_on = True


@dataclass(slots=True)
class FaultRule:
    """Fail the n-th time that an operation meets a path, and if it lasts, every time from then."""

    operation: str
    # Matched against the whole path and against its last name.
    pattern: str
    nth: int = 1
    code: int = errno.EIO
    is_lasting: bool = False
    hits: int = 0


@dataclass(slots=True)
class FaultPlan:
    """Which errors happen when. It may be changed while things run, to heal a disk for instance."""

    rules: list[FaultRule] = field(default_factory=list)
    # Bytes that can still be written; None is any number.
    room_bytes: int | None = None
    # Called in each sync, to make it slow.
    slow_sync: Callable[[], None] | None = None
    # How often somebody met one of these, since this is the plan. Told to whoever judges.
    met: int = field(default=0, compare=False)

    def become(self, other: FaultPlan) -> None:
        """Go by another plan from now on."""
        self.met = 0
        self.rules = other.rules
        self.room_bytes = other.room_bytes
        self.slow_sync = other.slow_sync

    def tarry(self) -> None:
        """Take as long as the plan says."""
        if self.slow_sync is not None:
            self.met += 1
            self.slow_sync()

    def check(self, operation: str, path: str) -> None:
        """Raise `OSError` if a rule says so."""
        for rule in self.rules:
            if rule.operation == operation and (
                fnmatchcase(path, rule.pattern)
                or fnmatchcase(path.rpartition("/")[2], rule.pattern)
            ):
                rule.hits += 1
                if rule.hits == rule.nth or (rule.is_lasting and rule.hits > rule.nth):
                    self.met += 1
                    raise os_error(rule.code, path)


class FaultyFile:
    """One open file of a simulated or real process. It ends with that process."""

    __slots__ = ("_disk", "_inner", "_is_lock", "_life", "_node", "_path", "_writable")

    def __init__(
        self,
        disk: FaultyFiles,
        path: str,
        inner: File,
        node: TrackedFile,
        *,
        writable: bool = True,
        is_lock: bool = False,
    ) -> None:
        self._disk = disk
        self._path = path
        self._inner: File | None = inner
        self._node = node
        self._writable = writable
        self._is_lock = is_lock
        self._life = disk.power.life

    def _alive(self, operation: str) -> File:
        self._disk.power.require(self._life)
        self._disk.plan.check(operation, self._path)
        if self._inner is None:
            raise os_error(errno.EBADF, self._path)
        return self._inner

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> None:
        with self._disk.power.lock:
            inner = self._alive("write")
            size = sum(map(len, buffers))
            room = self._disk.plan.room_bytes
            if room is None or size <= room:
                self._write(inner, position, buffers, size)
            else:
                # A full disk takes what fits, and says so only then.
                self._disk.plan.met += 1
                self._write(inner, position, [b"".join(buffers)[:room]], room)
                raise os_error(errno.ENOSPC, self._path)

    def _write(self, inner: File, position: int, buffers: Sequence[Buffer], size: int) -> None:
        if size and position >= 0 and self._writable:
            self._node.before_write(inner, position, size)
        try:
            inner.write_at(position, buffers)
        finally:
            self._node.resize(inner.size())
        if self._disk.plan.room_bytes is not None:
            self._disk.plan.room_bytes -= size

    def read_at(self, position: int, size: int) -> bytes:
        return self._alive("read").read_at(position, size)

    def size(self) -> int:
        return self._alive("size").size()

    def truncate(self, size: int) -> None:
        with self._disk.power.lock:
            inner = self._alive("truncate")
            if size >= 0 and self._writable:
                self._node.before_truncate(inner, size)
            try:
                inner.truncate(size)
            finally:
                self._node.resize(inner.size())

    def reserve(self, size: int) -> None:
        power = self._disk.power
        with power.lock, suppress(PowerCutError):
            power.require(self._life)
            if self._inner is not None:
                self._inner.reserve(size)

    def sync(self) -> None:
        power = self._disk.power
        power.require(self._life)
        power.moment(f"before sync of {self._path}")
        with power.lock:
            mark = self._node.begin_sync()
        try:
            inner = self._alive("sync")
            self._disk.plan.tarry()
            inner.sync()
        except OSError:
            with power.lock:
                self._node.fail_sync()
            raise
        with power.lock:
            power.require(self._life)
            self._node.end_sync(mark)
        power.moment(f"after sync of {self._path}")

    def begin_kernel_sync(self) -> WatchedSync | None:
        plan, power = self._disk.plan, self._disk.power
        if plan.rules or plan.slow_sync is not None or self._inner is None:
            # It may fail, or take its time, here and not in the kernel.
            return None
        inner = self._inner.begin_kernel_sync()
        if inner is None:
            return None
        power.require(self._life)
        power.moment(f"before sync of {self._path}")
        with power.lock:
            # If it is not taken, this mark means nothing.
            return WatchedSync(inner, partial(self._kernel_sync_ended, self._node.begin_sync()))

    def _kernel_sync_ended(self, mark: object, error: OSError | None) -> None:
        power = self._disk.power
        with power.lock:
            if error is not None:
                self._node.fail_sync()
                return
            power.require(self._life)
            self._node.end_sync(mark)
        power.moment(f"after sync of {self._path}")

    def map(self) -> memoryview:
        return self._alive("read").map()

    def fileno(self) -> int:
        return self._alive("read").fileno()

    def close(self) -> None:
        with self._disk.power.lock:
            inner, self._inner = self._inner, None
            # Unsynced bytes can be taken back only through an open handle; the tracker has it.
            if inner is not None and (self._is_lock or self._node.keeper is not inner):
                inner.close()


class FaultyFiles:
    """A directory tree that may lose power. It outlives the processes that use it."""

    def __init__(self, inner: Files, power: Power, plan: FaultPlan | None = None) -> None:
        self.power: Final = power
        self.plan: Final = FaultPlan() if plan is None else plan
        self._inner = inner
        self._tree = Tree(inner)
        self._locks: list[File] = []
        power.connect(self)

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> FaultyFile:
        with self.power.lock:
            self._alive("open", path)
            is_new = create and not self._inner.exists(path)
            file = self._inner.open(path, create=create, writable=writable)
            node = self._node_of(path, is_new=is_new)
            return FaultyFile(self, path, file, node, writable=writable)

    def exists(self, path: str) -> bool:
        self._alive("exists", path)
        return self._inner.exists(path)

    def size_of(self, path: str) -> int:
        self._alive("size", path)
        return self._inner.size_of(path)

    def list_dir(self, path: str) -> list[str]:
        self._alive("list", path)
        return self._inner.list_dir(path)

    def is_dir(self, path: str) -> bool:
        self._alive("exists", path)
        return self._inner.is_dir(path)

    def make_dir(self, path: str) -> None:
        with self.power.lock:
            self._alive("make_dir", path)
            is_new = not self._inner.exists(path)
            self._inner.make_dir(path)
            if is_new:
                self._tree.made(path, TrackedDirectory())

    def rename(self, source: str, target: str) -> None:
        with self.power.lock:
            self._alive("rename", source)
            node: Tracked | None = None
            lost: Tracked | None = None
            if self._inner.exists(source):
                if source.rpartition("/")[0] != target.rpartition("/")[0]:
                    raise os_error(errno.EXDEV, target)
                if self._inner.exists(target):
                    lost = self._kept_node(target)
                node = self._tree.node(source)
            # A missing source gets its error here, from the files themselves.
            self._inner.rename(source, target)
            if node is not None and source != target:
                self._tree.renamed(node, target, lost)

    def remove(self, path: str) -> None:
        with self.power.lock:
            self._alive("remove", path)
            if not self._inner.exists(path) or self._inner.is_dir(path):
                self._inner.remove(path)
                return
            node = self._kept_node(path)
            self._inner.remove(path)
            self._tree.removed(path, node)

    def remove_dir(self, path: str) -> None:
        with self.power.lock:
            self._alive("remove", path)
            if not self._inner.is_dir(path):
                self._inner.remove_dir(path)
                return
            node = self._tree.node(path)
            self._inner.remove_dir(path)
            self._tree.removed(path, node)

    def sync_dir(self, path: str) -> None:
        self.power.moment(f"before sync of directory {path}")
        with self.power.lock:
            if not self._inner.is_dir(path):
                self._inner.sync_dir(path)
            directory = self._tree.directory(path)
            mark = directory.begin_sync()
        try:
            self.plan.check("sync_dir", path)
            if directory.poisoned:
                # Its journal was aborted: no filesystem goes on after that.
                raise os_error(errno.EIO, path)
            self.plan.tarry()
            self._inner.sync_dir(path)
        except OSError:
            directory.poisoned = True
            raise
        with self.power.lock:
            directory.end_sync(mark)
        self.power.moment(f"after sync of directory {path}")

    def lock(self, path: str) -> FaultyFile:
        with self.power.lock:
            self._alive("lock", path)
            is_new = not self._inner.exists(path)
            file = self._inner.lock(path)
            self._locks.append(file)
            return FaultyFile(self, path, file, self._node_of(path, is_new=is_new), is_lock=True)

    def lose_power(self, dice: Random, style: Style) -> None:
        self._tree.settle(dice, style)

    def let_go(self) -> None:
        for file in self._locks:
            file.close()
        self._locks.clear()

    def _alive(self, operation: str, path: str) -> None:
        self.power.require(self.power.life)
        self.plan.check(operation, path)

    def _node_of(self, path: str, *, is_new: bool) -> TrackedFile:
        if is_new:
            node = TrackedFile(0)
            self._tree.made(path, node)
            return node
        found = self._tree.node(path)
        ensure(isinstance(found, TrackedFile), "only files are opened", path=path)
        assert isinstance(found, TrackedFile)  # for the type checker
        return found

    def _kept_node(self, path: str) -> Tracked:
        """Return what is about to lose its name, held open so that it can come back."""
        node = self._tree.node(path)
        if isinstance(node, TrackedFile) and node.keeper is None:
            node.keeper = self._inner.open(path, writable=False)
        return node


class FaultyStore:
    """A state store of one process that may lose power before or after a commit, never within."""

    def __init__(
        self, inner: StateStore, power: Power, plan: FaultPlan | None = None, *, name: str = "state"
    ) -> None:
        self._inner = inner
        self._power = power
        self._plan = FaultPlan() if plan is None else plan
        self._name = name
        self._life = power.life
        self._refusal: str | None = None

    def get(self, key: bytes) -> bytes | None:
        self._power.require(self._life)
        return self._inner.get(key)

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        self._power.require(self._life)
        return self._inner.scan(prefix)

    def commit(self, changes: Mapping[bytes, bytes | None]) -> None:
        self._power.require(self._life)
        if self._refusal is not None:
            raise StorageError(self._refusal)
        self._power.moment(f"before commit of {self._name}")
        try:
            self._plan.check("commit", self._name)
            self._inner.commit(changes)
            self._plan.check("committed", self._name)
        except OSError as error:
            sentence = f"The state store {self._name} failed to commit: {error}."
            self._refusal = f"{sentence} It commits nothing any more."
            raise StorageError(sentence) from error
        self._power.moment(f"after commit of {self._name}")

    def close(self) -> None:
        self._inner.close()
