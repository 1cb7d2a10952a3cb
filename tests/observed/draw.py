"""Draws the dashboards of a cluster under load into docs/pictures: `python -m tests.observed.draw`.

What is seen: three nodes, writers with acks=all and a reader; one node is killed and comes back.

Not here: the panels (`ottla.node.boards`).
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from ottla.node.boards.grafana import BOARDS
from tests.observed.boards import picture
from tests.observed.rules import ROOT
from tests.observed.stage import observed

RECORDS: Final = 1_000
PICTURES: Final = ROOT / "docs" / "pictures"


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    began_s = time.time()
    with tempfile.TemporaryDirectory() as directory, observed(Path(directory), RECORDS) as stage:
        end_s, lost = time.time(), stage.lost
        assert lost is not None
        up_s = min(
            at_s
            for series in stage.prometheus.query_range('up{job="ottla"} == 1', began_s, end_s)
            for at_s, _ in series.points
        )
        for board in BOARDS:
            drawn = picture(stage.prometheus, board, lost.http, up_s, end_s)
            path = folder / f"{board.name}.svg"
            path.write_text(drawn, encoding="utf-8")
            print(f"wrote {path}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURES)
