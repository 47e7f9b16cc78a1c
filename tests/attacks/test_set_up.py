"""A candidate whose set-up makes what the sandboxes of others show: no way to the user's files leads through it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sid_actors.workbench.sandbox.toolchain import venv_prefix
from tests.actors.workbench.conftest import OpenBay, open_bay
from tests.conftest import MakeRepo
from tests.e2e.harness import sandbox_works

__all__ = ["open_bay"]
SECRET = "of the user"
SET_UP = "sh tools/set_up.sh"
LOOK = "import glob\nfor name in glob.glob('loot*') + glob.glob('%s/*'):\n    print(open(name).read())\n"
FILES = {
    "requirements.txt": "1\n",
    "tools/set_up.sh": "mkdir -p .venv && cp requirements.txt .venv/made\n",
    "app.py": "print(1)\n",
    "bench.py": "import app\nprint(open('.venv/made').read())\n",
    ".gitignore": ".venv/\n",
}
WAYS = {
    "a link": "ln -s $SAFE/key loot",
    "a link to a folder": "mkdir -p .venv; cp requirements.txt .venv/made; ln -s $SAFE loot.d",
    "a link through another": "ln -s $SAFE x; ln -s x/key loot; mkdir .venv",
    "an interpreter's home": "mkdir -p .venv; cp requirements.txt .venv/made; echo home = $SAFE/bin > .venv/pyvenv.cfg",
    "a pipe": "mkdir -p .venv; cp requirements.txt .venv/made; mkfifo .venv/pyvenv.cfg",
    "an endless file": "mkdir -p .venv; cp requirements.txt .venv/made; ln -s /dev/zero .venv/pyvenv.cfg",
}


@pytest.mark.slow
@pytest.mark.skipif(not sandbox_works(), reason="no sandbox here")
async def test_no_set_up_opens_the_users_files(repo: MakeRepo, open_bay: OpenBay, tmp_path: Path) -> None:
    safe = tmp_path / "safe"
    (safe / "bin").mkdir(parents=True)
    (safe / "key").write_text(SECRET)
    said: dict[str, str] = {}
    async with open_bay(repo(FILES), sandboxed=True, setup_command=SET_UP, setup_network=False) as bay:
        for number, (name, script) in enumerate(WAYS.items(), 1):

            def leave(top: Path, script: str = script, number: int = number) -> None:
                (top / "requirements.txt").write_text(f"{number + 1}\n")
                (top / "tools/set_up.sh").write_text(f"SAFE={safe}\n{script}\n")
                (top / "app.py").write_text(LOOK % safe)

            found = await bay.attempt(leave, number)
            assert found.refusal is None
            run = await bay.bench.measure(found.tree, 1, bay.settings)
            said[name] = f"{run.raw} {run.why}"
    assert {name: text for name, text in said.items() if SECRET in text} == {}
    assert all("a link out of the checkout" in said[name] for name in WAYS if name.startswith("a link")), said
    assert all(
        said[name].split()[:1] == [str(number)]
        for number, name in enumerate(WAYS, 2)
        if not name.startswith("a link")
    ), said


@pytest.mark.skipif(not sandbox_works(), reason="no sandbox here")
async def test_a_set_up_that_is_changed_is_another_set_up(repo: MakeRepo, open_bay: OpenBay) -> None:
    """Else a refused candidate's result would be that of every later one with the same lock files."""
    async with open_bay(repo(FILES), sandboxed=True, setup_command=SET_UP, setup_network=False) as bay:

        def poison(top: Path) -> None:
            (top / "requirements.txt").write_text("2\n")
            (top / "tools/set_up.sh").write_text("mkdir -p .venv && echo 999 > .venv/made\n")

        poisoned = await bay.attempt(poison, 1)
        honest = await bay.attempt(lambda top: (top / "requirements.txt").write_text("2\n"), 2)
        runs = [await bay.bench.measure(one.tree, 1, bay.settings) for one in (poisoned, honest)]
    assert [run.score for run in runs] == [999, 2]


def test_only_an_installation_of_python_is_an_interpreters_home(tmp_path: Path) -> None:
    home = tmp_path / "home"
    for place, module in (("safe", None), ("python", "lib/python3.12/os.py"), ("pypy", "lib/pypy3.10/os.py")):
        (home / place / "bin").mkdir(parents=True)
        if module:
            (home / place / module).parent.mkdir(parents=True)
            (home / place / module).touch()
    shown = {}
    for number, place in enumerate(("safe", "python", "pypy", "safe/../python", "missing")):
        folder = tmp_path / f"venv{number}"
        folder.mkdir()
        (folder / "pyvenv.cfg").write_text(f"version = 3\nhome = {home}/{place}/bin\n")
        shown[place] = venv_prefix(str(folder), str(home))
    python = [str(home / "python")]
    assert shown == {
        "safe": [],
        "python": python,
        "pypy": [str(home / "pypy")],
        "safe/../python": python,
        "missing": [],
    }
    os.mkfifo(home / "pyvenv.cfg")
    assert venv_prefix(str(home), str(home)) == []
