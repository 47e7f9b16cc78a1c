"""Count all items once: `items.count(x)` in a loop goes through the whole list every time."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import libcst as cst

from sid_actors.backends.local.kinds import Kinds
from sid_actors.backends.local.rewrite import Rewrite
from sid_actors.backends.local.sites import NotHere, Site
from sid_actors.backends.local.source import Scope, Source
from sid_actors.backends.local.usage import Use, invariant_place, uses_of


def find(source: Source) -> Iterator[Site]:
    """Yield the `.count` calls, in a loop, on a list that the loop does not change."""
    kinds = Kinds(source, guess=False)  # all items are hashed, also where the loop makes no turn
    for scope in source.functions:
        for name in scope.bindings:
            for use in uses_of(name, source, scope):
                place = _place(use, name, source, scope, kinds)
                if place is not None:
                    yield Site(
                        symbol=scope.qualname,
                        text=f"{source.code(use.node)}: {source.code(place)}",
                        what=f"`{name}.count` in `{scope.qualname}`",
                        change="looks up a collections.Counter that is made once before the loop",
                        edit=partial(_edit, source, scope, name, use, place),
                        depth=max(1, len(source.loops(use.name))),
                        promise=0.85,
                    )


def _place(use: Use, name: str, source: Source, scope: Scope, kinds: Kinds) -> cst.BaseStatement | None:
    call = use.node
    if use.method != "count" or not isinstance(call, cst.Call) or len(call.args) != 1 or call.args[0].star:
        return None
    kind = kinds.of_name(name, scope)
    listed = kind is not None and kind.name == "list" and bool(kind.args) and kinds.hashable(kind.args[0])
    if not listed or not kinds.hashable(kinds.of(call.args[0].value, scope)):
        return None
    return invariant_place(call, name, source, scope)


def _edit(source: Source, scope: Scope, name: str, use: Use, place: cst.BaseStatement) -> cst.Module:
    fresh = f"{name}_counts"
    rewrite = Rewrite(source)
    counter = rewrite.use_import("collections", "Counter", scope.function)
    if counter is None or source.taken(fresh):
        raise NotHere("a name that it needs is in use")
    assert isinstance(use.node, cst.Call)
    rewrite.insert_before(place, f"{fresh} = {counter}({name})")
    rewrite.replace(use.node, rewrite.expression(f"{fresh}[{source.code(use.node.args[0].value)}]"))
    return rewrite.run()
