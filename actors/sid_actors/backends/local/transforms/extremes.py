"""Take the smallest, or the few smallest, without sorting the rest.

`sorted(x)[0]` is `min(x)`, also among equals, since sorting is stable and `min` keeps the first. The last of a
sorted list is the last among equals, while `max` keeps the first: that is used only where equal items cannot be
told apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import libcst as cst

from sid_actors.backends.local.kinds import Kinds
from sid_actors.backends.local.rewrite import Rewrite
from sid_actors.backends.local.sites import NotHere, Site
from sid_actors.backends.local.source import Scope, Source, walk, walk_scope

_SAME_WHEN_EQUAL = frozenset({"str", "bytes", "int"})
_MISSED = frozenset({"IndexError", "LookupError"})
Taken = tuple[str, str]  # module and function that do it: ("", "min") or ("heapq", "nsmallest")


def find(source: Source) -> Iterator[Site]:
    """Yield the sorted lists of which only an end is used."""
    if _expects_index_error(source):
        return
    kinds = Kinds(source)
    for scope in source.functions:
        ends = [node for node in walk_scope(scope.function.body) if isinstance(node, cst.Subscript)]
        for node in ends:
            taken = _taken(node, source, scope, kinds)
            if taken is not None:
                yield Site(
                    symbol=scope.qualname,
                    text=source.code(node),
                    what=f"`{_short(source.code(node))}` in `{scope.qualname}`",
                    change=f"uses {taken[1]}, which looks at each item once instead of sorting them all",
                    edit=partial(_edit, source, scope, node, taken),
                    depth=len(source.loops(node)),
                    promise=0.6 if taken[0] == "" else 0.4,
                )


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 40 else line[:37] + "..."


def _expects_index_error(source: Source) -> bool:
    """Return whether the module handles the error of an empty list, which would be another one."""
    return any(
        isinstance(node, cst.ExceptHandler)
        and node.type is not None
        and any(isinstance(inner, cst.Name) and inner.value in _MISSED for inner in walk(node.type))
        for node in walk(source.module)
    )


def _sorted(
    node: cst.Subscript, source: Source, scope: Scope
) -> tuple[cst.Call, cst.SimpleStatementLine | None] | None:
    """Return the call of `sorted` whose end `node` takes, and the line just above if a name stands between."""
    line = None
    value = node.value
    if isinstance(value, cst.Name):
        line = _line_above(node, source)
        if line is None or not isinstance(first := line.body[0], cst.Assign) or len(line.body) > 1:
            return None
        target = first.targets[0].target
        alone = isinstance(target, cst.Name) and len(first.targets) == 1 and target.value == value.value
        once = len(scope.bindings.get(value.value, ())) == 1 and len(scope.mentions[value.value]) == 2
        if not alone or not once or value.value in scope.nested | scope.declared:
            return None
        value = first.value
    if isinstance(value, cst.Call) and isinstance(value.func, cst.Name) and value.func.value == "sorted":
        return value, line
    return None


def _line_above(node: cst.Subscript, source: Source) -> cst.SimpleStatementLine | None:
    """Return the line above a statement that does nothing but take `node`, unless it has a comment."""
    user, line = source.parent(node), source.statement(node)
    block = source.parent(line)
    if not isinstance(user, (cst.Return, cst.Assign)) or not isinstance(block, cst.IndentedBlock):
        return None
    place = next(i for i, statement in enumerate(block.body) if statement is line)
    above = block.body[place - 1] if place else None
    if not isinstance(above, cst.SimpleStatementLine) or "#" in source.module.code_for_node(above):
        return None
    return above


def _taken(node: cst.Subscript, source: Source, scope: Scope, kinds: Kinds) -> Taken | None:
    found = _sorted(node, source, scope)
    if found is None:
        return None
    call = found[0]
    if not source.is_builtin("sorted", scope) or not call.args or call.args[0].star or call.args[0].keyword:
        return None
    options = {a.keyword.value: a.value for a in call.args[1:] if a.keyword is not None}
    if len(options) != len(call.args) - 1 or not set(options) <= {"key", "reverse"}:
        return None
    backwards = options.get("reverse")
    if backwards is not None and not (
        isinstance(backwards, cst.Name) and backwards.value in ("True", "False")
    ):
        return None
    down = isinstance(backwards, cst.Name) and backwards.value == "True"
    match source.code(node)[len(source.code(node.value)) :].replace(" ", ""):
        case "[0]":
            return "", "max" if down else "min"
        case "[-1]":
            item = kinds.items(call.args[0].value, scope)
            alike = "key" not in options and item is not None and item.name in _SAME_WHEN_EQUAL
            return ("", "min" if down else "max") if alike else None
        case slice_ if slice_.startswith("[:") and slice_[2:-1].isdigit() and int(slice_[2:-1]) > 0:
            return "heapq", "nlargest" if down else "nsmallest"
        case _:
            return None


def _edit(source: Source, scope: Scope, node: cst.Subscript, taken: Taken) -> cst.Module:
    module, function = taken
    rewrite = Rewrite(source)
    written = rewrite.use_import(module, function, scope.function) if module else function
    if written is None or (not module and not source.is_builtin(function, scope)):
        raise NotHere(f"the name {function} means something else here")
    found = _sorted(node, source, scope)
    assert found is not None
    call, line = found
    if line is not None:
        rewrite.remove(line)
    args = [a for a in call.args if a.keyword is None or a.keyword.value != "reverse"]
    args[-1] = args[-1].with_changes(comma=call.args[-1].comma)
    if isinstance(args[0].value, cst.GeneratorExp) and not args[0].value.lpar:
        bracketed = args[0].value.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
        args[0] = args[0].with_changes(value=bracketed)
    if module:
        count = node.slice[0].slice
        assert isinstance(count, cst.Slice)
        assert count.upper is not None
        args.insert(0, cst.Arg(count.upper))
    new = call.with_changes(func=rewrite.expression(written), args=args, lpar=node.lpar, rpar=node.rpar)
    rewrite.replace(node, new)
    return rewrite.run()
