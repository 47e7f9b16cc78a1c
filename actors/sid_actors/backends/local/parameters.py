"""Numbers that may be tuned: where they stand in a file, and how to put another one there.

Module and class constants, dictionaries of settings, and default arguments in Python; values in JSON and TOML.
Nothing but the digits changes: the rest of the file is kept byte for byte. Numbers that are no settings
(versions, ports, seeds, masks, units) are left out.
"""

from __future__ import annotations

import ast
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from sid_actors.backends.local import documents
from sid_actors.backends.local.documents import Span
from sid_actors.backends.local.recipe import RecipeFailed
from sid_actors.backends.local.source import Unreadable, check

Number = int | float

_LOG_INT = 4  # from here on the size of an integer matters more than its last digit
_LOG_FLOAT = (0.1, 10.0)  # outside of these a float is thought of in powers
_NO_SETTING = re.compile(
    r"__\w+|.*(?:version|year|month|date|seed|magic|mask|flag|errno|opcode|signal|debug|verbos|timeout|indent|column|padding|margin"
    r"|status|epoch_start|_per_|schema|build|revision).*|(?:.*_)?(?:port|id|uid|gid|pid|code|mode|pi|e|tau|kb|mb|gb"
    r"|kib|mib|gib|byte|minute|hour|day|week|second|exit|major|minor|patch)|http_.*",
    re.IGNORECASE,
)
_MANIFESTS = frozenset({
    "pyproject.toml", "package.json", "package-lock.json", "tsconfig.json", "composer.json", "cargo.toml",
    "ruff.toml", "poetry.lock", "uv.lock", "pipfile", "manifest.json", "netlify.toml", "book.toml",
})  # fmt: skip
_WIDE_DATA = 200  # numbers; a document with more is data, not settings


@dataclass(frozen=True, slots=True)
class Parameter:
    """One number that may be tuned.

    Attributes:
        path: Its file.
        symbol: `NAME`, `Class.NAME`, `NAME.key` in a dictionary, `function(argument)`, or a dotted key.
        value: What it is now.
        kind: What it must stay.
        log: Steps multiply instead of adding.
    """

    path: str
    symbol: str
    value: Number
    kind: Literal["int", "float"]
    log: bool


def find_parameters(files: Mapping[str, str]) -> list[Parameter]:
    """Return the tunable numbers of some files (path → text), in the order of paths and places."""
    found: list[Parameter] = []
    for path in sorted(files):
        for span in _tunable(path, _spans(path, files[path])):
            kind: Literal["int", "float"] = "int" if isinstance(span.value, int) else "float"
            found.append(Parameter(path, span.symbol, span.value, kind, is_log(span.value, span.literal)))
    return found


def is_log(value: Number, literal: str = "") -> bool:
    """Return whether a number is better multiplied than added to."""
    size = abs(value)
    if isinstance(value, int):
        return size >= _LOG_INT
    return size > 0 and (size < _LOG_FLOAT[0] or size >= _LOG_FLOAT[1] or "e" in literal.lower())


def set_value(text: str, parameter: Parameter, new: Number) -> str:
    """Return `text` with another value for one parameter, and not a byte else changed.

    Raises:
        RecipeFailed: the parameter is not there (once), or the value cannot be written so that it is read again.
    """
    if (
        isinstance(new, bool)
        or not math.isfinite(new)
        or (parameter.kind == "int" and not isinstance(new, int))
    ):
        raise RecipeFailed(f"{new!r} is no value for {parameter.symbol}")
    spans = _spans(parameter.path, text)
    span = next((s for s in spans if s.symbol == parameter.symbol), None)
    if span is None:
        raise RecipeFailed(f"{parameter.symbol} is not in {parameter.path}")
    value = new if parameter.kind == "int" else float(new)
    changed = text[: span.start] + repr(value) + text[span.end :]
    before = {s.symbol: s.value for s in spans}
    after = {s.symbol: s.value for s in _spans(parameter.path, changed)}
    if after != {**before, parameter.symbol: value} or changed == text:
        raise RecipeFailed(f"{parameter.symbol} in {parameter.path} cannot be set to {value!r}")
    return changed


def _tunable(path: str, spans: list[Span]) -> Iterator[Span]:
    document = not path.endswith(".py")
    if document and (path.rsplit("/", 1)[-1].lower() in _MANIFESTS or len(spans) > _WIDE_DATA):
        return
    for span in spans:
        parts = [part for part in re.split(r"[.()]", span.symbol) if part]
        argument = span.symbol.endswith(")")
        if any(_NO_SETTING.fullmatch(part) for part in ([parts[-1]] if argument else parts)):
            continue
        if re.match(r"[-+]?0[xXoObB]", span.literal) or span.value == 0:
            continue  # a mask, or an off switch
        if argument and span.value in (1, -1):
            continue  # an offset or a switch
        yield span


def _spans(path: str, text: str) -> list[Span]:
    """Return every number with a name of its own in a file; none for what cannot be read."""
    if path.endswith(".json"):
        return documents.json_spans(text)
    if path.endswith(".toml"):
        return documents.toml_spans(text)
    if not path.endswith(".py"):
        return []
    try:
        tree = check(text)
    except Unreadable:
        return []
    offsets = _Offsets(text)
    spans = [offsets.span(symbol, node) for symbol, node in _named(tree.body, "")]
    known = [span for span in spans if span is not None]
    times = Counter(span.symbol for span in known)
    return [span for span in known if times[span.symbol] == 1]


def _named(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, ast.expr]]:
    """Yield symbol and expression of every constant and default argument, functions' insides aside."""
    for statement in body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield from _values(prefix + name, value)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                yield from _values(prefix + name, value)
            case ast.ClassDef(name=name, body=inner):
                yield from _named(inner, f"{prefix}{name}.")
            case ast.FunctionDef(name=name, args=arguments) | ast.AsyncFunctionDef(name=name, args=arguments):
                plain = [*arguments.posonlyargs, *arguments.args]
                pairs = list(
                    zip(plain[len(plain) - len(arguments.defaults) :], arguments.defaults, strict=True)
                )
                named = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
                for argument, default in (*pairs, *named):
                    if default is not None:
                        yield f"{prefix}{name}({argument.arg})", default
            case _:
                pass


def _values(symbol: str, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if not isinstance(value, ast.Dict):
        yield symbol, value
        return
    for key, inner in zip(value.keys, value.values, strict=True):
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield from _values(f"{symbol}.{documents.quoted(key.value)}", inner)


class _Offsets:
    """Places of Python's parser (line, UTF-8 column) as places in the text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._lines = [0, *(m.end() for m in re.finditer(r"\r\n|\r|\n", text))]

    def span(self, symbol: str, node: ast.expr) -> Span | None:
        number = node.operand if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) else node
        if not isinstance(number, ast.Constant) or isinstance(number.value, bool):
            return None
        if not isinstance(number.value, (int, float)):
            return None
        if node.end_lineno is None or node.end_col_offset is None:
            return None
        start, end = self._at(node.lineno, node.col_offset), self._at(node.end_lineno, node.end_col_offset)
        literal = self._text[start:end]
        value = number.value if number is node else -number.value
        return Span(symbol, start, end, literal, value) if math.isfinite(value) else None

    def _at(self, line: int, column: int) -> int:
        start = self._lines[line - 1]
        end = self._lines[line] if line < len(self._lines) else len(self._text)
        return start + len(self._text[start:end].encode()[:column].decode())
