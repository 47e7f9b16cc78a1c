"""Build a list in one expression where a loop does nothing but append to it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import libcst as cst

from sid_actors.backends.local.rewrite import Rewrite
from sid_actors.backends.local.sites import Site
from sid_actors.backends.local.source import Scope, Source, walk
from sid_actors.backends.local.usage import names_in

_PLAIN = (cst.Name, cst.Tuple, cst.Element)
_WIDE = 100  # characters; a longer line would be worse to read than the loop


def find(source: Source) -> Iterator[Site]:
    """Yield the loops that only append, right below the empty list."""
    for scope in source.functions:
        for loop in (node for node in walk(scope.function.body) if isinstance(node, cst.For)):
            if source.scopes.get(id(_function_of(loop, source))) is not scope:
                continue
            found = _appending(loop, source, scope)
            if found is not None:
                start, text = found
                yield Site(
                    symbol=scope.qualname,
                    text=f"{source.code(start)}\n{source.code(loop)}",
                    what=f"the loop that fills `{text.split(' ', 1)[0]}` in `{scope.qualname}`",
                    change="becomes a list comprehension, which needs no method call an item",
                    edit=partial(_edit, source, start, loop, text),
                    depth=len(source.loops(loop)) + 1,
                    promise=0.2,
                )


def _function_of(node: cst.CSTNode, source: Source) -> cst.CSTNode:
    return next((a for a in source.ancestors(node) if isinstance(a, cst.FunctionDef)), source.module)


def _appending(loop: cst.For, source: Source, scope: Scope) -> tuple[cst.SimpleStatementLine, str] | None:
    """Return the line of the empty list and the text of the comprehension; None if the loop does more."""
    if loop.asynchronous or loop.orelse or not isinstance(loop.body, cst.IndentedBlock) or scope.yields:
        return None
    if any(isinstance(a, (cst.Try, cst.TryStar)) for a in source.ancestors(loop)) or "#" in source.code(loop):
        return None
    condition: cst.BaseExpression | None = None
    inner: list[cst.BaseStatement] = list(loop.body.body)
    match inner:
        case [cst.If(test=test, body=cst.IndentedBlock(body=body), orelse=None)]:
            condition, inner = test, list(body)
        case _:
            pass
    call = _only_append(inner)
    if call is None or not isinstance(call.func, cst.Attribute) or not isinstance(call.func.value, cst.Name):
        return None
    name, item = call.func.value.value, call.args[0].value
    start = _empty_before(loop, name, source)
    parts = [item, loop.iter, *([condition] if condition is not None else [])]
    if start is None or not _closed(loop, name, parts, source, scope):
        return None
    target = source.code(loop.target)
    only_if = f" if {source.code(condition)}" if condition is not None else ""
    text = f"{name} = [{source.code(item)} for {target} in {source.code(loop.iter)}{only_if}]"
    return (start, text) if "\n" not in text and len(text) <= _WIDE else None


def _only_append(body: list[cst.BaseStatement]) -> cst.Call | None:
    """Return the call `name.append(item)` if it is all that a loop does."""
    match body:
        case [
            cst.SimpleStatementLine(
                body=[cst.Expr(value=cst.Call(func=cst.Attribute(attr=cst.Name("append"))) as call)]
            )
        ]:
            plain = len(call.args) == 1 and not call.args[0].star and call.args[0].keyword is None
            return call if plain else None
        case _:
            return None


def _empty_before(loop: cst.For, name: str, source: Source) -> cst.SimpleStatementLine | None:
    block = source.parent(loop)
    if not isinstance(block, cst.IndentedBlock):
        return None
    place = next(i for i, statement in enumerate(block.body) if statement is loop)
    line = block.body[place - 1] if place else None
    match line:
        case cst.SimpleStatementLine(
            body=[
                cst.Assign(
                    targets=[cst.AssignTarget(target=cst.Name(value=found))], value=cst.List(elements=[])
                )
            ]
        ) if found == name and not loop.leading_lines and "#" not in source.module.code_for_node(line):
            return line
        case _:
            return None


def _closed(loop: cst.For, name: str, parts: list[cst.BaseExpression], source: Source, scope: Scope) -> bool:
    """Return whether the loop's variables are used nowhere else and nothing in it depends on the list."""
    targets = names_in(loop.target)
    if name in scope.declared | scope.nested or any(not isinstance(n, _PLAIN) for n in walk(loop.target)):
        return False
    for part in parts:
        if {name, "super"} & names_in(part) or not _stands_alone(part):
            return False
    if targets & names_in(loop.iter) or targets & (scope.nested | scope.declared):
        return False
    return all(
        source.inside(mention, loop) for target in targets for mention in scope.mentions.get(target, [])
    )


def _stands_alone(part: cst.BaseExpression) -> bool:
    """Return whether an expression means the same inside a comprehension: no closure, assignment, or open end."""
    if isinstance(part, (cst.Tuple, cst.GeneratorExp, cst.IfExp)) and not part.lpar:
        return False
    return not any(isinstance(node, (cst.NamedExpr, cst.Lambda)) for node in walk(part))


def _edit(source: Source, start: cst.SimpleStatementLine, loop: cst.For, text: str) -> cst.Module:
    rewrite = Rewrite(source)
    rewrite.insert_before(start, text)
    rewrite.remove(start)
    rewrite.remove(loop)
    return rewrite.run()
