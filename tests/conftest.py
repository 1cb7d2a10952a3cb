"""For all tests: an example of a property may take its time on a machine that is busy; and gRPC,
which some tests use in this very process, says nothing in the children that others start."""

from __future__ import annotations

import os

from hypothesis import settings

os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

settings.register_profile("ottla", deadline=None)
settings.load_profile("ottla")
