"""Ports that are one's own, also while nobody listens at them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from ottla.chaos.backends.reserved import PORT_RANGE, PortBook, reserve_ports

_PORT = PORT_RANGE[0]
_OTHER = """
import sys
from pathlib import Path
from ottla.chaos.backends.reserved import PortBook
book = PortBook(Path(sys.argv[1]))
print(book.claim(int(sys.argv[2])), flush=True)
sys.stdin.read()
"""

_FORKED = """
import os, sys
from pathlib import Path
from ottla.chaos.backends.reserved import PortBook
book, port = PortBook(Path(sys.argv[1])), int(sys.argv[2])
print(book.claim(port), flush=True)
child = os.fork()
if child == 0:
    print("child", book.claim(port), book.claim(port + 1), flush=True)
    os._exit(0)
os.waitpid(child, 0)
print("parent", book.claim(port), book.claim(port + 1), flush=True)
"""


def _other_process(path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _OTHER, str(path), str(_PORT)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_all_are_different_though_none_is_held_by_a_socket() -> None:
    # Of 18,000, so that some would be drawn twice.
    drawn = reserve_ports(300)
    assert len(set(drawn)) == len(drawn)


def test_a_port_is_claimed_once_in_a_process(tmp_path: Path) -> None:
    book = PortBook(tmp_path / "ports")
    assert book.claim(_PORT)
    assert not book.claim(_PORT)
    assert book.claim(_PORT + 1)


def test_a_port_of_another_process_is_free_again_when_it_ends(tmp_path: Path) -> None:
    book = PortBook(tmp_path / "ports")
    with _other_process(tmp_path / "ports") as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "True\n"
        assert not book.claim(_PORT)
        other.kill()
    assert book.claim(_PORT)


def test_a_port_of_ours_is_refused_to_another_process(tmp_path: Path) -> None:
    book = PortBook(tmp_path / "ports")
    assert book.claim(_PORT)
    with _other_process(tmp_path / "ports") as other:
        assert other.communicate("")[0] == "False\n"


def test_a_child_that_was_forked_has_none_of_the_ports_of_its_parent(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _FORKED, str(tmp_path / "ports"), str(_PORT)],
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        told = parent.communicate()[0]
    # What the parent has is refused to the child; another port is the child's until it ends.
    assert told.split() == ["True", "child", "False", "True", "parent", "False", "True"]
