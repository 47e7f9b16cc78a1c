"""Kinds of values, and what an annotation or a record's definition says of them.

The words in which `kinds` answers. Annotations are taken at their word, as their author meant them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass

import libcst as cst

from sid_actors.backends.local.source import Source

_SCALARS = frozenset({"int", "float", "str", "bytes", "bool", "None"})
_CONTAINERS = {
    "list": "list", "List": "list", "set": "set", "Set": "set", "frozenset": "frozenset",
    "FrozenSet": "frozenset", "dict": "dict", "Dict": "dict", "tuple": "tuple", "Tuple": "tuple",
    "Sequence": "iterable", "Iterable": "iterable", "Collection": "iterable", "Iterator": "iterable",
    "Mapping": "mapping", "Optional": "union",
}  # fmt: skip

_HARMLESS_DUNDERS = frozenset({"__post_init__", "__repr__", "__str__", "__lt__", "__len__", "__iter__"})
# What methods of a string, and builtins, return.
STR_TO_STR = frozenset({
    "capitalize", "casefold", "center", "expandtabs", "format", "join", "ljust", "lower", "lstrip",
    "removeprefix", "removesuffix", "replace", "rjust", "rstrip", "strip", "swapcase", "title", "translate",
    "upper", "zfill",
})  # fmt: skip
# Methods that no common type but a text has (with literals for arguments).
TEXT_ALONE = STR_TO_STR - {"translate", "title", "join", "format", "replace", "center"} | {
    "split", "rsplit", "splitlines",
}  # fmt: skip
STR_TO_OTHER = {
    "split": "list", "rsplit": "list", "splitlines": "list", "count": "int", "find": "int", "index": "int",
    "rfind": "int", "startswith": "bool", "endswith": "bool", "isdigit": "bool", "isalpha": "bool",
    "isspace": "bool", "isupper": "bool", "islower": "bool", "isalnum": "bool", "encode": "bytes",
}  # fmt: skip
CALLS = {
    "len": "int", "int": "int", "ord": "int", "hash": "int", "id": "int", "float": "float", "str": "str",
    "repr": "str", "chr": "str", "hex": "str", "bin": "str", "format": "str", "ascii": "str", "input": "str",
    "bool": "bool", "any": "bool", "all": "bool", "isinstance": "bool", "bytes": "bytes",
}  # fmt: skip
COLLECT = {"list": "list", "sorted": "list", "set": "set", "frozenset": "frozenset", "tuple": "tuple"}


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of value: `name` is a builtin's or, for a class of the module at hand, `class <name>`.

    `args` are the kinds of what it holds: one for a list or set, two for a dict, one an item for a tuple
    (a single one with `many` for `tuple[x, ...]`).
    """

    name: str
    args: tuple[Kind | None, ...] = ()
    many: bool = False


INT, FLOAT, STR, BOOL, BYTES, NONE = (Kind(n) for n in ("int", "float", "str", "bool", "bytes", "None"))
NUMBER = Kind("number")  # of some type
NUMBERS = frozenset({"int", "float", "bool", "number"})


def agree(kinds: Iterable[Kind | None]) -> Kind | None:
    """Return the one kind of several values, None if they differ; an int among floats is a float."""
    found: Kind | None = None
    for kind in kinds:
        if kind is None:
            return None
        if found is None or found == kind:
            found = kind
        elif {found.name, kind.name} <= NUMBERS:
            found = FLOAT if {found, kind} == {INT, FLOAT} else NUMBER
        elif found.name == kind.name and {found.args, kind.args} >= {(None,)}:
            found = found if kind.args == (None,) else kind  # an empty list and one with items
        else:
            return None
    return found


def annotated(note: cst.BaseExpression, source: Source) -> Kind | None:
    """Return the kind that an annotation names; None for what this page does not know."""
    match note:
        case cst.SimpleString():
            try:
                return annotated(cst.parse_expression(str(ast.literal_eval(note.value))), source)
            except (cst.ParserSyntaxError, ValueError, SyntaxError):
                return None
        case cst.Name(value=name):
            if name in _SCALARS:
                return Kind(name)
            if name in _CONTAINERS:
                return Kind(_CONTAINERS[name])
            return Kind(f"class {name}") if name in source.classes else None
        case cst.BinaryOperation(operator=cst.BitOr()):
            return Kind("union", (annotated(note.left, source), annotated(note.right, source)))
        case cst.Subscript(value=cst.Name(value=name) | cst.Attribute(attr=cst.Name(value=name))):
            return _container(name, note, source)
        case _:
            return None


def hashable(kind: Kind | None, source: Source, seen: frozenset[str] = frozenset()) -> bool:
    """Return whether every value of `kind` is hashable, by value, and never changes.

    `seen` are the records being looked at, since a record may hold others of its own class.
    """
    if kind is None:
        return False
    if kind.name in ("tuple", "union"):
        return bool(kind.args) and all(hashable(a, source, seen) for a in kind.args)
    if kind.name == "frozenset":
        return bool(kind.args)
    if kind.name.startswith("class "):
        return _frozen(kind.name.removeprefix("class "), source, seen)
    return kind.name in _SCALARS or kind == NUMBER


def record_fields(name: str, source: Source) -> dict[str, cst.BaseExpression]:
    """Return the annotated fields of a class of this module, with their annotations."""
    node = source.classes.get(name)
    found: dict[str, cst.BaseExpression] = {}
    if node is None or not isinstance(node.body, cst.IndentedBlock):
        return found
    for line in node.body.body:
        for part in line.body if isinstance(line, cst.SimpleStatementLine) else ():
            if isinstance(part, cst.AnnAssign) and isinstance(part.target, cst.Name):
                found[part.target.value] = part.annotation.annotation
    return found


def _frozen(name: str, source: Source, seen: frozenset[str]) -> bool:
    """Return whether a class of this module is a record that is compared by value and never changes."""
    node = source.classes.get(name)
    if node is None or name in seen or len(source.top.bindings[name]) != 1:
        return False
    own = {part.name.value for part in node.body.body if isinstance(part, cst.FunctionDef)}
    if any(name.startswith("__") for name in own - _HARMLESS_DUNDERS) or not _is_record(node, source):
        return False
    kinds = [annotated(note, source) for note in record_fields(name, source).values()]
    return bool(kinds) and all(hashable(kind, source, seen | {name}) for kind in kinds)


def _is_record(node: cst.ClassDef, source: Source) -> bool:
    decorators = [source.code(d.decorator) for d in node.decorators]
    bases = [source.code(b.value) for b in node.bases]
    if not decorators:
        return bases in (["NamedTuple"], ["typing.NamedTuple"])
    text = decorators[0]
    called = text.startswith(("dataclass(", "dataclasses.dataclass("))
    return len(decorators) == 1 and not bases and called and "frozen=True" in text and "eq=False" not in text


def _container(name: str, note: cst.Subscript, source: Source) -> Kind | None:
    if name not in _CONTAINERS:
        return None
    values = [part.slice.value for part in note.slice if isinstance(part.slice, cst.Index)]
    many = len(values) > 1 and isinstance(values[1], cst.Ellipsis)
    args = tuple(annotated(value, source) for value in (values[:1] if many else values))
    if name == "Optional":
        return Kind("union", (*args, NONE))
    return Kind(_CONTAINERS[name], args, many=many)
