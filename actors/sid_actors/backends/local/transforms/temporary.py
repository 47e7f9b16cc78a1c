"""Feed a builtin from a generator or a set display instead of a list that is thrown away."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import libcst as cst

from sid_actors.backends.local.rewrite import Rewrite
from sid_actors.backends.local.sites import Site
from sid_actors.backends.local.source import Scope, Source, walk_scope

_READERS = frozenset({"sorted", "set", "frozenset", "tuple", "sum", "min", "max", "list"})


def find(source: Source) -> Iterator[Site]:
    """Yield the lists that are made only to be read once by a builtin."""
    for scope in source.functions:
        calls = [node for node in walk_scope(scope.function.body) if isinstance(node, cst.Call)]
        for node in calls:
            new = _better(node, source, scope)
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


def _better(call: cst.Call, source: Source, scope: Scope) -> cst.BaseExpression | None:
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
            bare = cst.GeneratorExp(elt=inner.elt, for_in=inner.for_in, lpar=[], rpar=[])
            return call.with_changes(args=[call.args[0].with_changes(value=bare)])
        case _:
            return None


def _edit(source: Source, call: cst.Call, new: cst.BaseExpression) -> cst.Module:
    rewrite = Rewrite(source)
    rewrite.replace(call, new)
    return rewrite.run()
