"""Which functions of a module are pure: same arguments, same answer, nothing else touched.

The proof is about values that cannot change. Every argument is of an immutable kind, every name read is a local,
a constant, a builtin without an effect or another pure function: then nothing outside can be changed, since
nothing that can change is ever reached, and the answer can be kept as long as it is immutable, too.
"""

from __future__ import annotations

import builtins
from dataclasses import dataclass, field

import libcst as cst

from sid_actors.backends.local.annotations import Kind, annotated, record_fields
from sid_actors.backends.local.kinds import Kinds
from sid_actors.backends.local.source import Scope, Source, walk
from sid_actors.backends.local.usage import (
    MUTATORS,
    PURE_BUILTINS,
    PURE_METHODS,
    changes,
    is_fresh,
    names_in,
    uses_of,
)

_PURE_MODULES = frozenset({"math", "operator", "functools", "itertools", "string", "fractions", "statistics"})
_HOLDERS = frozenset({"list", "set", "dict"})
_FORBIDDEN = (
    cst.Yield, cst.Await, cst.With, cst.Import, cst.ImportFrom, cst.Global, cst.Nonlocal, cst.FunctionDef,
    cst.ClassDef, cst.Try, cst.TryStar, cst.Match,
)  # fmt: skip


@dataclass(slots=True)
class Purity:
    """Proves functions of one module pure, each once."""

    source: Source
    kinds: Kinds
    _known: dict[int, bool] = field(default_factory=dict)

    def is_pure(self, scope: Scope) -> bool:
        """Return whether a function is proved pure, with an immutable answer."""
        key = id(scope.node)
        if key not in self._known:
            self._known[key] = True  # a call to itself is as pure as the rest of it
            self._known[key] = self._prove(scope)
        return self._known[key]

    def immutable(self, kind: Kind | None) -> bool:
        """Return whether values of a kind can never change."""
        return self.kinds.hashable(kind)

    def constant(self, name: str) -> cst.BaseExpression | None:
        """Return the value of a module constant that nothing in the module changes, None if it is none.

        Only names that say so by convention (`UPPER_CASE`, `_private`) count: other modules leave them alone.
        What it holds must be immutable, too.
        """
        source = self.source
        bindings = source.top.bindings.get(name, [])
        if len(bindings) != 1 or bindings[0].kind != "assign" or bindings[0].path or source.star_import:
            return None
        if not (name.isupper() or name.startswith("_")) or name.startswith("__"):
            return None
        statement = source.parent(source.statement(bindings[0].node))
        if statement is not source.module or bindings[0].value is None:
            return None
        kind = self.kinds.of(bindings[0].value, source.top)
        if self.immutable(kind):
            return bindings[0].value
        if kind is None or kind.name not in _HOLDERS or not all(self.immutable(k) for k in kind.args):
            return None
        for scope in (source.top, *source.functions):
            if source.scope_of(name, scope) is source.top and any(
                changes(use) or use.kind == "return"
                for use in uses_of(name, source, scope)
                if use.kind != "bind"
            ):
                return None
        return bindings[0].value

    def _prove(self, scope: Scope) -> bool:
        function = scope.function
        if function.asynchronous or scope.yields or scope.declared or scope.parent is not self.source.top:
            return False
        nodes = list(walk(function.body))
        if any(isinstance(node, _FORBIDDEN) for node in nodes):
            return False
        returns = [node for node in nodes if isinstance(node, cst.Return)]
        if not any(node.value is not None for node in returns):
            return False
        return (
            self._parameters_immutable(scope)
            and all(self._allowed(node, scope) for node in nodes)
            and all(node.value is None or self._answers(node.value, scope) for node in returns)
        )

    def _parameters_immutable(self, scope: Scope) -> bool:
        parameters = scope.function.params
        if isinstance(parameters.star_arg, cst.Param) or parameters.star_kwarg:
            return False
        every = [*parameters.posonly_params, *parameters.params, *parameters.kwonly_params]
        return bool(every) and all(
            self.immutable(self.kinds.of_parameter(p.name.value, scope)) for p in every
        )

    def _answers(self, value: cst.BaseExpression, scope: Scope) -> bool:
        """Return whether what is returned can never change; an annotation of the function settles it, too."""
        note = scope.function.returns
        if note is not None and self.immutable(annotated(note.annotation, self.source)):
            return True
        if isinstance(value, cst.Call) and isinstance(value.func, cst.Name):
            callee = self._callee(value.func.value, scope)
            if callee is not None:
                return self.is_pure(callee)
        if isinstance(value, cst.BinaryOperation):
            return self._answers(value.left, scope) and self._answers(value.right, scope)
        return self.immutable(self.kinds.of(value, scope))

    def _allowed(self, node: cst.CSTNode, scope: Scope) -> bool:
        match node:
            case cst.Name(value=name):
                return self._readable(name, scope)
            case cst.Call(func=cst.Name(value=name)):
                if self.source.is_builtin(name, scope):
                    return name in PURE_BUILTINS or _is_exception(name)
                callee = self._callee(name, scope)
                return self._pure_import(name, scope) or (callee is not None and self.is_pure(callee))
            case cst.Call(func=cst.Attribute() as function):
                return self._pure_method(function, scope)
            case cst.Call():
                return False
            case cst.Attribute():
                return self._field(node, scope)
            case (
                cst.AssignTarget(target=target) | cst.AugAssign(target=target) | cst.AnnAssign(target=target)
            ):
                return not isinstance(target, cst.Attribute)
            case cst.For(target=target) | cst.CompFor(target=target):
                return isinstance(target, (cst.Name, cst.Tuple))
            case _:
                return True

    def _pure_method(self, function: cst.Attribute, scope: Scope) -> bool:
        base, method = function.value, function.attr.value
        if isinstance(base, cst.Name) and self._pure_import(base.value, scope):
            return True
        if isinstance(base, cst.Name) and method in MUTATORS and self._made_here(base.value, scope):
            return True
        kind = self.kinds.of(base, scope)
        if kind is None and self._takes_records(scope):
            return False
        return method in PURE_METHODS and (kind is None or not kind.name.startswith("class "))

    def _field(self, node: cst.Attribute, scope: Scope) -> bool:
        """Return whether an attribute is a method that is called, part of a pure module, or a record's field."""
        above = self.source.parent(node)
        if isinstance(above, cst.Call) and above.func is node:
            return True  # judged as a call
        if isinstance(node.value, cst.Name) and self._pure_import(node.value.value, scope):
            return True
        kind = self.kinds.of(node.value, scope)
        record = kind.name.removeprefix("class ") if kind is not None else ""
        return node.attr.value in record_fields(record, self.source)

    def _takes_records(self, scope: Scope) -> bool:
        notes = [
            p.annotation for p in walk(scope.function.params) if isinstance(p, cst.Param) and p.annotation
        ]
        return any(name in self.source.classes for note in notes for name in names_in(note))

    def _made_here(self, name: str, scope: Scope) -> bool:
        bindings = scope.bindings.get(name, [])
        return bool(bindings) and all(is_fresh(b.value, self.source, scope) for b in bindings)

    def _readable(self, name: str, scope: Scope) -> bool:
        owner = self.source.scope_of(name, scope)
        if owner is scope:
            return True
        if owner is None:
            known = name in PURE_BUILTINS or name in ("True", "False", "None") or _is_exception(name)
            return known and self.source.is_builtin(name, scope)
        if self._pure_import(name, scope) or self._callee(name, scope) is not None:
            return True
        return self.constant(name) is not None

    def _pure_import(self, name: str, scope: Scope) -> bool:
        """Return whether a name means a module without effects, or something from one."""
        bindings = self.source.top.bindings.get(name, [])
        if self.source.scope_of(name, scope) is not self.source.top or len(bindings) != 1:
            return False
        match bindings[0].node:
            case cst.Import(names=names):
                bound = {
                    alias.evaluated_alias or alias.evaluated_name: alias.evaluated_name for alias in names
                }
                return bound.get(name) in _PURE_MODULES
            case cst.ImportFrom(module=cst.Name(value=module), relative=()):
                return module in _PURE_MODULES
            case _:
                return False

    def _callee(self, name: str, scope: Scope) -> Scope | None:
        """Return the plain function of this module that `name` means, if it is one and stays it."""
        bindings = self.source.top.bindings.get(name, [])
        if self.source.scope_of(name, scope) is not self.source.top or len(bindings) != 1:
            return None
        node = bindings[0].node
        if not isinstance(node, cst.FunctionDef):
            return None
        cached = all("cache" in self.source.code(d.decorator) for d in node.decorators)
        return self.source.scopes.get(id(node)) if cached else None


def _is_exception(name: str) -> bool:
    known = getattr(builtins, name, None)
    return isinstance(known, type) and issubclass(known, Exception)
