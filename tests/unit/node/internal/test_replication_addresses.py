"""Where a follower looks for its leader: which addresses, for how long, and what it says then."""

from __future__ import annotations

from time import perf_counter

import pytest

from ottla.node.internal import replication_stream
from ottla.node.internal.cable import VANISHED_MS
from ottla.proto.options.endpoints import Address
from tests.unit.node.internal.link import hole, leader, pulling, run, until
from tests.unit.node.internal.stage import listen_to_logs
from tests.unit.node.internal.test_replication_stream import free_address


def test_a_leader_whose_door_cannot_be_reached_is_told_by_its_address() -> None:
    async def story() -> None:
        log = listen_to_logs()
        async with leader() as node:
            bound, node.entrance_address = node.entrance_address, free_address()
            async with pulling(node.where) as (stream, puller):
                await until(lambda: stream._failures >= 2)
                assert puller.connections == 0
                assert log.getvalue().count("leader_unreachable") == 1
                why = f"Its listener REPLICATION at {node.entrance_address} cannot be reached: "
                assert why + "Connection refused." in log.getvalue()
                node.entrance_address = bound
                (await node.fed()).tell(b"news")
                await until(lambda: puller.answers)

    run(story)


async def served_after(failures: int, inside: list[int]) -> None:
    """Follow a leader, whose port of INTERNAL `inside` is told, until it answers."""
    async with leader() as node:
        inside.append(node.address.port)
        async with pulling(node.where) as (stream, puller):
            (await node.fed()).tell(b"news")
            await until(lambda: puller.answers)
            assert stream._failures == failures


def test_of_several_addresses_of_a_name_the_one_that_works_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also if it is the first for one listener and the last for the other."""
    nobody = "127.0.0.9"

    async def resolved(address: Address) -> list[Address]:
        hosts = (nobody, address.host) if address.port in inside else (address.host, nobody)
        return [Address(host, address.port) for host in hosts]

    inside: list[int] = []
    monkeypatch.setattr(replication_stream, "resolve", resolved)
    run(lambda: served_after(1, inside))


def test_an_address_that_swallows_everything_leaves_time_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dead = "127.0.0.9"

    async def resolved(address: Address) -> list[Address]:
        hosts = (address.host,) if address.port in inside else (dead, address.host)
        return [Address(host, address.port) for host in hosts]

    inside: list[int] = []
    monkeypatch.setattr(replication_stream, "resolve", resolved)
    monkeypatch.setattr(replication_stream, "_CONNECT_S", 1.0)

    async def story() -> None:
        async with leader() as node:
            inside.append(node.address.port)
            with hole(dead, node.entrance_address.port):
                began = perf_counter()
                async with pulling(node.where) as (stream, puller):
                    (await node.fed()).tell(b"news")
                    await until(lambda: puller.answers)
                    assert stream._failures == 0
                # By the share of the time, and not because the kernel gave that address up.
                assert perf_counter() - began < VANISHED_MS / 1000

    run(story)


def test_of_many_addresses_others_are_tried_the_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def resolved(address: Address) -> list[Address]:
        nobody = [] if address.port in inside else [f"127.0.0.{last}" for last in range(9, 14)]
        return [Address(host, address.port) for host in (*nobody, address.host)]

    inside: list[int] = []
    monkeypatch.setattr(replication_stream, "resolve", resolved)
    run(lambda: served_after(3, inside))


def test_a_door_that_swallows_everything_is_told_by_its_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the reason of its first address, which had its share of the time and no more."""

    async def resolved(address: Address) -> list[Address]:
        nobody = [] if address.port in inside else [Address("127.0.0.10", address.port)]
        return [address, *nobody]

    inside: list[int] = []
    monkeypatch.setattr(replication_stream, "resolve", resolved)
    monkeypatch.setattr(replication_stream, "_CONNECT_S", 0.5)

    async def story() -> None:
        log = listen_to_logs()
        async with leader() as node:
            inside.append(node.address.port)
            began = perf_counter()
            with hole("127.0.0.9") as node.entrance_address:
                async with pulling(node.where) as (stream, _):
                    await until(lambda: stream._failures)
                assert perf_counter() - began < VANISHED_MS / 1000
                told = f"REPLICATION at {node.entrance_address} cannot be reached: no answer within"
                assert f"{told} 0.25 s." in log.getvalue()

    run(story)
