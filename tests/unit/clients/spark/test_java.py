"""Which Java is taken: JAVA_HOME, PATH or the packaged one; and the script in front of that."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ottla.clients.spark.java import find_java, write_script
from ottla.proto.errors import ConfigError


def _pretend_java(home: Path, version: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return home


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    home = _pretend_java(tmp_path / "home", "21.0.1")
    path = _pretend_java(tmp_path / "path", "17.0.1")
    found = find_java({"JAVA_HOME": str(home), "PATH": str(path / "bin")}, tmp_path / "scripts")
    assert (found.home, found.origin, found.version) == (home, "JAVA_HOME", 21)


def test_a_java_on_path_is_taken_if_it_is_new_enough(tmp_path: Path) -> None:
    new = _pretend_java(tmp_path / "new", "17.0.15")
    found = find_java({"PATH": str(new / "bin")}, tmp_path / "scripts")
    assert (found.home, found.origin, found.version) == (None, "PATH", 17)


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.2"])
def test_a_java_home_that_is_too_old_is_told(tmp_path: Path, version: str) -> None:
    home = _pretend_java(tmp_path / "home", version)
    with pytest.raises(ConfigError, match=r"JAVA_HOME leads to Java (8|11); Spark needs 17"):
        find_java({"JAVA_HOME": str(home)}, tmp_path)


def test_a_java_home_without_java_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is no Java that runs"):
        find_java({"JAVA_HOME": str(tmp_path)}, tmp_path)


def test_the_script_leaves_out_the_module_that_is_missing_and_nothing_else(tmp_path: Path) -> None:
    packaged = tmp_path / "packaged"
    program = packaged / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\nfor word in "$@"; do echo "<$word>"; done\n')
    program.chmod(0o755)
    home = write_script(packaged, tmp_path / "scripts")
    words = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "-Dx=$y", "", "Main"]
    done = subprocess.run(
        [str(home / "bin/java"), *words], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["<-cp>", "<a b>", "<-Dx=$y>", "<>", "<Main>"]
