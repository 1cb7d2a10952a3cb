"""Voters that know only addresses become one cluster, over real gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import grpc
import pytest

from ottla.controller.quorum.formation import Account, Formation, Refusal
from ottla.controller.quorum.membership import Membership, Standing
from ottla.node.internal import introductions, wire
from ottla.node.internal.channels import Channels
from ottla.node.internal.identity import quorum_service
from ottla.node.internal.introductions import INTRODUCE, Introductions
from ottla.node.internal.listener import InternalListener
from ottla.node.internal.tls import Tls
from ottla.proto.errors import StorageError
from ottla.proto.options.endpoints import Address
from tests.unit.node.internal.certificates import Authority
from tests.unit.node.internal.stage import ANYWHERE, ask, listen_to_logs, run, until


class Listening(Formation):
    """Keeps what it heard."""

    accounts: list[Account]

    def hear(self, account: Account) -> Membership | Refusal | None:
        self.accounts.append(account)
        return super().hear(account)


class Newcomer:
    """A voter at its first start, or with what it kept."""

    def __init__(
        self,
        node_id: int,
        configured: Iterable[int],
        *,
        kept: Membership | None = None,
        tls: Tls | None = None,
        address: Address = ANYWHERE,
    ) -> None:
        self.node_id = node_id
        self.channels = Channels(tls)
        self.listener = InternalListener(address, tls)
        self.address = self.listener.bind()
        self.kept: list[Membership] = []
        self.joiners: list[tuple[int, str]] = []
        self.disk_is_bad = False
        self.gate = asyncio.Event()
        self.gate.set()
        self.formation = Listening(
            node_id=node_id,
            directory_id=f"directory-{node_id}",
            configured=configured,
            new_cluster_id=f"cluster-of-{node_id}",
            membership=kept,
        )
        self.formation.accounts = []
        self.talk: Introductions | None = None

    async def begin(self, voters: Mapping[int, Address]) -> asyncio.Task[Membership]:
        self.talk = Introductions(
            formation=self.formation,
            voters=voters,
            channels=self.channels,
            keep=self._keep,
            dice=Random(self.node_id),
            on_joiner=lambda node, directory: self.joiners.append((node, directory)),
        )
        self.listener.add(quorum_service(self.talk.handlers))
        await self.listener.start()
        return asyncio.create_task(self.talk.run_until_member())

    async def _keep(self, membership: Membership) -> None:
        await self.gate.wait()
        if self.disk_is_bad:
            raise StorageError("No room.")
        self.kept.append(membership)

    async def stop(self) -> None:
        if self.talk is not None:
            await self.talk.stop()
        await self.listener.stop(0)
        await self.channels.close()


@asynccontextmanager
async def meeting(*newcomers: Newcomer) -> AsyncIterator[dict[int, Address]]:
    try:
        yield {one.node_id: one.address for one in newcomers}
    finally:
        for one in newcomers:
            await one.stop()


def test_three_newcomers_become_voters_of_one_cluster() -> None:
    async def story() -> None:
        ones = [Newcomer(node_id, (1, 2, 3)) for node_id in (1, 2, 3)]
        async with meeting(*ones) as voters:
            found = await asyncio.gather(*[await one.begin(voters) for one in ones])
            assert {each.standing for each in found} == {Standing.VOTER}
            assert {each.cluster_id for each in found} == {"cluster-of-1"}
            directories = {node_id: f"directory-{node_id}" for node_id in (1, 2, 3)}
            assert all(each.voters == directories for each in found)
            for one, membership in zip(ones, found, strict=True):
                assert [kept.standing for kept in one.kept] == [Standing.FORMING, Standing.VOTER]
                assert one.kept[-1] == membership
                assert one.talk is not None
                assert one.talk.refusal is None

    run(story)


def test_one_voter_needs_nobody() -> None:
    async def story() -> None:
        one = Newcomer(1, (1,))
        async with meeting(one) as voters:
            membership = await (await one.begin(voters))
            assert membership.standing is Standing.VOTER
            assert one.kept == [membership]

    run(story)


def test_a_voter_that_kept_its_disk_needs_nobody_to_start_again() -> None:
    async def story() -> None:
        kept = Membership(Standing.VOTER, "c", 1, "directory-1", {1: "directory-1", 2: "d", 3: "e"})
        one = Newcomer(1, (1, 2, 3), kept=kept)
        nowhere = Address("127.0.0.1", 1)
        async with meeting(one) as voters:
            membership = await (await one.begin({**voters, 2: nowhere, 3: nowhere}))
            assert membership == kept
            assert not one.kept

    run(story)


def test_while_one_is_missing_nobody_goes_on_and_the_log_says_who(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(introductions, "TELL_S", 0.05)

    async def story() -> None:
        log = listen_to_logs()
        ones = [Newcomer(node_id, (1, 2, 3)) for node_id in (1, 2)]
        late = Newcomer(3, (1, 2, 3))
        async with meeting(*ones, late) as voters:
            waiting = [await one.begin(voters) for one in ones]
            await until(lambda: "quorum_forming missing=3" in log.getvalue())
            assert "a first start needs all voters up" in log.getvalue()
            assert not any(one.kept for one in ones)
            waiting.append(await late.begin(voters))
            found = await asyncio.gather(*waiting)
            assert {each.standing for each in found} == {Standing.VOTER}

    run(story)


def test_nothing_is_told_before_it_is_on_the_disk() -> None:
    async def story() -> None:
        ones = [Newcomer(node_id, (1, 2)) for node_id in (1, 2)]
        ones[0].gate.clear()
        async with meeting(*ones) as voters:
            waiting = [await one.begin(voters) for one in ones]
            await until(lambda: ones[0].formation.account.standing is Standing.FORMING)
            channels = Channels(None)
            asked = wire.encode_account(Account(2, "directory-2", (1, 2)))
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await ask(channels.to(1, voters[1]), INTRODUCE, asked, timeout_s=0.2)
            assert error.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            await channels.close()
            assert ones[0].talk is not None
            assert ones[0].talk.account.standing is Standing.BLANK
            assert not ones[1].kept
            ones[0].gate.set()
            await asyncio.gather(*waiting)

    run(story)


def test_a_caller_that_hangs_up_does_not_stop_what_is_on_its_way_to_the_disk() -> None:
    async def story() -> None:
        one = Newcomer(1, (1, 2))
        one.gate.clear()
        async with meeting(one) as voters:
            waiting = await one.begin({**voters, 2: Address("127.0.0.1", 1)})
            channels = Channels(None)
            asked = wire.encode_account(Account(2, "directory-2", (1, 2)))
            asking = asyncio.create_task(ask(channels.to(1, voters[1]), INTRODUCE, asked))
            await until(lambda: one.formation.account.standing is Standing.FORMING)
            asking.cancel()
            await channels.close()
            assert one.talk is not None
            assert one.talk.account.standing is Standing.BLANK
            one.gate.set()
            await until(lambda: one.talk and one.talk.account.standing is Standing.FORMING)
            assert [kept.standing for kept in one.kept] == [Standing.FORMING]
            waiting.cancel()

    run(story)


def test_a_disk_that_fails_ends_the_wait_and_is_not_told() -> None:
    async def story() -> None:
        ones = [Newcomer(node_id, (1, 2)) for node_id in (1, 2)]
        ones[0].disk_is_bad = True
        async with meeting(*ones) as voters:
            waiting = [await one.begin(voters) for one in ones]
            with pytest.raises(StorageError, match="No room"):
                await waiting[0]
            assert not ones[1].kept
            waiting[1].cancel()

    run(story)


def test_a_blank_voter_that_meets_voters_joins_and_they_hear_of_it() -> None:
    async def story() -> None:
        directories = {1: "directory-1", 2: "directory-2", 3: "lost"}
        ones = [
            Newcomer(
                n,
                (1, 2, 3),
                kept=Membership(Standing.VOTER, "c", n, f"directory-{n}", directories),
            )
            for n in (1, 2)
        ]
        blank = Newcomer(3, (1, 2, 3))
        async with meeting(*ones, blank) as voters:
            for one in ones:
                await (await one.begin(voters))
            membership = await (await blank.begin(voters))
            assert membership.standing is Standing.JOINING
            assert membership.cluster_id == "c"
            await until(lambda: all((3, "directory-3") in one.joiners for one in ones))
            assert blank.talk is not None
            blank.talk.became_voter()
            await until(lambda: ones[0].formation.accounts[-1].standing is Standing.VOTER)

    run(story)


def test_voters_that_disagree_wait_and_say_why_until_it_is_mended() -> None:
    async def story() -> None:
        log = listen_to_logs()
        one, two = Newcomer(1, (1, 2)), Newcomer(2, (1, 2, 3))
        async with meeting(one, two) as voters:
            waiting = [await each.begin(voters) for each in (one, two)]
            await until(lambda: one.talk is not None and one.talk.refusal)
            assert one.talk is not None
            sentence = "Node 2 has the voters 1, 2, 3 and this node has 1, 2: set"
            assert sentence in str(one.talk.refusal)
            # It is met again and again, and told once.
            await until(lambda: len(one.formation.accounts) >= 5)
            assert log.getvalue().count(sentence) == 1
            assert not one.kept
            waiting[1].cancel()
            await two.stop()
            mended = Newcomer(2, (1, 2), address=two.address)
            async with meeting(mended):
                waiting[1] = await mended.begin(voters)
                found = await asyncio.gather(*waiting)
                assert {each.standing for each in found} == {Standing.VOTER}
                assert one.talk.refusal is None

    run(story)


def test_another_node_at_the_address_of_a_voter_is_told() -> None:
    async def story() -> None:
        one, three = Newcomer(1, (1, 2, 3)), Newcomer(3, (1, 2, 3))
        async with meeting(one, three) as voters:
            waiting = [await each.begin({**voters, 2: three.address}) for each in (one, three)]
            assert one.talk is not None
            await until(lambda: one.talk is not None and one.talk.refusal)
            assert one.talk.refusal == "Node 3 is at the address of node 2."
            for each in waiting:
                each.cancel()

    run(story)


@pytest.mark.parametrize(
    ("request_", "code", "sentence"),
    [
        (b"\xff\xff", grpc.StatusCode.INVALID_ARGUMENT, "cannot be read"),
        (b"", grpc.StatusCode.INVALID_ARGUMENT, "not known here"),
        (bytes(100_000), grpc.StatusCode.INVALID_ARGUMENT, "65536 are allowed"),
    ],
    ids=["garbage", "nothing", "too large"],
)
def test_what_is_no_account_is_refused_and_told(
    request_: bytes, code: grpc.StatusCode, sentence: str
) -> None:
    async def story() -> None:
        log = listen_to_logs()
        one = Newcomer(1, (1,))
        async with meeting(one) as voters:
            await (await one.begin(voters))
            channels = Channels(None)
            with pytest.raises(grpc.aio.AioRpcError, match=sentence) as error:
                await ask(channels.to(1, one.address), INTRODUCE, request_)
            assert error.value.code() is code
            assert sentence in log.getvalue()
            await channels.close()

    run(story)


def test_a_node_that_is_no_voter_is_answered_and_changes_nothing() -> None:
    async def story() -> None:
        one = Newcomer(1, (1, 2))
        async with meeting(one) as voters:
            waiting = await one.begin({**voters, 2: Address("127.0.0.1", 1)})
            channels = Channels(None)
            stranger = wire.encode_account(Account(9, "d", (1, 2)))
            answer = await ask(channels.to(1, one.address), INTRODUCE, stranger)
            assert wire.decode_account(answer) == Account(1, "directory-1", (1, 2))
            assert one.talk is not None
            assert one.talk.missing == (2,)
            assert one.talk.refusal is None
            waiting.cancel()
            await channels.close()

    run(story)


def test_with_certificates_nobody_gives_the_account_of_another(tmp_path: Path) -> None:
    authority = Authority(tmp_path)

    async def story() -> None:
        ones = [Newcomer(n, (1, 2), tls=authority.tls(n)) for n in (1, 2)]
        async with meeting(*ones) as voters:
            waiting = [await ones[0].begin(voters)]
            channels = Channels(authority.tls(3))
            forged = wire.encode_account(Account(2, "mine", (1, 2)))
            told = "The certificate is that of node 3, and not of node 2."
            with pytest.raises(grpc.aio.AioRpcError, match=told) as error:
                await ask(channels.to(1, ones[0].address), INTRODUCE, forged)
            assert error.value.code() is grpc.StatusCode.PERMISSION_DENIED
            await channels.close()
            waiting.append(await ones[1].begin(voters))
            found = await asyncio.gather(*waiting)
            assert found[0].voters == {1: "directory-1", 2: "directory-2"}

    run(story)
