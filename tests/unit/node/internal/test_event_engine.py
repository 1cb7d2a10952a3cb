"""gRPC is told to go without its event engine, in words that this version of it knows."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_EXPERIMENTS = "GRPC_EXPERIMENTS"
# An experiment is looked up when gRPC first does something.
_PROGRAM = """
import os
import ottla.__main__
import grpc
grpc.insecure_channel("127.0.0.1:1").close()
print(os.environ["GRPC_EXPERIMENTS"])
"""


def told(**more: str) -> subprocess.CompletedProcess[str]:
    around = {key: one for key, one in os.environ.items() if key != _EXPERIMENTS}
    around |= {"GRPC_VERBOSITY": "ERROR", **more}
    return subprocess.run(
        [sys.executable, "-c", _PROGRAM], env=around, capture_output=True, text=True, check=True
    )


def test_the_event_engine_is_left_out_and_grpc_knows_what_is_meant() -> None:
    done = told()
    assert done.stdout.split() == ["-event_engine_client,-event_engine_listener"]
    assert "Unknown experiment" not in done.stderr


@pytest.mark.parametrize("wanted", ["", "no_such_experiment"])
def test_whoever_starts_a_node_may_want_it_otherwise(wanted: str) -> None:
    done = told(GRPC_EXPERIMENTS=wanted)
    assert done.stdout.strip() == wanted
    # So the other test would notice.
    assert ("Unknown experiment" in done.stderr) == bool(wanted)
