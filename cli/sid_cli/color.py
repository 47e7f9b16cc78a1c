"""Whether a stream gets colour and which characters it can show; one decision for each stream.

Pure: environment and terminal are arguments. The order of precedence is the table's of the interface:
`--color`, NO_COLOR, FORCE_COLOR or CLICOLOR_FORCE, then the terminal. Colour never carries meaning alone.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

CHOICES = ("auto", "always", "never")
_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


def wants_color(choice: str, environ: Mapping[str, str], *, is_tty: bool) -> bool:
    """Decide whether a stream gets colour.

    Args:
        choice: `auto`, `always` or `never`, as given to `--color`.
        environ: The process's environment.
        is_tty: Whether the stream is a terminal.
    """
    if choice != "auto":
        return choice == "always"
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR") or environ.get("CLICOLOR_FORCE"):
        return True
    return is_tty and environ.get("TERM", "") not in ("", "dumb")


class Paint:
    """Colours text, or leaves it alone where the stream gets none.

    Args:
        enabled: Whether the stream gets colour.
    """

    __slots__ = ("enabled",)

    def __init__(self, *, enabled: bool = False) -> None:
        self.enabled = enabled

    def __call__(self, text: str, *styles: str) -> str:
        """Return `text` in the named styles: bold, dim, red, green, yellow, cyan."""
        if not self.enabled or not text or not styles:
            return text
        return f"\x1b[{';'.join(_CODES[style] for style in styles)}m{text}\x1b[0m"


class Marks:
    """The signs beside a word: symbols where the stream can show them, else ASCII.

    Args:
        utf8: Whether the stream's encoding holds the symbols.
    """

    __slots__ = ("arrow", "dot", "no", "now", "plus_minus", "rule", "unsure", "utf8", "yes")

    def __init__(self, *, utf8: bool) -> None:
        self.utf8 = utf8
        self.unsure = "~"
        self.arrow = "→" if utf8 else "->"
        self.yes, self.no, self.now, self.rule, self.dot, self.plus_minus = (
            ("✓", "✗", "▶", "─", "·", "±") if utf8 else ("+", "x", ">", "-", ".", "+-")
        )


def marks_for(encoding: str | None, environ: Mapping[str, str]) -> Marks:
    """Return the signs that a stream of this encoding can show.

    Args:
        encoding: The stream's.
        environ: The process's environment. Python writes UTF-8 where the user asked for the locale C, which has ASCII alone.
    """
    asked = next((environ[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if environ.get(name)), "")
    is_utf8 = (encoding or "").lower().replace("-", "") == "utf8"
    return Marks(utf8=is_utf8 and asked not in ("C", "POSIX"))
