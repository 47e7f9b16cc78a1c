"""What the use of a variable without an annotation proves of its kind.

Only what no other common type allows: a string alone has `.lower()`, `range` takes whole numbers, and a number is
what is compared with a literal to decide a branch (a list cannot be, an array is refused there).
"""

from __future__ import annotations

import libcst as cst

from sid_actors.backends.local.annotations import INT, NUMBER, STR, STR_TO_STR, Kind
from sid_actors.backends.local.source import Scope, Source
from sid_actors.backends.local.usage import is_test

_TEXT_ONLY = STR_TO_STR - {"translate", "title", "join", "format", "replace", "center"}
_ORDER = (cst.LessThan, cst.LessThanEqual, cst.GreaterThan, cst.GreaterThanEqual)
_EQUAL = (cst.Equal, cst.NotEqual)
_ARITHMETIC = (cst.Subtract, cst.FloorDivide)  # no text, list or set takes these with a number


def guessed(name: str, source: Source, scope: Scope) -> Kind | None:
    """Return the kind of a variable that nothing but its use tells of."""
    equal = arithmetic = False
    for mention in scope.mentions.get(name, []):
        above = source.parent(mention)
        match above:
            case cst.Attribute() if (
                isinstance(source.parent(above), cst.Call) and above.attr.value in _TEXT_ONLY
            ):
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
