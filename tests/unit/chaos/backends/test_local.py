"""A cluster of processes that do not run yet: who is told to dial which gate."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.chaos.backends.local import LocalBackend, LocalSettings
from ottla.node.internal.channels import detours_from_environment
from ottla.proto.options.endpoints import Address
from ottla.proto.options.load import advertised_of, load
from ottla.proto.options.sources import Options

BROKERS, VOTER = (1, 2, 3), 4


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[LocalBackend]:
    made = LocalBackend(LocalSettings(directory=tmp_path, nodes=len(BROKERS), controllers=1))
    yield made
    made.close()


def options_of(backend: LocalBackend, node: int) -> Options:
    words = backend._processes[node].command
    flags = (word.partition("=") for word in words if "=" in word)
    return load(flags={name: text for name, _, text in flags})


def detours_of(backend: LocalBackend, node: int) -> dict[Address, Address]:
    return detours_from_environment(backend._processes[node].environment)


def test_between_brokers_there_is_a_gate_for_each_of_what_nodes_listen_at(
    backend: LocalBackend,
) -> None:
    told = {node: advertised_of(options_of(backend, node)) for node in (*BROKERS, VOTER)}
    for node in BROKERS:
        expected = {told[other]["INTERNAL"] for other in told if other != node}
        expected |= {told[other]["REPLICATION"] for other in BROKERS if other != node}
        assert set(detours_of(backend, node)) == expected
    assert set(detours_of(backend, VOTER)) == {told[other]["INTERNAL"] for other in BROKERS}


def test_no_two_gates_are_at_one_address_and_none_where_a_node_listens(
    backend: LocalBackend,
) -> None:
    nodes = (*BROKERS, VOTER)
    found = [gate for node in nodes for gate in detours_of(backend, node).values()]
    found += [one for node in nodes for one in advertised_of(options_of(backend, node)).values()]
    assert len(set(found)) == len(found)
    assert all(one.port for one in found)
