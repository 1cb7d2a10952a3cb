"""How the C library keeps memory, set for a process that receives megabytes all the time.

By itself glibc gives a large block back to the kernel as soon as it is free, and takes a new one
for the next: every page of it is made, cleared and thrown away for each answer that a follower
receives. Here large blocks stay in the heap, which is trimmed only when much of it is free.

Not here: Python's own small objects, which live elsewhere, and the garbage collector
(`lifecycle.py`).
"""

from __future__ import annotations

import ctypes
from typing import Final

# From glibc's malloc.h. Other C libraries have no such call, or none that heeds it.
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8

# Above what is sent in one piece; and little enough that a stranger's burst is given back.
MMAP_BYTES: Final = 4 << 20
TRIM_BYTES: Final = 16 << 20


def keep_memory() -> bool:
    """Let freed memory be used again; return whether the C library was willing.

    To be called before there are threads: each would have begun a heap of its own.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        # No mallopt, or no way to the C library of this process.
        return False
    mallopt.argtypes = (ctypes.c_int, ctypes.c_int)
    mallopt.restype = ctypes.c_int
    wanted = ((_ARENA_MAX, 1), (_MMAP_THRESHOLD, MMAP_BYTES), (_TRIM_THRESHOLD, TRIM_BYTES))
    results = [mallopt(key, value) for key, value in wanted]
    return 0 not in results
