"""What a local cluster looks like, and what stands in a node's file."""

from __future__ import annotations

import socket
from pathlib import Path
from random import Random

import pytest

from ottla.node.config import load_node_options
from ottla.node.local.layout import NODES_MAX, decided, file_text, lay_out, voter_count
from ottla.node.local.ports import choose_free, require_free
from ottla.proto.errors import ConfigError
from ottla.proto.options import node as rows
from ottla.proto.options.endpoints import LISTENER_NAMES
from ottla.proto.options.load import listeners_of


def test_an_odd_number_of_nodes_votes_and_never_more_than_five() -> None:
    assert [voter_count(count) for count in range(1, 9)] == [1, 1, 3, 3, 5, 5, 5, 5]
    voters = [plan.node_id for plan in lay_out(7, 9092) if plan.votes]
    assert voters == [1, 2, 3, 4, 5]


def test_a_port_tells_its_node() -> None:
    second = lay_out(3, 9092)[1]
    ports = [second.listeners[name].port for name in LISTENER_NAMES]
    assert (second.node_id, ports) == (2, [9093, 9193, 9243, 9293])


def test_no_two_nodes_of_the_largest_cluster_share_a_port() -> None:
    ports = [one.port for plan in lay_out(NODES_MAX, 9092) for one in plan.listeners.values()]
    assert len(set(ports)) == len(ports) == NODES_MAX * len(LISTENER_NAMES)


@pytest.mark.parametrize("base_port", [0, 65535, 65336])
def test_ports_that_do_not_exist_are_refused(base_port: int) -> None:
    with pytest.raises(ConfigError, match="leaves no room"):
        lay_out(1, base_port)


def test_a_node_reads_its_file_as_it_was_meant(tmp_path: Path) -> None:
    plans = lay_out(4, 9092)
    data = tmp_path / "with \\ and blank" / "data"
    path = tmp_path / "server.properties"
    path.write_text(file_text(None, decided(plans[3], plans, data), {"num.partitions": "7"}))
    options = load_node_options(path=path, environment={}, flags={})
    assert options.value_of(rows.NODE_ID) == 4
    assert options.value_of(rows.PROCESS_ROLES) == ("broker",)
    assert options.value_of(rows.LOG_DIRS) == (str(data),)
    assert options.value_of(rows.NUM_PARTITIONS) == 7
    assert [int(one.node_id) for one in options.value_of(rows.CONTROLLER_VOTERS)] == [1, 2, 3]
    assert listeners_of(options) == plans[3].listeners


def test_what_somebody_wrote_into_a_file_is_kept_and_the_layout_is_written_again() -> None:
    before = file_text(None, {"node.id": "1", "listeners": "old"}, {"num.partitions": "7"})
    edited = before + "# by hand\nlog.retention.hours=5\n"
    after = file_text(edited, {"node.id": "1", "listeners": "new"}, {"num.partitions": "8"})
    lines = after.splitlines()
    assert "listeners=new" in lines
    assert "listeners=old" not in lines
    assert lines.count("num.partitions=8") == 1
    assert "num.partitions=7" not in lines
    assert {"# by hand", "log.retention.hours=5"} <= set(lines)
    assert file_text(after, {"node.id": "1", "listeners": "new"}, {}) == after


def test_a_port_that_is_taken_is_named_with_its_node_and_listener() -> None:
    plans = choose_free(2, Random(5))
    require_free(plans)
    with socket.socket() as other:
        other.bind(("127.0.0.1", plans[1].listeners["INTERNAL"].port))
        other.listen()
        with pytest.raises(ConfigError) as refused:
            require_free(plans)
    taken = plans[1].listeners["INTERNAL"].port
    assert refused.value.problems[0] == (
        f"port {taken} is for INTERNAL of node 2, and it is in use."
    )
    assert "nothing was started" in refused.value.problems[1]
