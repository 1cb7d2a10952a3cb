"""How members that have nothing become a quorum, and how one that lost its disk is told apart.

Every member keeps telling the others what it is (`Account`), and this core says what follows from
what was heard. The member with the lowest id alone makes the proposal; it is a voter first, and
only when everybody has stored the same proposal. A blank member that meets a voter is not new: it
has lost its disk, so it joins and does not vote until it was admitted.

Accounts may come late, twice and out of order. What a member did not say before this process began
does not come at all: what was under way to a process dies with it. The proposer's directory decides
once, so a proposal is known by its cluster id and that directory, whatever else changes in it.

Not here: admission itself, and who carries the accounts. The shell makes durable what `hear` and
`look_around` return before it says `account` to anybody: one lock for all three.

G1  nobody becomes a voter before all of them have stored the same list of directories
G2  what was stored is replaced only by the proposer's word, and only while no voter was heard of
G3  a blank member that hears of a voter joins; it never forms. If its own directory is said to vote
    then its journal was lost and its directory was not: it is refused
G4  members that disagree about who votes do nothing, and say why; so do those that were told of
    other voters than those with whom the cluster was formed
G5  who has left a proposal for another does not come back to it, nor votes by it: the proposer of
    the other may count on it already
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ottla.controller.quorum.membership import Membership, Standing


@dataclass(frozen=True, slots=True)
class Account:
    """What a member says about itself."""

    node_id: int
    directory_id: str
    # Who votes, according to its configuration.
    configured: tuple[int, ...]
    standing: Standing = Standing.BLANK
    # What it has stored; empty while it is blank.
    cluster_id: str = ""
    voters: Mapping[int, str | None] | None = None


# The cluster id and the data directory of the proposer.
_Proposal = tuple[str, str | None]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why this member goes no further, and what to do."""

    sentence: str


class Formation:
    """One member on its way to being a voter."""

    def __init__(
        self,
        *,
        node_id: int,
        directory_id: str,
        configured: Iterable[int],
        new_cluster_id: str,
        membership: Membership | None,
    ) -> None:
        self._node_id = node_id
        self._directory_id = directory_id
        self._configured = tuple(sorted(configured))
        # Used only by the proposer, and only if it has stored no other.
        self._new_cluster_id = new_cluster_id
        self._membership = membership
        self._heard: dict[int, Account] = {}
        # Proposals that this member has left for another (G5).
        self._left: set[_Proposal] = set()

    @property
    def membership(self) -> Membership | None:
        """Return what this member has stored; None while it is blank."""
        return self._membership

    @property
    def account(self) -> Account:
        stored = self._membership
        me = (self._node_id, self._directory_id, self._configured)
        if stored is None:
            return Account(*me)
        return Account(*me, stored.standing, stored.cluster_id, stored.voters)

    @property
    def missing(self) -> tuple[int, ...]:
        """Return who was not heard of yet: a first start needs everybody."""
        others = (node for node in self._configured if node != self._node_id)
        return tuple(node for node in others if node not in self._heard)

    def hear(self, account: Account) -> Membership | Refusal | None:
        """Take in what another member says; return what to store now, if anything."""
        if account.node_id not in self._configured or account.node_id == self._node_id:
            return Refusal(f"Node {account.node_id} is not among the voters of this node.")
        if account.configured != self._configured:
            return Refusal(
                f"Node {account.node_id} has the voters {_shown(account.configured)} and this node "
                f"has {_shown(self._configured)}: set controller.quorum.voters to the same on all."
            )
        self._heard[account.node_id] = account
        if self._standing in (Standing.VOTER, Standing.JOINING):
            return None
        if account.standing is Standing.VOTER:
            return self._meet_voter(account)
        return self.look_around()

    def look_around(self) -> Membership | Refusal | None:
        """Return what follows from all that was heard."""
        if self._standing in (Standing.VOTER, Standing.JOINING) or self._is_formed:
            return None
        if self._node_id == self._configured[0]:
            return self._propose_or_finish()
        return self._follow_proposer()

    @property
    def _standing(self) -> Standing:
        return Standing.BLANK if self._membership is None else self._membership.standing

    @property
    def _is_formed(self) -> bool:
        """Tell whether somebody is past forming, so that nothing may be replaced (G2)."""
        past = (Standing.VOTER, Standing.JOINING)
        return any(each.standing in past for each in self._heard.values())

    def _meet_voter(self, voter: Account) -> Membership | Refusal:
        voters = voter.voters or {}
        if tuple(sorted(voters)) != self._configured:
            return Refusal(
                f"The cluster {voter.cluster_id} was formed with the voters "
                f"{_shown(sorted(voters))}, and this node has {_shown(self._configured)}. Who "
                "votes cannot be changed: set controller.quorum.voters back to the former on all "
                "nodes, and let others be brokers only."
            )
        listed = voters.get(self._node_id)
        if self._membership is None:
            if listed == self._directory_id:
                return Refusal(
                    f"Node {voter.node_id} says that this data directory votes in the cluster "
                    f"{voter.cluster_id}, and its quorum's journal is gone or was never made. "
                    "Move the whole data directory away to let the node join anew; or format "
                    "it, if that was forgotten."
                )
            return self._store(Standing.JOINING, voter.cluster_id, voters)
        if voter.cluster_id != self._membership.cluster_id:
            return Refusal(
                f"Node {voter.node_id} votes in the cluster {voter.cluster_id}, and this node was "
                f"forming {self._membership.cluster_id}. Move its data directory away to let it "
                "join, or correct the address."
            )
        if listed != self._directory_id or self._proposal(voter) != self._proposal(self.account):
            return Refusal(
                f"The cluster {voter.cluster_id} was formed with another data directory of this "
                "node, or of the one that proposed it. Bring that one back, or move this one away "
                "to let the node join anew."
            )
        return self._store(Standing.VOTER, voter.cluster_id, voters)

    def _propose_or_finish(self) -> Membership | None:
        if self.missing:
            return None
        voters = {each.node_id: each.directory_id for each in self._heard.values()}
        voters = dict(sorted({**voters, self._node_id: self._directory_id}.items()))
        stored = self._membership
        if stored is None or stored.voters != voters:
            cluster_id = self._new_cluster_id if stored is None else stored.cluster_id
            found = self._store(Standing.FORMING, cluster_id, voters)
            # Alone, it has nobody to wait for.
            return found if self._heard else self._store(Standing.VOTER, cluster_id, voters)
        agreed = all(
            (each.standing, each.cluster_id, each.voters)
            == (Standing.FORMING, stored.cluster_id, voters)
            for each in self._heard.values()
        )
        return self._store(Standing.VOTER, stored.cluster_id, voters) if agreed else None

    def _follow_proposer(self) -> Membership | None:
        proposer = self._heard.get(self._configured[0])
        if proposer is None or proposer.standing is not Standing.FORMING:
            return None
        voters = proposer.voters or {}
        is_mine = voters.get(self._node_id) == self._directory_id
        stored = self._membership
        if not is_mine or tuple(sorted(voters)) != self._configured:
            return None
        if stored is not None and (stored.cluster_id, stored.voters) == (
            proposer.cluster_id,
            voters,
        ):
            return None
        if self._proposal(proposer) in self._left:
            return None
        if stored is not None and self._proposal(proposer) != self._proposal(self.account):
            self._left.add(self._proposal(self.account))
        return self._store(Standing.FORMING, proposer.cluster_id, voters)

    def _proposal(self, account: Account) -> _Proposal:
        """Return what identifies the proposal that a member has stored."""
        return account.cluster_id, (account.voters or {}).get(self._configured[0])

    def _store(
        self, standing: Standing, cluster_id: str, voters: Mapping[int, str | None]
    ) -> Membership:
        self._membership = Membership(
            standing, cluster_id, self._node_id, self._directory_id, dict(voters)
        )
        return self._membership


def _shown(nodes: Iterable[int]) -> str:
    return ", ".join(map(str, nodes))
