"""Line ends, encodings and filters: committed as git would, and never a false alarm."""

from __future__ import annotations

import subprocess

import pytest

from tests.actors.workbench.attacks import FILES, ordinary_edit
from tests.actors.workbench.conftest import OpenBay
from tests.conftest import MakeRepo
from tests.repos import Repo


def line_ends(made: Repo) -> None:
    made.write(
        {
            ".gitattributes": "*.txt text\n*.win text eol=crlf\n*.bin -text\n*.u16 text working-tree-encoding=UTF-16LE\n",
            "a.txt": "1\n2\n",
            "a.win": "1\n2\n",
            "a.bin": b"1\r\n2\n",
            "a.u16": "é\n".encode("utf-16-le"),
            "kept.c": b"1\r\n2\r\n",
        }
    )


async def test_line_ends_and_encodings_are_converted_and_raise_no_alarm(
    repo: MakeRepo, open_bay: OpenBay
) -> None:
    made = repo(FILES)
    line_ends(made)
    made.commit(None, "Ends")
    made.git("config", "core.autocrlf", "true")
    async with open_bay(made, sealed_files=["*.win", "kept.c"]) as bay:
        worktree = await bay.open()
        assert (worktree / "a.win").read_bytes() == b"1\r\n2\r\n"
        assert (worktree / "app.py").read_bytes() == b"COST = 10\r\n"
        assert await bay.collect() == await bay.collect()
        (worktree / "app.py").write_bytes(b"COST = 11\r\n")
        (worktree / "a.txt").write_bytes(b"1\r\n3\r\n")
        (worktree / "a.bin").write_bytes(b"1\r\n3\n")
        (worktree / "a.u16").write_bytes("ü\n".encode("utf-16-le"))
        found = await bay.collect()
    assert found.refusal is None
    assert found.paths == ("a.bin", "a.txt", "a.u16", "app.py")
    assert found.net_lines == 0

    def blob(path: str) -> bytes:
        return subprocess.check_output(["git", "-C", made.path, "cat-file", "blob", f"{found.commit}:{path}"])

    assert blob("app.py") == b"COST = 11\n"
    assert blob("a.txt") == b"1\n3\n"
    assert blob("a.bin") == b"1\r\n3\n"
    assert blob("a.u16") == "ü\n".encode()


async def test_a_file_committed_with_windows_ends_keeps_them(repo: MakeRepo, open_bay: OpenBay) -> None:
    made = repo({**FILES, "kept.c": b"1\r\n2\r\n"})
    made.git("config", "core.autocrlf", "input")
    async with open_bay(made) as bay:
        found = await bay.attempt(lambda top: (top / "kept.c").write_bytes(b"1\r\n3\r\n"))
    assert found.diff_stat == "1 file changed, 1 insertion(+), 1 deletion(-)"


@pytest.mark.parametrize("named", [False, True])
async def test_a_content_filter_runs_only_on_what_the_user_named(
    repo: MakeRepo, open_bay: OpenBay, named: bool
) -> None:
    made = repo({**FILES, ".gitattributes": "*.dat filter=up\n", "a.dat": "AB\n"})
    made.git("config", "filter.up.clean", f"tee -a {made.path.parent}/ran | tr a-z A-Z")
    made.git("config", "filter.up.smudge", "tr A-Z a-z")
    ran = made.path.parent / "ran"
    scope = {"include": ["a.dat", "**"]} if named else {}
    async with open_bay(made, scope=scope, sealed_files=["b.dat"]) as bay:
        worktree = await bay.open()
        assert (worktree / "a.dat").read_text() == "ab\n"
        ran.unlink(missing_ok=True)
        (worktree / "a.dat").write_text("cd\n")
        found = await bay.collect()
        untouched = await bay.attempt(ordinary_edit, 2)
    assert untouched.refusal is None
    if named:
        assert found.refusal is None
        assert made.git("cat-file", "blob", f"{found.commit}:a.dat") == "CD"
    else:
        assert found.refusal
        assert found.refusal[0] == "scope_error"
        assert not ran.exists()
