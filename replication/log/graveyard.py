"""Logs that leave a data directory: deleted for ever, or set aside because nobody claims them.

An undertaker signs first, then moves the coffin, then strikes the name from the register: after an
interruption at any point the register says what is left to do.

M2  a partition is removed only when somebody said so, by rename first              (rule 56)

Everything here may run on any thread, one call at a time; `remove_buried` also beside the others.
Errors are the kernel's and the store's; who calls decides what they mean.

Not here: which logs should go, and taking them out of use first (`manager.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import count
from typing import Final

from ottla.proto.errors import StorageError
from ottla.replication.log.state import (
    Intent,
    PartitionState,
    Pending,
    decode_state,
    encode_state,
    forgotten,
    partition_key,
    producers_prefix,
)
from ottla.replication.storage.ports import Files, StateStore

PARTITION_NAME: Final = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9][0-9]{0,9})")
_DELETED_SUFFIX: Final = "-delete"
# Of a partition that is in nobody's metadata. It is never removed by us.
_STRAY_SUFFIX: Final = "-stray"
_DELETED_NAME: Final = re.compile(PARTITION_NAME.pattern + r"\.[0-9]+" + _DELETED_SUFFIX)
# What a file system takes for a name.
_NAME_BYTES_MAX: Final = 255


class Graveyard:
    """Where the logs of one data directory go."""

    def __init__(self, files: Files, store: StateStore, root: str) -> None:
        self._files: Final = files
        self._store: Final = store
        self._root: Final = root
        # Directories of deleted partitions that wait to be removed.
        self._buried: list[str] = []

    @staticmethod
    def is_grave(name: str) -> bool:
        return _DELETED_NAME.fullmatch(name) is not None

    def bury(self, doomed: Mapping[str, PartitionState]) -> None:
        """Remove partitions for ever; their files go with `remove_buried`, or at the next start.

        The order: the intents are committed; the directories get other names; the records go. After
        a crash in between, the next start finishes it.
        """
        intents: dict[bytes, bytes | None] = {}
        for name, state in doomed.items():
            # Snapshots go now: if the rest has to wait, a new topic of this name finds none.
            intents.update({key: None for key, _ in self._store.scan(producers_prefix(name))})
            pending = Pending(intent=Intent.DELETE)
            intents[partition_key(name)] = encode_state(replace(state, pending=pending))
        self._store.commit(intents)
        self.finish(doomed)

    def finish(self, names: Iterable[str]) -> None:
        """Do what the committed intents say."""
        listed = list(names)
        for name in listed:
            directory = f"{self._root}/{name}"
            if self._files.exists(directory):
                buried = self._free_name(name, _DELETED_SUFFIX)
                self._files.rename(directory, buried)
                self._buried.append(buried)
        self._files.sync_dir(self._root)
        self.forget(listed)

    def is_deletion_pending(self, name: str) -> bool:
        try:
            value = self._store.get(partition_key(name))
            state = None if value is None else decode_state(name, value)
        except StorageError:
            return False
        return state is not None and state.pending.intent is Intent.DELETE

    def set_aside(self, name: str) -> str:
        """Give the directory of a partition that nobody claims another name, and return that.

        Its record goes first: after a crash in between, the next start opens the directory without
        one, finds again that nobody claims it, and sets it aside.
        """
        self.forget([name])
        aside = self._free_name(name, _STRAY_SUFFIX)
        self._files.rename(f"{self._root}/{name}", aside)
        self._files.sync_dir(self._root)
        return aside

    def forget(self, names: Iterable[str]) -> None:
        """Let the store know nothing more of these partitions."""
        changes: dict[bytes, bytes | None] = {}
        for name in names:
            keys = [key for key, _ in self._store.scan(producers_prefix(name))]
            changes.update(forgotten(name, keys))
        self._store.commit(changes)

    def _free_name(self, name: str, suffix: str) -> str:
        """Return another path that nothing has; of a long topic's name only the beginning."""
        topic, _, index = name.rpartition("-")
        for number in count():
            ending = f"-{index}.{number}{suffix}"
            free = f"{self._root}/{topic[: _NAME_BYTES_MAX - len(ending)]}{ending}"
            if not self._files.exists(free):
                return free
        raise AssertionError

    def remove_buried(self) -> None:
        """Remove the files of deleted partitions."""
        while self._buried:
            # What cannot be removed now is removed at the next start, which also says so.
            self.remove_tree(self._buried.pop(), [])

    def remove_tree(self, path: str, notes: list[str]) -> None:
        try:
            for name in self._files.list_dir(path):
                self._files.remove(f"{path}/{name}")
            self._files.remove_dir(path)
        except OSError as error:
            notes.append(f"{path} was to be removed: {error}")
