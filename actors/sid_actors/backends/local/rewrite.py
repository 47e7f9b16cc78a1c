"""Edit a parsed module at a few places and leave every other byte alone.

Collects replacements and new statements, then makes the new tree in one pass. New lines get the blank lines of
the statement they stand before; comments stay with the statement that they explain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import libcst as cst

from sid_actors.backends.local.source import Source

Change = Callable[[cst.CSTNode], cst.CSTNode]
Statement = cst.SimpleStatementLine | cst.BaseCompoundStatement


@dataclass(slots=True)
class Rewrite:
    """Changes to one module, made all at once by `run`."""

    source: Source
    changes: dict[int, Change] = field(default_factory=dict)
    removed: set[int] = field(default_factory=set)
    before: dict[int, list[str]] = field(default_factory=dict)
    after: dict[int, list[str]] = field(default_factory=dict)

    def replace(self, node: cst.CSTNode, new: cst.CSTNode) -> None:
        """Put `new` where `node` is."""
        self.changes[id(node)] = lambda _: new

    def change(self, node: cst.CSTNode, change: Change) -> None:
        """Put `change(node)` there, where the node's own parts have been changed already."""
        self.changes[id(node)] = change

    def remove(self, statement: cst.BaseStatement) -> None:
        """Take a whole statement away; the blank lines and comments above it stay with the next line added."""
        self.removed.add(id(statement))

    def insert_before(self, statement: cst.BaseStatement, *lines: str) -> None:
        """Add statements, one line each, before `statement`."""
        self.before.setdefault(id(statement), []).extend(lines)

    def insert_after(self, statement: cst.BaseStatement, *lines: str) -> None:
        """Add statements, one line each, after `statement`."""
        self.after.setdefault(id(statement), []).extend(lines)

    def expression(self, text: str) -> cst.BaseExpression:
        """Parse an expression in the module's own style."""
        return cst.parse_expression(text, config=self.source.module.config_for_parsing)

    def run(self) -> cst.Module:
        """Return the new module."""
        made = self.source.module.visit(_Editor(self))
        assert isinstance(made, cst.Module)
        return made

    def use_import(self, module: str, name: str, user: cst.CSTNode) -> str | None:
        """Return how `user` can write `module.name`, adding an import if it is missing.

        None where the name that an import would need means something else in this module.
        """
        wanted = imported(self.source, module, name, user)
        if wanted is not None:
            return wanted
        short = module if module == "functools" else name
        if self.source.taken(short) or self.source.star_import:
            return None
        line = f"import {module}" if short == module else f"from {module} import {name}"
        self._add_import(line)
        return name if short == name else f"{module}.{name}"

    def _add_import(self, line: str) -> None:
        body = self.source.module.body
        place = next((i for i, s in enumerate(body) if _is_import(s) and not _is_future(s)), None)
        if place is None:
            head = next((i for i, s in enumerate(body) if not (_is_docstring(s, i) or _is_future(s))), 0)
            self.before.setdefault(id(body[head]), []).insert(0, line)
            return
        last = place
        while place < len(body) and _is_import(body[place]):
            if place > last and _leading_blank(body[place]):
                break
            if line.startswith("import ") and self.source.code(body[place]) > line:
                self.before.setdefault(id(body[place]), []).insert(0, line)
                return
            last = place
            place += 1
        self.after.setdefault(id(body[last]), []).insert(0, line)


class _Editor(cst.CSTTransformer):
    def __init__(self, rewrite: Rewrite) -> None:
        super().__init__()
        self._rewrite = rewrite

    def on_leave(self, original_node: cst.CSTNodeT, updated_node: cst.CSTNodeT) -> Any:
        plan, key = self._rewrite, id(original_node)
        node: cst.CSTNode = updated_node
        if key in plan.changes:
            node = plan.changes[key](node)
        before = self._parsed(plan.before.get(key, []))
        after = self._parsed(plan.after.get(key, []))
        if key in plan.removed:
            if not before and not after:
                return cst.RemovalSentinel.REMOVE
            made = [*before, *after]
            made[0] = made[0].with_changes(leading_lines=getattr(node, "leading_lines", ()))
            return cst.FlattenSentinel(made)
        if not before and not after:
            return node
        if before and isinstance(node, (cst.SimpleStatementLine, cst.BaseCompoundStatement)):
            lines = list(node.leading_lines)
            blank = next((i for i, x in enumerate(lines) if x.comment is not None), len(lines))
            before[0] = before[0].with_changes(leading_lines=lines[:blank])
            # what follows new lines at the top of a module keeps its distance, imports and blocks close up
            apart = isinstance(plan.source.parent(original_node), cst.Module) and not _is_import(node)
            distance = 2 if isinstance(node, (cst.FunctionDef, cst.ClassDef)) else 1
            kept = lines if lines or not apart else [cst.EmptyLine(indent=False)] * distance
            node = node.with_changes(leading_lines=kept if apart else lines[blank:])
        return cst.FlattenSentinel([*before, node, *after])

    def _parsed(self, lines: list[str]) -> list[Statement]:
        if not lines:
            return []
        config = self._rewrite.source.module.config_for_parsing
        made = [cst.parse_statement(line, config=config) for line in lines]
        return [s for s in made if isinstance(s, (cst.SimpleStatementLine, cst.BaseCompoundStatement))]


def _is_import(statement: cst.BaseStatement) -> bool:
    return isinstance(statement, cst.SimpleStatementLine) and all(
        isinstance(part, (cst.Import, cst.ImportFrom)) for part in statement.body
    )


def _is_future(statement: cst.BaseStatement) -> bool:
    if not isinstance(statement, cst.SimpleStatementLine) or not statement.body:
        return False
    part = statement.body[0]
    return (
        isinstance(part, cst.ImportFrom)
        and isinstance(part.module, cst.Name)
        and part.module.value == "__future__"
    )


def _is_docstring(statement: cst.BaseStatement, place: int) -> bool:
    return (
        place == 0
        and isinstance(statement, cst.SimpleStatementLine)
        and isinstance(statement.body[0], cst.Expr)
        and isinstance(statement.body[0].value, (cst.SimpleString, cst.ConcatenatedString))
    )


def _leading_blank(statement: cst.BaseStatement) -> bool:
    return bool(getattr(statement, "leading_lines", ()))


def imported(source: Source, module: str, name: str, user: cst.CSTNode) -> str | None:
    """Return how `module.name` is already reachable by an import above the statement that holds `user`."""
    limit = source.top_statement(user)
    for statement in source.module.body:
        if statement is limit:
            break
        for part in statement.body if isinstance(statement, cst.SimpleStatementLine) else ():
            match part:
                case cst.Import(names=names):
                    for alias in names:
                        bound = alias.evaluated_alias or alias.evaluated_name
                        if alias.evaluated_name == module and _only(source, bound):
                            return f"{bound}.{name}"
                case cst.ImportFrom(names=names, module=cst.Name(value=found), relative=()) if (
                    found == module
                ):
                    for alias in () if isinstance(names, cst.ImportStar) else names:
                        bound = alias.evaluated_alias or alias.evaluated_name
                        if alias.evaluated_name == name and _only(source, bound):
                            return bound
    return None


def _only(source: Source, bound: str) -> bool:
    """Return whether a name means its import everywhere in the module."""
    root = bound.split(".", maxsplit=1)[0]
    return len(source.top.bindings.get(root, [])) == 1 and not any(
        root in f.bindings for f in source.functions
    )
