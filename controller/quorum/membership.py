"""What a member is allowed to do in its quorum, and with whom: kept beside its journal.

A voter that comes back with an empty disk has forgotten its votes and its entries. So the right to
vote is a fact on the disk, written in the transaction that makes the journal, and nothing grants
it implicitly: an empty store is `blank`, and a blank member does nothing.

    blank ──> forming ──> voter        a first start: all voters agree who they are
      └─────> joining ──> voter        a voter that lost its disk: admitted by the others
      └─────────────────> voter        formatted by hand, with every voter's directory id

Not here: the talk that leads from one to the next.

B1  only a `voter` stands for election, votes, says yes to a pre-vote, or acknowledges entries;
    and only while its own journal names no other data directory for it
B2  a standing never goes back
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from crc32c import crc32c

from ottla.proto.errors import CorruptionError, StorageError

_FORMAT: Final = 1
_CHECKSUM_SIZE: Final = 4


class Standing(Enum):
    """How far a member has come."""

    BLANK = "blank"
    FORMING = "forming"
    JOINING = "joining"
    VOTER = "voter"


_NEXT: Final = {
    Standing.BLANK: frozenset({Standing.FORMING, Standing.JOINING, Standing.VOTER}),
    # `forming` may be replaced while nobody votes yet.
    Standing.FORMING: frozenset({Standing.FORMING, Standing.VOTER}),
    Standing.JOINING: frozenset({Standing.JOINING, Standing.VOTER}),
    Standing.VOTER: frozenset({Standing.VOTER}),
}


@dataclass(frozen=True, slots=True)
class Membership:
    """Whose journal this is, and who votes."""

    standing: Standing
    cluster_id: str
    node_id: int
    directory_id: str
    # Every voter with the id of its data directory; None where it is not known yet.
    voters: Mapping[int, str | None]

    def may_become(self, other: Membership) -> bool:
        """Tell whether `other` can follow this one (B2)."""
        is_same = (self.node_id, self.directory_id) == (other.node_id, other.directory_id)
        if self.standing is not Standing.FORMING and self.cluster_id != other.cluster_id:
            return False
        return is_same and other.standing in _NEXT[self.standing]


def encode_membership(membership: Membership) -> bytes:
    voters = {str(node): membership.voters[node] for node in sorted(membership.voters)}
    body = json.dumps(
        {
            "format": _FORMAT,
            "standing": membership.standing.value,
            "cluster_id": membership.cluster_id,
            "node_id": membership.node_id,
            "directory_id": membership.directory_id,
            "voters": voters,
        }
    ).encode()
    return crc32c(body).to_bytes(_CHECKSUM_SIZE, "big") + body


def decode_membership(data: bytes) -> Membership:
    body = data[_CHECKSUM_SIZE:]
    if int.from_bytes(data[:_CHECKSUM_SIZE], "big") != crc32c(body):
        raise CorruptionError("The quorum's record of its members is not what was written.")
    told = json.loads(body)
    if told["format"] != _FORMAT:
        sentence = f"The quorum's record of its members has the unknown format {told['format']}."
        raise StorageError(sentence)
    return Membership(
        standing=Standing(told["standing"]),
        cluster_id=told["cluster_id"],
        node_id=told["node_id"],
        directory_id=told["directory_id"],
        voters={int(node): directory for node, directory in told["voters"].items()},
    )
