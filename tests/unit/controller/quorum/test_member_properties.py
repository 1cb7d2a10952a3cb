"""Whatever is cut, killed and lost: nothing acknowledged is lost, repeated or reordered."""

from __future__ import annotations

import pytest

from tests.unit.controller.quorum.storm import Storm


@pytest.mark.parametrize("seed", range(40))
def test_members_keep_their_promises_in_a_storm(seed: int) -> None:
    Storm(seed).run()
