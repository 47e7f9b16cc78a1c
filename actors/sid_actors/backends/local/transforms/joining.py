"""Collect parts and join them once: a string that grows in a loop may be copied at every turn."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import libcst as cst

from sid_actors.backends.local.annotations import STR
from sid_actors.backends.local.kinds import Kinds
from sid_actors.backends.local.rewrite import Rewrite
from sid_actors.backends.local.sites import NotHere, Site
from sid_actors.backends.local.source import Loop, Scope, Source
from sid_actors.backends.local.usage import Use, names_in, uses_of


def find(source: Source) -> Iterator[Site]:
    """Yield the strings that start just before a loop and only grow in it."""
    kinds = Kinds(source)
    for scope in source.functions:
        for name in scope.bindings:
            found = _growing(name, source, scope, kinds)
            if found is not None:
                start, loop, grown = found
                yield Site(
                    symbol=scope.qualname,
                    text=f"{source.code(start)}: {source.code(loop)}",
                    what=f"`{name}` in `{scope.qualname}`",
                    change="is collected in a list and joined once after the loop, not copied as it grows",
                    edit=partial(_edit, source, name, start, loop, grown),
                    depth=max(len(source.loops(use.name)) for use in grown),
                    promise=0.3,
                )


def _growing(
    name: str, source: Source, scope: Scope, kinds: Kinds
) -> tuple[cst.SimpleStatementLine, Loop, list[Use]] | None:
    """Return where a string starts, the loop in which it grows, and every `+=`; None if it is not that simple."""
    if name in scope.nested or name in scope.declared or scope.yields:
        return None
    uses = uses_of(name, source, scope)
    grown = [use for use in uses if use.kind == "augment"]
    if not grown or any(use.kind == "augment" and not _adds_text(use, name, scope, kinds) for use in grown):
        return None
    loops = source.loops(grown[0].name)
    for loop in reversed(loops):
        start = _start(name, loop, source)
        if start is None or not all(source.inside(use.name, loop) for use in grown):
            continue
        others = [use for use in uses if source.inside(use.name, loop) and use not in grown]
        guarded = any(isinstance(a, (cst.Try, cst.TryStar, cst.With)) for a in source.ancestors(loop))
        return None if others or guarded or loop.orelse is not None else (start, loop, grown)
    return None


def _adds_text(use: Use, name: str, scope: Scope, kinds: Kinds) -> bool:
    node = use.node
    if not isinstance(node, cst.AugAssign) or not isinstance(node.operator, cst.AddAssign):
        return False
    return kinds.of(node.value, scope) == STR and name not in names_in(node.value)


def _start(name: str, loop: Loop, source: Source) -> cst.SimpleStatementLine | None:
    """Return the line just before the loop if all it does is to start the string with a literal."""
    block = source.parent(loop)
    if not isinstance(block, (cst.IndentedBlock, cst.Module)):
        return None
    place = next(i for i, statement in enumerate(block.body) if statement is loop)
    for line in reversed(block.body[:place]):
        match line:
            case cst.SimpleStatementLine(body=[cst.Assign(targets=[target], value=value)]) if _is(
                target.target, name
            ):
                plain = isinstance(value, cst.SimpleString) and not set(value.prefix.lower()) & set("b")
                return line if plain else None
            case cst.SimpleStatementLine() if name not in names_in(line):
                continue
            case _:
                return None
    return None


def _is(target: cst.CSTNode, name: str) -> bool:
    return isinstance(target, cst.Name) and target.value == name


def _edit(
    source: Source, name: str, start: cst.SimpleStatementLine, loop: Loop, grown: list[Use]
) -> cst.Module:
    fresh = f"{name}_parts"
    if source.taken(fresh):
        raise NotHere(f"{fresh} is in use")
    rewrite = Rewrite(source)
    first = start.body[0]
    assert isinstance(first, cst.Assign)
    assert isinstance(first.value, cst.SimpleString)
    text = first.value.evaluated_value
    items = [cst.Element(first.value)] if text else []
    rewrite.replace(first, cst.Assign([cst.AssignTarget(cst.Name(fresh))], cst.List(items)))
    for use in grown:
        assert isinstance(use.node, cst.AugAssign)
        append = cst.Attribute(cst.Name(fresh), cst.Name("append"))
        call = cst.Expr(cst.Call(append, [cst.Arg(_bare(use.node.value))]), semicolon=use.node.semicolon)
        rewrite.replace(use.node, call)
    rewrite.insert_after(loop, f'{name} = "".join({fresh})')
    return rewrite.run()


def _bare(value: cst.BaseExpression) -> cst.BaseExpression:
    """Return an expression without the brackets that a call now gives it."""
    return value.with_changes(lpar=value.lpar[1:], rpar=value.rpar[1:]) if value.lpar else value
