"""Feed a builtin from a generator or a set display instead of a list that is thrown away."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import libcst as cst

from sid_actors.backends.local.annotations import NUMBERS, STR
from sid_actors.backends.local.kinds import Kinds
from sid_actors.backends.local.rewrite import Rewrite
from sid_actors.backends.local.sites import Site
from sid_actors.backends.local.source import Scope, Source, walk, walk_scope
from sid_actors.backends.local.usage import PURE_METHODS

_READERS = frozenset({"sorted", "set", "frozenset", "tuple", "sum", "min", "max", "list", "any", "all"})


def find(source: Source) -> Iterator[Site]:
    """Yield the lists that are made only to be read once by a builtin."""
    kinds = Kinds(source, guess=False)
    for scope in source.functions:
        calls = [node for node in walk_scope(scope.function.body) if isinstance(node, cst.Call)]
        for node in calls:
            new = _better(node, source, scope, kinds)
            if new is not None:
                yield Site(
                    symbol=scope.qualname,
                    text=source.code(node),
                    what=f"the list inside `{source.code(node).split('(', 1)[0]}(...)` in `{scope.qualname}`",
                    change="is not made, since its items are read only once",
                    edit=partial(_edit, source, node, new),
                    depth=len(source.loops(node)),
                    promise=0.15,
                )


def _better(call: cst.Call, source: Source, scope: Scope, kinds: Kinds) -> cst.BaseExpression | None:
    match call:
        case cst.Call(func=cst.Name(value=name), args=[cst.Arg(star="", keyword=None, value=inner), *_]):
            if name not in _READERS or not source.is_builtin(name, scope):
                return None
        case _:
            return None
    match inner:
        case cst.Call(func=cst.Name(value="list"), args=[cst.Arg(star="", keyword=None, value=items)]):
            # a key function might change what it is asked about: then the copy would matter
            if len(call.args) > 1 or not source.is_builtin("list", scope):
                return None
            return call.with_changes(args=[call.args[0].with_changes(value=items), *call.args[1:]])
        case cst.ListComp() if name == "set" and len(call.args) == 1:
            return cst.SetComp(elt=inner.elt, for_in=inner.for_in, lpar=call.lpar, rpar=call.rpar)
        case cst.ListComp() if name in ("sum", "min", "max") and len(call.args) == 1:
            return _fed(call, inner)
        case cst.ListComp() if name in ("any", "all") and len(call.args) == 1:
            # it stops at the first answer: what it then leaves out must not have mattered
            parts = [inner.elt, *(test for test in _tests(inner.for_in))]
            silent = inner.for_in.inner_for_in is None and all(_cannot_fail(e, scope, kinds) for e in parts)
            return _fed(call, inner) if silent and kinds.items(inner.for_in.iter, scope) else None
        case _:
            return None


def _fed(call: cst.Call, inner: cst.ListComp) -> cst.Call:
    """Return the call with a generator in place of its list."""
    bare = cst.GeneratorExp(elt=inner.elt, for_in=inner.for_in, lpar=[], rpar=[])
    return call.with_changes(args=[call.args[0].with_changes(value=bare)])


def _tests(part: cst.CompFor) -> list[cst.BaseExpression]:
    return [condition.test for condition in part.ifs]


def _cannot_fail(e: cst.BaseExpression, scope: Scope, kinds: Kinds) -> bool:
    """Return whether an expression has no effect and raises nothing, whatever the items are."""
    for node in walk(e):
        match node:
            case cst.Comparison(left=left, comparisons=[target]):
                one, other = kinds.of(left, scope), kinds.of(target.comparator, scope)
                if one is None or other is None:
                    return False
                ordered = one == other == STR or {one.name, other.name} <= NUMBERS
                if not ordered and not isinstance(
                    target.operator, (cst.Equal, cst.NotEqual, cst.Is, cst.IsNot)
                ):
                    return False
            case cst.Call(func=cst.Attribute(value=base, attr=cst.Name(value=method))):
                harmless = method in PURE_METHODS - {"index", "rindex", "encode", "format"} and not node.args
                if not harmless or kinds.of(base, scope) != STR:
                    return False
            case (
                cst.Name() | cst.BaseNumber() | cst.SimpleString() | cst.BooleanOperation() | cst.BaseCompOp()
            ):
                pass
            case cst.UnaryOperation(operator=cst.Not()) | cst.Not() | cst.And() | cst.Or() | cst.Attribute():
                pass
            case cst.ComparisonTarget():
                pass
            case _:
                return False
    return True


def _edit(source: Source, call: cst.Call, new: cst.BaseExpression) -> cst.Module:
    rewrite = Rewrite(source)
    rewrite.replace(call, new)
    return rewrite.run()
