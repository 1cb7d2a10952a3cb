"""`ottla format`: what it writes, and what it refuses."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ottla.__main__ import main
from ottla.controller.quorum.journal import Journal
from ottla.controller.quorum.layout import is_blank
from ottla.controller.quorum.membership import Standing
from ottla.replication.storage.lmdb_store import LmdbStateStore

CLUSTER = "fZ1FrvQISrmRJO0dLdS_fQ"
DIRECTORIES = {
    1: "AGTl5fHTSqy0UesGBM8m0Q",
    2: "BGTl5fHTSqy0UesGBM8m0Q",
    3: "CGTl5fHTSqy0UesGBM8m0Q",
}
VOTERS = "controller.quorum.voters=1@a:1,2@b:1,3@c:1"
ALL = [f"--voter-directory={number}={name}" for number, name in DIRECTORIES.items()]


@pytest.fixture(autouse=True)
def _no_options_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in [name for name in os.environ if name.startswith("OTTLA_")]:
        monkeypatch.delenv(variable)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["format", *arguments])


def test_an_id_is_drawn_as_kafka_writes_them() -> None:
    first, second = run("--random-uuid"), run("--random-uuid")
    assert len(first.stdout.strip()) == 22
    assert first.stdout != second.stdout


def test_without_the_directories_of_all_voters_only_the_cluster_is_fixed(tmp_path: Path) -> None:
    done = run("--cluster-id", CLUSTER, f"log.dirs={tmp_path}/d", "node.id=2", VOTERS)
    assert done.exit_code == 0, done.stderr
    assert "every voter must be up then" in done.stdout
    lines = (tmp_path / "d" / "meta.properties").read_text().splitlines()
    assert {f"cluster.id={CLUSTER}", "node.id=2"} <= set(lines)
    store = LmdbStateStore(str(tmp_path / "d" / "quorum"))
    assert is_blank(store)
    store.close()


def test_with_the_directories_of_all_voters_it_votes(tmp_path: Path) -> None:
    done = run("-t", CLUSTER, f"log.dirs={tmp_path}/d", "node.id=2", VOTERS, *ALL)
    assert done.exit_code == 0, done.stderr
    assert done.stdout.endswith("It votes, with 1, 2, 3.\n")
    lines = (tmp_path / "d" / "meta.properties").read_text().splitlines()
    assert f"directory.id={DIRECTORIES[2]}" in lines
    store = LmdbStateStore(str(tmp_path / "d" / "quorum"))
    found = Journal(store).membership
    store.close()
    assert (found.standing, found.cluster_id) == (Standing.VOTER, CLUSTER)
    assert (found.node_id, found.directory_id, found.voters) == (2, DIRECTORIES[2], DIRECTORIES)


def test_a_directory_that_holds_anything_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    done = run("-t", CLUSTER, f"log.dirs={tmp_path}")
    assert done.exit_code == 1
    assert "is not blank: it holds orders-0" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["orders-0"]


def test_a_second_time_is_refused(tmp_path: Path) -> None:
    assert run("-t", CLUSTER, f"log.dirs={tmp_path}/d").exit_code == 0
    assert "is not blank" in run("-t", CLUSTER, f"log.dirs={tmp_path}/d").stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "--cluster-id is missing"),
        (["-t", CLUSTER, ALL[0], VOTERS, "node.id=1"], "must name every voter and nobody else"),
        (["-t", CLUSTER, *ALL], "must name every voter and nobody else"),
        (["-t", CLUSTER, *ALL, ALL[0], VOTERS, "node.id=1"], "names node 1 twice"),
        (["-t", CLUSTER, "--voter-directory=1"], "must be an id as"),
        (["-t", CLUSTER, "--voter-directory=one=x"], "takes NODE=ID"),
        (
            ["-t", CLUSTER, *ALL, VOTERS, "node.id=4", "process.roles=broker"],
            "this node is a broker only",
        ),
        (
            ["-t", CLUSTER, *ALL[:2], f"--voter-directory=3={DIRECTORIES[1]}", VOTERS, "node.id=1"],
            "gives two voters the same directory",
        ),
    ],
)
def test_wrong_arguments_are_one_sentence_and_nothing_is_written(
    arguments: list[str], told: str, tmp_path: Path
) -> None:
    done = run(*arguments, f"log.dirs={tmp_path}/d")
    assert done.exit_code == 2, done.stdout
    assert told in done.stderr
    assert not (tmp_path / "d").exists()
