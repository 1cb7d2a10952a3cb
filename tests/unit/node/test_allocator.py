"""How the C library keeps memory, in a process of its own."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

# Takes and gives back 2 MiB ten times, and tells how many pages had to be made.
_SCRIPT = """
import resource
from ottla.node.allocator import keep_memory
kept = keep_memory() if {is_kept} else False
bytearray(2 << 20)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    block = bytearray(b"x") * (2 << 20)
    del block
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def pages_made(*, is_kept: bool) -> tuple[bool, int]:
    script = _SCRIPT.format(is_kept=is_kept)
    told = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    kept, pages = told.stdout.split()
    return kept == "True", int(pages)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told")
def test_large_blocks_are_used_again() -> None:
    kept, pages = pages_made(is_kept=True)
    _, without = pages_made(is_kept=False)
    print(f"pages made for ten blocks of 2 MiB: {without} by itself, {pages} when told")
    assert kept
    assert pages < 1_000
