"""What is remembered of a local cluster between two commands."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from ottla.node.local.layout import lay_out
from ottla.node.local.processes import ProcessId
from ottla.node.local.record import LocalClusterError, NodeRecord, Place, Record
from ottla.node.local.states import NodeState, State, active_controller
from ottla.node.local.words import table_of, told_active, told_end, what_to_try
from ottla.proto.errors import StorageError

RECORD = Record({plan.node_id: NodeRecord(plan) for plan in lay_out(3, 9092)})


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    place = Place(tmp_path)
    assert place.read() is None
    written = RECORD.with_process(2, ProcessId(77, 123, "boot"))
    place.write(written)
    assert place.read() == written


def test_a_record_of_before_there_was_replication_is_read_with_the_ports_of_the_layout(
    tmp_path: Path,
) -> None:
    place = Place(tmp_path)
    place.write(RECORD)
    path = tmp_path / "cluster.json"
    told = json.loads(path.read_text())
    for node in told["nodes"]:
        del node["listeners"]["REPLICATION"]
    path.write_text(json.dumps(told))
    assert place.read() == RECORD


def test_a_place_without_a_cluster_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(
        LocalClusterError, match=r"`ottla cluster start --nodes 3 --data .*` makes one"
    ):
        Place(tmp_path / "nothing").require()


def test_a_hint_names_the_place_unless_it_is_where_a_cluster_is_by_default(tmp_path: Path) -> None:
    assert Place(tmp_path / "a b").option == f" --data '{tmp_path}/a b'"
    assert Place(Path("data-cluster").absolute()).option == ""


def test_what_to_try_names_every_node_also_at_the_default_port() -> None:
    told = list(what_to_try(RECORD, 1.0, ottla="ottla", place=""))
    every = "--bootstrap-server localhost:9092,localhost:9093,localhost:9094"
    assert [every in line for line in told[1:]] == ["cluster" not in line for line in told[1:]]


def test_of_a_node_that_ended_its_own_words_come_first(tmp_path: Path) -> None:
    lines = [*(f"line {number}" for number in range(20)), "ottla: the disk is full.", "bye"]
    told = told_end(2, tmp_path / "node.log", lines).splitlines()
    assert told[0] == "node 2 ended while it started: the disk is full."
    assert told[1] == f"Its log, {tmp_path}/node.log, ends:"
    assert told[-1] == "    bye"
    assert told_end(2, tmp_path, ["bye"]).startswith("node 2 ended while it started. Its log, ")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 2, "nodes": []}', '{"format": 1}'])
def test_a_record_that_cannot_be_read_is_refused_with_what_to_do(text: str, tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text(text)
    with pytest.raises(StorageError, match="is no record of a cluster"):
        Place(tmp_path).read()


def test_two_commands_never_change_a_record_at_once(tmp_path: Path) -> None:
    place = Place(tmp_path)
    story = list[str]()

    async def change(name: str) -> None:
        async with place.locked():
            story.append(f"{name} begins")
            await asyncio.sleep(0)
            story.append(f"{name} ends")

    async def both() -> None:
        await asyncio.gather(change("a"), change("b"))

    asyncio.run(both())
    first, second = story[0][0], story[2][0]
    assert story == [f"{first} begins", f"{first} ends", f"{second} begins", f"{second} ends"]


def _state(node_id: int, controller: int | None, state: State = State.READY) -> NodeState:
    return NodeState(RECORD.nodes[node_id], state, controller=controller)


def test_the_active_controller_is_one_that_says_so_itself() -> None:
    assert active_controller([_state(1, 1), _state(2, 3), _state(3, 3)]) == 3
    assert active_controller([_state(1, 2), _state(2, None), _state(3, 2)]) is None
    assert active_controller([_state(1, None)]) is None


def test_the_table_tells_addresses_states_and_who_leads() -> None:
    states = [_state(1, 1), NodeState(RECORD.nodes[2], State.DEAD, "its process 7 is gone")]
    lines = table_of(states, 1).splitlines()
    assert lines[0].split()[:4] == ["node", "pid", "roles", "client"]
    assert lines[1].endswith("ready  active controller")
    assert [f"127.0.0.1:{port}" in lines[2] for port in (9093, 9193, 9243, 9293)] == [True] * 4
    assert lines[2].endswith("dead   its process 7 is gone")
    assert told_active(states, 1) == "The active controller is node 1."
    assert told_active(states[1:], None) == "No node is running."
