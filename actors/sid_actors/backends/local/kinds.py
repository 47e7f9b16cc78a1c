"""What kind of value an expression has, as far as the text proves it: literals, annotations, known calls.

Used by the transformations to be sure that a value is a string, is hashable, or is a list of its own. A kind
that cannot be proved is None, and None means "leave it alone".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import libcst as cst

from sid_actors.backends.local.annotations import (
    BOOL,
    BYTES,
    CALLS,
    COLLECT,
    FLOAT,
    INT,
    NONE,
    NUMBER,
    NUMBERS,
    STR,
    STR_TO_OTHER,
    STR_TO_STR,
    TEXT_ALONE,
    Kind,
    agree,
    annotated,
    hashable,
    record_fields,
)
from sid_actors.backends.local.guesses import guessed
from sid_actors.backends.local.source import Binding, Scope, Source
from sid_actors.backends.local.usage import is_private, uses_of

_MAX_STEPS = 400  # of one question; what takes more is not worth an answer


@dataclass(slots=True)
class Kinds:
    """Answers questions about one module's expressions.

    Attributes:
        source: The module.
        guess: What a variable is used for counts as proof; not for what would run where that use might not.
    """

    source: Source
    guess: bool = True
    _steps: int = 0

    def of(self, expression: cst.BaseExpression | None, scope: Scope) -> Kind | None:
        """Return the kind of `expression` in `scope`, or None where it is not proved."""
        self._steps = 0
        return self._of(expression, scope, frozenset())

    def items(self, expression: cst.BaseExpression, scope: Scope) -> Kind | None:
        """Return the kind of what iterating over `expression` gives."""
        self._steps = 0
        return self._items(expression, scope, frozenset())

    def of_name(self, name: str, scope: Scope) -> Kind | None:
        """Return the kind of a variable of `scope`."""
        self._steps = 0
        return self._name(name, scope, frozenset())

    def of_parameter(self, name: str, scope: Scope) -> Kind | None:
        """Return the kind of what callers pass for a parameter, whatever becomes of the name later."""
        self._steps = 0
        return self._bound(name, scope.bindings[name][0], scope, frozenset())

    def hashable(self, kind: Kind | None) -> bool:
        """Return whether every value of `kind` is hashable, by value, and never changes."""
        return hashable(kind, self.source)

    # -- expressions ---------------------------------------------------------------------------------

    def _of(self, e: cst.BaseExpression | None, scope: Scope, seen: frozenset[int]) -> Kind | None:
        self._steps += 1
        if e is None or self._steps > _MAX_STEPS:
            return None
        match e:
            case cst.Integer():
                return INT
            case cst.Float():
                return FLOAT
            case cst.SimpleString():
                return BYTES if "b" in e.prefix.lower() else STR
            case cst.FormattedString():
                return STR
            case cst.ConcatenatedString():
                return self._of(e.left, scope, seen)
            case cst.Name(value="True" | "False"):
                return BOOL
            case cst.Name(value="None"):
                return NONE
            case cst.Name(value=name):
                return self._name(name, scope, seen)
            case cst.UnaryOperation(operator=cst.Not()):
                return BOOL
            case cst.UnaryOperation():
                inner = self._of(e.expression, scope, seen)
                return inner if inner in (INT, FLOAT, NUMBER) else None
            case cst.BooleanOperation():
                return agree([self._of(e.left, scope, seen), self._of(e.right, scope, seen)])
            case cst.IfExp():
                return agree([self._of(e.body, scope, seen), self._of(e.orelse, scope, seen)])
            case cst.NamedExpr():
                return self._of(e.value, scope, seen)
            case cst.Comparison():
                left = self._of(e.left, scope, seen)
                return BOOL if left is not None and not left.name.startswith("class ") else None
            case cst.BinaryOperation():
                return self._binary(e, scope, seen)
            case cst.Call():
                return self._call(e, scope, seen)
            case cst.Subscript():
                return self._subscript(e, scope, seen)
            case cst.Attribute():
                return self._attribute(e, scope, seen)
            case _:
                return self._display(e, scope, seen)

    def _display(self, e: cst.BaseExpression, scope: Scope, seen: frozenset[int]) -> Kind | None:
        match e:
            case cst.Tuple(elements=elements):
                if all(isinstance(x, cst.Element) for x in elements):
                    return Kind("tuple", tuple(self._of(x.value, scope, seen) for x in elements))
            case cst.List(elements=elements) | cst.Set(elements=elements):
                name = "list" if isinstance(e, cst.List) else "set"
                known = all(isinstance(x, cst.Element) for x in elements)
                return Kind(
                    name, (agree([self._of(x.value, scope, seen) for x in elements] if known else []),)
                )
            case cst.Dict(elements=elements):
                pairs = [x for x in elements if isinstance(x, cst.DictElement)]
                keys = agree([self._of(x.key, scope, seen) for x in pairs])
                values = agree([self._of(x.value, scope, seen) for x in pairs])
                return Kind("dict", (keys, values) if len(pairs) == len(elements) else (None, None))
            case cst.ListComp(elt=elt):
                return Kind("list", (self._of(elt, scope, seen),))
            case cst.SetComp(elt=elt):
                return Kind("set", (self._of(elt, scope, seen),))
            case cst.GeneratorExp(elt=elt):
                return Kind("iterable", (self._of(elt, scope, seen),))
            case cst.DictComp(key=key, value=value):
                return Kind("dict", (self._of(key, scope, seen), self._of(value, scope, seen)))
            case _:
                pass
        return None

    def _binary(self, e: cst.BinaryOperation, scope: Scope, seen: frozenset[int]) -> Kind | None:
        left, right = self._of(e.left, scope, seen), self._of(e.right, scope, seen)
        if left is None:
            return None
        if left == STR and isinstance(e.operator, cst.Modulo):
            return STR
        if right is None:
            return None
        if left.name in NUMBERS and right.name in NUMBERS:
            if NUMBER in (left, right):
                return NUMBER
            if isinstance(e.operator, cst.Divide):
                return FLOAT
            if isinstance(e.operator, cst.Power):  # an int to a negative int is a float
                return FLOAT if FLOAT in (left, right) else None
            return FLOAT if FLOAT in (left, right) else INT
        match e.operator:
            case cst.Add() if left == right and left.name in ("str", "bytes", "list", "tuple"):
                return left if left.name != "tuple" or left.many else None
            case cst.Multiply() if right.name == "int" and left.name in ("str", "bytes", "list"):
                return left
            case cst.BitAnd() | cst.BitOr() | cst.Subtract() if left == right and left.name == "set":
                return left
            case _:
                return None

    def _call(self, e: cst.Call, scope: Scope, seen: frozenset[int]) -> Kind | None:
        first = e.args[0].value if e.args and not e.args[0].star and e.args[0].keyword is None else None
        match e.func:
            case cst.Name(value=name) if self.source.is_builtin(name, scope):
                return self._builtin_call(name, e, first, scope, seen)
            case cst.Name(value=name) if self.source.scope_of(name, scope) is self.source.top:
                return self._own_call(name)
            case cst.Attribute(value=base, attr=cst.Name(value=method)):
                kind = self._of(base, scope, seen) or _text_alone(e, method)
                if kind == STR and method in STR_TO_STR:
                    return STR
                if kind == STR and method in STR_TO_OTHER:
                    name = STR_TO_OTHER[method]
                    return Kind(name, (STR,)) if name == "list" else Kind(name)
                if kind and kind.name in ("list", "set", "dict") and method == "copy":
                    return kind
                if kind and kind.name == "list" and method == "pop":
                    return kind.args[0] if kind.args else None
                if kind and kind.name in ("dict", "mapping") and len(kind.args) == 2:
                    return self._dict_call(method, kind)
            case _:
                pass
        return None

    @staticmethod
    def _dict_call(method: str, kind: Kind) -> Kind | None:
        key, value = kind.args
        views = {"keys": key, "values": value, "items": Kind("tuple", (key, value))}
        if method in views:
            return Kind("iterable", (views[method],))
        return None

    def _builtin_call(
        self, name: str, e: cst.Call, first: cst.BaseExpression | None, scope: Scope, seen: frozenset[int]
    ) -> Kind | None:
        if name in CALLS:
            return Kind(CALLS[name])
        if name in COLLECT:
            item = self._items(first, scope, seen) if first is not None else None
            return Kind(COLLECT[name], (item,), many=name == "tuple")
        if name == "dict" and not e.args:
            return Kind("dict", (None, None))
        if name in ("abs", "max", "min", "round", "sum") and first is not None:
            if name == "abs":
                kind = self._of(first, scope, seen)
                return kind if kind in (INT, FLOAT) else None
            if name == "round":
                return INT if len(e.args) == 1 and self._of(first, scope, seen) in (INT, FLOAT) else None
            plain = [a.value for a in e.args if a.keyword is None and not a.star]
            if name != "sum" and len(plain) > 1:
                return agree([self._of(a, scope, seen) for a in plain])
            item = self._items(first, scope, seen)
            if name == "sum":
                return item if item in (INT, FLOAT) and len(e.args) == 1 else None
            return item if len(e.args) == 1 or all(_keyword(a) == "key" for a in e.args[1:]) else None
        return None

    def _own_call(self, name: str) -> Kind | None:
        bindings = self.source.top.bindings.get(name, [])
        if len(bindings) != 1:
            return None
        match bindings[0].node:
            case cst.ClassDef() if name in self.source.classes:
                return Kind(f"class {name}")
            case cst.FunctionDef(returns=cst.Annotation(annotation=note), asynchronous=None):
                scope = self.source.scopes[id(bindings[0].node)]
                return None if scope.yields else annotated(note, self.source)
            case _:
                pass
        return None

    def _subscript(self, e: cst.Subscript, scope: Scope, seen: frozenset[int]) -> Kind | None:
        kind = self._of(e.value, scope, seen)
        if kind is None or len(e.slice) != 1:
            return None
        index = e.slice[0].slice
        if not isinstance(index, cst.Index):
            return kind if kind.name in ("list", "str", "bytes") or kind.many else None
        if kind.name == "str":
            return STR
        if kind.name == "list" or kind.many:
            return kind.args[0] if kind.args else None
        if kind.name == "tuple" and isinstance(index.value, cst.Integer):
            place = int(index.value.value, 0)
            return kind.args[place] if place < len(kind.args) else None
        return kind.args[1] if kind.name in ("dict", "mapping") and len(kind.args) > 1 else None

    def _attribute(self, e: cst.Attribute, scope: Scope, seen: frozenset[int]) -> Kind | None:
        kind = self._of(e.value, scope, seen)
        if kind is None or not kind.name.startswith("class "):
            return None
        note = record_fields(kind.name.removeprefix("class "), self.source).get(e.attr.value)
        return annotated(note, self.source) if note is not None else None

    # -- what iterating gives -------------------------------------------------------------------------

    def _items(self, e: cst.BaseExpression | None, scope: Scope, seen: frozenset[int]) -> Kind | None:
        if (
            isinstance(e, cst.Call)
            and isinstance(e.func, cst.Name)
            and self.source.is_builtin(e.func.value, scope)
        ):
            inner = [a.value for a in e.args if not a.star and a.keyword is None]
            match e.func.value:
                case "range":
                    return INT
                case "enumerate" if inner:
                    return Kind("tuple", (INT, self._items(inner[0], scope, seen)))
                case "zip" if len(inner) == len(e.args):
                    return Kind("tuple", tuple(self._items(x, scope, seen) for x in inner))
                case "reversed" if inner:
                    return self._items(inner[0], scope, seen)
                case "map" if len(inner) == 2 and isinstance(inner[0], cst.Name):
                    name = inner[0].value
                    known = name in CALLS and self.source.is_builtin(name, scope)
                    return Kind(CALLS[name]) if known else None
                case _:
                    pass
        kind = self._of(e, scope, seen)
        if kind is None:
            return None
        if kind.name == "str":
            return STR
        if kind.name == "bytes":
            return INT
        if kind.name == "tuple" and not kind.many:
            return agree(kind.args)
        holds = ("list", "set", "frozenset", "tuple", "dict", "mapping", "iterable")
        return kind.args[0] if kind.name in holds and kind.args else None

    # -- names ----------------------------------------------------------------------------------------

    def _name(self, name: str, scope: Scope, seen: frozenset[int]) -> Kind | None:
        owner = self.source.scope_of(name, scope)
        if owner is None or (owner is not scope and owner is not self.source.top):
            return None
        bindings = owner.bindings[name]
        if owner is self.source.top and len(bindings) != 1:
            return None
        kinds: list[Kind | None] = []
        for binding in bindings:
            if id(binding) in seen:
                continue  # x = x + 1: says nothing new of x
            if binding.kind == "del":
                continue
            kinds.append(self._bound(name, binding, owner, seen | {id(binding)}))
        kind = agree(kinds)
        if kind is not None and kind.name == "list" and kind.args == (None,):
            kind = Kind("list", (self._appended(name, bindings, owner, seen),))
        return kind

    def _bound(self, name: str, binding: Binding, scope: Scope, seen: frozenset[int]) -> Kind | None:
        if binding.kind in ("with", "except", "import", "def", "match"):
            return None
        if binding.annotation is not None:
            return annotated(binding.annotation, self.source)
        if binding.kind == "param":
            return guessed(name, self.source, scope) if self.guess else None
        if binding.kind == "augment":
            if binding.value is None or not isinstance(binding.node, cst.Name):
                return None
            statement = self.source.parent(binding.node)
            assert isinstance(statement, cst.AugAssign)
            return self._augmented(name, statement, scope, seen)
        kind = (
            self._items(binding.value, scope, seen)
            if binding.iterates
            else self._of(binding.value, scope, seen)
        )
        if kind is None and binding.kind in ("for", "comp"):
            return guessed(name, self.source, scope) if self.guess else None
        for place in binding.path:
            if kind is None:
                return None
            if kind.name == "tuple" and not kind.many:
                kind = kind.args[place] if place < len(kind.args) else None
            elif kind.name in ("list", "tuple"):
                kind = kind.args[0] if kind.args else None
            else:
                return None
        return kind

    def _augmented(self, name: str, e: cst.AugAssign, scope: Scope, seen: frozenset[int]) -> Kind | None:
        before, value = self._name(name, scope, seen), self._of(e.value, scope, seen)
        if before is None or value is None:
            return None
        if before.name in NUMBERS and value.name in NUMBERS:
            if NUMBER in (before, value):
                return NUMBER
            return FLOAT if FLOAT in (before, value) or isinstance(e.operator, cst.DivideAssign) else INT
        if before.name in ("str", "list", "bytes") and isinstance(e.operator, cst.AddAssign):
            return before if before == value or before.name == "list" else None
        return None

    def _appended(
        self, name: str, bindings: Iterable[Binding], scope: Scope, seen: frozenset[int]
    ) -> Kind | None:
        """Return the kind of what is appended to a private list that starts empty and grows only so."""
        inner = seen | {id(b) for b in bindings}
        if not is_private(name, self.source, scope):
            return None
        kinds: list[Kind | None] = []
        for use in uses_of(name, self.source, scope):
            if use.kind in ("store", "augment") or use.method in ("extend", "insert"):
                return None
            if use.method == "append" and isinstance(use.node, cst.Call) and use.node.args:
                kinds.append(self._of(use.node.args[0].value, scope, inner))
        return agree(kinds)


def _keyword(arg: cst.Arg) -> str | None:
    return arg.keyword.value if arg.keyword else None


def _text_alone(call: cst.Call, method: str) -> Kind | None:
    """Return that what a method is called on was a text, if the call cannot have succeeded otherwise."""
    literal = all(isinstance(a.value, cst.BaseString) and a.keyword is None for a in call.args)
    base = call.func.value if isinstance(call.func, cst.Attribute) else None
    column = isinstance(base, cst.Attribute) and base.attr.value == "str"  # of a data frame
    return STR if method in TEXT_ALONE and literal and not column else None
