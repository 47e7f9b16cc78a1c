"""Look a key up once: go through a dict's items where its values are wanted, and ask it, not a view of its keys."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import libcst as cst

from sid_actors.backends.local.kinds import Kinds
from sid_actors.backends.local.rewrite import Rewrite
from sid_actors.backends.local.sites import NotHere, Site
from sid_actors.backends.local.source import Scope, Source, walk, walk_scope
from sid_actors.backends.local.usage import unchanged_in


def find(source: Source) -> Iterator[Site]:
    """Yield the loops over keys that look each one up again, and the questions put to `.keys()`."""
    kinds = Kinds(source)
    for scope in source.functions:
        for node in walk_scope(scope.function.body):
            match node:
                case cst.For():
                    found = _loop(node, source, scope, kinds)
                    if found is not None:
                        table, key, lookups = found
                        yield Site(
                            symbol=scope.qualname,
                            text=source.code(node),
                            what=f"the loop over `{table}` in `{scope.qualname}`",
                            change="goes through keys and values together, not looking each key up again",
                            edit=partial(_edit_loop, source, node, table, key, lookups),
                            depth=len(source.loops(node)) + 1,
                            promise=0.2,
                        )
                case cst.Comparison() if (call := _asks_keys(node, scope, kinds)) is not None:
                    yield Site(
                        symbol=scope.qualname,
                        text=source.code(node),
                        what=f"`in {source.code(call)}` in `{scope.qualname}`",
                        change="asks the dict itself, without making a view of its keys first",
                        edit=partial(_edit_keys, source, call),
                        depth=len(source.loops(node)),
                        promise=0.15,
                    )
                case _:
                    pass


def _keys_of(e: cst.BaseExpression) -> cst.BaseExpression | None:
    """Return what `.keys()` is called on."""
    match e:
        case cst.Call(func=cst.Attribute(value=base, attr=cst.Name(value="keys")), args=[]):
            return base
        case _:
            return None


def _loop(
    loop: cst.For, source: Source, scope: Scope, kinds: Kinds
) -> tuple[str, str, list[cst.Subscript]] | None:
    """Return dict, key and look-ups of a loop over the keys of a dict that it does not change."""
    over = _keys_of(loop.iter) or loop.iter
    if loop.asynchronous or not isinstance(over, cst.Name) or not isinstance(loop.target, cst.Name):
        return None
    table, key = over.value, loop.target.value
    kind = kinds.of_name(table, scope)
    if kind is None or kind.name != "dict" or key in scope.declared | scope.nested or table == key:
        return None
    rebound = {id(b.node) for b in scope.bindings.get(key, []) if b.node is not loop.target}
    if any(id(node) in rebound for node in walk(loop.body)):
        return None
    if not unchanged_in(table, [loop.body], source, scope):
        return None
    lookups = [node for node in walk_scope(loop.body) if _is_lookup(node, table, key)]
    return (table, key, [n for n in lookups if isinstance(n, cst.Subscript)]) if lookups else None


def _is_lookup(node: cst.CSTNode, table: str, key: str) -> bool:
    match node:
        case cst.Subscript(
            value=cst.Name(value=found),
            slice=[cst.SubscriptElement(slice=cst.Index(value=cst.Name(value=by)))],
        ):
            return (found, by) == (table, key)
        case _:
            return False


def _asks_keys(node: cst.Comparison, scope: Scope, kinds: Kinds) -> cst.Call | None:
    """Return the `.keys()` of `key in table.keys()`."""
    if len(node.comparisons) != 1 or not isinstance(node.comparisons[0].operator, (cst.In, cst.NotIn)):
        return None
    call = node.comparisons[0].comparator
    base = _keys_of(call)
    kind = kinds.of(base, scope) if base is not None else None
    return call if kind is not None and kind.name == "dict" and isinstance(call, cst.Call) else None


def _edit_loop(
    source: Source, loop: cst.For, table: str, key: str, lookups: list[cst.Subscript]
) -> cst.Module:
    fresh = f"{key}_value"
    if source.taken(fresh):
        raise NotHere(f"{fresh} is in use")
    rewrite = Rewrite(source)
    rewrite.replace(loop.target, rewrite.expression(f"{key}, {fresh}"))
    rewrite.replace(loop.iter, rewrite.expression(f"{table}.items()"))
    for node in lookups:
        rewrite.replace(node, cst.Name(fresh, lpar=node.lpar, rpar=node.rpar))
    return rewrite.run()


def _edit_keys(source: Source, call: cst.Call) -> cst.Module:
    assert isinstance(call.func, cst.Attribute)
    rewrite = Rewrite(source)
    rewrite.replace(call, call.func.value.deep_clone())
    return rewrite.run()
