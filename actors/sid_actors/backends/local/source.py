"""A parsed Python module with what the transformations need to know of it: parents, scopes, bindings.

Made once a file and shared by every entry of the catalogue. It only describes what is written; it runs
nothing. A scope is a function or the module; comprehensions and lambdas count as part of the scope that they
stand in, and what a lambda mentions is also noted as `nested`, since it runs later.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Literal

import libcst as cst

MAX_DEPTH = 200  # deeper code is generated code; recursion over it could exhaust the stack
MAX_NODES = 150_000  # of Python's own tree: some 15,000 lines; more is generated code or data

BindingKind = Literal[
    "param", "assign", "augment", "for", "comp", "with", "except", "import", "def", "del", "match"
]
Loop = cst.For | cst.While

_LAYOUT = frozenset({
    "asynchronous", "colon", "comma", "dot", "equal", "footer", "header", "lbrace", "lbracket",
    "leading_lines", "lines_after_decorators", "lpar", "posonly_ind", "rbrace", "rbracket", "rpar",
    "semicolon", "star", "trailing_whitespace",
})  # fmt: skip
# Names that are no variables: attributes, keywords, what a definition is called.
_NO_VARIABLE: dict[type[cst.CSTNode], frozenset[str]] = {
    cst.Attribute: frozenset({"attr"}),
    cst.Arg: frozenset({"keyword"}),
    cst.Param: frozenset({"name"}),
    cst.FunctionDef: frozenset({"name"}),
    cst.ClassDef: frozenset({"name"}),
    cst.Import: frozenset({"names"}),
    cst.ImportFrom: frozenset({"names", "module", "relative"}),
    cst.Global: frozenset({"names"}),
    cst.Nonlocal: frozenset({"names"}),
    cst.MatchKeywordElement: frozenset({"key"}),
}
_fields: dict[type[cst.CSTNode], tuple[str, ...]] = {}


class Unreadable(Exception):
    """The text is no Python that can be worked on; the message says why."""


@dataclass(frozen=True, slots=True, eq=False)
class Binding:
    """One place that gives a name a value.

    Attributes:
        kind: How.
        node: The name (for a parameter, the `Param`).
        value: What it is bound to, where that is an expression.
        iterates: The name gets the items of `value`, not `value` itself.
        path: Which item of a tuple it gets, outermost first.
        annotation: The annotation, if any.
    """

    kind: BindingKind
    node: cst.CSTNode
    value: cst.BaseExpression | None = None
    iterates: bool = False
    path: tuple[int, ...] = ()
    annotation: cst.BaseExpression | None = None


@dataclass(slots=True, eq=False)
class Scope:
    """A function's, or the module's, own names.

    Attributes:
        node: The function or the module.
        qualname: Dotted, without `<locals>`; empty for the module.
        parent: The scope in which a name that is not bound here is looked up next.
        in_class: The innermost class that the function is a method of.
        bindings: Name → where it gets its values.
        mentions: Name → every variable of that name in this scope, in order.
        nested: Names mentioned in functions, lambdas and classes inside.
        declared: Names declared global or nonlocal.
        yields: It is a generator, or it awaits.
    """

    node: cst.FunctionDef | cst.Module
    qualname: str
    parent: Scope | None
    in_class: cst.ClassDef | None = None
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    mentions: dict[str, list[cst.Name]] = field(default_factory=dict)
    nested: set[str] = field(default_factory=set)
    declared: set[str] = field(default_factory=set)
    yields: bool = False

    @property
    def function(self) -> cst.FunctionDef:
        """The function; only for a scope that is one."""
        assert isinstance(self.node, cst.FunctionDef)
        return self.node

    def bind(self, name: str, binding: Binding) -> None:
        """Note one more place where `name` gets a value."""
        self.bindings.setdefault(name, []).append(binding)


@dataclass(slots=True, eq=False)
class Source:
    """A parsed module: its tree, each node's parent, its scopes."""

    text: str
    module: cst.Module
    top: Scope
    functions: list[Scope] = field(default_factory=list)
    classes: dict[str, cst.ClassDef] = field(default_factory=dict)
    parents: dict[int, cst.CSTNode] = field(default_factory=dict)
    scopes: dict[int, Scope] = field(default_factory=dict)
    star_import: bool = False

    def parent(self, node: cst.CSTNode) -> cst.CSTNode:
        """Return the node above; the module's is the module."""
        return self.parents.get(id(node), self.module)

    def ancestors(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """Yield the nodes above `node`, innermost first, the module last."""
        while node is not self.module:
            node = self.parent(node)
            yield node

    def code(self, node: cst.CSTNode) -> str:
        """Return a node's text without blank lines and comments around it."""
        return self.module.code_for_node(node).strip()

    def statement(self, node: cst.CSTNode) -> cst.BaseStatement:
        """Return the innermost whole statement that holds `node` (or is it)."""
        while not isinstance(node, cst.BaseStatement):
            node = self.parent(node)
        return node

    def top_statement(self, node: cst.CSTNode) -> cst.BaseStatement:
        """Return the statement of the module's own body that holds `node`."""
        while self.parent(node) is not self.module:
            node = self.parent(node)
        assert isinstance(node, cst.BaseStatement)
        return node

    def loops(self, node: cst.CSTNode) -> list[Loop]:
        """Return the loops of the same function whose body or condition repeats `node`, innermost first."""
        found: list[Loop] = []
        below = node
        for above in self.ancestors(node):
            if isinstance(above, (cst.FunctionDef, cst.ClassDef, cst.Lambda)):
                break
            if (isinstance(above, cst.For) and below is above.body) or (
                isinstance(above, cst.While) and below is not above.orelse
            ):
                found.append(above)
            below = above
        return found

    def inside(self, node: cst.CSTNode, outer: cst.CSTNode) -> bool:
        """Return whether `node` stands somewhere in `outer` (or is it)."""
        return node is outer or any(above is outer for above in self.ancestors(node))

    def scope_of(self, name: str, scope: Scope) -> Scope | None:
        """Return the scope in which `name`, used in `scope`, is bound; None for a builtin or unknown."""
        at: Scope | None = scope
        while at is not None:
            if name in at.bindings and name not in at.declared:
                return at
            at = at.parent
        return None

    def is_builtin(self, name: str, scope: Scope) -> bool:
        """Return whether `name` means Python's own builtin in `scope`."""
        return hasattr(builtins, name) and not self.star_import and self.scope_of(name, scope) is None

    def taken(self, name: str) -> bool:
        """Return whether a new module-level `name` could collide with one that is in use anywhere."""
        everywhere = [self.top, *self.functions]
        return hasattr(builtins, name) or any(name in s.bindings or name in s.mentions for s in everywhere)


def children(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Yield the parts of `node` that mean something: no layout, no names that are not variables."""
    kind = type(node)
    names = _fields.get(kind)
    if names is None:
        skip = _LAYOUT | _NO_VARIABLE.get(kind, frozenset())
        names = tuple(f.name for f in fields(kind) if f.name not in skip and "whitespace" not in f.name)
        _fields[kind] = names
    for name in names:
        value = getattr(node, name)
        if isinstance(value, cst.CSTNode):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from (item for item in value if isinstance(item, cst.CSTNode))


def walk(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Yield `node` and everything in it, in order, nested functions included."""
    stack = [node]
    while stack:
        at = stack.pop()
        yield at
        stack.extend(reversed(list(children(at))))


def walk_scope(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Yield `node` and everything in it but what nested functions, lambdas and classes hold."""
    stack = [node]
    while stack:
        at = stack.pop()
        yield at
        if at is node or not isinstance(at, (cst.FunctionDef, cst.ClassDef, cst.Lambda)):
            stack.extend(reversed(list(children(at))))


def parse(text: str) -> Source:
    """Parse a module and note its scopes.

    Raises:
        Unreadable: it does not parse, or is nested too deeply to be handled safely.
    """
    check(text)
    try:
        module = cst.parse_module(text)
        survives = module.code == text
    except (cst.ParserSyntaxError, RecursionError, ValueError) as error:
        raise Unreadable(f"not parsed: {type(error).__name__}") from error
    if not survives:
        raise Unreadable("its layout would not survive an edit")
    return describe(text, module)


def check(text: str) -> ast.Module:
    """Parse with Python's own parser, whose limits are safe, and bound depth and size.

    Raises:
        Unreadable: it does not parse, is nested too deeply, or is too large.
    """
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise Unreadable(f"not parsed: line {error.lineno}: {error.msg}") from error
    except (RecursionError, MemoryError, ValueError) as error:
        raise Unreadable(f"not parsed: {type(error).__name__}") from error
    level: list[ast.AST] = [tree]
    nodes = 0
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        nodes += len(level)
        if nodes > MAX_NODES:
            raise Unreadable(f"larger than {MAX_NODES} nodes")
        if not level:
            return tree
    raise Unreadable(f"nested more than {MAX_DEPTH} levels deep")


def describe(text: str, module: cst.Module) -> Source:
    """Note parents, scopes and bindings of a tree."""
    source = Source(text=text, module=module, top=Scope(module, "", None))
    source.scopes[id(module)] = source.top
    stack: list[tuple[cst.CSTNode, Scope, tuple[str, ...], cst.ClassDef | None]] = [
        (module, source.top, (), None)
    ]
    while stack:
        node, scope, names, owner = stack.pop()
        inner, inner_names, inner_owner = scope, names, owner
        if isinstance(node, (cst.FunctionDef, cst.ClassDef)) and owner is None:
            scope.bind(node.name.value, Binding("def", node))
        if isinstance(node, cst.FunctionDef):
            inner_names = (*names, node.name.value)
            inner = Scope(node, ".".join(inner_names), scope, owner)
            source.functions.append(inner)
            source.scopes[id(node)] = inner
            _bind_parameters(node.params, inner)
            inner_owner = None
        elif isinstance(node, cst.ClassDef):
            if scope is source.top and owner is None:
                source.classes[node.name.value] = node
            inner_names, inner_owner = (*names, node.name.value), node
        elif isinstance(node, cst.Lambda):
            _bind_parameters(node.params, scope)
        else:
            _note(node, source, scope, in_class=owner is not None)
        for child in reversed(list(children(node))):
            source.parents[id(child)] = node
            stack.append((child, inner, inner_names, inner_owner))
    for made in (source.top, *source.functions):
        _note_nested(made)
    return source


def _bind_parameters(parameters: cst.Parameters, scope: Scope) -> None:
    stars = [p for p in (parameters.star_arg, parameters.star_kwarg) if isinstance(p, cst.Param)]
    plain = [*parameters.posonly_params, *parameters.params, *parameters.kwonly_params]
    for parameter in (*plain, *stars):
        note = parameter.annotation.annotation if parameter.annotation and parameter not in stars else None
        scope.bind(parameter.name.value, Binding("param", parameter, parameter.default, annotation=note))


def _note(node: cst.CSTNode, source: Source, scope: Scope, *, in_class: bool) -> None:
    """Note what one node says of the scope's names; a class body's own names belong to no scope."""
    match node:
        case cst.Name(value=name):
            scope.mentions.setdefault(name, []).append(node)
        case cst.Yield() | cst.Await():
            scope.yields = True
        case cst.Global() | cst.Nonlocal():
            outer = source.top if isinstance(node, cst.Global) else scope.parent or source.top
            for item in node.names:
                scope.declared.add(item.name.value)
                outer.bind(item.name.value, Binding("augment", node))
        case cst.ImportFrom(names=cst.ImportStar()):
            source.star_import = True
        case _:
            if not in_class or isinstance(node, (cst.CompFor, cst.NamedExpr)):
                for name, binding in _bound_by(node):
                    scope.bind(name, binding)


def _bound_by(node: cst.CSTNode) -> Iterator[tuple[str, Binding]]:
    match node:
        case cst.Assign(targets=targets, value=value):
            for target in targets:
                yield from _targets("assign", target.target, value)
        case cst.AnnAssign(target=cst.Name() as name, value=value):
            yield name.value, Binding("assign", name, value, annotation=node.annotation.annotation)
        case cst.AugAssign(target=cst.Name() as name, value=value):
            yield name.value, Binding("augment", name, value)
        case cst.NamedExpr(target=cst.Name() as name, value=value):
            yield name.value, Binding("assign", name, value)
        case cst.For(target=target, iter=iterable):
            yield from _targets("for", target, iterable, iterates=True)
        case cst.CompFor(target=target, iter=iterable):
            yield from _targets("comp", target, iterable, iterates=True)
        case cst.WithItem(asname=cst.AsName(name=target)):
            yield from _targets("with", target, None)
        case cst.ExceptHandler(name=cst.AsName(name=target)):
            yield from _targets("except", target, None)
        case cst.Del(target=target):
            yield from _targets("del", target, None)
        case cst.Import(names=names) | cst.ImportFrom(names=names) if not isinstance(names, cst.ImportStar):
            for alias in names:
                bound = alias.evaluated_alias or alias.evaluated_name.split(".", maxsplit=1)[0]
                yield bound, Binding("import", node)
        case cst.MatchAs(name=cst.Name() as name) | cst.MatchStar(name=cst.Name() as name):
            yield name.value, Binding("match", name)
        case cst.MatchMapping(rest=cst.Name() as name):
            yield name.value, Binding("match", name)
        case _:
            pass


def _targets(
    kind: BindingKind,
    target: cst.CSTNode,
    value: cst.BaseExpression | None,
    *,
    iterates: bool = False,
    path: tuple[int, ...] = (),
) -> Iterator[tuple[str, Binding]]:
    if isinstance(target, cst.Name):
        yield target.value, Binding(kind, target, value, iterates, path)
    elif isinstance(target, (cst.Tuple, cst.List)):
        for place, element in enumerate(target.elements):
            known = value if isinstance(element, cst.Element) else None
            yield from _targets(kind, element.value, known, iterates=iterates, path=(*path, place))


def _note_nested(scope: Scope) -> None:
    for node in walk_scope(scope.node):
        if node is not scope.node and isinstance(node, (cst.FunctionDef, cst.ClassDef, cst.Lambda)):
            scope.nested |= {inner.value for inner in walk(node) if isinstance(inner, cst.Name)}
