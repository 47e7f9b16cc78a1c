"""Profiles: which commands can be profiled, what comes back, and what junk is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sid_actors.backends.local.hotspots import CHILD, hot_spots, parse_profile, profile_argv
from tests.conftest import Spawn


@pytest.mark.parametrize(
    ("command", "argv", "env"),
    [
        ("python3 bench.py", ["python3", CHILD, "bench.py"], {}),
        ("python bench.py --n 3 'a b'", ["python", CHILD, "bench.py", "--n", "3", "a b"], {}),
        (
            "python3.11 -u -X dev -m pkg.bench x",
            ["python3.11", "-u", "-X", "dev", CHILD, "-m", "pkg.bench", "x"],
            {},
        ),
        (".venv/bin/python bench.py", [".venv/bin/python", CHILD, "bench.py"], {}),
        ("A=1 B='x y' python3 b.py", ["python3", CHILD, "b.py"], {"A": "1", "B": "x y"}),
        ("env A=1 python3 b.py", ["python3", CHILD, "b.py"], {"A": "1"}),
        ("python3 b.py '*;$(x)'", ["python3", CHILD, "b.py", "*;$(x)"], {}),
    ],
)
def test_a_python_command_can_be_profiled(command: str, argv: list[object], env: dict[str, str]) -> None:
    found = profile_argv(command)

    assert found is not None
    assert list(found.argv) == [str(word) for word in argv]
    assert found.env == env


@pytest.mark.parametrize(
    "command",
    [
        "", "make bench", "python3", "python3 -c 'x'", "python3 -m", "python3 b.py | tail -1", "cd x && python3 b.py",
        "python3 b.py > out", "python3 $FILE", "python3 b*.py", "python3 'b.py", "pytest -q", "python3 -i b.py",
        "python3 b.py; true", "python3 `x`", 'python3 "$X"', "python3 -",
    ],
)  # fmt: skip
def test_anything_else_is_not(command: str) -> None:
    assert profile_argv(command) is None


def profile(real_process: Spawn, folder: Path, command: str, **files: str) -> tuple[int, bytes]:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    found = profile_argv(command)
    assert found is not None
    argv = [sys.executable, *found.argv[1:]]
    child = real_process(argv, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, _ = child.communicate(timeout=60)
    return child.returncode, out


def test_the_time_is_found_where_it_goes(real_process: Spawn, short_dir: Path) -> None:
    status, out = profile(
        real_process,
        short_dir,
        "python3 -B bench.py 300",
        bench="import sys, work\nif __name__ == '__main__':\n    print(work.slow(int(sys.argv[1])))\n    sys.exit(3)\n",
        work="def fast(n):\n    return n\n\n\ndef slow(n):\n    return sum(fast(i) * len(str(i)) for i in range(n * 100))\n",
    )
    hot = parse_profile(out)

    assert status == 3
    assert int(out.splitlines()[0]) == sum(i * len(str(i)) for i in range(30_000))
    assert hot is not None
    calls = {(f.path, f.name): f for f in hot.functions}
    assert calls["work.py", "fast"].calls == 30_000
    assert calls["work.py", "slow"].line == 5
    both = frozenset({"work.py"})
    slow, generator = calls["work.py", "slow"], calls["work.py", "<genexpr>"]
    assert hot.cost_s(generator, both) < generator.total_s  # `fast` answers for itself
    assert hot.cost_s(slow, frozenset()) == pytest.approx(slow.total_s, rel=0.5)
    assert hot_spots(json.loads(json.dumps(hot.to_json()))) == hot


def test_a_program_that_fails_closes_stdout_or_runs_as_a_module_is_profiled(
    real_process: Spawn, short_dir: Path
) -> None:
    status, out = profile(real_process, short_dir, "python3 -B -m work", work="def f():\n    1 / 0\n\nf()\n")
    assert status == 1
    hot = parse_profile(out)
    assert hot is not None
    assert ("work.py", "f") in {(f.path, f.name) for f in hot.functions}

    status, out = profile(real_process, short_dir, "python3 -B work.py", work="import os\nos.close(1)\n")
    assert parse_profile(out) is not None


@pytest.mark.parametrize(
    "output",
    [
        b"", b"12\n", b"\n#sid-profile ", b"\n#sid-profile {", b"\n#sid-profile []\n", b"\n#sid-profile " + b"[" * 99999,
        b'\n#sid-profile {"functions": [[1]], "total_s": 1}\n', b'\n#sid-profile {"functions": [], "total_s": NaN}\n',
        b'\n#sid-profile {"functions": [["a.py", 1, "f", 1, -1, 2, []]], "total_s": 1}\n', b"\n#sid-profile \xff\xfe\n",
    ],
)  # fmt: skip
def test_junk_is_no_profile(output: bytes) -> None:
    assert parse_profile(output) is None
