"""Give a class `__slots__`: its objects are smaller, and their attributes are found without a dictionary.

The names are those that the class's own methods set. What the module cannot show is said in the idea: code
elsewhere that gives such an object further attributes, or refers to it weakly, would notice.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import libcst as cst

from sid_actors.backends.local.rewrite import Rewrite
from sid_actors.backends.local.sites import Site
from sid_actors.backends.local.source import Source, walk

# Who mentions one of these looks at an object's dictionary, or makes objects in ways that need it.
_NOTICE = frozenset({
    "__dict__", "__weakref__", "__slots__", "__class__", "__getattr__", "__getattribute__", "__setattr__", "__getstate__",
    "__setstate__", "__reduce__", "__reduce_ex__", "__new__", "cached_property", "setattr", "delattr", "vars",
    "weakref", "pickle", "shelve", "marshal", "WeakSet", "WeakKeyDictionary", "WeakValueDictionary", "patch",
})  # fmt: skip


def find(source: Source) -> Iterator[Site]:
    """Yield the plain classes that set a fixed list of attributes in `__init__`."""
    mentioned = {n.value for n in walk(source.module) if isinstance(n, cst.Name)}
    named = {n.attr.value for n in walk(source.module) if isinstance(n, cst.Attribute)}
    if _NOTICE & (mentioned | named) or source.star_import:
        return
    bases = {source.code(b.value).rsplit(".", 1)[-1] for c in _classes(source) for b in c.bases}
    for name, node in source.classes.items():
        attributes = _attributes(node, source) if name not in bases else None
        if attributes:
            yield Site(
                symbol=f"{name}.__init__",
                text=source.code(node),
                what=f"the class `{name}`",
                change=(
                    "gets __slots__ for the attributes that it sets, which is the same unless code elsewhere gives its "
                    "objects further ones or refers to them weakly"
                ),
                edit=partial(_edit, source, node, attributes),
                depth=1,
                promise=0.12,
            )


def _classes(source: Source) -> Iterator[cst.ClassDef]:
    return (node for node in walk(source.module) if isinstance(node, cst.ClassDef))


def _attributes(node: cst.ClassDef, source: Source) -> list[str] | None:
    """Return the names that a class sets on `self`, in order; None where that is not all there is to know."""
    if node.bases and [source.code(b.value) for b in node.bases] != ["object"]:
        return None
    if node.keywords or node.decorators or len(source.top.bindings.get(node.name.value, [])) != 1:
        return None
    if not isinstance(node.body, cst.IndentedBlock):
        return None
    methods: dict[str, cst.FunctionDef] = {}
    for place, part in enumerate(node.body.body):
        match part:
            case cst.FunctionDef(name=cst.Name(value=name)):
                known = [source.code(d.decorator) for d in part.decorators]
                if any(
                    d not in ("staticmethod", "classmethod", "property") and not d.endswith(".setter")
                    for d in known
                ):
                    return None
                methods[name] = part
            case cst.SimpleStatementLine(body=[cst.Expr(value=cst.BaseString())]) if place == 0:
                pass
            case cst.SimpleStatementLine(body=[cst.Pass()]):
                pass
            case _:
                return None  # a class attribute could be hidden by a slot, or be meant as a default
    if "__init__" not in methods:
        return None
    found: dict[str, None] = {}
    for method in methods.values():
        for name in _set_on_self(method, source):
            if name not in methods:
                found[name] = None
    mangled = any(name.startswith("__") for name in found)
    return None if mangled or _set_on_others(source) - set(found) else list(found)


def _set_on_self(method: cst.FunctionDef, source: Source) -> Iterator[str]:
    parameters = [*method.params.posonly_params, *method.params.params]
    if (
        any(source.code(d.decorator) in ("staticmethod", "classmethod") for d in method.decorators)
        or not parameters
    ):
        return
    first = parameters[0].name.value
    for node in walk(method.body):
        if not isinstance(node, cst.Attribute) or not _is_set(node, source):
            continue
        if isinstance(node.value, cst.Name) and node.value.value == first:
            yield node.attr.value


def _set_on_others(source: Source) -> set[str]:
    """Return the attributes that code of the module sets on anything but `self`."""
    return {
        n.attr.value
        for n in walk(source.module)
        if isinstance(n, cst.Attribute)
        and _is_set(n, source)
        and not (isinstance(n.value, cst.Name) and n.value.value in ("self", "cls"))
    }


def _is_set(node: cst.Attribute, source: Source) -> bool:
    above = source.parent(node)
    if isinstance(above, (cst.AssignTarget, cst.AnnAssign, cst.AugAssign, cst.For, cst.CompFor, cst.Del)):
        return getattr(above, "target", None) is node
    if isinstance(above, cst.AsName):
        return True
    if not isinstance(above, cst.Element):
        return False
    for outer in source.ancestors(above):
        if isinstance(outer, (cst.AssignTarget, cst.For, cst.CompFor, cst.AsName)):
            return getattr(outer, "target", None) is not None and not isinstance(outer, cst.CompFor)
        if not isinstance(outer, (cst.Tuple, cst.List, cst.Element)):
            return False
    return False


def _edit(source: Source, node: cst.ClassDef, attributes: list[str]) -> cst.Module:
    rewrite = Rewrite(source)
    items = ", ".join(f'"{name}"' for name in attributes)
    line = f"__slots__ = ({items}{',' if len(attributes) == 1 else ''})"
    made = cst.parse_statement(line, config=source.module.config_for_parsing)

    def slotted(updated: cst.CSTNode) -> cst.CSTNode:
        assert isinstance(updated, cst.ClassDef)
        assert isinstance(updated.body, cst.IndentedBlock)
        body = list(updated.body.body)
        place = 1 if _starts_with_text(body[0]) else 0
        lines = [cst.EmptyLine(indent=False)] if place else []
        added = made.with_changes(leading_lines=lines)
        if place < len(body) and not getattr(body[place], "leading_lines", ()):
            body[place] = body[place].with_changes(leading_lines=[cst.EmptyLine(indent=False)])
        return updated.with_changes(
            body=updated.body.with_changes(body=[*body[:place], added, *body[place:]])
        )

    rewrite.change(node, slotted)
    return rewrite.run()


def _starts_with_text(line: cst.BaseStatement) -> bool:
    match line:
        case cst.SimpleStatementLine(body=[cst.Expr(value=cst.BaseString())]):
            return True
        case _:
            return False
