"""Memoise a pure function: remember its answers instead of computing them again."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import libcst as cst

from sid_actors.backends.local.kinds import Kinds
from sid_actors.backends.local.purity import Purity
from sid_actors.backends.local.rewrite import Rewrite
from sid_actors.backends.local.sites import NotHere, Site
from sid_actors.backends.local.source import Scope, Source, walk

_WORK = (cst.For, cst.While, cst.CompFor)
# Keys of these kinds that are equal are also the same to the function; 1 and 1.0 are equal, but not the same.
_EXACT = frozenset({"int", "str", "bytes", "bool", "None"})


def find(source: Source) -> Iterator[Site]:
    """Yield the pure functions that do enough for a look-up to be cheaper."""
    kinds = Kinds(source)
    purity = Purity(source, kinds)
    for scope in source.functions:
        if _decorable(scope, source) and purity.is_pure(scope):
            again, loops = _calls_itself(scope), _loops(scope)
            if again or loops:
                yield Site(
                    symbol=scope.qualname,
                    text=source.code(scope.node),
                    what=f"`{scope.qualname}`",
                    change="keeps its answers in a cache that grows with every new argument, since it is a pure function",
                    edit=partial(_edit, source, scope, exact=_exact(scope, kinds)),
                    depth=loops,
                    promise=0.95 if again > 1 else 0.75 if loops else 0.5,
                )


def _decorable(scope: Scope, source: Source) -> bool:
    decorators = [source.code(d.decorator) for d in scope.function.decorators]
    if scope.in_class is not None:
        return decorators == ["staticmethod"]
    name = scope.qualname
    if decorators or len(source.top.bindings.get(name, [])) != 1:
        return False
    # `name.attribute` may be something that the cached function has not
    return not any(
        isinstance(source.parent(mention), cst.Attribute)
        for other in (source.top, *source.functions)
        for mention in other.mentions.get(name, [])
    )


def _calls_itself(scope: Scope) -> int:
    return sum(
        isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value == scope.qualname
        for node in walk(scope.function.body)
    )


def _loops(scope: Scope) -> int:
    return sum(isinstance(node, _WORK) for node in walk(scope.function.body))


def _exact(scope: Scope, kinds: Kinds) -> bool:
    given = [kinds.of_parameter(name, scope) for name, b in scope.bindings.items() if b[0].kind == "param"]
    return all(kind is not None and kind.name in _EXACT for kind in given)


def _edit(source: Source, scope: Scope, *, exact: bool) -> cst.Module:
    rewrite = Rewrite(source)
    written = rewrite.use_import("functools", "cache" if exact else "lru_cache", scope.function)
    if written is None:
        raise NotHere("the name functools means something else here")
    call = written if exact else f"{written}(maxsize=None, typed=True)"
    decorator = cst.Decorator(decorator=rewrite.expression(call))

    def decorate(node: cst.CSTNode) -> cst.CSTNode:
        assert isinstance(node, cst.FunctionDef)
        return node.with_changes(decorators=[*node.decorators, decorator])

    rewrite.change(scope.function, decorate)
    return rewrite.run()
