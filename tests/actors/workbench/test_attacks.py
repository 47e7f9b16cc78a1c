"""What a candidate may not do is seen, whatever it does to hide it; what it may do raises no alarm."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from sid_protocol.settings import Scope
from tests.actors.workbench.conftest import OpenBay
from tests.conftest import MakeRepo
from tests.repos import Repo

FILES = {
    ".gitignore": "*.log\nbuild/\n",
    "app.py": "COST = 10\n",
    "old.py": "x = 1\n",
    "bench.py": "from app import COST\nprint(COST)\n",
    "judge/check.py": "pass\n",
    "judge/data/a.json": "{}\n",
    "lib/part.py": "y = 2\n",
}
VALUES = {"sealed_files": ["judge/"]}


def git(folder: Path, *args: str) -> None:
    subprocess.run(["git", "-C", folder, *args], check=True, capture_output=True)


def edit(top: Path) -> None:
    (top / "bench.py").write_text("print(0)\n")


def edit_with_old_times(top: Path) -> None:
    path = top / "bench.py"
    status = path.stat()
    path.write_text(path.read_text().replace("COST)", "C0ST)"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def chmod(top: Path) -> None:
    (top / "bench.py").chmod(0o755)


def delete(top: Path) -> None:
    (top / "bench.py").unlink()


def symlink(top: Path) -> None:
    (top / "mine.py").write_text((top / "bench.py").read_text())
    (top / "bench.py").unlink()
    (top / "bench.py").symlink_to("mine.py")


def pipe_in_its_place(top: Path) -> None:
    (top / "bench.py").unlink()
    os.mkfifo(top / "bench.py")


def add_in_sealed_folder(top: Path) -> None:
    (top / "judge/more.py").write_text("x\n")


def ignored_file_in_sealed_folder(top: Path) -> None:
    (top / "judge/cheat.log").write_text("x\n")


def ignored_folder_in_sealed_folder(top: Path) -> None:
    (top / "judge/build").mkdir()
    (top / "judge/build/x").write_text("x\n")


def rename_parent(top: Path) -> None:
    (top / "judge").rename(top / "was")
    shutil.copytree(top / "was", top / "judge")
    (top / "judge/check.py").write_text("print(1)\n")


def link_parent(top: Path) -> None:
    (top / "judge").rename(top / "was")
    (top / "judge").symlink_to("was")


def assume_unchanged(top: Path) -> None:
    git(top, "update-index", "--assume-unchanged", "bench.py")
    edit(top)


def skip_worktree(top: Path) -> None:
    git(top, "update-index", "--skip-worktree", "bench.py")
    edit(top)


def commit_it(top: Path) -> None:
    edit(top)
    git(top, "commit", "-qam", "mine")


def file_mode_off(top: Path) -> None:
    git(top, "config", "core.fileMode", "false")
    chmod(top)


def ignore_rules(top: Path) -> None:
    (top / ".gitignore").write_text("bench.py\njudge/\n")
    (top / "judge/more.py").write_text("x\n")


def case_twin(top: Path) -> None:
    (top / "Bench.py").write_text("x\n")


def case_twin_of_folder(top: Path) -> None:
    (top / "Judge").mkdir()
    (top / "Judge/check.py").write_text("x\n")


def harness(top: Path) -> None:
    (top / "lib/conftest.py").write_text("x\n")


def startup_file(top: Path) -> None:
    (top / "usercustomize.py").write_text("x\n")


def path_file(top: Path) -> None:
    (top / "lib/x.pth").write_text("import os\n")


def attributes(top: Path) -> None:
    (top / ".gitattributes").write_text("*.py filter=evil\n")


def modules(top: Path) -> None:
    (top / ".gitmodules").write_text("x\n")


def workflow(top: Path) -> None:
    (top / ".github/workflows").mkdir(parents=True)
    (top / ".github/workflows/x.yml").write_text("x\n")


def nested_repository(top: Path) -> None:
    (top / "inner").mkdir()
    git(top / "inner", "init", "-q")
    (top / "inner/f").write_text("x\n")


def repository_over_folder(top: Path) -> None:
    git(top / "lib", "init", "-q")
    (top / "lib/part.py").write_text("z\n")


def newline_in_name(top: Path) -> None:
    (top / "a\nb.py").write_text("x\n")


def escape_in_name(top: Path) -> None:
    (top / "a\x1b[2Jb.py").write_text("x\n")


def undecodable_name(top: Path) -> None:
    Path(os.fsdecode(os.fsencode(top) + b"/\xff.py")).write_text("x\n")


def replaced_git_file(top: Path) -> None:
    (top / ".git").unlink()
    git(top, "init", "-q")
    (top / "app.py").write_text("COST = 1\n")


def edited_git_file(top: Path) -> None:
    (top / ".git").write_text(f"gitdir: {top}\n")


def linked_git_file(top: Path) -> None:
    (top / ".git").rename(top / "x")
    (top / ".git").symlink_to("x")


def in_the_middle_of_a_merge(top: Path) -> None:
    (top / "app.py").write_text("COST = 1\n")
    git(top, "commit", "-qam", "one")
    git(top, "branch", "side")
    git(top, "reset", "-q", "--hard", "HEAD~")
    (top / "app.py").write_text("COST = 2\n")
    git(top, "commit", "-qam", "two")
    subprocess.run(["git", "-C", top, "merge", "-q", "side"], check=False, capture_output=True)


SEALED = [
    *(edit, edit_with_old_times, chmod, delete, symlink, pipe_in_its_place, add_in_sealed_folder),
    *(ignored_file_in_sealed_folder, ignored_folder_in_sealed_folder, rename_parent, link_parent),
    *(
        assume_unchanged,
        skip_worktree,
        commit_it,
        file_mode_off,
        ignore_rules,
        case_twin,
        case_twin_of_folder,
    ),
    *(harness, startup_file, path_file, attributes, modules, workflow, nested_repository),
    *(repository_over_folder, newline_in_name, escape_in_name, undecodable_name),
    *(replaced_git_file, edited_git_file, linked_git_file, in_the_middle_of_a_merge),
]


async def test_every_attack_on_the_seal_is_refused(repo: MakeRepo, open_bay: OpenBay) -> None:
    passed: dict[str, object] = {}
    async with open_bay(repo(FILES), **VALUES) as bay:
        for number, attack in enumerate(SEALED, 1):
            worktree = await bay.open(number)
            (worktree / "app.py").write_text("COST = 2\n")
            await trio.to_thread.run_sync(attack, worktree)
            refusal = (await bay.collect(number)).refusal
            if not refusal or refusal[0] != "sealed_file_violation" or {"\n", "\x1b"} & set(refusal[1]):
                passed[attack.__name__] = refusal
    assert passed == {}


def ordinary_edit(top: Path) -> None:
    (top / "app.py").write_text("COST = 2\n")


def edit_and_own_commit(top: Path) -> None:
    ordinary_edit(top)
    git(top, "commit", "-qam", "mine")
    (top / "new.py").write_text("n\n")


def ran_everything(top: Path) -> None:
    ordinary_edit(top)
    for folder in ("__pycache__", "judge/__pycache__", ".pytest_cache", ".venv/lib", "node_modules/x"):
        (top / folder).mkdir(parents=True)
        (top / folder / "x.pyc").write_text("x")
    (top / "debug.log").write_text("x\n")
    (top / "build").mkdir()
    (top / "build/out.o").write_text("x\n")
    (top / ".venv/src/dep").mkdir(parents=True)
    git(top / ".venv/src/dep", "init", "-q")


def touched_sealed(top: Path) -> None:
    ordinary_edit(top)
    os.utime(top / "bench.py")
    (top / "bench.py").chmod(0o600)
    text = (top / "judge/check.py").read_text()
    (top / "judge/check.py").unlink()
    (top / "judge/check.py").write_text(text)


def rename(top: Path) -> None:
    (top / "old.py").rename(top / "lib/newer name ü.py")


def folder_for_file(top: Path) -> None:
    (top / "old.py").unlink()
    (top / "old.py").mkdir()
    (top / "old.py/x.py").write_text("x\n")


def file_for_folder(top: Path) -> None:
    shutil.rmtree(top / "lib")
    (top / "lib").write_text("x\n")


def link_outside(top: Path) -> None:
    (top / "link").symlink_to("/etc/passwd")


def program(top: Path) -> None:
    (top / "run.sh").write_text("#!/bin/sh\n")
    (top / "run.sh").chmod(0o755)


def unreadable(top: Path) -> None:
    ordinary_edit(top)
    (top / "app.py").chmod(0)
    (top / "lib").chmod(0)


def empty_folders(top: Path) -> None:
    ordinary_edit(top)
    (top / "judge/empty").mkdir()


HONEST: list[tuple[Callable[[Path], None], tuple[str, ...]]] = [
    (ordinary_edit, ("app.py",)),
    (edit_and_own_commit, ("app.py", "new.py")),
    (ran_everything, ("app.py",)),
    (touched_sealed, ("app.py",)),
    (rename, ("lib/newer name ü.py", "old.py")),
    (folder_for_file, ("old.py", "old.py/x.py")),
    (file_for_folder, ("lib", "lib/part.py")),
    (link_outside, ("link",)),
    (program, ("run.sh",)),
    (unreadable, ("app.py",)),
    (empty_folders, ("app.py",)),
]


async def test_honest_work_is_committed_as_it_lies_there(repo: MakeRepo, open_bay: OpenBay) -> None:
    made = repo(FILES)
    async with open_bay(made, **VALUES) as bay:
        for number, (work, paths) in enumerate(HONEST, 1):
            worktree = await bay.open(number)
            await trio.to_thread.run_sync(work, worktree)
            found = await bay.collect(number)
            assert (work, found.refusal, found.paths) == (work, None, paths)
            assert found.commit
            assert made.git("rev-parse", f"{found.commit}^{{tree}}") == tree_by_git(made, worktree), work
            assert made.git("rev-parse", f"experiment/round_1_executor_{number}") == found.commit
            assert made.git("rev-parse", f"{found.commit}^") == bay.base
            assert made.git("log", "-1", "--format=%B", found.commit).strip() == "experiment(data): try it"


def tree_by_git(made: Repo, worktree: Path) -> str:
    """The oracle: git's own add of the same folder, with an index of its own."""
    index = made.path.parent / "oracle"
    index.unlink(missing_ok=True)
    flags = ["git", f"--git-dir={made.path}/.git", f"--work-tree={worktree}"]
    skipped = [
        f":(exclude,glob)**/{name}/**" for name in (".venv", "node_modules", "__pycache__", ".pytest_cache")
    ]
    env = {**os.environ, "GIT_INDEX_FILE": str(index)}
    for args in (["read-tree", "main"], ["add", "-A", "--", ".", *skipped]):
        subprocess.run([*flags, *args], env=env, check=True, capture_output=True)
    return subprocess.check_output([*flags, "write-tree"], env=env, text=True).strip()


async def test_nothing_done_is_a_logic_error(repo: MakeRepo, open_bay: OpenBay) -> None:
    async with open_bay(repo(FILES)) as bay:
        found = await bay.attempt(lambda top: (top / "x.log").write_text("ignored"))
    assert (found.commit, found.refusal) == (None, ("logic_error", "empty change"))


async def test_refused_edits_are_kept_for_the_archive(repo: MakeRepo, open_bay: OpenBay) -> None:
    made = repo(FILES)
    async with open_bay(made) as bay:
        found = await bay.attempt(edit)
        assert found.commit
        assert made.git("show", f"{found.commit}:bench.py") == "print(0)"
        assert found.diff_stat.startswith("1 file changed")


@pytest.mark.parametrize("on_violation", ["reject", "warn"])
async def test_scope_binds_or_warns(repo: MakeRepo, open_bay: OpenBay, on_violation: str) -> None:
    scope = Scope(include=["lib/"], max_files=1, on_violation=on_violation).model_dump()  # type: ignore[arg-type]
    async with open_bay(repo(FILES), scope=scope) as bay:
        inside = await bay.attempt(lambda top: (top / "lib/part.py").write_text("1\n"), 1)
        outside = await bay.attempt(lambda top: (top / "app.py").write_text("1\n"), 2)
    assert (inside.refusal, inside.findings) == (None, ())
    if on_violation == "warn":
        assert outside.refusal is None
        assert "app.py" in outside.findings[0]
    else:
        assert outside.refusal
        assert outside.refusal[0] == "scope_error"


async def test_too_many_files_and_too_many_bytes(repo: MakeRepo, open_bay: OpenBay) -> None:
    async with open_bay(repo(FILES), scope={"max_files": 1}, limits={"worktree_mb": 1}) as bay:
        many = await bay.attempt(lambda top: [(top / f"{n}.py").write_text("1") for n in range(2)], 1)
        large = await bay.attempt(lambda top: (top / "big").write_bytes(os.urandom(1 << 21)), 2)
    assert many.refusal == ("scope_error", "2 files changed, the scope allows 1: 0.py, 1.py")
    assert large.refusal
    assert large.refusal[0] == "scope_error"
    assert large.commit is None


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


async def test_a_submodule_that_is_left_alone_is_no_change(repo: MakeRepo, open_bay: OpenBay) -> None:
    inner = repo({"f": "x\n"}, name="inner")
    made = repo(FILES)
    made.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner.path), "sub")
    made.commit(None, "Submodule")

    def populate(top: Path) -> None:
        ordinary_edit(top)
        git(top, "-c", "protocol.file.allow=always", "submodule", "update", "--init")

    async with open_bay(made) as bay:
        fine = await bay.attempt(populate, 1)
        filled = await bay.attempt(lambda top: (top / "sub/f").write_text("x\n"), 2)
    assert (fine.refusal, fine.paths) == (None, ("app.py",))
    assert filled.refusal
    assert filled.refusal[0] == "sealed_file_violation"


async def test_a_rework_starts_from_the_candidate_and_is_judged_against_the_base(
    repo: MakeRepo, open_bay: OpenBay
) -> None:
    made = repo(FILES)
    async with open_bay(made) as bay:
        first = await bay.attempt(ordinary_edit)
        path = trio.Path(await bay.workbench.open_worktree(1, "executor_1", bay.base, first.commit))
        assert await (path / "app.py").read_text() == "COST = 2\n"
        await (path / "old.py").write_text("x = 3\n")
        second = await bay.collect()
        assert second.paths == ("app.py", "old.py")
        assert made.git("rev-parse", f"{second.commit}^") == bay.base


async def test_sealed_paths_are_those_that_exist(repo: MakeRepo, open_bay: OpenBay) -> None:
    async with open_bay(repo(FILES), **VALUES) as bay:
        worktree = await bay.open()
        found = await bay.workbench.sealed_paths(str(worktree))
        assert found == (str(worktree / "bench.py"), str(worktree / "judge"))
