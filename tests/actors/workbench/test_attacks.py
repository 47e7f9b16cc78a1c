"""What a candidate may not do is seen, whatever it does to hide it; what it may do raises no alarm."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import trio

from tests.actors.workbench.attacks import FILES, HONEST, SEALED, VALUES, edit, ordinary_edit
from tests.actors.workbench.conftest import OpenBay
from tests.conftest import MakeRepo
from tests.repos import Repo


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
            assert found.diff_stat == made.git("diff", "--shortstat", bay.base, found.commit).strip()
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


async def test_a_refusal_names_what_none_may_change_and_not_what_else_was_changed(
    repo: MakeRepo, open_bay: OpenBay
) -> None:
    def both(top: Path) -> None:
        edit(top)
        ordinary_edit(top)

    def lie(top: Path) -> None:
        (top / "app.py").write_text("import os\n\nCOST = 2\nos._exit(0)\n")

    def steer(top: Path) -> None:
        (top / "pyproject.toml").write_text("[tool.pytest.ini_options]\naddopts = '-k nothing'\n")

    def wander(top: Path) -> None:
        (top / "lib/part.py").write_text("1\n")
        ordinary_edit(top)

    made = repo({**FILES, "pyproject.toml": "[project]\nname = 'x'\n"})
    async with open_bay(
        made, **{**VALUES, "scope": {"include": ["*.py", "*.toml"], "exclude": ["lib/"]}}
    ) as bay:
        sealed, lying, steering, wandering = [
            await bay.attempt(work, number) for number, work in enumerate((both, lie, steer, wander), 1)
        ]
    assert (sealed.refusal, sealed.paths) == (
        ("sealed_file_violation", "sealed files were changed: bench.py"),
        ("bench.py",),
    )
    # A lesson bars plans from the paths of such refusals: these two files are the program itself.
    assert (lying.refusal or ("",))[0] == (steering.refusal or ("",))[0] == "sealed_file_violation"
    assert lying.paths == steering.paths == ()
    assert (wandering.refusal or ("",))[0] == "scope_error"
    assert wandering.paths == ("lib/part.py",)


@pytest.mark.parametrize("on_violation", ["reject", "warn"])
async def test_scope_binds_or_warns(repo: MakeRepo, open_bay: OpenBay, on_violation: str) -> None:
    scope = {"include": ["lib/"], "max_files": 1, "on_violation": on_violation}
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


async def test_a_submodule_that_is_left_alone_is_no_change(repo: MakeRepo, open_bay: OpenBay) -> None:
    inner = repo({"f": "x\n"}, name="inner")
    made = repo(FILES)
    made.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner.path), "sub")
    made.commit(None, "Submodule")

    async with open_bay(made) as bay:
        fine = await bay.attempt(ordinary_edit, 1)
        filled = await bay.attempt(lambda top: (top / "sub/f").write_text("y\n"), 2)

        def edit_both(top: Path) -> None:
            ordinary_edit(top)
            (top / "sub/new").write_text("y\n")

        both = await bay.attempt(edit_both, 3)
    assert (fine.refusal, fine.paths) == (None, ("app.py",))
    # It was filled for the agent to read; what is edited in there is never committed, so never measured.
    lost = "edits in the submodule sub are left out"
    assert (filled.refusal, filled.commit) == (("logic_error", f"empty change; {lost}"), None)
    assert (fine.findings, both.refusal, both.paths, both.findings) == ((), None, ("app.py",), (lost,))


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
