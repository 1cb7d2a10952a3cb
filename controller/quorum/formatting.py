"""A voter's journal, made by hand before its node starts: what `ottla format` does for a voter.

Whoever formats tells who votes, and from which data directory each. Only if every directory is told
does the member vote from its first moment on; nothing is left then to agree on, and each node can
be formatted and started by itself. With less it stays blank, and members form a cluster as usual.

Not here: the command, the data directory, and the cluster id that is pinned in it.

F1  a journal is made only of a whole list, in which this node has this directory
F2  a journal that is there is left alone
F3  a directory that is a cluster's, and has neither a journal nor this mark, has lost its journal
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.controller.quorum.entries import DIRECTORY_ID_BYTES_MAX
from ottla.controller.quorum.journal import create_journal
from ottla.controller.quorum.layout import FORMATTED_KEY, StateStore
from ottla.controller.quorum.membership import Membership, Standing
from ottla.proto.errors import ConfigError


def format_blank(store: StateStore) -> None:
    """Say that this member is new. Beside the id of a cluster, nothing else would say so."""
    store.commit({FORMATTED_KEY: b"1"})


def format_voter(
    store: StateStore,
    cluster_id: str,
    node_id: int,
    directory_id: str,
    voters: Mapping[int, str | None],
) -> Membership:
    """Make a member that votes; return what was stored. Raises `ConfigError` for half a list."""
    missing = sorted(voter for voter, directory in voters.items() if not directory)
    if missing or not voters:
        raise ConfigError(
            "A voter is formatted only with the data directory of every voter; "
            f"missing: {', '.join(map(str, missing)) or 'all'}."
        )
    if voters.get(node_id) != directory_id:
        raise ConfigError(
            f"The list of voters has node {node_id} with the data directory "
            f"{voters.get(node_id, 'none')}, and this is {directory_id}."
        )
    if len(set(voters.values())) < len(voters):
        raise ConfigError("Two voters have the same data directory in the list.")
    if any(len(str(each).encode()) > DIRECTORY_ID_BYTES_MAX for each in voters.values()):
        raise ConfigError(f"A directory id has at most {DIRECTORY_ID_BYTES_MAX} bytes.")
    if not cluster_id:
        raise ConfigError("A voter is formatted for a cluster, and no cluster id was given.")
    listed = {voter: voters[voter] for voter in sorted(voters)}
    membership = Membership(Standing.VOTER, cluster_id, node_id, directory_id, listed)
    create_journal(store, membership)
    return membership
