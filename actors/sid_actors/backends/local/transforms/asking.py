"""Ask before instead of catching an error: raising and catching one costs many times what a look-up does.

Three forms, each with exactly one place that can raise: a look-up in a dict of our own, an attribute with a default,
and the next item of an iterator with a default.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import libcst as cst

from sid_actors.backends.local.rewrite import Rewrite
from sid_actors.backends.local.sites import NotHere, Site
from sid_actors.backends.local.source import Scope, Source, walk, walk_scope
from sid_actors.backends.local.usage import assigned_before, is_private

_PLAIN = (
    cst.Name, cst.BaseNumber, cst.SimpleString, cst.Subscript, cst.SubscriptElement, cst.Index, cst.Tuple, cst.Element,
    cst.Assign, cst.AugAssign, cst.AssignTarget, cst.Return, cst.BinaryOperation, cst.BaseBinaryOp, cst.BaseAugOp,
)  # fmt: skip
_DICT_CALLS = frozenset({"dict"})


def find(source: Source) -> Iterator[Site]:
    """Yield the `try` statements in loops whose error is an answer and not a fault."""
    for scope in source.functions:
        for node in walk_scope(scope.function.body):
            if not isinstance(node, cst.Try) or not source.loops(node):
                continue
            line, handler = _single(node, source)
            if line is None or handler is None:
                continue
            new = _new(line, handler, node, source, scope)
            if new is not None:
                yield Site(
                    symbol=scope.qualname,
                    text=source.code(node),
                    what=f"the `except {source.code(handler.type) if handler.type else ''}` in `{scope.qualname}`",
                    change="becomes a test before, which costs less than an error wherever the error is common",
                    edit=partial(_edit, source, node, new),
                    depth=len(source.loops(node)),
                    promise=0.35,
                )


def _single(node: cst.Try, source: Source) -> tuple[cst.BaseSmallStatement | None, cst.ExceptHandler | None]:
    """Return the only statement that is tried and the only handler, without comments that would be lost."""
    if node.orelse or node.finalbody or len(node.handlers) != 1 or "#" in source.code(node):
        return None, None
    match node.body:
        case cst.IndentedBlock(body=[cst.SimpleStatementLine(body=[line])]):
            pass
        case _:
            return None, None
    handler = node.handlers[0]
    if handler.name is not None or not isinstance(handler.type, cst.Name):
        return None, None
    if not isinstance(handler.body, cst.IndentedBlock):
        return None, None
    if any(isinstance(inner, (cst.Raise, cst.Yield, cst.Await)) for inner in walk(handler.body)):
        return None, None
    return line, handler


def _new(
    line: cst.BaseSmallStatement, handler: cst.ExceptHandler, node: cst.Try, source: Source, scope: Scope
) -> str | None:
    """Return the text that takes the place of a `try`, None where it would not be the same."""
    assert isinstance(handler.type, cst.Name)
    error = handler.type.value
    if not source.is_builtin(error, scope):
        return None
    if error == "KeyError":
        return _key(line, handler, node, source, scope)
    default = _default(line, handler, source)
    if default is None or not isinstance(line, cst.Assign):
        return None
    target = source.code(line.targets[0].target)
    match line.value:
        case cst.Attribute(value=cst.Name(value=owner), attr=cst.Name(value=name)) if (
            error == "AttributeError"
        ):
            safe = owner != target and source.is_builtin("getattr", scope) and owner in scope.bindings
            mangled = name.startswith("__") and not name.endswith("__")
            return f'{target} = getattr({owner}, "{name}", {default})' if safe and not mangled else None
        case cst.Call(
            func=cst.Name(value="next"), args=[cst.Arg(star="", keyword=None, value=cst.Name(value=items))]
        ) if error == "StopIteration" and source.is_builtin("next", scope):
            return f"{target} = next({items}, {default})"
        case _:
            return None


def _default(line: cst.BaseSmallStatement, handler: cst.ExceptHandler, source: Source) -> str | None:
    """Return the constant that a handler gives the same variable."""
    match line, handler.body.body[0]:
        case (
            cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))]),
            cst.SimpleStatementLine(
                body=[cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=same))], value=value)]
            ),
        ) if name == same and len(handler.body.body) == 1:
            constant = isinstance(value, (cst.BaseNumber, cst.SimpleString)) or (
                isinstance(value, cst.Name) and value.value in ("None", "True", "False")
            )
            return source.code(value) if constant else None
        case _:
            return None


def _key(
    line: cst.BaseSmallStatement, handler: cst.ExceptHandler, node: cst.Try, source: Source, scope: Scope
) -> str | None:
    """Return the test for a key, where the look-up of it in a dict of our own is all that can raise KeyError."""
    if not isinstance(line, (cst.Assign, cst.AugAssign, cst.Return)):
        return None
    parts = list(walk(line))
    if not all(isinstance(part, _PLAIN) for part in parts):
        return None
    lookups = [part for part in parts if isinstance(part, cst.Subscript)]
    if len(lookups) != 1 or len(lookups[0].slice) != 1:
        return None
    match lookups[0]:
        case cst.Subscript(
            value=cst.Name(value=table), slice=[cst.SubscriptElement(slice=cst.Index(value=key, star=None))]
        ):
            pass
        case _:
            return None
    if isinstance(line, cst.Assign) and any(source.inside(lookups[0], t) for t in line.targets):
        return None  # a key that is only set is never missing
    if isinstance(line, cst.Assign) and not all(isinstance(t.target, cst.Name) for t in line.targets):
        return None
    if not _is_plain_dict(table, source, scope) or not assigned_before(table, node, source, scope):
        return None
    assert isinstance(handler.body, cst.IndentedBlock)
    newline, indent = source.module.default_newline, source.module.default_indent
    other = source.module.code_for_node(handler.body)
    text = source.code(key) if not isinstance(key, cst.Tuple) or key.lpar else f"({source.code(key)})"
    return _if_else(f"{text} in {table}", source.code(line), other, newline, indent)


def _if_else(test: str, body: str, other: str, newline: str, indent: str) -> str | None:
    """Return an `if` statement; `other` is an indented block as it is written."""
    lines = [part for part in other.split(newline) if part.strip()]
    if not lines:
        return None
    margin = len(lines[0]) - len(lines[0].lstrip())
    if any(part[:margin].strip() for part in lines):
        return None  # a text over several lines, which must keep its own margin
    shifted = [indent + part[margin:] for part in lines]
    return newline.join([f"if {test}:", f"{indent}{body}", "else:", *shifted]) + newline


def _is_plain_dict(name: str, source: Source, scope: Scope) -> bool:
    """Return whether a variable only ever holds a plain dict made here: no kind that makes up missing keys."""
    if not is_private(name, source, scope):
        return False
    for binding in scope.bindings[name]:
        match binding.value:
            case cst.Dict() | cst.DictComp():
                pass
            case cst.Call(func=cst.Name(value=called)) if called in _DICT_CALLS:
                pass
            case _:
                return False
    return True


def _edit(source: Source, node: cst.Try, new: str) -> cst.Module:
    rewrite = Rewrite(source)
    try:
        made = cst.parse_statement(new, config=source.module.config_for_parsing)
    except cst.ParserSyntaxError as error:
        raise NotHere("the edit would not be valid Python") from error
    rewrite.replace(node, made.with_changes(leading_lines=node.leading_lines))
    return rewrite.run()
