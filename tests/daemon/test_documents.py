"""How a record's text is written: as the standard library's encoder would."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as some

from sid_daemon.store.documents import render
from sid_protocol.records import Record

VALUES = some.recursive(
    some.none()
    | some.booleans()
    | some.integers()
    | some.floats(allow_nan=False, allow_infinity=False)
    | some.text(),
    lambda inner: some.lists(inner) | some.dictionaries(some.text(), inner),
    max_leaves=20,
)


class Anything(Record):
    """A record of any fields."""

    value: object


@given(VALUES)
def test_a_document_is_indented_as_the_standard_library_does(value: object) -> None:
    expected = json.dumps({"value": value}, ensure_ascii=False, indent=2) + "\n"
    assert render(Anything(value=value)) == expected
