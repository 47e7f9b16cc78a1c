"""Take from the front of a deque: `pop(0)` and `insert(0, x)` move every other item of a list."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import libcst as cst

from sid_actors.backends.local.rewrite import Rewrite
from sid_actors.backends.local.sites import NotHere, Site
from sid_actors.backends.local.source import Scope, Source, walk
from sid_actors.backends.local.usage import READERS, Use, is_private, uses_of

_READERS = READERS - {"print", "repr", "str"}  # what they show differs
_SAME = frozenset({"append", "extend", "clear", "count", "remove", "reverse"})


def find(source: Source) -> Iterator[Site]:
    """Yield the lists of a function that are used as queues and as nothing that a deque is not."""
    for scope in source.functions:
        for name in scope.bindings:
            uses = uses_of(name, source, scope)
            front = [use for use in uses if _at_front(use)]
            if front and is_private(name, source, scope) and all(_fits(use, source) for use in uses):
                yield Site(
                    symbol=scope.qualname,
                    text=f"{name}: {source.code(scope.node)}",
                    what=f"`{name}` in `{scope.qualname}`",
                    change="becomes a deque, which takes from its front without moving the rest",
                    edit=partial(_edit, source, scope, name, front),
                    depth=max(len(source.loops(use.name)) for use in front),
                    promise=0.6,
                )


def _zero(arg: cst.Arg) -> bool:
    return (
        isinstance(arg.value, cst.Integer) and arg.value.value == "0" and arg.keyword is None and not arg.star
    )


def _at_front(use: Use) -> bool:
    call = use.node
    if use.kind != "method" or not isinstance(call, cst.Call) or not call.args or not _zero(call.args[0]):
        return False
    return (use.method, len(call.args)) in (("pop", 1), ("insert", 2))


def _fits(use: Use, source: Source) -> bool:
    """Return whether a deque does the same for this use."""
    match use.kind:
        case "truth" | "member" | "bind":
            return True
        case "read":
            call = use.node
            return (
                isinstance(call, cst.Call) and isinstance(call.func, cst.Name) and call.func.value in _READERS
            )
        case "index":
            return isinstance(use.node, cst.Subscript) and _end(use.node)
        case "method":
            call = use.node
            assert isinstance(call, cst.Call)
            return _at_front(use) or use.method in _SAME or (use.method == "pop" and not call.args)
        case "iterate":
            # a deque may not change while it is gone through, a list may
            loop = use.node
            name = source.code(use.name)
            return isinstance(loop, cst.For) and not any(
                isinstance(node, cst.Attribute) and source.code(node.value) == name
                for node in walk(loop.body)
            )
        case _:
            return False


def _end(node: cst.Subscript) -> bool:
    index = node.slice[0].slice
    if len(node.slice) != 1 or not isinstance(index, cst.Index):
        return False
    return cst.Module([]).code_for_node(index.value) in ("0", "-1")


def _edit(source: Source, scope: Scope, name: str, front: list[Use]) -> cst.Module:
    rewrite = Rewrite(source)
    deque = rewrite.use_import("collections", "deque", scope.function)
    if deque is None:
        raise NotHere("the name deque means something else here")
    for binding in scope.bindings[name]:
        assert binding.value is not None
        rewrite.replace(binding.value, _wrapped(binding.value, deque, rewrite))
        line = source.parent(binding.node)
        if isinstance(line, cst.AnnAssign):
            note = source.code(line.annotation.annotation)
            if not note.startswith(("list[", "List[")):
                raise NotHere("its annotation is not that of a list")
            rewrite.replace(line.annotation.annotation, rewrite.expression(deque + note[4:]))
    for use in front:
        assert isinstance(use.node, cst.Call)
        method = "popleft" if use.method == "pop" else "appendleft"
        function = cst.Attribute(cst.Name(name), cst.Name(method))
        rewrite.replace(use.node, use.node.with_changes(func=function, args=use.node.args[1:]))
    return rewrite.run()


def _wrapped(value: cst.BaseExpression, deque: str, rewrite: Rewrite) -> cst.BaseExpression:
    """Return the deque that starts with what a list expression holds."""
    if isinstance(value, cst.List) and not value.elements:
        return rewrite.expression(f"{deque}()")
    if isinstance(value, cst.Call) and isinstance(value.func, cst.Name) and value.func.value == "list":
        return value.with_changes(func=rewrite.expression(deque))
    return cst.Call(func=rewrite.expression(deque), args=[cst.Arg(value)])
