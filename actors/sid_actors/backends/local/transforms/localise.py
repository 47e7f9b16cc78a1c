"""Look a name up once before a loop instead of at every turn.

Three kinds of look-ups stay the same through a loop: a function or constant of a module of the standard library,
a method of a list, set or dict that is made here and never replaced in the loop, and an attribute of `self` that
`__init__` surely sets and that nothing in the loop can change.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from functools import partial

import libcst as cst

from sid_actors.backends.local.rewrite import Rewrite
from sid_actors.backends.local.sites import NotHere, Site
from sid_actors.backends.local.source import Loop, Scope, Source, walk, walk_scope
from sid_actors.backends.local.usage import (
    MUTATORS,
    PURE_METHODS,
    assigned_before,
    is_harmless,
    is_private,
)

# Modules whose import has no effect and whose attributes nobody replaces while a loop runs.
_STEADY = frozenset(
    {"bisect", "heapq", "html", "itertools", "json", "math", "operator", "re", "string", "struct"}
)


def find(source: Source) -> Iterator[Site]:
    """Yield the attributes that are looked up in a loop and mean the same at every turn."""
    for scope in source.functions:
        if scope.yields:
            continue  # others run between two turns
        found: dict[tuple[str, int], tuple[Loop, list[cst.Attribute], str]] = {}
        for node in walk_scope(scope.function.body):
            match node:
                case cst.Attribute(value=cst.Name(value=owner)) if _is_read(node, source):
                    loops = [loop for loop in source.loops(node) if _has_place(loop, source)]
                    for loop in reversed(loops):
                        why = _steady(node, owner, loop, source, scope)
                        if why:
                            key = (source.code(node), id(loop))
                            found.setdefault(key, (loop, [], why))[1].append(node)
                            break
                case _:
                    pass
        for (text, _), (loop, nodes, why) in found.items():
            yield Site(
                symbol=scope.qualname,
                text=f"{text}: {source.code(loop)}",
                what=f"`{text}` in `{scope.qualname}`",
                change=f"is looked up once before the loop, {why}",
                edit=partial(_edit, source, loop, nodes),
                depth=max(len(source.loops(node)) for node in nodes),
                # a method call finds its method almost as fast as a local; anything else is searched by its name
                promise=0.04 if why.startswith("as ") else 0.1,
            )


def _is_read(node: cst.Attribute, source: Source) -> bool:
    above = source.parent(node)
    if isinstance(above, (cst.AssignTarget, cst.AnnAssign, cst.AugAssign, cst.Del, cst.For, cst.CompFor)):
        return getattr(above, "target", None) is not node
    return not isinstance(above, (cst.Element, cst.AsName, cst.Decorator))


def _has_place(loop: Loop, source: Source) -> bool:
    return isinstance(source.parent(loop), cst.IndentedBlock)


def _steady(node: cst.Attribute, owner: str, loop: Loop, source: Source, scope: Scope) -> str:
    """Return why an attribute means the same at every turn, nothing where that is not sure."""
    if _of_module(node, owner, source, scope):
        return f"which is the same unless something replaces it in `{owner}` while the loop runs"
    bound = {id(b.node) for b in scope.bindings.get(owner, [])}
    if (
        not bound
        or any(id(inner) in bound for inner in walk(loop))
        or not assigned_before(owner, loop, source, scope)
    ):
        return ""
    call = source.parent(node)
    called = isinstance(call, cst.Call) and call.func is node
    if called and node.attr.value in MUTATORS | PURE_METHODS and is_private(owner, source, scope):
        return f"as `{owner}` is the same object all through it"
    if _of_self(node, owner, source, scope) and _nothing_changes(loop, source, scope):
        return "which does not change it"
    return ""


def _of_module(node: cst.Attribute, owner: str, source: Source, scope: Scope) -> bool:
    bindings = source.top.bindings.get(owner, [])
    if len(bindings) != 1 or source.scope_of(owner, scope) is not source.top or source.star_import:
        return False
    match bindings[0].node:
        case cst.Import(names=names) if source.parent(source.statement(bindings[0].node)) is source.module:
            real = {a.evaluated_alias or a.evaluated_name: a.evaluated_name for a in names}.get(owner, "")
        case _:
            return False
    if real not in _STEADY or real not in sys.stdlib_module_names:
        return False
    return hasattr(importlib.import_module(real), node.attr.value)


def _of_self(node: cst.Attribute, owner: str, source: Source, scope: Scope) -> bool:
    """Return whether an attribute of `self` is a plain one that every object of the class has."""
    parameters = [*scope.function.params.posonly_params, *scope.function.params.params]
    own = scope.in_class
    if own is None or not parameters or parameters[0].name.value != owner or len(scope.bindings[owner]) != 1:
        return False
    if own.bases or own.keywords or own.decorators or owner != "self":
        return False
    name = node.attr.value
    set_up = False
    for part in own.body.body:
        match part:
            case cst.FunctionDef(name=cst.Name(value="__getattr__" | "__getattribute__" | "__slots__")):
                return False
            case cst.FunctionDef(name=cst.Name(value=method)) if method == name:
                return False
            case cst.FunctionDef(name=cst.Name(value="__init__"), body=cst.IndentedBlock(body=body)):
                set_up = any(_sets(line, name) for line in body)
            case cst.FunctionDef() | cst.SimpleStatementLine():
                pass
            case _:
                return False
        if isinstance(part, cst.SimpleStatementLine) and not _is_docstring(part):
            return False
    deleted = any(isinstance(n, cst.Del) and f".{name}" in source.code(n) for n in walk(own))
    return set_up and not deleted and scope.function.name.value != "__init__"


def _sets(line: cst.BaseStatement, name: str) -> bool:
    """Return whether a line of `__init__` gives `self` an attribute."""
    for part in line.body if isinstance(line, cst.SimpleStatementLine) else ():
        targets = [t.target for t in part.targets] if isinstance(part, cst.Assign) else []
        if isinstance(part, cst.AnnAssign) and part.value is not None:
            targets = [part.target]
        for target in targets:
            match target:
                case cst.Attribute(value=cst.Name(value="self"), attr=cst.Name(value=found)) if found == name:
                    return True
                case _:
                    pass
    return False


def _is_docstring(line: cst.SimpleStatementLine) -> bool:
    return all(
        (isinstance(p, cst.Expr) and isinstance(p.value, cst.BaseString)) or isinstance(p, cst.Pass)
        for p in line.body
    )


def _nothing_changes(loop: Loop, source: Source, scope: Scope) -> bool:
    return all(is_harmless(node, source, scope) for node in walk_scope(loop))


def _edit(source: Source, loop: Loop, nodes: list[cst.Attribute]) -> cst.Module:
    owner = nodes[0].value
    assert isinstance(owner, cst.Name)
    fresh = f"{owner.value}_{nodes[0].attr.value}".lstrip("_")
    if source.taken(fresh):
        raise NotHere(f"{fresh} is in use")
    rewrite = Rewrite(source)
    rewrite.insert_before(loop, f"{fresh} = {source.code(nodes[0])}")
    for node in nodes:
        rewrite.replace(node, cst.Name(fresh, lpar=node.lpar, rpar=node.rpar))
    return rewrite.run()
