"""How voters that know only addresses become a quorum: each tells each what it is, again and again.

What follows from it is decided by the formation's core; here its words are carried. After this
member votes, or joins, it goes on answering: another voter may come back without its disk, and
must hear that it is not the first.

Not here: what follows from an account (`ottla.controller.quorum.formation`), and admission.

F1  what this member tells is durable: `keep` has returned before the first word about it
F2  an account is heard only from the node that it is about, where there are certificates
F3  whoever waits is told who is missing or what is wrong, every few seconds; nobody gives up
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from random import Random
from typing import Any, Final, TypeAlias

import grpc

from ottla.controller.quorum.formation import Account, Formation, Refusal
from ottla.controller.quorum.membership import Membership, Standing
from ottla.node.internal import wire
from ottla.node.internal.channels import Channels
from ottla.node.internal.identity import SERVICE, Context, Handlers
from ottla.node.internal.peers import Told, end_if_cancelled, reason_of, report_bug
from ottla.node.logs import logger
from ottla.proto.errors import RemoteProtocolError, StorageError, ensure
from ottla.proto.options.endpoints import Address

_log = logger("internal.introductions")

INTRODUCE: Final = f"/{SERVICE}/Introduce"
# Who asks most is who has nothing yet.
_ASK_S: Final = {
    Standing.BLANK: 0.075,
    Standing.FORMING: 0.075,
    Standing.JOINING: 0.25,
    Standing.VOTER: 2.0,
}
TELL_S: Final = 5.0
_ANSWER_S: Final = 2.0
_ARRIVED: Final = (Standing.VOTER, Standing.JOINING)

Ask: TypeAlias = "grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]"
# Makes a membership durable.
Keep = Callable[[Membership], Awaitable[None]]
# Told the node and the data directory of a voter that says that it joins.
OnJoiner = Callable[[int, str], None]


class Introductions:
    """The talk of one voter with all others. `run_until_member`, at the end `stop`."""

    def __init__(
        self,
        *,
        formation: Formation,
        voters: Mapping[int, Address],
        channels: Channels,
        keep: Keep,
        dice: Random,
        on_joiner: OnJoiner | None = None,
    ) -> None:
        """`voters` are the addresses of all voters; that of this node is not used."""
        self._formation: Final = formation
        self._channels: Final = channels
        self._keep: Final = keep
        self._dice: Final = dice
        self.on_joiner = on_joiner
        # What others are told (F1).
        self._account = formation.account
        self._others: Final = {
            node: address for node, address in voters.items() if node != self._account.node_id
        }
        self._refusals: Final[dict[int, str]] = {}
        self._told: Final = {node: Told(_log.bind(peer=node)) for node in self._others}
        self._told_stranger: Final = Told(_log)
        self._listening: Final = asyncio.Lock()
        self._arrived: Final = asyncio.Event()
        self._failure: StorageError | None = None
        self._tasks: Final[set[asyncio.Task[None]]] = set()
        self._hearing: Final[set[asyncio.Task[None]]] = set()

    @property
    def handlers(self) -> Handlers:
        return {"Introduce": grpc.unary_unary_rpc_method_handler(self._introduce)}

    @property
    def account(self) -> Account:
        """Return what others are told."""
        return self._account

    @property
    def missing(self) -> tuple[int, ...]:
        """Return the voters that were not heard of since this process started."""
        return self._formation.missing

    @property
    def refusal(self) -> str | None:
        """Return why this member and others cannot come together, if they cannot."""
        return " ".join(self._refusals[node] for node in sorted(self._refusals)) or None

    async def run_until_member(self) -> Membership:
        """Talk until this member votes or joins, and return what it has stored.

        It goes on talking afterwards. Raises what `keep` raised.
        """
        async with self._listening:
            await self._conclude(self._formation.look_around())
            self._note_arrival()
        for node, address in self._others.items():
            self._begin(self._ask_for_ever(node, address))
        self._begin(self._complain_until_arrived())
        await self._arrived.wait()
        if self._failure is not None:
            raise self._failure
        membership = self._formation.membership
        ensure(membership is not None, "who arrived has stored it")
        if membership is None:
            raise StorageError("The membership is gone.")
        return membership

    def became_voter(self) -> None:
        """The quorum has admitted this member: from now on it says that it votes."""
        self._account = replace(self._account, standing=Standing.VOTER)

    async def stop(self) -> None:
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        # What is on its way to the disk gets there.
        await asyncio.gather(*tasks, *self._hearing, return_exceptions=True)

    # ── Hearing ───────────────────────────────────────────────────────────────────────────────

    async def _introduce(self, request: bytes, context: Context) -> bytes:
        tls = self._channels.tls
        verified_as = None if tls is None else tls.verified_node(context)
        try:
            account = wire.decode_account(request)
        except RemoteProtocolError as error:
            self._told_stranger.ill("account_malformed", str(error), caller=context.peer())
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        if verified_as is not None and verified_as != account.node_id:
            whose = "no node" if verified_as < 0 else f"node {verified_as}"
            why = f"The certificate is that of {whose}, and not of node {account.node_id}."
            self._told_stranger.ill("account_refused", why, caller=context.peer())
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, why)
        await self._hear(account)
        if self._failure is not None:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "The disk of it has failed.")
        return wire.encode_account(self._account)

    async def _hear(self, account: Account) -> None:
        """Take in an account. Once begun it is finished, though the caller may hang up."""
        task = asyncio.get_running_loop().create_task(self._hear_now(account))
        self._hearing.add(task)
        task.add_done_callback(self._hearing.discard)
        await asyncio.shield(task)

    async def _hear_now(self, account: Account) -> None:
        async with self._listening:
            found = self._formation.hear(account)
            if isinstance(found, Refusal):
                self._refuse(account.node_id, found)
                return
            self._refusals.pop(account.node_id, None)
            await self._conclude(found)
            self._note_arrival()
        is_joining = account.standing is Standing.JOINING
        if is_joining and self._account.standing in _ARRIVED and self.on_joiner is not None:
            self.on_joiner(account.node_id, account.directory_id)

    async def _conclude(self, found: Membership | Refusal | None) -> None:
        """Store what follows, and only then say so (F1)."""
        if not isinstance(found, Membership) or self._failure is not None:
            return
        try:
            await self._keep(found)
        except StorageError as error:
            self._failure = error
            return
        self._account = self._formation.account
        _log.info("standing_changed", standing=found.standing.value, cluster=found.cluster_id)

    def _note_arrival(self) -> None:
        if self._failure is not None or self._account.standing in _ARRIVED:
            self._arrived.set()

    def _refuse(self, node: int, refusal: Refusal) -> None:
        told = self._told.get(node)
        if told is None:
            self._told_stranger.ill("account_refused", refusal.sentence, peer=node)
            return
        self._refusals[node] = refusal.sentence
        told.ill("account_refused", refusal.sentence)

    # ── Asking ────────────────────────────────────────────────────────────────────────────────

    async def _ask_for_ever(self, node: int, address: Address) -> None:
        while True:
            try:
                channel = self._channels.to(node, address)
                ask: Ask = channel.unary_unary(INTRODUCE)
                told = wire.encode_account(self._account)
                answer = await ask(told, timeout=_ANSWER_S, wait_for_ready=False)
                account = wire.decode_account(answer)
                if account.node_id != node:
                    why = f"Node {account.node_id} is at the address of node {node}."
                    self._refuse(node, Refusal(why))
                else:
                    await self._hear(account)
                    if node not in self._refusals:
                        self._told[node].forget()
            except grpc.aio.AioRpcError as error:
                end_if_cancelled()
                self._tell_failure(node, error)
            except RemoteProtocolError as error:
                self._told[node].ill("account_malformed", str(error))
            pause_s = _ASK_S[self._account.standing]
            await asyncio.sleep(pause_s * (0.75 + self._dice.random() / 2))

    def _tell_failure(self, node: int, error: grpc.aio.AioRpcError) -> None:
        why = reason_of(error)
        if error.code() is grpc.StatusCode.PERMISSION_DENIED:
            self._refuse(node, Refusal(why))
        elif not self._arrived.is_set():
            self._told[node].ill("peer_unreachable", why, address=self._others[node])

    async def _complain_until_arrived(self) -> None:
        while not self._arrived.is_set():
            await asyncio.sleep(TELL_S)
            if self._arrived.is_set():
                return
            missing = ",".join(map(str, self.missing))
            _log.warning(
                "quorum_forming",
                missing=missing or "none",
                refusal=self.refusal or "none",
                hint="a first start needs all voters up",
            )

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(report_bug)
