"""What the use of a variable without an annotation proves of its kind.

Only what no other common type allows: a string alone has `.lower()`, `range` takes whole numbers, and a number is
what is compared with a literal to decide a branch (a list cannot be, an array is refused there).
"""

from __future__ import annotations

import libcst as cst

from sid_actors.backends.local.annotations import INT, NUMBER, STR, TEXT_ALONE, Kind
from sid_actors.backends.local.source import Scope, Source
from sid_actors.backends.local.usage import is_test

_ASKING = frozenset({"isinstance", "issubclass", "type", "hasattr", "getattr", "callable"})
_ORDER = (cst.LessThan, cst.LessThanEqual, cst.GreaterThan, cst.GreaterThanEqual)
_EQUAL = (cst.Equal, cst.NotEqual)
_ARITHMETIC = (cst.Subtract, cst.FloorDivide)  # no text, list or set takes these with a number


def guessed(name: str, source: Source, scope: Scope) -> Kind | None:
    """Return the kind of a variable that nothing but its use tells of, None where it may be of several."""
    mentions = scope.mentions.get(name, [])
    if any(_is_asked_about(mention, source) for mention in mentions):
        return None
    equal = arithmetic = False
    for mention in mentions:
        above = source.parent(mention)
        match above:
            case cst.Attribute() if isinstance(
                source.parent(above), cst.Call
            ) and above.attr.value in TEXT_ALONE - {"split", "rsplit"}:
                return STR
            case cst.Arg():
                call = source.parent(above)
                if (
                    isinstance(call, cst.Call)
                    and isinstance(call.func, cst.Name)
                    and call.func.value == "range"
                ):
                    return INT
            case cst.Comparison(left=left, comparisons=[cst.ComparisonTarget() as other]) if left is mention:
                if isinstance(other.comparator, cst.BaseNumber) and is_test(above, source):
                    if isinstance(other.operator, _ORDER):
                        return NUMBER
                    equal |= isinstance(other.operator, _EQUAL)
            case cst.BinaryOperation(left=left, operator=operator, right=cst.BaseNumber()) if left is mention:
                arithmetic |= isinstance(operator, _ARITHMETIC)
            case _:
                pass
    return NUMBER if equal and arithmetic else None


def _is_asked_about(mention: cst.Name, source: Source) -> bool:
    """Return whether the program itself does not know what it has: it looks at the type, or catches the error."""
    above = source.parent(mention)
    match above:
        case cst.Arg():
            call = source.parent(above)
            if isinstance(call, cst.Call) and isinstance(call.func, cst.Name) and call.func.value in _ASKING:
                return True
        case cst.Comparison(comparisons=[cst.ComparisonTarget(operator=cst.Is() | cst.IsNot()), *_]):
            return True
        case _:
            pass
    return any(isinstance(outer, (cst.Try, cst.TryStar, cst.Match)) for outer in source.ancestors(mention))
