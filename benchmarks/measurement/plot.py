"""Draws how the purse of the test grows in sessions with and without a gain: docs/images/measurement-purse.svg.

    .venv/bin/python benchmarks/measurement/plot.py

From the project's own `evidence`, with fixed seeds, so that the picture changes only with the rule.
"""

from __future__ import annotations

import math
import random
from pathlib import Path

from sid_daemon.core.measuring.evidence import EProcess

TARGET = Path(__file__).parents[2] / "docs/images/measurement-purse.svg"
PAIRS = 40
SESSIONS = 14
SD_RUN = 0.01
WIDTH, HEIGHT, LEFT, TOP = 760, 340, 62, 34
LOW, HIGH = -4.0, 3.0
"""Exponents of 10 at the ends of the axis."""


def purse(gain: float, seed: int) -> list[float]:
    """Return the purse after each pair, as an exponent of 10; once it has decided it is held."""
    dice = random.Random(seed)
    process = EProcess()
    values = [0.0]
    for _ in range(PAIRS):
        if values[-1] < 2:
            process.add(gain + dice.gauss(0, SD_RUN) - dice.gauss(0, SD_RUN))
        values.append(math.log10(max(process.now, 10**LOW)))
    return values


def _x(pair: float) -> float:
    return LEFT + pair * (WIDTH - LEFT - 20) / PAIRS


def _y(exponent: float) -> float:
    return TOP + (HIGH - min(exponent, HIGH)) * (HEIGHT - TOP - 44) / (HIGH - LOW)


def _path(values: list[float], colour: str) -> str:
    shown: list[float] = []
    for value in values:
        shown.append(value)
        if value >= 2:
            break
    points = " ".join(f"{_x(n):.1f},{_y(value):.1f}" for n, value in enumerate(shown))
    end = f'<circle cx="{_x(len(shown) - 1):.1f}" cy="{_y(shown[-1]):.1f}" r="3" fill="{colour}"/>'
    line = f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.4" opacity="0.75"/>'
    return line + (end if shown[-1] >= 2 else "")


def _text(x: float, y: float, words: str, anchor: str = "start", colour: str = "#333") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" fill="{colour}">{words}</text>'


def picture() -> str:
    """Return the drawing."""
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
            'font-family="sans-serif" font-size="12" role="img">'
        ),
        "<title>The purse of the test, pair by pair</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for exponent in range(int(LOW), int(HIGH) + 1):
        y = _y(exponent)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - 20}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e4e4e4"/>')
        parts.append(_text(LEFT - 8, y + 4, f"{10.0**exponent:g}", "end"))
    parts += [_text(_x(n), HEIGHT - 24, str(n), "middle") for n in range(0, PAIRS + 1, 5)]
    parts.append(_text(_x(PAIRS / 2), HEIGHT - 6, "pairs", "middle"))
    bar = _y(2)
    parts.append(
        f'<line x1="{LEFT}" x2="{WIDTH - 20}" y1="{bar:.1f}" y2="{bar:.1f}" stroke="#333" stroke-dasharray="5 4"/>'
    )
    parts.append(_text(WIDTH - 24, bar - 6, "1 / alpha = 100: merge", "end"))
    parts += [_path(purse(0.0, seed), "#b0574a") for seed in range(SESSIONS)]
    parts += [_path(purse(0.02, seed), "#2f6f9f") for seed in range(SESSIONS)]
    parts.append(
        _text(LEFT, 20, f"{SESSIONS} sessions in which B is 2 % better (sd of a run 1 %)", colour="#2f6f9f")
    )
    parts.append(_text(LEFT + 370, 20, f"{SESSIONS} in which nothing is", colour="#b0574a"))
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    TARGET.write_text(picture())
    print(TARGET)
