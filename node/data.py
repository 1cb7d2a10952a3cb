"""The data directory of this node, taken before anything else looks into it.

Not here: what lies in it: logs (`ottla.replication`), the quorum's journal (`voter.py`).
"""

from __future__ import annotations

import os
from base64 import urlsafe_b64decode
from binascii import Error as Base64Error
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import NAMESPACE_OID, uuid5

from ottla.node.clock import new_id
from ottla.node.options import NodeOptions
from ottla.proto.errors import StorageError
from ottla.proto.kafka.uuids import UUID
from ottla.proto.options import node
from ottla.replication.storage.directory import DataDirectory
from ottla.replication.storage.open import Storage, open_storage

_UUID_TEXT_SIZE: Final = 22


@dataclass(frozen=True, slots=True)
class Data:
    """An open data directory: it is this process's until `close`."""

    storage: Storage
    directory: DataDirectory

    @property
    def root(self) -> str:
        return self.directory.path

    @property
    def directory_id(self) -> str:
        return self.directory.identity.directory_id

    @property
    def boot_id(self) -> UUID:
        return uuid5(NAMESPACE_OID, self.storage.boot_id)

    def close(self) -> None:
        self.directory.close()


def data_dir_of(options: NodeOptions) -> str:
    (path,) = options.static.value_of(node.LOG_DIRS)
    return str(Path(path).absolute())


def open_data(options: NodeOptions, environ: Mapping[str, str]) -> Data:
    """Take the directory, or make it; raises `StorageError` and `ConfigError`."""
    root = data_dir_of(options)
    try:
        Path(root).parent.mkdir(parents=True, exist_ok=True)
        storage = open_storage(root, environ)
        directory = DataDirectory.open(
            storage.files,
            root,
            node_id=options.node_id,
            cluster_id=None,
            strict=options.static.value_of(node.STRICT_DATA_DIR),
            new_id=new_id,
        )
    except OSError as error:
        raise _unusable(f"The data directory {root} cannot be made: {error}.") from error
    except StorageError as error:
        if isinstance(error.__cause__, BlockingIOError):
            raise StorageError(f"log.dirs: {error}") from error
        if isinstance(error.__cause__, OSError):
            raise _unusable(str(error)) from error
        raise
    return Data(storage, directory)


def _unusable(why: str) -> StorageError:
    """Return the error, with what to change."""
    return StorageError(
        f"{why} Choose another directory with log.dirs, or let the user {os.getuid()} write there."
    )


def directory_uuid(directory_id: str) -> UUID:
    """Return a directory's id as the wire has it: the 16 bytes that its 22 letters stand for.

    Whoever wrote `meta.properties` by hand may have put any text there; that has an id too.
    """
    if len(directory_id) == _UUID_TEXT_SIZE:
        try:
            return UUID(bytes=urlsafe_b64decode(directory_id + "=="))
        except (Base64Error, ValueError):
            pass
    return uuid5(NAMESPACE_OID, directory_id)
