"""Finds `kcat`, or gets Debian's packages of it into `target/kcat` without being root.

Not here: what is asked of it (`clients/kcat.py`).
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_TARGET: Final = Path(__file__).resolve().parents[2] / "target"
_UNPACKED: Final = _TARGET / "kcat"
_APT_DEADLINE_S: Final = 120.0
# "Inst librdkafka1 (2.0.2-1 Debian:12.4/stable [amd64])": what is missing on this machine.
_TO_INSTALL: Final = re.compile(r"^Inst (\S+)", re.MULTILINE)


class KcatMissingError(Exception):
    """There is no kcat, and the text says why none could be got."""


@dataclass(frozen=True, slots=True)
class KcatProgram:
    """A kcat that can be run, and what it needs in the environment."""

    path: str
    environment: dict[str, str] = field(default_factory=dict)


@functools.cache
def find_kcat() -> KcatProgram:
    """Return the kcat on the PATH, or one from Debian's packages; raise `KcatMissingError`."""
    installed = shutil.which("kcat")
    if installed is not None:
        return KcatProgram(installed)
    if not (_UNPACKED / "usr" / "bin" / "kcat").exists():
        _unpack()
    return _unpacked_program()


def _unpacked_program() -> KcatProgram:
    libraries = sorted({str(file.parent) for file in _UNPACKED.rglob("*.so*")})
    environment = {"LD_LIBRARY_PATH": os.pathsep.join(libraries)}
    return KcatProgram(str(_UNPACKED / "usr" / "bin" / "kcat"), environment)


def _unpack() -> None:
    missing = [tool for tool in ("apt-get", "dpkg") if shutil.which(tool) is None]
    if missing:
        raise KcatMissingError(
            f"there is no kcat on the PATH, and without {missing[0]} Debian's cannot be got"
        )
    _TARGET.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_TARGET, prefix="kcat-") as folder:
        packages = Path(folder) / "packages"
        packages.mkdir()
        apt = _apt_that_knows_kcat(Path(folder))
        wanted = _TO_INSTALL.findall(_run([*apt, "install", "--simulate", "kcat"], packages))
        _run([*apt, "download", *wanted], packages)
        root = Path(folder) / "root"
        for package in sorted(packages.glob("*.deb")):
            _run(["dpkg", "-x", str(package), str(root)], packages)
        # Renamed when whole, so that an interrupted run leaves no half kcat behind.
        if not _UNPACKED.exists():
            root.rename(_UNPACKED)


def _apt_that_knows_kcat(folder: Path) -> list[str]:
    """Return apt with the machine's list of packages, or with a fresh one of our own."""
    apt = ["apt-get", "--quiet", "--yes", "--no-install-recommends"]
    try:
        _run([*apt, "install", "--simulate", "kcat"], folder)
    except KcatMissingError:
        # An image of Debian often comes with empty lists, and only root may fill them.
        for name in ("lists/partial", "cache/archives/partial"):
            (folder / name).mkdir(parents=True)
        apt += ["-o", f"Dir::State::Lists={folder / 'lists'}", "-o", f"Dir::Cache={folder}/cache"]
        _run([*apt, "update"], folder)
    return apt


def _run(command: list[str], folder: Path) -> str:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=_APT_DEADLINE_S,
            check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
    except subprocess.TimeoutExpired:
        raise KcatMissingError(f"`{' '.join(command)}` took too long") from None
    if done.returncode != 0:
        told = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        raise KcatMissingError(f"there is no kcat: `{' '.join(command)}` failed: {told[0]}")
    return done.stdout
