"""How values look in a terminal: numbers, times, tables, text that somebody else wrote.

Pure and free of everything but the standard library, because `status` prints with it before click is
imported. Never prints. What agents and programs wrote passes through `clean`, so that no control character of
theirs reaches a terminal.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

DASH = "-"
_SPARKS = "▁▂▃▄▅▆▇█"


def clean(text: object) -> str:
    r"""Return text with every control and format character escaped, so that it stays one harmless line.

    >>> clean("red \x1b[31m")
    'red \\x1b[31m'
    """
    plain = str(text)
    if plain.isprintable():
        return plain
    return "".join(_escaped(char) for char in plain)


def clean_lines(text: str) -> str:
    """Return text with control characters escaped, newlines and tabs kept: for diffs and outputs."""
    return "\n".join(clean(line.replace("\t", "    ")) for line in text.split("\n"))


def _escaped(char: str) -> str:
    if char.isprintable():
        return char
    # Lone surrogates cannot be encoded at all; the rest would move the cursor or turn the text around.
    return char.encode("unicode_escape").decode("ascii")


def number(value: float | None, digits: int = 6) -> str:
    """Return a score as people read it: at most `digits` significant digits, `-` where there is none."""
    if value is None:
        return DASH
    if abs(value) < 1e15 and (float(value).is_integer() or abs(value) >= 10**digits):
        return f"{value:.0f}"
    return f"{value:.{digits}g}"


def exact(value: float | None) -> str:
    """Return a score in Python's shortest `repr`, as the contracts have it; `none` where there is none."""
    return "none" if value is None else repr(value)


def gain_percent(row: Mapping[str, Any]) -> float | None:
    """Return by how much a run's branch is better than its baseline, in percent; None where that says nothing."""
    baseline, gained = row["baseline"], row.get("gain")
    if baseline is None or gained is None or baseline == 0:
        return None
    return float(gained / abs(baseline) * 100)


def percent(value: float | None) -> str:
    """Return a signed percentage such as `+31.8 %`."""
    return DASH if value is None else f"{value:+.1f} %"


def duration(seconds: float | None) -> str:
    """Return a length of time in its two largest units, such as `3 h 12 min`."""
    if seconds is None:
        return DASH
    whole = max(0, int(seconds))
    for size, unit, below, smaller in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // below
            return f"{whole // size} {unit} {rest} {smaller}" if rest else f"{whole // size} {unit}"
    return f"{whole} s"


def clock(seconds: float | None) -> str:
    """Return a countdown such as `4s`, `11:20` or `1:02:03`."""
    if seconds is None:
        return DASH
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02}"
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


def time_of_day(timestamp: str) -> str:
    """Return `12:03:41` in local time of an ISO 8601 time; the text itself where it is none."""
    from datetime import datetime  # needed only where there are log records

    try:
        return datetime.fromisoformat(timestamp).astimezone().strftime("%H:%M:%S")
    except ValueError:
        return clean(timestamp)


def cells(text: str) -> int:
    """Return how many columns a terminal gives to text without control characters."""
    if text.isascii():
        return len(text)
    import unicodedata

    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    return len(text) + wide - sum(unicodedata.combining(char) != 0 for char in text)


def shorten(text: str, width: int) -> str:
    """Cut text to at most `width` columns, with `…` where something was cut."""
    if cells(text) <= width:
        return text
    kept = text[: max(0, width - 1)]
    while kept and cells(kept) > width - 1:
        kept = kept[:-1]
    return f"{kept}…" if width > 0 else ""


def shorten_painted(line: str, width: int) -> str:
    r"""Cut a line that may be coloured to at most `width` columns; a colour that is on at the cut is turned off.

    >>> shorten_painted("\x1b[1mbold\x1b[0m", 3)
    '\x1b[1mbo…\x1b[0m'
    """
    plain, *painted = line.split("\x1b[")
    pieces = [
        ("", plain),
        *((f"\x1b[{code}m", text) for code, _, text in (one.partition("m") for one in painted)),
    ]
    if cells("".join(text for _, text in pieces)) <= width:
        return line
    shown, left = "", width
    for code, text in pieces:
        last = cells(text) >= left
        kept = shorten(f"{text}…" if last else text, left)
        shown, left = f"{shown}{code}{kept}", left - cells(kept)
        if last:
            break
    return f"{shown}\x1b[0m" if painted else shown


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], *, width: int | None, flexible: int) -> str:
    """Lay out rows in columns, two spaces apart, no line with trailing space.

    Args:
        headers: One a column; a header that begins with `>` is right-aligned.
        rows: Cells as text, already clean.
        width: Columns of the terminal, or None to cut nothing.
        flexible: Index of the column that is cut where a line is longer than `width`.
    """
    names = [header.removeprefix(">") for header in headers]
    body = [list(row) for row in rows]
    sizes = [max(cells(line[i]) for line in [names, *body]) for i in range(len(names))]
    over = sum(sizes) + 2 * (len(sizes) - 1) - (width or 0)
    if width is not None and over > 0:
        sizes[flexible] = max(cells(names[flexible]), 12, sizes[flexible] - over)
        for line in body:
            line[flexible] = shorten(line[flexible], sizes[flexible])
    lines = []
    for line in [names, *body]:
        padded = [
            _pad(cell, size, right=header.startswith(">"))
            for cell, size, header in zip(line, sizes, headers, strict=True)
        ]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def _pad(cell: str, size: int, *, right: bool) -> str:
    fill = " " * (size - cells(cell))
    return fill + cell if right else cell + fill


def sparkline(values: Sequence[float], *, utf8: bool) -> str:
    """Return a line of blocks, one a value, lowest to highest; empty without UTF-8 or with fewer than two."""
    if len(values) < 2 or not utf8:
        return ""
    low, high = min(values), max(values)
    span = high - low or 1.0
    return "".join(_SPARKS[round((value - low) / span * (len(_SPARKS) - 1))] for value in values)
