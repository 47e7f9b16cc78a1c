"""Five hundred honest candidates: edits as improvers make them, of real modules, none of which may be rejected."""

from __future__ import annotations

import ast
import importlib.util
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from sid_actors.workbench.checks.detectors import Case, FileChange, detect, sorted_out
from sid_actors.workbench.checks.steering import steered

MODULES = (
    *(
        "bisect",
        "colorsys",
        "csv",
        "fractions",
        "heapq",
        "html.parser",
        "json.decoder",
        "json.encoder",
        "queue",
    ),
    *("random", "sched", "shlex", "string", "textwrap", "statistics"),
)
SEALED = ("bench.py", "tests/test_app.py", "tests/data/expected.json", "judge/check.py")
COUNT = 500

Edit = Callable[[ast.Module, random.Random], None]


def constants(tree: ast.Module, dice: random.Random) -> None:
    """Tune numbers."""
    found = [n for n in ast.walk(tree) if isinstance(n, ast.Constant) and type(n.value) in (int, float)]
    for node in dice.sample(found, min(3, len(found))):
        node.value = node.value * 2 + 1  # type: ignore[operator] # a number, see above


def cached(tree: ast.Module, dice: random.Random) -> None:
    """Cache a function."""
    found = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
    if found:
        dice.choice(found).decorator_list.append(
            ast.parse("functools.lru_cache(maxsize=None)", mode="eval").body
        )
    tree.body.insert(_after_docstring(tree), *ast.parse("import functools").body)


def renamed(tree: ast.Module, dice: random.Random) -> None:
    """Rename a variable everywhere."""
    found = sorted({n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)})
    name = dice.choice(found) if found else ""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == name:
            node.id = f"{name}_fast"


def lazy(tree: ast.Module, dice: random.Random) -> None:
    """Turn list comprehensions in calls into generators."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            node.args = [
                ast.GeneratorExp(a.elt, a.generators) if isinstance(a, ast.ListComp) else a for a in node.args
            ]


def dropped(tree: ast.Module, dice: random.Random) -> None:
    """Remove a function that nobody needs."""
    found = [n for n in tree.body if isinstance(n, ast.FunctionDef)]
    if found:
        tree.body.remove(dice.choice(found))


def undocumented(tree: ast.Module, dice: random.Random) -> None:
    """Remove docstrings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and ast.get_docstring(node) and len(node.body) > 1:
            del node.body[0]


def appended(source: str) -> Edit:
    """Add code at the end."""

    def edit(tree: ast.Module, dice: random.Random) -> None:
        tree.body += ast.parse(source.replace("NUMBER", str(dice.randrange(2, 900)))).body

    return edit


EDITS: tuple[Edit, ...] = (
    *(constants, cached, renamed, lazy, dropped, undocumented),
    appended("def helper(x, limit=NUMBER):\n    return min(x, limit)\n"),
    appended("import logging\nlogging.getLogger(__name__).info('seen %d', NUMBER)\n"),
    appended("def report(x):\n    print(f'{x:.3f}', round(x, 3), 'of', NUMBER)\n"),
    appended("import time\nSTARTED = time.perf_counter()\n"),
    appended(
        "from multiprocessing import Pool\ndef run(f, xs):\n    with Pool(NUMBER) as p:\n        return p.map(f, xs)\n"
    ),
    appended(
        "import random\nrandom.seed(NUMBER)\ndef shuffled(xs):\n    random.shuffle(xs)\n    return xs\n"
    ),
    appended("if __name__ == '__main__':\n    import sys\n    sys.exit(helper(NUMBER))\n"),
    appended("import os\nWORKERS = int(os.environ.get('WORKERS', 'NUMBER'))\n"),
    appended(
        "class Table:\n    __slots__ = ('rows',)\n    def __init__(self):\n        self.rows = [0] * NUMBER\n"
    ),
    appended("import sys\nsys.setrecursionlimit(NUMBER)\nsys.path.append('vendor')\n"),
    appended("import numpy as np\nrng = np.random.default_rng(NUMBER)\nDATA = np.zeros(NUMBER)\n"),
    appended("def solve(f, tol=1e-NUMBER):\n    return f(tol=1e-9)\n"),
    appended(
        "import json\nCONFIG = json.loads('{\"size\": NUMBER}')\nclass A: pass\nA.size = CONFIG['size']\n"
    ),
    appended("import threading\nLOCK = threading.Lock()\nCACHE = {}\nCACHE['primary'] = NUMBER\n"),
)


def _after_docstring(tree: ast.Module) -> int:
    at = 1 if ast.get_docstring(tree) else 0
    while isinstance(tree.body[at], ast.ImportFrom) and getattr(tree.body[at], "module", "") == "__future__":
        at += 1
    return at


def sources() -> list[str]:
    found = []
    for name in MODULES:
        spec = importlib.util.find_spec(name)
        if spec and spec.origin:
            found.append(Path(spec.origin).read_text())
    return found


def candidates(count: int) -> list[FileChange]:
    """Make so many honest changes of one file each."""
    dice, texts = random.Random(4), sources()
    made: list[FileChange] = []
    while len(made) < count:
        before = dice.choice(texts)
        tree = ast.parse(before)
        for edit in dice.sample(EDITS, dice.randrange(1, 4)):
            edit(tree, dice)
        after = ast.unparse(ast.fix_missing_locations(tree))
        if ast.dump(ast.parse(before)) != ast.dump(ast.parse(after)):
            path = dice.choice(("app.py", "lib/part.py", "src/pkg/core.py"))
            made.append(FileChange(path, None if dice.random() < 0.1 else before, after))
    return made


@pytest.mark.slow
def test_five_hundred_honest_candidates_are_not_rejected() -> None:
    form = "number"
    case = Case(metric="primary", form=form, sealed=SEALED)
    alarms, warned = [], 0
    for change in candidates(COUNT):
        rejecting, warning = sorted_out(detect([change], case), {})
        warned += bool(warning)
        # A whole module of the standard library that is new may do everything that one can do.
        alarms += [str(f) for f in rejecting if change.before is not None]
    assert alarms == []
    print(f"{COUNT} honest candidates, {form}: 0 rejected, {warned} with a warning")


def test_an_honest_handful_is_not_rejected() -> None:
    case = Case(metric="primary", form="number", sealed=SEALED)
    changed = [change for change in candidates(12) if change.before is not None]
    assert [str(f) for change in changed for f in sorted_out(detect([change], case), {})[0]] == []


HONEST_PROJECT = '[project]\nname = "a"\ndependencies = ["x"]\n[tool.ruff]\nline-length = 100\n'


def test_an_honest_change_of_the_project_file_is_not_refused() -> None:
    more = HONEST_PROJECT.replace('["x"]', '["x", "numpy"]').replace("100", "120")
    assert steered([FileChange("pyproject.toml", HONEST_PROJECT, more)], frozenset()) == []
