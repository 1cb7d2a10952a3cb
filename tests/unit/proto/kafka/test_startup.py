"""What the first request of a process costs, in modules."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import sys
from ottla.proto.kafka.apis import METADATA
from ottla.proto.kafka.decode import decode_request
decode_request(METADATA, 1, bytes(4))
print(*sorted(name for name in sys.modules if "." not in name))
import hypothesis
"""


def test_the_first_request_loads_no_test_library_and_hides_none() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True
    )
    assert "kio" in done.stdout.split()
    assert "hypothesis" not in done.stdout.split()
