"""The alert rules as they are, in a shorter time: every duration divided by the same number.

What is written in an expression stays as it is, but for its windows; so do thresholds.

Not here: the rules (compose/prometheus/rules.yml).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
RULES: Final = ROOT / "compose" / "prometheus" / "rules.yml"
# Fifteen minutes are thirty seconds then.
DIVIDED_BY: Final = 30
_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000}
_DURATION: Final = re.compile(r"(?<=for: )(\d+)([smh])\b|(?<=\[)(\d+)([smh])(?=\])")


def shortened(rules: str, divided_by: int = DIVIDED_BY) -> str:
    """Return the same rules with every `for:` and every `[window]` divided."""

    def divided(found: re.Match[str]) -> str:
        number, unit = found[1] or found[3], found[2] or found[4]
        return f"{int(number) * _MS[unit] // divided_by}ms"

    return _DURATION.sub(divided, rules)
