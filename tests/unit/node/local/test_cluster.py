"""What a local cluster refuses to start, and that it leaves nothing behind."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

from ottla.node.clock import Clock
from ottla.node.local.cluster import LocalCluster
from ottla.proto.errors import ConfigError


def launch(root: Path, **options: str) -> str:
    """Try to start three nodes, and return why that is refused."""
    named = {name.replace("_", "."): value for name, value in options.items()}
    local = LocalCluster(root, {}, Clock(), Random(5))
    with pytest.raises(ConfigError) as refused:
        asyncio.run(local.launch(3, 0, named))
    return str(refused.value)


def test_the_data_directory_of_a_node_is_no_place_for_a_cluster(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=1\n")
    assert launch(tmp_path) == (
        f"{tmp_path} is a node's data directory (it has meta.properties): give the cluster a place "
        "of its own with --data."
    )
    assert [one.name for one in tmp_path.iterdir()] == ["meta.properties"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"foo_bar": "1"}, 'unknown option "foo.bar"'),
        ({"num_partitions": "many"}, "num.partitions must be a whole number"),
        ({"node_id": "9"}, "node.id follows from --nodes"),
    ],
)
def test_a_wrong_option_leaves_nothing_behind(
    options: dict[str, str], told: str, tmp_path: Path
) -> None:
    refused = launch(tmp_path / "new", **options)
    assert told in refused
    assert "server.properties" not in refused
    assert not (tmp_path / "new").exists()


def test_a_wrong_line_that_is_there_already_is_told_with_its_file_and_may_be_replaced(
    tmp_path: Path,
) -> None:
    path = tmp_path / "node-2" / "server.properties"
    path.parent.mkdir()
    path.write_text("num.partitions=many\n")
    assert f"{path}, line " in launch(tmp_path)
    assert "foo.bar" in launch(tmp_path, num_partitions="4", foo_bar="1")
    assert path.read_text() == "num.partitions=many\n"


def test_the_first_node_is_at_port_9092_unless_told_otherwise(tmp_path: Path) -> None:
    plans = LocalCluster(tmp_path, {}, Clock(), Random(5))._plans(None, 3, None)
    told = [str(plan.listeners["CLIENT"]) for plan in plans]
    assert told == ["127.0.0.1:9092", "127.0.0.1:9093", "127.0.0.1:9094"]
