"""How figures and foreign texts read in a reason or a line: signed percentages, open intervals, one line of a text.

Used by the flows of a round for their reasons, by `describe` for whole lines, by views and log for what agents wrote.
Never decides anything.
"""

from __future__ import annotations

import math

from sid_daemon.core.measuring.evidence import Interval

# Relative to a score near zero a percentage says nothing; a number this long would only be misread.
_LARGEST_SHOWN = 10.0


def percent(gap: float) -> str:
    """Return a gap as a signed percentage: one decimal, more where one would read as zero.

    Returns:
        For example "+3.1 %", "-0.4 %", "+0.01 %", "> +999 %".
    """
    if abs(gap) >= _LARGEST_SHOWN:
        return "> +999 %" if gap > 0 else "< -999 %"
    return f"{_figure(100 * gap, sign=True)} %"


def share(part: float) -> str:
    """Return a share that needs no sign as a percentage, for example "0.5 %"."""
    return f"{_figure(100 * part, sign=False)} %"


def bounds(interval: Interval | None) -> str:
    """Return an interval in percent, for example "[-0.5, 1.2]"; an open end is "?"."""
    low, high = interval or (None, None)
    return f"[{_end(low)}, {_end(high)}]"


def rounded_up(p: float) -> str:
    """Return a p-value to two digits, never smaller than it is."""
    if p <= 0:
        return "0"
    unit = 10.0 ** (math.floor(math.log10(p)) - 1)
    return f"{math.ceil(p / unit - 1e-9) * unit:.2g}"


def _end(value: float | None) -> str:
    return "?" if value is None else _figure(100 * value, sign=False)


def _figure(value: float, *, sign: bool) -> str:
    digits = 1
    if 0 < abs(value) < 0.095:
        digits = min(6, -math.floor(math.log10(abs(value))))
    text = f"{value:+.{digits}f}" if sign else f"{value:.{digits}f}"
    return text.replace("-0.0", "0.0") if text == "-0.0" else text


def one_line(text: str, limit: int = 200) -> str:
    """Return a text on one line, without tabs and control characters, at most `limit` characters."""
    plain = " ".join(text.split())
    return "".join(character for character in plain if character.isprintable())[:limit].rstrip()


def noise_line(sd_pair: float, half: float, nearly_always: float) -> str:
    """Return the line that says what the noise costs.

    Args:
        sd_pair: Sd of one pair.
        half: Gain found 1 time in 2.
        nearly_always: Gain found 19 times in 20.
    """
    return (
        f"noise {share(sd_pair)} a pair: gains of {share(half)} are found 1 time in 2, "
        f"of {share(nearly_always)} nearly always, with 40 pairs"
    )
