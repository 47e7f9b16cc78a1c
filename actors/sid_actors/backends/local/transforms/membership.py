"""Ask a set instead of a list: `in` looks at every item of a list, at one of a set.

Three entries: a list or tuple that is a constant of the module, a list that stays the same through a loop, and
a list that is filled while it is asked ("seen"). Items and what is looked for must be proved hashable.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import libcst as cst

from sid_actors.backends.local.kinds import Kinds
from sid_actors.backends.local.purity import Purity
from sid_actors.backends.local.rewrite import Rewrite
from sid_actors.backends.local.sites import NotHere, Site
from sid_actors.backends.local.source import Scope, Source, walk_scope
from sid_actors.backends.local.usage import Use, invariant_place, is_private, use_of, uses_of

_FEW = 4  # a shorter constant is searched as fast as it is hashed
_READS = frozenset({"index", "slice", "iterate", "read", "truth", "return", "compare"})
_KEEP_ITEMS = frozenset({"sort", "reverse", "index", "count", "copy"})


def find_constant(source: Source) -> Iterator[Site]:
    """Yield the tests for membership in a constant list or tuple."""
    kinds = Kinds(source)
    purity = Purity(source, kinds)
    for scope in source.functions:
        for node in walk_scope(scope.function.body):
            if not (
                isinstance(node, cst.Comparison)
                and _looks_in(node)
                and kinds.hashable(kinds.of(node.left, scope))
            ):
                continue
            where = node.comparisons[0].comparator
            name = where.value if isinstance(where, cst.Name) else None
            if name is not None and source.scope_of(name, scope) is not source.top:
                continue
            value = purity.constant(name) if name is not None else where
            if value is not None and _hashable_items(value, source.top if name else scope, kinds):
                yield Site(
                    symbol=scope.qualname,
                    text=source.code(node),
                    what=f"`in {source.code(where)}` in `{scope.qualname}`"
                    if name
                    else f"`in [...]` in `{scope.qualname}`",
                    change="asks a frozenset instead of searching item by item",
                    edit=partial(_edit_constant, source, node, name, value),
                    depth=len(source.loops(node)),
                    promise=0.6,
                )


def find_unchanged(source: Source) -> Iterator[Site]:
    """Yield the tests, in a loop, for membership in a list that the loop does not change."""
    kinds = Kinds(source, guess=False)  # all items are hashed, also where the loop makes no turn
    for scope in source.functions:
        done: set[tuple[str, int]] = set()
        for name in scope.mentions:
            for use in uses_of(name, source, scope):
                place = _place(use, name, source, scope, kinds)
                if place is not None and (name, id(place)) not in done:
                    done.add((name, id(place)))
                    yield Site(
                        symbol=scope.qualname,
                        text=f"{name}: {source.code(place)}",
                        what=f"`in {name}` in `{scope.qualname}`",
                        change="asks a set that is made once before the loop, instead of searching the list each time",
                        edit=partial(_edit_unchanged, source, scope, name, place, kinds),
                        depth=max(1, len(source.loops(use.name))),
                        # a set that is made anew at every turn of an outer loop saves less
                        promise=0.85 if not source.loops(place) else 0.35,
                    )


def find_seen(source: Source) -> Iterator[Site]:
    """Yield the lists that are filled and asked for membership in turn."""
    kinds = Kinds(source)
    for scope in source.functions:
        for name in scope.mentions:
            uses = uses_of(name, source, scope)
            depth = max((len(source.loops(u.name)) for u in uses if u.kind == "member"), default=0)
            if depth and _grows(name, uses, source, scope, kinds):
                only = all(u.kind in ("bind", "member", "truth") or u.method == "append" for u in uses)
                yield Site(
                    symbol=scope.qualname,
                    text=f"{name}: {source.code(scope.node)}",
                    what=f"`{name}` in `{scope.qualname}`",
                    change="becomes a set, since it is only filled and asked"
                    if only
                    else "gets a set beside it that answers `in`",
                    edit=partial(_edit_seen if only else _edit_beside, source, scope, name, uses),
                    depth=depth,
                    promise=0.85,
                )


def _looks_in(node: cst.Comparison) -> bool:
    return len(node.comparisons) == 1 and isinstance(node.comparisons[0].operator, (cst.In, cst.NotIn))


def _left_hashable(use: Use, scope: Scope, kinds: Kinds) -> bool:
    node = use.node
    return isinstance(node, cst.Comparison) and _looks_in(node) and kinds.hashable(kinds.of(node.left, scope))


def _hashable_items(value: cst.BaseExpression, scope: Scope, kinds: Kinds) -> bool:
    if not isinstance(value, (cst.List, cst.Tuple)) or len(value.elements) < _FEW:
        return False
    plain = all(isinstance(e, cst.Element) for e in value.elements)
    constants = all(isinstance(e.value, (cst.BaseString, cst.BaseNumber)) for e in value.elements)
    return plain and constants and all(kinds.hashable(kinds.of(e.value, scope)) for e in value.elements)


def _edit_constant(
    source: Source, node: cst.Comparison, name: str | None, value: cst.BaseExpression
) -> cst.Module:
    rewrite = Rewrite(source)
    target = node.comparisons[0]
    if name is None:
        rewrite.replace(target.comparator, _braced(value))
        return rewrite.run()
    fresh = f"_{name.strip('_')}_SET"
    if source.taken(fresh):
        raise NotHere(f"{fresh} is in use")
    rewrite.insert_after(source.statement(source.top.bindings[name][0].node), f"{fresh} = frozenset({name})")
    rewrite.replace(target.comparator, rewrite.expression(fresh))
    return rewrite.run()


def _braced(value: cst.BaseExpression) -> cst.Set:
    """Return a list or tuple as a set, with its line breaks and comments."""
    assert isinstance(value, (cst.List, cst.Tuple))
    opening, closing = (
        (value.lbracket, value.rbracket) if isinstance(value, cst.List) else (value.lpar[0], value.rpar[0])
    )
    return cst.Set(
        elements=value.elements,
        lbrace=cst.LeftCurlyBrace(whitespace_after=opening.whitespace_after),
        rbrace=cst.RightCurlyBrace(whitespace_before=closing.whitespace_before),
    )


def _place(use: Use, name: str, source: Source, scope: Scope, kinds: Kinds) -> cst.BaseStatement | None:
    if use.kind != "member" or not _left_hashable(use, scope, kinds) or name not in scope.bindings:
        return None
    kind = kinds.of_name(name, scope)
    if (
        kind is None
        or kind.name not in ("list", "tuple")
        or not kind.args
        or not all(map(kinds.hashable, kind.args))
    ):
        return None
    return invariant_place(use.name, name, source, scope, immutable=kinds.hashable(kind))


def _edit_unchanged(
    source: Source, scope: Scope, name: str, place: cst.BaseStatement, kinds: Kinds
) -> cst.Module:
    fresh = f"{name}_set"
    if source.taken(fresh):
        raise NotHere(f"{fresh} is in use")
    rewrite = Rewrite(source)
    rewrite.insert_before(place, f"{fresh} = set({name})")
    for use in uses_of(name, source, scope):
        if _place(use, name, source, scope, kinds) is place:
            rewrite.replace(use.name, cst.Name(fresh))
    return rewrite.run()


def _grows(name: str, uses: list[Use], source: Source, scope: Scope, kinds: Kinds) -> bool:
    """Return whether a list of our own only ever gets hashable items appended."""
    bindings = scope.bindings.get(name, [])
    if (
        len(bindings) != 1
        or not isinstance(bindings[0].value, cst.List)
        or not is_private(name, source, scope)
    ):
        return False
    started = [e.value for e in bindings[0].value.elements]
    appended = [_appended(u) for u in uses if u.method == "append"]
    if not appended or None in appended:
        return False
    if not all(kinds.hashable(kinds.of(item, scope)) for item in (*started, *appended)):
        return False
    return all(
        u.kind in ("bind", *_READS)
        or (u.kind == "member" and _left_hashable(u, scope, kinds))
        or (u.kind == "method" and (u.method == "append" or u.method in _KEEP_ITEMS))
        for u in uses
    )


def _appended(use: Use) -> cst.BaseExpression | None:
    call = use.node
    return (
        call.args[0].value
        if isinstance(call, cst.Call) and len(call.args) == 1 and not call.args[0].star
        else None
    )


def _edit_seen(source: Source, scope: Scope, name: str, uses: list[Use]) -> cst.Module:
    rewrite = Rewrite(source)
    first = scope.bindings[name][0].value
    assert isinstance(first, cst.List)
    rewrite.replace(
        first, cst.Set(elements=first.elements) if first.elements else rewrite.expression("set()")
    )
    line = source.parent(scope.bindings[name][0].node)
    if isinstance(line, cst.AnnAssign):
        rewrite.replace(
            line.annotation.annotation, rewrite.expression(_as_set(source.code(line.annotation.annotation)))
        )
    for use in uses:
        if use.method == "append" and isinstance(use.node, cst.Call):
            rewrite.replace(use.node.func, cst.Attribute(cst.Name(name), cst.Name("add")))
    return rewrite.run()


def _as_set(annotation: str) -> str:
    for old, new in (("list", "set"), ("List", "Set"), ("typing.List", "typing.Set")):
        if annotation == old or annotation.startswith(f"{old}["):
            return new + annotation.removeprefix(old)
    raise NotHere("its annotation is not that of a list")


def _edit_beside(source: Source, scope: Scope, name: str, uses: list[Use]) -> cst.Module:
    fresh = f"{name}_set"
    if source.taken(fresh):
        raise NotHere(f"{fresh} is in use")
    rewrite = Rewrite(source)
    rewrite.insert_after(_own_line(scope.bindings[name][0].node, source), f"{fresh} = set({name})")
    for use in uses:
        if use.kind == "member":
            rewrite.replace(use.name, cst.Name(fresh))
        elif use.method == "append":
            item = _appended(use)
            if not isinstance(item, (cst.Name, cst.BaseString, cst.BaseNumber)):
                raise NotHere("what is appended would be worked out twice")
            assert use_of(use.name, source, scope).kind == "method"
            rewrite.insert_after(_own_line(use.name, source), f"{fresh}.add({source.code(item)})")
    return rewrite.run()


def _own_line(node: cst.CSTNode, source: Source) -> cst.BaseStatement:
    """Return the statement of a node, which must stand alone on its line."""
    line = source.statement(node)
    if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
        raise NotHere("several statements share a line")
    if not isinstance(source.parent(line), (cst.IndentedBlock, cst.Module)):
        raise NotHere("the statement shares a line")
    if not isinstance(line.body[0], (cst.Assign, cst.AnnAssign, cst.Expr)):
        raise NotHere("it is part of a larger statement")
    return line
