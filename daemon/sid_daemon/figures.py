"""How scores and differences of scores become figures: exact, and as people wrote them.

Used by the views, the summary, the rows and the chart. Never rounds a score; pure.
"""

from __future__ import annotations

import math
from decimal import Decimal


def difference(after: float, before: float) -> float:
    """Return `after - before` as the decimals that people read: 87.1 - 85.2 is 1.9.

    Args:
        after: A finite score.
        before: A finite score.
    """
    exact = float(Decimal(repr(after)) - Decimal(repr(before)))
    # Adding zero turns -0.0 into 0.0, which no reader should meet.
    return exact + 0.0 if math.isfinite(exact) else after - before


def signed(value: float) -> str:
    """Return the shortest `repr` with its sign, zero's, too."""
    return f"{value:+}"


def improvement(best: float, baseline: float, direction: str) -> float:
    """Return by how much `best` is better, in score units; negative when it is worse."""
    return difference(best, baseline) if direction == "higher_is_better" else difference(baseline, best)


def percentage(gain: float, baseline: float) -> str:
    """Return a gain as a share of the baseline, in percent with one decimal; `n/a` where that is no number."""
    if baseline == 0:
        return "n/a"
    share = 100 * gain / abs(baseline)
    return f"{round(share, 1) + 0.0:.1f}" if math.isfinite(share) else "n/a"
