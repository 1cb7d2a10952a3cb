"""Where nodes dial, and where a judge may have them dial instead."""

from __future__ import annotations

from uuid import uuid4

import pytest

from ottla.controller.sightings import Verdict
from ottla.node.internal.channels import Channels, detours_from_environment
from ottla.node.internal.identity import WhoIAm
from ottla.node.internal.probe import Probe
from ottla.proto.errors import ConfigError
from ottla.proto.options.endpoints import Address
from tests.unit.node.internal.stage import run
from tests.unit.node.internal.test_probe import somebody


def test_detours_are_read_from_the_environment() -> None:
    found = detours_from_environment({"OTTLA_DIAL": "a:1>127.0.0.1:2; [fd00::3]:3>b:4;"})
    assert found == {
        Address("a", 1): Address("127.0.0.1", 2),
        Address("fd00::3", 3): Address("b", 4),
    }
    assert detours_from_environment({}) == {}


@pytest.mark.parametrize("text", ["a:1", "a:1>b", "a>b:1", ">", "a:1>b:99999"])
def test_what_is_no_detour_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="OTTLA_DIAL"):
        detours_from_environment({"OTTLA_DIAL": text})


def test_calls_and_probes_take_the_detour() -> None:
    async def story() -> None:
        me = WhoIAm(1, uuid4(), "c")
        async with somebody(me) as address:
            # Nobody listens where the node is said to be.
            told = Address("127.0.0.1", 1)
            channels = Channels(None, {told: address})
            found = await Probe(channels)(
                told, node_id=1, incarnation=me.incarnation, cluster_id="c", timeout_ms=5_000
            )
            assert found is Verdict.SAME_INCARNATION
            assert channels.way_to(address) == address

    run(story)
