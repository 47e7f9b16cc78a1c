"""Work out once, before a loop, what the loop works out anew at each turn.

Only what cannot fail and has no effect is moved, since the loop might make no turn at all: builtins over
containers of a known kind, and methods of strings.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import libcst as cst

from sid_actors.backends.local.annotations import STR
from sid_actors.backends.local.kinds import Kinds
from sid_actors.backends.local.rewrite import Rewrite
from sid_actors.backends.local.sites import NotHere, Site
from sid_actors.backends.local.source import Scope, Source, walk_scope
from sid_actors.backends.local.usage import changes, invariant_place, is_private, use_of, uses_of

_SIZED = frozenset({"list", "tuple", "dict", "set", "frozenset", "str", "bytes"})
_ORDERED = frozenset({"int", "float", "str", "bytes"})
# What is made once must not be changed by its first user: these come out immutable, the others are looked at.
_IMMUTABLE = {"len": "length", "sum": "total", "frozenset": "frozenset"}
_CONTAINERS = {"sorted": "sorted", "set": "set", "list": "list", "tuple": "tuple"}
_STRINGS = {
    "lower": "lower", "upper": "upper", "casefold": "folded", "strip": "stripped", "title": "title",
    "splitlines": "lines", "split": "parts",
}  # fmt: skip
_READS = frozenset({"member", "iterate", "read", "index", "slice", "truth", "compare"})


def find(source: Source) -> Iterator[Site]:
    """Yield the calls in loops whose answer stays the same through the loop."""
    kinds = Kinds(source, guess=False)
    for scope in source.functions:
        for node in walk_scope(scope.function.body):
            if not isinstance(node, cst.Call):
                continue
            found = _builtin(node, source, scope, kinds) or _string(node, scope, kinds)
            if found is None or not _only_read(node, found[2], source, scope):
                continue
            name, suffix, _, promise = found
            steady = kinds.hashable(kinds.of_name(name, scope))
            place = invariant_place(node, name, source, scope, immutable=steady)
            if place is not None:
                yield Site(
                    symbol=scope.qualname,
                    text=f"{source.code(node)}: {source.code(place)}",
                    what=f"`{source.code(node)}` in `{scope.qualname}`",
                    change="is worked out once before the loop, which does not change it",
                    edit=partial(_edit, source, node, f"{name}_{suffix}", place),
                    depth=max(1, len(source.loops(node))),
                    promise=promise,
                )


def _builtin(
    call: cst.Call, source: Source, scope: Scope, kinds: Kinds
) -> tuple[str, str, bool, float] | None:
    """Return variable, suffix, whether the answer is immutable, and promise of a call that cannot fail."""
    match call:
        case cst.Call(
            func=cst.Name(value=function), args=[cst.Arg(star="", keyword=None, value=cst.Name(value=name))]
        ):
            pass
        case _:
            return None
    if name not in scope.bindings or not source.is_builtin(function, scope):
        return None
    kind = kinds.of_name(name, scope)
    if kind is None or kind.name not in _SIZED:
        return None
    if function == "len":
        return name, _IMMUTABLE[function], True, 0.15
    item = kinds.items(call.args[0].value, scope)
    if item is None:
        return None
    if function == "sum":
        return (name, _IMMUTABLE[function], True, 0.7) if item.name in ("int", "float") else None
    if function in ("set", "frozenset") and not kinds.hashable(item):
        return None
    if function == "sorted" and item.name not in _ORDERED:
        return None
    if function in _IMMUTABLE:
        return name, _IMMUTABLE[function], True, 0.8
    return (name, _CONTAINERS[function], False, 0.8) if function in _CONTAINERS else None


def _string(call: cst.Call, scope: Scope, kinds: Kinds) -> tuple[str, str, bool, float] | None:
    match call:
        case cst.Call(func=cst.Attribute(value=cst.Name(value=name), attr=cst.Name(value=method)), args=[]):
            known = method in _STRINGS and name in scope.bindings and kinds.of_name(name, scope) == STR
            listed = method.startswith("split")
            return (name, _STRINGS[method], not listed, 0.7 if listed else 0.4) if known else None
        case _:
            return None


def _only_read(call: cst.Call, immutable: bool, source: Source, scope: Scope) -> bool:  # noqa: FBT001 - a fact, no switch
    """Return whether nobody could change the answer, were it shared by all turns."""
    if immutable or use_of(call, source, scope).kind in _READS:
        return True
    line = source.parent(call)
    match line:
        case cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))]):
            once = (
                len(scope.bindings[name]) == 1
                and name not in scope.nested
                and is_private(name, source, scope)
            )
            uses = uses_of(name, source, scope)
            return once and not any(changes(u) or u.kind == "return" for u in uses if u.kind != "bind")
        case _:
            return False


def _edit(source: Source, call: cst.Call, fresh: str, place: cst.BaseStatement) -> cst.Module:
    if source.taken(fresh):
        raise NotHere(f"{fresh} is in use")
    rewrite = Rewrite(source)
    rewrite.insert_before(place, f"{fresh} = {source.code(call)}")
    rewrite.replace(call, cst.Name(fresh))
    return rewrite.run()
