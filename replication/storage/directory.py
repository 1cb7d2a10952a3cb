"""Whose data directory this is: one process at a time, one node, one cluster.

`meta.properties` is Kafka's file: `version=1`, `cluster.id`, `node.id`, `directory.id`. A directory
with another owner is refused before anything in it is read.

Not here: the partitions and the state store inside.

O1  who holds a `DataDirectory` holds the lock; a second process is refused, not made to wait
O2  only a blank directory gets an identity. Anything partial is refused with what to do:
    a volume that was not mounted must not look like a first start (rule 6)
O3  an identity, once written, is replaced by nothing. Only a missing cluster id is filled in
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from ottla.proto.errors import ConfigError, CorruptionError, StorageError
from ottla.replication.storage.ports import File, Files

META_NAME: Final = "meta.properties"
LOCK_NAME: Final = ".lock"
_TEMPORARY_NAME: Final = "meta.properties.tmp"
FORMAT_VERSION: Final = 1
# Four short lines. More is no file of ours, and need not be read to say so.
_META_BYTES_MAX: Final = 65536
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NUMBER: Final = re.compile(r"[0-9]{1,10}")
# Left by file systems and by a first start that was cut off; neither is somebody's data.
_HARMLESS_NAMES: Final = ("lost+found", _TEMPORARY_NAME)


@dataclass(frozen=True, slots=True)
class Identity:
    """What `meta.properties` says."""

    node_id: int
    directory_id: str
    # None until the node has met its cluster.
    cluster_id: str | None


class DataDirectory:
    """A data directory that belongs to this process, until `close`."""

    def __init__(self, files: Files, path: str, lock: File, identity: Identity) -> None:
        self.path: Final = path
        self.identity = identity
        self._files = files
        self._lock = lock

    @classmethod
    def open(
        cls,
        files: Files,
        path: str,
        *,
        node_id: int | None,
        cluster_id: str | None,
        strict: bool,
        new_id: Callable[[], str],
    ) -> DataDirectory:
        """Lock the directory and check whose it is; a blank one becomes ours unless `strict`.

        `node_id` and `cluster_id` are what the configuration says; None takes what is there.
        """
        try:
            if not files.exists(path):
                _require_may_start(path, strict=strict)
                files.make_dir(path)
                files.sync_dir(path.rstrip("/").rpartition("/")[0] or _root_of(path))
            lock = _take_lock(files, path)
            try:
                found = _find_identity(files, path, strict=strict)
                if found is None:
                    found = _new_identity(path, node_id, cluster_id, new_id)
                    _write_identity(files, path, found)
                directory = cls(files, path, lock, found)
                directory._require_owner(node_id, cluster_id)
            except BaseException:
                lock.close()
                raise
        except OSError as error:
            raise StorageError(f"The data directory {path} cannot be used: {error}.") from error
        return directory

    def join_cluster(self, cluster_id: str) -> None:
        """Write down the cluster that this node has met. Another one than before is refused."""
        self._require_owner(None, cluster_id)

    def close(self) -> None:
        self._lock.close()

    def _require_owner(self, node_id: int | None, cluster_id: str | None) -> None:
        found = self.identity
        if node_id is not None and node_id != found.node_id:
            raise ConfigError(
                f"The data directory {self.path} belongs to node {found.node_id}, and this is node "
                f"{node_id}. Correct node.id, or give this node a directory of its own."
            )
        if cluster_id is None or cluster_id == found.cluster_id:
            return
        if found.cluster_id is not None:
            raise ConfigError(
                f"The data directory {self.path} belongs to cluster {found.cluster_id}, and this "
                f"node is to join {cluster_id}. Correct controller.quorum.voters, or use another "
                "directory (log.dirs)."
            )
        self.identity = replace(found, cluster_id=_require_id(cluster_id, "cluster.id"))
        _write_identity(self._files, self.path, self.identity)


def _root_of(path: str) -> str:
    return "/" if path.startswith("/") else "."


def _require_may_start(path: str, *, strict: bool) -> None:
    if strict:
        raise ConfigError(
            f"The data directory {path} is empty, and this node is told not to start on an empty "
            "one. Is the expected file system mounted? If the node is new, start it once without."
        )


def _take_lock(files: Files, path: str) -> File:
    try:
        return files.lock(f"{path}/{LOCK_NAME}")
    except BlockingIOError as error:
        raise StorageError(
            f"The data directory {path} is in use by another process. "
            "Stop that one, or give this node a directory of its own."
        ) from error


def _find_identity(files: Files, path: str, *, strict: bool) -> Identity | None:
    """Return whose directory this is, or None if it is blank."""
    names = [name for name in files.list_dir(path) if not name.startswith(".")]
    if META_NAME in names:
        return _read_identity(files, f"{path}/{META_NAME}")
    others = [name for name in names if name not in _HARMLESS_NAMES]
    if others:
        raise StorageError(
            f"The data directory {path} holds {_some(others)} and no {META_NAME}. Bring that file "
            "back from a copy, or empty the directory and let this node copy everything again."
        )
    _require_may_start(path, strict=strict)
    return None


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:3])
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown


def _new_identity(
    path: str, node_id: int | None, cluster_id: str | None, new_id: Callable[[], str]
) -> Identity:
    if node_id is None:
        raise ConfigError(f"The data directory {path} is new: node.id must be given.")
    checked = None if cluster_id is None else _require_id(cluster_id, "cluster.id")
    return Identity(node_id, _require_id(new_id(), "directory.id"), checked)


def _require_id(value: str, key: str) -> str:
    if not _ID.fullmatch(value):
        raise ConfigError(f"{key} is 1 to 64 letters, digits, '-' or '_', and not {value[:80]!r}.")
    return value


def _write_identity(files: Files, path: str, identity: Identity) -> None:
    lines = [f"version={FORMAT_VERSION}"]
    if identity.cluster_id is not None:
        lines.append(f"cluster.id={identity.cluster_id}")
    lines += [f"node.id={identity.node_id}", f"directory.id={identity.directory_id}"]
    file = files.open(f"{path}/{_TEMPORARY_NAME}", create=True)
    try:
        file.truncate(0)
        file.write_at(0, ["".join(f"{line}\n" for line in lines).encode("ascii")])
        # Bytes first, then the name: the other order could leave an empty file under the name.
        file.sync()
    finally:
        file.close()
    files.rename(f"{path}/{_TEMPORARY_NAME}", f"{path}/{META_NAME}")
    files.sync_dir(path)


def _read_identity(files: Files, path: str) -> Identity:
    file = files.open(path, writable=False)
    try:
        raw = file.read_at(0, _META_BYTES_MAX + 1)
    finally:
        file.close()
    if len(raw) > _META_BYTES_MAX:
        raise CorruptionError(f"{path} is larger than {_META_BYTES_MAX} bytes; it is damaged.")
    rows = _parse(path, raw)
    version = _take(path, rows, "version", _NUMBER)
    if int(version) != FORMAT_VERSION:
        raise StorageError(
            f"{path} says version={version}, and this program reads version {FORMAT_VERSION}. "
            "Use the program that wrote it, or a newer one."
        )
    cluster_id = _take(path, rows, "cluster.id", _ID) if "cluster.id" in rows else None
    node_id = int(_take(path, rows, "node.id", _NUMBER))
    return Identity(node_id, _take(path, rows, "directory.id", _ID), cluster_id)


def _parse(path: str, raw: bytes) -> dict[str, tuple[int, str]]:
    """Return key → (line number, value). Keys that we do not know are Kafka's business."""
    rows: dict[str, tuple[int, str]] = {}
    for number, line in enumerate(raw.split(b"\n"), start=1):
        text = line.decode("utf-8", "backslashreplace").strip()
        if not text or text[0] in "#!":
            continue
        key, equals, value = text.partition("=")
        key = key.strip()
        if not equals or key in rows:
            raise _damaged(path, number, text)
        rows[key] = (number, value.strip())
    return rows


def _take(path: str, rows: dict[str, tuple[int, str]], key: str, pattern: re.Pattern[str]) -> str:
    if key not in rows:
        raise CorruptionError(f"{path} is damaged: it has no line {key}=….")
    number, value = rows[key]
    if not pattern.fullmatch(value):
        raise _damaged(path, number, f"{key}={value}")
    return value


def _damaged(path: str, number: int, text: str) -> CorruptionError:
    return CorruptionError(f"{path} is damaged in line {number}: {text[:80]!r}.")
