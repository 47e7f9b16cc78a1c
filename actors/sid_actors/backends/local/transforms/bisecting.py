"""Search sorted data by halves: a loop that stops at the first large enough item looks at all the smaller ones.

Sorted is what `sorted` or `.sort()` made here and nothing changed since, or a constant whose items are written in
order. Items and what is sought are of one kind with a total order; a float that is not a number has none, and
where floats are involved the idea says so.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import libcst as cst

from sid_actors.backends.local.annotations import NUMBERS, STR, Kind
from sid_actors.backends.local.kinds import Kinds
from sid_actors.backends.local.purity import Purity
from sid_actors.backends.local.rewrite import Rewrite
from sid_actors.backends.local.sites import NotHere, Site
from sid_actors.backends.local.source import Scope, Source, walk_scope
from sid_actors.backends.local.usage import changes, is_private, names_in, uses_of

_FEW = 8  # a shorter constant is searched as fast from its start
_MIRRORED: dict[type[cst.BaseCompOp], type[cst.BaseCompOp]] = {
    cst.LessThan: cst.GreaterThan,
    cst.LessThanEqual: cst.GreaterThanEqual,
    cst.GreaterThan: cst.LessThan,
    cst.GreaterThanEqual: cst.LessThanEqual,
}
# The first item for which this holds stands where that function says.
_FIRST = {cst.GreaterThanEqual: "bisect_left", cst.GreaterThan: "bisect_right"}
# The items for which this holds are all before where that function says.
_BEFORE = {cst.LessThan: "bisect_left", cst.LessThanEqual: "bisect_right"}


@dataclass(frozen=True, slots=True)
class _Search:
    """A search: what is searched, how an item is called and compared, with what."""

    name: str
    item: str
    operator: type[cst.BaseCompOp]
    sought: cst.BaseExpression
    floats: bool


def find(source: Source) -> Iterator[Site]:
    """Yield the loops that look for a place in sorted data, and the counts of what lies before one."""
    kinds = Kinds(source)
    purity = Purity(source, kinds)
    for scope in source.functions:
        for node in walk_scope(scope.function.body):
            match node:
                case cst.For():
                    search = _first(node, source, scope, kinds, purity)
                    edit = partial(_edit_first, source, scope, node)
                case cst.Call():
                    search = _count(node, source, scope, kinds, purity)
                    edit = partial(_edit_count, source, scope, node)
                case _:
                    continue
            if search is not None:
                but = ", with the same answer unless one of the numbers is a NaN" if search.floats else ""
                yield Site(
                    symbol=scope.qualname,
                    text=source.code(node),
                    what=f"the search through `{search.name}` in `{scope.qualname}`",
                    change=f"goes by halves with bisect, since `{search.name}` is sorted{but}",
                    edit=partial(edit, search),
                    depth=len(source.loops(node)) + 1,
                    promise=0.7,
                )


def _first(loop: cst.For, source: Source, scope: Scope, kinds: Kinds, purity: Purity) -> _Search | None:
    """Return the search of a loop that does nothing but return at the first item that is large enough."""
    if loop.asynchronous or loop.orelse or not isinstance(source.parent(loop), cst.IndentedBlock):
        return None
    match loop.body:
        case cst.IndentedBlock(
            body=[
                cst.If(
                    test=cst.Comparison() as test,
                    body=cst.IndentedBlock(body=[cst.SimpleStatementLine(body=[cst.Return() as end])]),
                    orelse=None,
                )
            ]
        ):
            pass
        case _:
            return None
    place, item, data = _iteration(loop)
    if not item or not isinstance(data, cst.Name) or "#" in source.code(loop):
        return None
    if place and not source.is_builtin("enumerate", scope):
        return None
    for name in filter(None, (place, item)):
        mentions = scope.mentions.get(name, [])
        if name in scope.nested | scope.declared or not all(source.inside(m, loop) for m in mentions):
            return None
    if end.value is not None and {"locals", "vars"} & names_in(end.value):
        return None
    search = _search(test, data, item, source, scope, kinds, purity)
    return search if search is not None and search.operator in _FIRST else None


def _iteration(loop: cst.For) -> tuple[str, str, cst.BaseExpression | None]:
    """Return what a loop calls the place (or nothing) and the item, and what it goes through."""
    match loop:
        case cst.For(
            target=cst.Tuple(
                elements=[cst.Element(value=cst.Name(value=place)), cst.Element(value=cst.Name(value=item))]
            ),
            iter=cst.Call(
                func=cst.Name(value="enumerate"), args=[cst.Arg(star="", keyword=None, value=data)]
            ),
        ):
            return place, item, data
        case cst.For(target=cst.Name(value=item), iter=cst.Name() as data):
            return "", item, data
        case _:
            return "", "", None


def _count(call: cst.Call, source: Source, scope: Scope, kinds: Kinds, purity: Purity) -> _Search | None:
    """Return the search of `sum(1 for v in xs if v < x)`."""
    match call:
        case cst.Call(
            func=cst.Name(value="sum"),
            args=[
                cst.Arg(
                    star="",
                    keyword=None,
                    value=cst.GeneratorExp(
                        elt=cst.Integer(value="1"),
                        for_in=cst.CompFor(
                            target=cst.Name(value=item),
                            iter=cst.Name() as data,
                            ifs=[cst.CompIf(test=cst.Comparison() as test)],
                            inner_for_in=None,
                            asynchronous=None,
                        ),
                    ),
                )
            ],
        ) if source.is_builtin("sum", scope):
            return _search(test, data, item, source, scope, kinds, purity)
        case _:
            return None


def _search(
    test: cst.Comparison,
    data: cst.Name,
    item: str,
    source: Source,
    scope: Scope,
    kinds: Kinds,
    purity: Purity,
) -> _Search | None:
    if len(test.comparisons) != 1:
        return None
    operator, left, right = type(test.comparisons[0].operator), test.left, test.comparisons[0].comparator
    if isinstance(right, cst.Name) and right.value == item:
        left, right, operator = right, left, _MIRRORED.get(operator, operator)
    if operator not in _MIRRORED or not isinstance(left, cst.Name) or left.value != item:
        return None
    if not isinstance(right, (cst.Name, cst.BaseNumber, cst.SimpleString)) or item in names_in(right):
        return None
    if not _is_sorted(data, source, scope, purity):
        return None
    ordered = _one_order(kinds.items(data, scope), kinds.of(right, scope))
    return _Search(data.value, item, operator, right, ordered == "floats") if ordered else None


def _one_order(held: Kind | None, sought: Kind | None) -> str:
    """Return whether two kinds are ordered among each other: "yes", "floats" where NaN is possible, or nothing."""
    if held is None or sought is None:
        return ""
    if held == sought == STR:
        return "yes"
    if {held.name, sought.name} <= {"int", "bool"}:
        return "yes"
    return "floats" if {held.name, sought.name} <= NUMBERS else ""


def _is_sorted(data: cst.Name, source: Source, scope: Scope, purity: Purity) -> bool:
    """Return whether what a name means is sorted, smallest first, where it is mentioned."""
    name = data.value
    owner = source.scope_of(name, scope)
    if owner is source.top and owner is not scope:
        return _written_in_order(purity.constant(name), source)
    if owner is not scope or not is_private(name, source, scope) or len(scope.bindings[name]) != 1:
        return False
    uses = uses_of(name, source, scope)
    changing = [use for use in uses if changes(use)]
    value = scope.bindings[name][0].value
    match value:
        case cst.Call(func=cst.Name(value="sorted"), args=[_]) if not changing:
            return True
        case _:
            pass
    last = changing[-1] if changing else None
    if last is None or last.method != "sort" or not isinstance(last.node, cst.Call) or last.node.args:
        return False
    # sorted after the last change, in a line that no loop and no branch repeats or skips
    line = source.statement(last.name)
    mentions = scope.mentions[name]
    after = [id(m) for m in mentions].index(id(data)) > [id(m) for m in mentions].index(id(last.name))
    return after and source.parent(line) is scope.function.body


def _written_in_order(value: cst.BaseExpression | None, source: Source) -> bool:
    """Return whether a constant is a list or tuple of numbers, or of texts, each larger than the one before."""
    if not isinstance(value, (cst.List, cst.Tuple)) or len(value.elements) < _FEW:
        return False
    try:
        items = ast.literal_eval(source.code(value))
    except (ValueError, SyntaxError):
        return False
    alike = all(isinstance(x, (int, float)) for x in items) or all(isinstance(x, str) for x in items)
    return alike and all(one <= other for one, other in pairwise(items))


def _edit_first(source: Source, scope: Scope, loop: cst.For, search: _Search) -> cst.Module:
    rewrite = Rewrite(source)
    function = _function(_FIRST[search.operator], rewrite, scope)
    place, item, _ = _iteration(loop)
    assert isinstance(loop.body, cst.IndentedBlock)
    if_ = loop.body.body[0]
    assert isinstance(if_, cst.If)
    end = source.code(if_.body.body[0])
    used = {inner for part in if_.body.body for inner in names_in(part)}
    place = place or f"{item}_place"
    if place not in scope.bindings and source.taken(place):
        raise NotHere(f"{place} is in use")
    indent = source.module.default_indent
    body = [f"{indent}{item} = {search.name}[{place}]"] if item in used else []
    newline = source.module.default_newline
    found = newline.join([f"if {place} < len({search.name}):", *body, f"{indent}{end}"])
    rewrite.insert_before(loop, f"{place} = {function}({search.name}, {source.code(search.sought)})", found)
    rewrite.remove(loop)
    return rewrite.run()


def _edit_count(source: Source, scope: Scope, call: cst.Call, search: _Search) -> cst.Module:
    rewrite = Rewrite(source)
    before = search.operator in _BEFORE
    name = _BEFORE[search.operator] if before else _FIRST[search.operator]
    function = _function(name, rewrite, scope)
    place = f"{function}({search.name}, {source.code(search.sought)})"
    made = place if before else f"(len({search.name}) - {place})"
    rewrite.replace(call, rewrite.expression(made))
    return rewrite.run()


def _function(name: str, rewrite: Rewrite, scope: Scope) -> str:
    written = rewrite.use_import("bisect", name, scope.function)
    if written is None or not rewrite.source.is_builtin("len", scope):
        raise NotHere(f"the name {name} means something else here")
    return written
