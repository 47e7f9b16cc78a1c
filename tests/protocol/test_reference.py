"""The generated reference pages say what the code says."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
GENERATE = runpy.run_path(str(DOCS / "generate.py"))


@pytest.mark.parametrize("page", GENERATE["PAGES"])
def test_a_generated_page_is_current(page: str) -> None:
    written = (DOCS / "reference" / f"{page}.md").read_text(encoding="utf-8")
    assert written == GENERATE["PAGES"][page](), "run `make docs`"
