"""For all tests: an example of a property may take its time on a machine that is busy."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("ottla", deadline=None)
settings.load_profile("ottla")
