"""Errors as the kernel tells them, for those who stand in for it.

Not here: what an error of the disk leads to (`log/log.py`).
"""

from __future__ import annotations

import os


def os_error(code: int, path: str | None = None) -> OSError:
    return OSError(code, os.strerror(code), path)
