"""Compile a regular expression once, at import, instead of looking it up at every use."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from functools import partial

import libcst as cst

from sid_actors.backends.local.rewrite import Rewrite
from sid_actors.backends.local.sites import NotHere, Site
from sid_actors.backends.local.source import Scope, Source, walk_scope

# Function of `re` → place of its `flags` argument.
_FUNCTIONS = {
    "match": 2, "search": 2, "fullmatch": 2, "findall": 2, "finditer": 2, "split": 3, "sub": 4, "subn": 4,
    "compile": 1,
}  # fmt: skip
_FLAGS = frozenset(
    {"A", "ASCII", "I", "IGNORECASE", "M", "MULTILINE", "S", "DOTALL", "X", "VERBOSE", "U", "UNICODE"}
)


def find(source: Source) -> Iterator[Site]:
    """Yield the calls of `re` with a literal pattern inside functions."""
    for scope in source.functions:
        for node in walk_scope(scope.function.body):
            if (
                isinstance(node, cst.Call)
                and (name := _function(node, source, scope))
                and _constant(node, name)
            ):
                depth = len(source.loops(node))
                yield Site(
                    symbol=scope.qualname,
                    text=source.code(node),
                    what=f"the pattern of `re.{name}` in `{scope.qualname}`",
                    change="is compiled once when the module is loaded, not looked up at each use",
                    edit=partial(_edit, source, scope, node, name),
                    depth=depth,
                    promise=0.4 if depth else 0.25,
                )


def _function(call: cst.Call, source: Source, scope: Scope) -> str | None:
    match call.func:
        case cst.Attribute(value=cst.Name(value="re"), attr=cst.Name(value=name)) if name in _FUNCTIONS:
            bindings = source.top.bindings.get("re", [])
            single = len(bindings) == 1 and isinstance(bindings[0].node, cst.Import)
            return name if single and source.scope_of("re", scope) is source.top else None
        case _:
            return None


def _constant(call: cst.Call, name: str) -> bool:
    """Return whether pattern and flags are constants that compile."""
    if not call.args or any(a.star for a in call.args) or call.args[0].keyword is not None:
        return False
    if name != "compile" and len(call.args) < 2:  # a pattern alone, and nothing to match
        return False
    text, flags = call.args[0].value, _flags(call, name)
    if not isinstance(text, (cst.SimpleString, cst.ConcatenatedString)) or not _known_flags(flags):
        return False
    try:
        pattern = ast.literal_eval(cst.Module([]).code_for_node(text))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            re.compile(pattern)
    except (ValueError, SyntaxError, TypeError, Warning, RecursionError, OverflowError, re.error):
        return False
    return True


def _flags(call: cst.Call, name: str) -> cst.Arg | None:
    for place, arg in enumerate(call.args):
        if arg.keyword is not None and arg.keyword.value == "flags":
            return arg
        if arg.keyword is None and place == _FUNCTIONS[name]:
            return arg
    return None


def _known_flags(arg: cst.Arg | None) -> bool:
    stack = [arg.value] if arg is not None else []
    while stack:
        match stack.pop():
            case cst.BinaryOperation(operator=cst.BitOr(), left=left, right=right):
                stack += [left, right]
            case cst.Attribute(value=cst.Name(value="re"), attr=cst.Name(value=flag)) if flag in _FLAGS:
                pass
            case _:
                return False
    return True


def _edit(source: Source, scope: Scope, call: cst.Call, name: str) -> cst.Module:
    top = source.top_statement(scope.function)
    imported = source.statement(source.top.bindings["re"][0].node)
    above = list(source.module.body)
    if imported not in above[: next(i for i, statement in enumerate(above) if statement is top)]:
        raise NotHere("re is not imported above the function")
    constant = _new_name(source, scope)
    flags = _flags(call, name)
    options = f", {source.code(flags.value)}" if flags is not None else ""
    rewrite = Rewrite(source)
    rewrite.insert_before(top, f"{constant} = re.compile({source.code(call.args[0].value)}{options})")
    if name == "compile":
        rewrite.replace(call, rewrite.expression(constant))
        return rewrite.run()
    kept = [arg for arg in call.args[1:] if arg is not flags]
    kept[-1] = kept[-1].with_changes(comma=call.args[-1].comma)
    rewrite.replace(call, call.with_changes(func=rewrite.expression(f"{constant}.{name}"), args=kept))
    return rewrite.run()


def _new_name(source: Source, scope: Scope) -> str:
    stem = "_" + scope.qualname.replace(".", "_").strip("_").upper() + "_PATTERN"
    name, number = stem, 2
    while source.taken(name):
        name, number = f"{stem}_{number}", number + 1
    return name
