"""`ottla`, with a standard error that takes nothing: a disk that is full, to whoever writes there.

Not here: who starts it (`faults.py`).
"""

from __future__ import annotations

import os
from typing import Final

from ottla.__main__ import main

NOTHING_FITS: Final = "/dev/full"
_STANDARD_ERROR: Final = 2

if __name__ == "__main__":
    os.dup2(os.open(NOTHING_FITS, os.O_WRONLY), _STANDARD_ERROR)
    main()
