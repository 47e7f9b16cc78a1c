"""What `sictl` writes: results to stdout, one JSON document with `--json`, problems and prompts to stderr.

Used by every verb. Decides nothing but how a stream looks; never reads the socket.
"""

from __future__ import annotations

import os
import sys

from sid_cli.color import Marks, Paint, marks_for, wants_color

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, TextIO

SCHEMA = 1
"""Version of the JSON documents; grows when a field changes its meaning."""


def document(content: Mapping[str, Any]) -> str:
    """Return the JSON document of a successful verb, in one line."""
    return json_line({"schema": SCHEMA, **content})


def error_document(code: str, message: str, hint: str) -> str:
    """Return the JSON document of a verb that failed."""
    return json_line({"error": {"code": code, "message": message, "hint": hint}})


def json_line(content: Mapping[str, Any]) -> str:
    """Return a document in one line, with whatever a terminal would act upon escaped."""
    import json  # half of what Python's own start costs: `status` prints text most of the time

    text = json.dumps(content, ensure_ascii=False, allow_nan=False)
    if text.isprintable():
        return text
    # JSON itself escapes the first 32 characters alone: neither U+009B, which is ESC [, nor what turns text around.
    return "".join(sign if sign.isprintable() else json.dumps(sign)[1:-1] for sign in text)


def width_of(stream: TextIO) -> int | None:
    """Return a terminal's width in columns; None for a pipe or a file, where nothing is to be cut."""
    if not stream.isatty():
        return None
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except OSError:
        return 80


class Console:
    """The three streams of one call of `sictl`.

    Args:
        as_json: Whether stdout holds one JSON document and nothing else.
        color: What `--color` said: auto, always or never.
    """

    def __init__(self, *, as_json: bool = False, color: str = "auto") -> None:
        self.as_json = as_json
        self.color = color

    @property
    def paint(self) -> Paint:
        """Colour of stdout."""
        return self._paint(sys.stdout)

    @property
    def problem_paint(self) -> Paint:
        """Colour of stderr."""
        return self._paint(sys.stderr)

    @property
    def marks(self) -> Marks:
        """The signs that stdout can show."""
        return marks_for(sys.stdout.encoding, os.environ)

    @property
    def width(self) -> int | None:
        """Columns of stdout, None if it is no terminal."""
        return width_of(sys.stdout)

    @property
    def is_screen(self) -> bool:
        """Whether stdout is a terminal that can move its cursor."""
        return sys.stdout.isatty() and os.environ.get("TERM", "") not in ("", "dumb")

    @property
    def may_ask(self) -> bool:
        """Whether somebody is there to answer: stdin and stderr are terminals and stdout is not a document."""
        return not self.as_json and sys.stdin.isatty() and sys.stderr.isatty()

    def result(self, content: Mapping[str, Any], text: str) -> None:
        """Print a verb's result: the document with `--json`, else the text (nothing if it is empty)."""
        if self.as_json:
            self.write(document(content))
        elif text:
            self.write(text)

    def write(self, text: str) -> None:
        """Print a line or more to stdout, at once."""
        _write(sys.stdout, f"{text}\n")

    def note(self, text: str) -> None:
        """Print a line or more to stderr: what is going on, what to answer, what went wrong."""
        _write(sys.stderr, f"{text}\n")

    def hint(self, text: str) -> None:
        """Tell somebody who sits there what goes on or what to type: to stderr, only if that is a terminal."""
        if not self.as_json and sys.stderr.isatty():
            self.note(text)

    def say(self, text: str) -> None:
        """Print a line for people: to stdout, or nowhere with `--json`."""
        if not self.as_json:
            self.write(text)

    def ask(self, prompt: str) -> str | None:
        """Ask a question on stderr and return the answer without blanks around it; None at end of input."""
        _write(sys.stderr, prompt)
        line = sys.stdin.readline()
        if not line:
            _write(sys.stderr, "\n")
            return None
        return line.strip()

    def confirm(self, question: str) -> bool:
        """Ask a yes-or-no question whose safe answer, No, is what Enter means."""
        answer = self.ask(f"{question} [y/N] ")
        return answer is not None and answer.lower() in ("y", "yes")

    def _paint(self, stream: TextIO) -> Paint:
        return Paint(enabled=wants_color(self.color, os.environ, is_tty=stream.isatty()))


def _write(stream: TextIO, text: str) -> None:
    try:
        stream.write(text)
    except UnicodeEncodeError:
        encoding = stream.encoding or "ascii"
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    stream.flush()
