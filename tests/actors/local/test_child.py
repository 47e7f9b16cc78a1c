"""The child process: one JSON document in, one out, whatever it is given and whatever it has to read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Spawn

CHILD = [sys.executable, "-I", "-m", "sid_actors.backends.local.child"]
SLOW = "def power(n: int) -> int:\n    return sum(i**n for i in range(n))\n"


def ask(real_process: Spawn, verb: str, request: object) -> tuple[int, dict[str, Any]]:
    data = request if isinstance(request, bytes) else json.dumps(request).encode()
    child = real_process(
        [*CHILD, verb], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, err = child.communicate(data, timeout=60)
    assert err == b""
    assert out.count(b"\n") == 1
    return child.returncode, json.loads(out)


def test_an_idea_is_found_and_carried_out_in_place(real_process: Spawn, short_dir: Path) -> None:
    root = short_dir / "späce y"
    (root / "lib").mkdir(parents=True)
    target = root / "lib" / "ü.py"
    target.write_bytes(SLOW.replace("\n", "\r\n").encode())
    target.chmod(0o751)

    status, answer = ask(real_process, "survey", {"root": str(root)})
    assert (status, answer["read"], answer["skipped"]) == (0, 1, 0)
    recipe = next(i["recipe"] for i in answer["ideas"] if i["family"] == "optimization")
    assert ask(real_process, "apply", {"root": str(root), "recipe": recipe}) == (0, {"path": "lib/ü.py"})
    assert target.read_bytes().count(b"\r\n") == target.read_bytes().count(b"\n") > 3
    assert b"@functools.cache\r\ndef power" in target.read_bytes()
    assert target.stat().st_mode & 0o777 == 0o751

    status, answer = ask(real_process, "apply", {"root": str(root), "recipe": recipe})
    assert status == 1
    assert "not as it was" in answer["error"]
    assert [p.name for p in (root / "lib").iterdir()] == ["ü.py"]


def test_scope_seal_and_what_is_no_program_are_respected(real_process: Spawn, short_dir: Path) -> None:
    for path in (
        "a.py", "bench.py", "src/b.py", "src/deep/c.py", "tests/d.py", "src/test_e.py", ".hidden/f.py",
        "node_modules/g.py", "src/x.toml",
    ):  # fmt: skip
        (short_dir / path).parent.mkdir(parents=True, exist_ok=True)
        (short_dir / path).write_text(SLOW if path.endswith(".py") else "depth = 4\n")
    (short_dir / "link.py").symlink_to(short_dir / "a.py")
    os.mkfifo(short_dir / "pipe.py")

    def seen(**request: Any) -> set[str]:
        status, answer = ask(real_process, "survey", {"root": str(short_dir), **request})
        assert status == 0
        return {idea["target_file"] for idea in answer["ideas"]}

    assert seen() == {"a.py", "bench.py", "src/b.py", "src/deep/c.py", "src/x.toml"}
    assert seen(sealed=["bench.py", "src/deep/"]) == {"a.py", "src/b.py", "src/x.toml"}
    assert seen(include=["src/*.py", "a.*"], exclude=["**/b.py"]) == {"a.py"}
    assert seen(limit_files=1) == {"a.py"}
    hot = {"functions": [["src/b.py", 1, "power", 9, 1.0, 1.0, []]], "total_s": 1.0}
    assert seen(limit_files=1, hot=hot) == {"src/b.py"}


def test_hostile_files_are_passed_over(real_process: Spawn, short_dir: Path) -> None:
    deep = 20_000
    hostile = {
        "brackets.py": b"x = " + b"(" * deep + b")" * deep,
        "signs.py": b"x = " + b"-" * deep + b"1",
        "chain.py": b"x = a" + b".b" * deep,
        "calls.py": b"def f(n: int) -> int:\n    return " + b"f(" * 90 + b"n" + b")" * 90,
        "blocks.py": b"".join(b" " * n + b"if x:\n" for n in range(99)) + b" " * 99 + b"pass",
        "elifs.py": b"if x:\n    pass\n" + b"elif x:\n    pass\n" * 5000,
        "huge.py": b"x = 1\n" * 300_000,
        "line.py": b"x = [" + b"1, " * 200_000 + b"]",
        "nul.py": b"x = 1\0",
        "latin.py": b"# \xe4\n",
        "bom.py": b"\xef\xbb\xbfx = 3\n",
        "deep.json": b"[" * deep,
        "keys.json": b'{"a":' * deep,
        "big.toml": b"a." * deep + b"b = 1",
        "empty.py": b"",
    }
    for name, data in hostile.items():
        (short_dir / name).write_bytes(data)
    (short_dir / "good.py").write_text(SLOW)
    files = hostile | {"good.py": SLOW.encode()}

    status, answer = ask(real_process, "survey", {"root": str(short_dir)})

    assert status == 0
    assert {idea["target_file"] for idea in answer["ideas"]} >= {"good.py"}
    for name in ("brackets.py", "calls.py", "huge.py", "latin.py"):
        recipe = {"transformation": "hoist", "path": name, "symbol": "f", "params": {}}
        status, answer = ask(real_process, "apply", {"root": str(short_dir), "recipe": recipe})
        assert (status, list(answer)) == (1, ["error"])
    assert {path.name: path.read_bytes() for path in short_dir.iterdir() if path.is_file()} == files


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../a.py", "a/../../a.py", "out/a.py", "a.py", ".git/hooks/x.py", "gone.py"]
)
def test_no_path_leads_out_of_the_checkout(real_process: Spawn, short_dir: Path, path: str) -> None:
    outside, root = short_dir / "outside", short_dir / "root"
    for folder in (outside, root):
        folder.mkdir()
    (outside / "a.py").write_text(SLOW)
    (short_dir / "a.py").write_text(SLOW)
    (root / "out").symlink_to(outside)
    (root / "a.py").symlink_to(outside / "a.py")
    recipe = {"transformation": "numeric", "path": path, "symbol": "N", "params": {"value": 2}}

    status, answer = ask(real_process, "apply", {"root": str(root), "recipe": recipe})

    assert (status, list(answer)) == (1, ["error"])
    assert (outside / "a.py").read_text() == SLOW


@pytest.mark.parametrize(
    "request_",
    [
        b"", b"x", b"[]", b"\xff", b"[" * 100_000, b"{}", b'{"root": 1}', b'{"root": "/", "attempts": [1]}',
        b'{"root": "/", "include": "x"}', b'{"root": "/", "hot": {}}',
        b'{"root": "/", "limit_files": "x"}',
    ],
)  # fmt: skip
def test_junk_gets_one_clear_answer(real_process: Spawn, request_: bytes) -> None:
    status, answer = ask(real_process, "survey", request_)

    assert status == 1
    assert list(answer) == ["error"]
    assert "\n" not in answer["error"]


def test_an_unknown_verb_and_a_missing_folder(real_process: Spawn, short_dir: Path) -> None:
    assert "survey|apply" in ask(real_process, "guess", {"root": "/"})[1]["error"]
    assert "not a folder" in ask(real_process, "survey", {"root": str(short_dir / "gone")})[1]["error"]
