"""A node that loses its standing for a moment, at chosen batches, as after a pause (rule 13).

    REFUSED_WRITES=2 REFUSED_ANSWERS=1 python -m tests.integration.refusing node …

It is `ottla` as it is, but for the question whether it may serve. Batches are counted from 1 as
they come to be written, answers as they come to be given after a wait. Those that are named are
refused with NOT_LEADER_OR_FOLLOWER: before anything was written, or although it was.
"""

from __future__ import annotations

import os
from itertools import count
from typing import Final

from ottla.__main__ import main
from ottla.node.kafka import produce
from ottla.proto.errors import ErrorCode, RequestError

WRITES: Final = "REFUSED_WRITES"
ANSWERS: Final = "REFUSED_ANSWERS"


def _refuse(numbers: str) -> object:
    """Return what stands in for `require_standing`."""
    refused = {int(one) for one in numbers.split(",") if one}
    met = count(1)

    def require_standing(*_: object) -> None:
        if next(met) in refused:
            raise RequestError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, "It has no standing at the moment."
            )

    return require_standing


if __name__ == "__main__":
    vars(produce)["require_standing"] = _refuse(os.environ.get(WRITES, ""))
    produce.Produce.require_standing = _refuse(os.environ.get(ANSWERS, ""))  # type: ignore[assignment,method-assign]
    main(prog_name="ottla")
