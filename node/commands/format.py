"""`ottla format`: give the data directory of a new node its identity before its first start.

It is not needed: nodes that start with empty directories find each other and draw ids. It is for
whoever wants to know the ids beforehand.

    ottla format --random-uuid                     one id for the cluster, one for each voter
    ottla format --config F --cluster-id C         only the cluster is fixed; a first start still
                                                   needs every voter, to agree on the rest
    ottla format --config F --cluster-id C \\
        --voter-directory 1=D1 --voter-directory 2=D2 --voter-directory 3=D3
                                                   nothing is left to agree on: a majority can start

The second form must be typed with the same ids on every voter, and only once for each: a voter that
lost its disk starts with an empty directory and is admitted by the others. To format it again would
let it vote although it has forgotten its votes.

Not here: what the directory then holds (`replication/storage/directory.py`, `controller/quorum`).

F1  only a blank directory is formatted
F2  a node may vote at once only if the directory of every voter is given
"""

from __future__ import annotations

import binascii
import os
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

import click

from ottla.controller.quorum.formatting import format_blank, format_voter
from ottla.node.clock import new_id
from ottla.node.commands.config import parse_flags
from ottla.node.config import load_node_options
from ottla.proto.errors import ConfigError, StorageError
from ottla.proto.options import node as rows
from ottla.proto.options.option import shown
from ottla.proto.options.sources import Options
from ottla.replication.storage.directory import DataDirectory
from ottla.replication.storage.open import open_storage
from ottla.replication.storage.ports import Files

QUORUM_NAME: Final = "quorum"
_UUID_SIZE: Final = 16
_FILE_SYSTEMS_OWN: Final = "lost+found"


@click.command("format")
@click.option(
    "-c", "--config", "path", type=click.Path(path_type=Path), help="A file in Kafka's format."
)
@click.option("-t", "--cluster-id", metavar="ID", help="The cluster that the node belongs to.")
@click.option(
    "--voter-directory",
    "voters",
    multiple=True,
    metavar="NODE=ID",
    help="The directory of a voter, this one's included. Give all of them, or none.",
)
@click.option("--random-uuid", is_flag=True, help="Print a new id, and do nothing else.")
@click.argument("flags", nargs=-1, metavar="[KEY=VALUE]...")
def format_(
    path: Path | None,
    cluster_id: str | None,
    voters: tuple[str, ...],
    random_uuid: bool,
    flags: tuple[str, ...],
) -> None:
    """Give a new node's data directory its cluster id, and if wanted its place among the voters.

    Nodes that start with empty directories do this by themselves. The options are those of `ottla
    node`; log.dirs and node.id say which directory, and whose.
    """
    if random_uuid:
        click.echo(new_id())
        return
    if cluster_id is None:
        raise ConfigError(
            "--cluster-id is missing: the same for all nodes of the cluster. "
            "`ottla format --random-uuid` draws one."
        )
    options = load_node_options(path=path, environment=os.environ, flags=parse_flags(flags))
    directories = _voters_of(options, voters)
    node_id = options.value_of(rows.NODE_ID)
    directory_id = directories.get(node_id, "") or new_id()
    root = _format(options, cluster_id, directory_id, directories)
    click.echo(f"{root}: node {node_id} of cluster {cluster_id}, directory {directory_id}")
    if directories:
        click.echo(f"It votes, with {', '.join(map(str, sorted(directories)))}.")
    else:
        click.echo(
            "It finds out at its first start who else there is; every voter must be up then."
        )


def _voters_of(options: Options, given: tuple[str, ...]) -> dict[int, str]:
    """Return each voter's directory; nothing if none is given (F2)."""
    if not given:
        return {}
    found = dict[int, str]()
    for pair in given:
        name, _, value = pair.partition("=")
        if not (name.isascii() and name.isdigit()):
            raise ConfigError(f"--voter-directory takes NODE=ID, and {shown(pair)} is not.")
        if int(name) in found:
            raise ConfigError(f"--voter-directory names node {name} twice: keep one of them.")
        found[int(name)] = _require_uuid(f"--voter-directory of node {name}", value)
    if "controller" not in options.value_of(rows.PROCESS_ROLES):
        raise ConfigError("--voter-directory is for voters, and this node is a broker only.")
    node_id = options.value_of(rows.NODE_ID)
    voters = [int(one.node_id) for one in options.value_of(rows.CONTROLLER_VOTERS)] or [node_id]
    if sorted(voters) != sorted(found):
        raise ConfigError(
            f"--voter-directory must name every voter and nobody else: "
            f"controller.quorum.voters has {_listed(voters)}, and given are {_listed(found)}."
        )
    if len(set(found.values())) < len(found):
        raise ConfigError("--voter-directory gives two voters the same directory.")
    return found


def _require_uuid(what: str, text: str) -> str:
    try:
        size = len(urlsafe_b64decode(text.encode("ascii") + b"=="))
    except (binascii.Error, ValueError):
        size = 0
    if size != _UUID_SIZE or len(text) != len(new_id()) or text.startswith("-"):
        raise ConfigError(
            f"{what} must be an id as `ottla format --random-uuid` prints it, not {shown(text)}."
        )
    return text


def _format(options: Options, cluster_id: str, directory_id: str, voters: Mapping[int, str]) -> str:
    """Write the identity, and the journal of a voter; return the directory."""
    (given,) = options.value_of(rows.LOG_DIRS)
    root = str(Path(given).absolute())
    Path(root).parent.mkdir(parents=True, exist_ok=True)
    storage = open_storage(root, os.environ)
    _require_blank(storage.files, root)
    node_id = options.value_of(rows.NODE_ID)
    directory = DataDirectory.open(
        storage.files,
        root,
        node_id=node_id,
        cluster_id=cluster_id,
        strict=False,
        new_id=lambda: directory_id,
    )
    with closing(directory):
        if "controller" in options.value_of(rows.PROCESS_ROLES):
            with closing(storage.open_store(f"{root}/{QUORUM_NAME}")) as store:
                if voters:
                    format_voter(store, cluster_id, node_id, directory_id, voters)
                else:
                    format_blank(store)
    return root


def _require_blank(files: Files, root: str) -> None:
    names = files.list_dir(root) if files.exists(root) else ()
    there = sorted(one for one in names if not one.startswith(".") and one != _FILE_SYSTEMS_OWN)
    if there:
        raise StorageError(
            f"{root} is not blank: it holds {', '.join(there[:3])}. Only an empty directory is "
            "formatted; a node that has data has its identity already."
        )


def _listed(node_ids: Mapping[int, str] | list[int]) -> str:
    return ", ".join(map(str, sorted(node_ids)))
