"""How a variable is used: read, changed, or handed to someone who may keep or change it.

A transformation asks this for every mention of a variable before it changes what the variable holds. What is
not known to be harmless is `other`, and `other` means "leave it alone".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import libcst as cst

from sid_actors.backends.local.source import Scope, Source, walk, walk_scope

UseKind = Literal[
    "bind", "augment", "index", "slice", "store", "member", "iterate", "read", "method", "truth", "return",
    "compare", "other",
]  # fmt: skip

# Builtins that read an argument and keep no hold of it, and those that do so once they are iterated over.
READERS = frozenset({
    "all", "any", "bool", "dict", "frozenset", "len", "list", "max", "min", "print", "repr", "set", "sorted",
    "str", "sum", "tuple",
})  # fmt: skip
WRAPPERS = frozenset({"enumerate", "zip", "reversed"})
# Builtins without an effect on anything but what they return.
PURE_BUILTINS = READERS - {"print"} | WRAPPERS | frozenset({
    "abs", "ascii", "bin", "bytes", "chr", "complex", "divmod", "float", "format", "hash", "hex", "int",
    "isinstance", "issubclass", "map", "filter", "oct", "ord", "pow", "range", "round", "slice", "type",
})  # fmt: skip
MUTATORS = frozenset({
    "add", "append", "appendleft", "clear", "difference_update", "discard", "extend", "extendleft", "insert",
    "intersection_update", "pop", "popitem", "popleft", "remove", "reverse", "rotate", "setdefault", "sort",
    "symmetric_difference_update", "update",
})  # fmt: skip
# Methods of Python's own types that change nothing; what they return may be anything.
PURE_METHODS = frozenset({
    "as_integer_ratio", "bit_count", "bit_length", "capitalize", "casefold", "center", "copy", "count", "decode",
    "difference", "encode", "endswith", "find", "format", "fromkeys", "get", "hex", "index", "intersection",
    "is_integer", "isalnum", "isalpha", "isascii", "isdecimal", "isdigit", "isdisjoint", "isidentifier",
    "islower", "isnumeric", "isprintable", "isspace", "issubset", "issuperset", "istitle", "isupper", "items",
    "join", "keys", "ljust", "lower", "lstrip", "partition", "removeprefix", "removesuffix", "replace", "rfind",
    "rindex", "rjust", "rpartition", "rsplit", "rstrip", "split", "splitlines", "startswith", "strip",
    "swapcase", "title", "translate", "union", "upper", "values", "zfill",
})  # fmt: skip
_FRESH_CALLS = frozenset({"list", "set", "dict", "sorted"})
_FRESH_DISPLAYS = (cst.List, cst.Set, cst.Dict, cst.ListComp, cst.SetComp, cst.DictComp)


@dataclass(frozen=True, slots=True)
class Use:
    """One mention of a variable: what happens to its value, and the expression in which it does."""

    kind: UseKind
    name: cst.BaseExpression
    node: cst.CSTNode
    method: str = ""


def use_of(name: cst.BaseExpression, source: Source, scope: Scope) -> Use:
    """Say what happens to the value of one mention of a variable, or of any expression."""
    above = source.parent(name)
    match above:
        case cst.Subscript() if above.value is name:
            return _subscript(name, above, source)
        case cst.Attribute():
            call = source.parent(above)
            if isinstance(call, cst.Call) and call.func is above:
                return Use("method", name, call, above.attr.value)
        case cst.Arg(star=""):
            call = source.parent(above)
            if isinstance(call, cst.Call) and _reads(call, above, source, scope):
                return Use("read", name, call)
        case cst.For() | cst.CompFor() if above.iter is name:
            return Use("iterate", name, above)
        case cst.Return():
            return Use("return", name, above)
        case cst.AugAssign() if above.target is name:
            return Use("augment", name, above)
        case cst.AssignTarget() | cst.AnnAssign() if above.target is name:
            return Use("bind", name, source.statement(name))
        case cst.For() | cst.CompFor() | cst.NamedExpr() | cst.Del() if above.target is name:
            return Use("bind", name, above)
        case cst.AsName():
            return Use("bind", name, above)
        case cst.Element() if _in_target(above, source):
            return Use("bind", name, above)
        case cst.ComparisonTarget():
            inside = isinstance(above.operator, (cst.In, cst.NotIn))
            return Use("member" if inside else "compare", name, source.parent(above))
        case cst.Comparison():
            return Use("compare", name, above)
        case _:
            pass
    if is_test(name, source):
        return Use("truth", name, above)
    return Use("other", name, above)


def uses_of(name: str, source: Source, scope: Scope) -> list[Use]:
    """Say what happens at every mention of a variable of `scope`, in order."""
    return [use_of(mention, source, scope) for mention in scope.mentions.get(name, [])]


def changes(use: Use) -> bool:
    """Return whether a use may change the value itself."""
    return use.kind in ("store", "augment", "other") or (
        use.kind == "method" and use.method not in PURE_METHODS
    )


def is_fresh(expression: cst.BaseExpression | None, source: Source, scope: Scope) -> bool:
    """Return whether an expression makes a new container that nobody else holds."""
    match expression:
        case cst.Call(func=cst.Name(value=name)):
            return name in _FRESH_CALLS and source.is_builtin(name, scope)
        case cst.Call(func=cst.Attribute(attr=cst.Name(value="split" | "rsplit" | "splitlines"))):
            return True
        case cst.BinaryOperation(operator=cst.Multiply() | cst.Add(), left=left):
            return isinstance(left, (cst.List, cst.ListComp))
        case _:
            return isinstance(expression, _FRESH_DISPLAYS)


def is_private(name: str, source: Source, scope: Scope) -> bool:
    """Return whether a variable only ever holds containers made here, and nobody else gets hold of them."""
    bindings = scope.bindings.get(name, [])
    if name in scope.nested or name in scope.declared or not bindings:
        return False
    made_here = all(b.kind == "assign" and not b.path and is_fresh(b.value, source, scope) for b in bindings)
    return made_here and all(use.kind != "other" for use in uses_of(name, source, scope))


def unchanged_in(
    name: str, region: Iterable[cst.CSTNode], source: Source, scope: Scope, *, immutable: bool = False
) -> bool:
    """Return whether a variable and what it holds stay the same while `region` runs again and again.

    A private container needs only its own uses looked at. Anything else could be changed through another name,
    so nothing in the region may change, call or await anything that is not known to be harmless.
    """
    nodes = [node for root in region for node in walk_scope(root)]
    inside = {id(node) for node in nodes}
    bindings = scope.bindings.get(name, [])
    if any(id(b.node) in inside or isinstance(b.node, (cst.Global, cst.Nonlocal)) for b in bindings):
        return False
    if immutable:
        return name not in scope.declared
    if any(id(use.name) in inside and changes(use) for use in uses_of(name, source, scope)):
        return False
    return is_private(name, source, scope) or all(is_harmless(node, source, scope) for node in nodes)


def is_harmless(node: cst.CSTNode, source: Source, scope: Scope) -> bool:
    """Return whether a node by itself cannot change a value that some other name also means."""
    match node:
        case (
            cst.Yield()
            | cst.Await()
            | cst.With()
            | cst.Del()
            | cst.FunctionDef()
            | cst.ClassDef()
            | cst.Lambda()
        ):
            return False
        case cst.Import() | cst.ImportFrom():
            return False
        case cst.Call(func=cst.Name(value=name)):
            return (name in PURE_BUILTINS or name == "print") and source.is_builtin(name, scope)
        case cst.Call(func=cst.Attribute(value=base, attr=cst.Name(value=method))):
            own = isinstance(base, cst.Name) and is_private(base.value, source, scope)
            return method in PURE_METHODS or (own and method in MUTATORS)
        case cst.Call():
            return False
        case cst.AssignTarget(target=target) | cst.AugAssign(target=target) | cst.AnnAssign(target=target):
            return _harmless_target(target, source, scope)
        case cst.For(target=target) | cst.CompFor(target=target):
            return _harmless_target(target, source, scope)
        case _:
            return True


def _harmless_target(target: cst.BaseExpression, source: Source, scope: Scope) -> bool:
    if isinstance(target, (cst.Tuple, cst.List)):
        return all(_harmless_target(element.value, source, scope) for element in target.elements)
    if isinstance(target, cst.Subscript) and isinstance(target.value, cst.Name):
        return is_private(target.value.value, source, scope)
    if not isinstance(target, cst.Name):
        return False
    # `x += y` changes a list in place: harmless only where x is one of our own, or no container at all
    above = source.parent(target)
    if isinstance(above, cst.AugAssign):
        bindings = scope.bindings.get(target.value, [])
        first = bindings[0].value if bindings and bindings[0].kind == "assign" else None
        plain = isinstance(first, (cst.Integer, cst.Float, cst.SimpleString, cst.FormattedString))
        return plain or is_private(target.value, source, scope)
    return target.value not in scope.declared


def _subscript(name: cst.BaseExpression, above: cst.Subscript, source: Source) -> Use:
    holder = source.parent(above)
    if isinstance(holder, (cst.AssignTarget, cst.AugAssign, cst.Del, cst.For, cst.CompFor)) and (
        holder.target is above
    ):
        return Use("store", name, above)
    if isinstance(holder, cst.Element) and _in_target(holder, source):
        return Use("store", name, above)
    sliced = any(isinstance(part.slice, cst.Slice) for part in above.slice)
    return Use("slice" if sliced else "index", name, above)


def _in_target(element: cst.Element, source: Source) -> bool:
    below: cst.CSTNode = element
    for above in source.ancestors(element):
        if isinstance(above, (cst.AssignTarget, cst.For, cst.CompFor, cst.Del)):
            return above.target is below
        if not isinstance(above, (cst.Tuple, cst.List, cst.Element)):
            return False
        below = above
    return False


def _reads(call: cst.Call, arg: cst.Arg, source: Source, scope: Scope) -> bool:
    """Return whether a call only reads this argument and keeps no hold of it."""
    match call.func:
        case cst.Name(value=name) if source.is_builtin(name, scope):
            if name in READERS:
                return True
            above = source.parent(call)
            if name not in WRAPPERS or not isinstance(above, (cst.For, cst.CompFor, cst.Arg)):
                return False
            if isinstance(above, cst.Arg):
                outer = source.parent(above)
                return isinstance(outer, cst.Call) and _reads(outer, above, source, scope)
            return above.iter is call
        case cst.Attribute(value=cst.BaseString(), attr=cst.Name(value="join")):
            return arg is call.args[0]
        case _:
            return False


def is_test(name: cst.BaseExpression, source: Source) -> bool:
    """Return whether only the truth of a value is looked at."""
    node: cst.CSTNode = name
    for above in source.ancestors(name):
        match above:
            case cst.If() | cst.While() | cst.IfExp() | cst.Assert() | cst.CompIf():
                return above.test is node
            case cst.UnaryOperation(operator=cst.Not()):
                return True
            case cst.BooleanOperation():
                node = above
            case _:
                return False
    return False


def names_in(node: cst.CSTNode) -> set[str]:
    """Return every variable that an expression mentions."""
    return {inner.value for inner in walk(node) if isinstance(inner, cst.Name)}


def assigned_before(name: str, statement: cst.CSTNode, source: Source, scope: Scope) -> bool:
    """Return whether a variable of `scope` surely has a value when `statement` is reached."""
    above = {id(node): below for below, node in _steps_up(statement, source)}
    for binding in scope.bindings.get(name, []):
        if binding.kind == "param" and source.parent(binding.node) is scope.function.params:
            return True
        loop = source.parent(binding.node)
        if binding.kind == "for" and isinstance(loop, cst.For) and source.inside(statement, loop.body):
            return True
        if binding.kind != "assign" or isinstance(source.parent(binding.node), cst.NamedExpr):
            continue
        line = source.statement(binding.node)
        block = source.parent(line)
        if id(block) in above and isinstance(block, (cst.IndentedBlock, cst.Module)):
            order = {id(part): place for place, part in enumerate(block.body)}
            if order[id(line)] < order[id(above[id(block)])]:
                return True
    return False


def _steps_up(node: cst.CSTNode, source: Source) -> Iterator[tuple[cst.CSTNode, cst.CSTNode]]:
    """Yield each node from `node` up with the one above it."""
    for above in source.ancestors(node):
        yield node, above
        node = above


def invariant_place(
    node: cst.CSTNode, name: str, source: Source, scope: Scope, *, immutable: bool = False
) -> cst.BaseStatement | None:
    """Return the statement before which `node` can be worked out once instead of at every turn.

    That is the outermost loop around it in which what `name` holds stays the same; None if there is none, or if
    the name might not have its value there yet. `immutable`: its kind is one whose values never change.
    """
    found: cst.BaseStatement | None = None
    statement = source.statement(node)
    for region, place in _repeats(node, statement, source):
        if not unchanged_in(name, region, source, scope, immutable=immutable):
            break
        if place is not None:
            found = place
    if found is None or not assigned_before(name, found, source, scope):
        return None
    return found


def _repeats(
    node: cst.CSTNode, statement: cst.BaseStatement, source: Source
) -> Iterator[tuple[list[cst.CSTNode], cst.BaseStatement | None]]:
    """Yield what is repeated around `node`, innermost first, and the statement to work it out before."""
    if _in_comprehension(node, source):
        match statement:
            case cst.SimpleStatementLine(body=[_]):
                yield [statement], statement
            case cst.For():
                yield [statement.iter], statement
            case cst.If() if not isinstance(source.parent(statement), cst.If):
                yield [statement.test], statement
            case cst.While():
                pass
            case _:
                return
    for loop in source.loops(node):
        head = [loop.target, loop.iter] if isinstance(loop, cst.For) else [loop.test]
        parts: list[cst.CSTNode] = [loop.body, *head]
        fits = isinstance(source.parent(loop), (cst.IndentedBlock, cst.Module))
        yield parts, loop if fits else None


def _in_comprehension(node: cst.CSTNode, source: Source) -> bool:
    """Return whether a comprehension repeats `node`: anything in it but its first iterable."""
    below = node
    for above in source.ancestors(node):
        if isinstance(above, (cst.BaseStatement, cst.Lambda)):
            return False
        if isinstance(above, cst.CompFor) and below is not above.iter:
            return True
        if isinstance(above, (cst.BaseSimpleComp, cst.DictComp)) and not isinstance(below, cst.CompFor):
            return True
        if isinstance(above, cst.CompFor) and isinstance(source.parent(above), cst.CompFor):
            return True
        below = above
    return False
