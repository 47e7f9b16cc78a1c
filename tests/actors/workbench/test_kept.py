"""Kept checkouts: whoever gets one finds exactly the commit, whatever the one before did in it."""

# ruff: noqa: ASYNC240 -- nothing else is to happen while a test looks at a folder

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest
import trio

from sid_actors.git.repository import discover
from sid_actors.workbench.checkouts.pool import PlainCheckout
from sid_actors.workbench.local import LocalWorkbench
from sid_protocol.errors import GitError
from tests.actors.workbench.conftest import OpenBay, settings_of
from tests.actors.workbench.leavings import FILES, LEAVINGS, look
from tests.conftest import MakeRepo
from tests.repos import Repo


def fresh(made: Repo, commit: str) -> dict[str, tuple[object, ...]]:
    """The oracle: git's own checkout of a commit."""
    folder = made.path.parent / f"fresh-{commit}"
    made.git("worktree", "add", "-q", "--detach", str(folder), commit)
    try:
        return look(folder)
    finally:
        made.git("worktree", "remove", "--force", str(folder))


@pytest.mark.parametrize("walled", [False, True])
async def test_no_candidate_leaves_anything_to_the_next(
    repo: MakeRepo, open_bay: OpenBay, *, walled: bool
) -> None:
    made = repo(FILES)
    other = made.commit({"lib/part.py": "y = 4\n", "lib/more.py": "m\n"})
    expected = {commit: fresh(made, commit) for commit in (f"{other}~", other)}
    folders: set[int] = set()
    async with open_bay(made, sandboxed=walled) as bay:
        for number, leave in enumerate(LEAVINGS, 1):
            worktree = await bay.open(1, number)
            folders.add(worktree.stat().st_ino)
            await trio.to_thread.run_sync(leave, worktree)
            await bay.workbench.worktrees.clean((), number, ())
            assert not worktree.exists()
            start = made.git("rev-parse", f"{other}~" if number % 2 else other)
            await bay.workbench.view(start)
            again = Path(await bay.workbench.open_worktree(number, "executor_2", start))
            folders.add(again.stat().st_ino)
            assert look(again) == expected[f"{other}~" if number % 2 else other], leave.__name__
            assert Repo(again).git("status", "--porcelain", "--ignored") == "", leave.__name__
            await bay.workbench.worktrees.clean((), number, ())
        assert len(folders) < len(LEAVINGS)  # it is the same few, over and over


async def test_what_was_done_to_gits_own_files_goes_with_the_candidate(
    repo: MakeRepo, open_bay: OpenBay
) -> None:
    made = repo(FILES)
    made.git("config", "extensions.worktreeConfig", "true")
    async with open_bay(made) as bay:
        worktree = Repo(await bay.open(1, 1))
        admin = Path(worktree.git("rev-parse", "--absolute-git-dir"))
        clean = sorted(path.name for path in admin.iterdir())
        worktree.git("update-index", "--assume-unchanged", "app.py")
        worktree.git("update-index", "--skip-worktree", "lib/part.py")
        worktree.git("config", "--worktree", "core.fsmonitor", "touch /tmp/owned")
        worktree.git("sparse-checkout", "set", "lib")
        worktree.git("update-ref", "refs/worktree/mine", "HEAD")
        (admin / "MERGE_HEAD").write_text(f"{bay.base}\n")
        await bay.workbench.worktrees.clean((), 1, ())
        again = Repo(await bay.open(1, 2))
        admin = Path(again.git("rev-parse", "--absolute-git-dir"))
        assert sorted(path.name for path in admin.iterdir()) == clean
        assert (
            again.git("ls-files", "-v").replace("H ", "").splitlines() == again.git("ls-files").splitlines()
        )
        (again.path / "app.py").write_text("COST = 3\n")
        assert again.git("status", "--porcelain") == " M app.py"


async def test_a_kept_tree_follows_the_improvement_branch(repo: MakeRepo, open_bay: OpenBay) -> None:
    made = repo(FILES)
    first = made.head
    for name in ("app.py", "lib/part.py"):
        (made.path / name).unlink()
    (made.path / "lib/part.py").mkdir()
    (made.path / "app.py").symlink_to("lib/deep/er.py")
    (made.path / "lib/deep/er.py").chmod(0o755)
    second = made.commit({"lib/part.py/now a folder": "x\n", "new/\u00e9\n.txt": b"\xff\0"})
    async with open_bay(made) as bay:
        inodes = set()
        for number, commit in enumerate((first, second, first, second), 1):
            worktree = Path(await bay.workbench.open_worktree(number, "executor_1", commit))
            inodes.add(worktree.stat().st_ino)
            assert look(worktree) == fresh(made, commit)
            assert Repo(worktree).git("status", "--porcelain", "--ignored") == ""
            assert Repo(worktree).git("write-tree") == made.git("rev-parse", f"{commit}^{{tree}}")
            await bay.workbench.worktrees.clean((), number, ())
        assert len(inodes) == 1


@pytest.mark.parametrize("attributes", ["* text eol=crlf\n", "*.py ident\n", "lib/** filter=loud\n"])
async def test_converted_files_are_gits_to_write(repo: MakeRepo, open_bay: OpenBay, attributes: str) -> None:
    made = repo({**FILES, "app.py": "# $Id$\n"})
    plain = made.head
    made.git("config", "filter.loud.smudge", "tr a-z A-Z")
    made.git("config", "filter.loud.clean", "tr A-Z a-z")
    made.commit({".gitattributes": attributes})
    changed = made.commit({"app.py": "# $Id$\nCOST = 2\n", "lib/part.py": "w = 2\n"})
    async with open_bay(made, scope={"include": ["**"]}) as bay:
        for number, commit in enumerate((plain, f"{changed}~", changed, plain, changed), 1):
            start = made.git("rev-parse", commit)
            worktree = Path(await bay.workbench.open_worktree(number, "executor_1", start))
            assert look(worktree) == fresh(made, commit), number
            assert Repo(worktree).git("status", "--porcelain") == ""
            await bay.workbench.worktrees.clean((), number, ())


async def test_benchmarks_leave_nothing_to_each_other(repo: MakeRepo) -> None:
    made = repo(FILES)
    first = made.head
    second = made.commit({"app.py": "COST = 5\n", "lib/x/y.py": "new\n"})
    expected = {commit: fresh(made, commit) for commit in (first, second)}
    checkout = PlainCheckout(f"{made.path}/.git", str(made.path.parent / "bench"))
    folder = Path(checkout.folder)
    await checkout.fill(first)
    inode = folder.stat().st_ino
    for number, leave in enumerate(LEAVINGS):
        if leave.__name__ != "git_replaced":  # there is none
            await trio.to_thread.run_sync(leave, folder)
        commit = (first, second)[number // 2 % 2]
        await checkout.fill(commit)
        assert look(folder) == expected[commit], leave.__name__
    assert folder.stat().st_ino == inode


async def test_a_path_that_git_refuses_is_never_written(repo: MakeRepo) -> None:
    made = repo(FILES)
    blob = made.git("hash-object", "-w", "--stdin", data="evil\n")
    inner = made.git("mktree", data=f"100644 blob {blob}\tconfig\n")
    good = made.git("ls-tree", "HEAD")
    evil = made.git("mktree", data=f"{good}\n040000 tree {inner}\t.GIT\n040000 tree {inner}\t..\n")
    checkout = PlainCheckout(f"{made.path}/.git", str(made.path.parent / "bench"))
    await checkout.fill(made.head)
    with pytest.raises(GitError):
        await checkout.fill(evil)
    assert not (made.path.parent / "config").exists()
    await checkout.fill(made.head)
    assert look(Path(checkout.folder)) == fresh(made, made.head)


async def test_a_killed_daemons_trees_are_gone_at_the_next_start(repo: MakeRepo, open_bay: OpenBay) -> None:
    made = repo(FILES)
    root = made.path / ".sid/topics/default"
    (root / "pool/tree-1/left").mkdir(parents=True)
    (root / "pool/tree-1.index").write_text("x")
    (root / "pool-gone-1/deep").mkdir(parents=True)
    for name in ("round_1_executor_1", "round_1_executor_7"):
        path = made.path / "worktrees" / name
        made.git("worktree", "add", "-q", "--lock", "--reason", f"sid: {root}", "-b", name, str(path))
        shutil.rmtree(path)
    half = made.path / ".git/worktrees/round_1_executor_8"  # killed between two files
    half.mkdir()
    (half / "locked").write_text(f"sid: {root}\n")
    users = made.path.parent / "users"
    made.git("worktree", "add", "-q", "--lock", "--reason", "on a stick", "-b", "users", str(users))
    users.rename(made.path.parent / "unplugged")
    async with open_bay(made) as bay:
        assert await bay.workbench.worktrees.clean((), 1, ["round_1_executor_1"]) == []
        assert made.worktrees() == [users]
        assert not half.exists()
        assert look(await bay.open()) == fresh(made, bay.base)
    assert made.worktrees() == [users]
    assert not (root / "pool").exists()
    assert not list(root.glob("pool-gone-*"))


async def test_what_is_deleted_by_hand_is_made_anew(repo: MakeRepo, open_bay: OpenBay) -> None:
    made = repo(FILES)
    async with open_bay(made, sandboxed=True) as bay:
        shutil.rmtree(await bay.open(1, 1))
        await bay.workbench.worktrees.clean((), 1, ())
        assert look(await bay.open(1, 2)) == fresh(made, bay.base)
        await bay.workbench.worktrees.clean((), 2, ())
        shutil.rmtree(made.path / ".sid/topics/default/pool")
        assert look(await bay.open(1, 3)) == fresh(made, bay.base)


async def test_a_folder_put_in_a_worktrees_place_is_left_alone(repo: MakeRepo, open_bay: OpenBay) -> None:
    made = repo(FILES)
    async with open_bay(made) as bay:
        worktree = await bay.open(1, 1)
        made.git("worktree", "remove", "--force", "--force", str(worktree))
        worktree.mkdir(parents=True)
        (worktree / "mine").write_text("mine")
        await bay.workbench.worktrees.clean((), 1, ())
        assert (worktree / "mine").read_text() == "mine"
        assert look(await bay.open(1, 2)) == fresh(made, bay.base)
    assert (worktree / "mine").read_text() == "mine"


async def test_a_pool_on_another_disk_is_copied_from(repo: MakeRepo) -> None:
    made = repo(FILES)
    for parent in ("/dev/shm", "/tmp", "/var/tmp"):
        if os.access(parent, os.W_OK) and Path(parent).stat().st_dev != made.path.stat().st_dev:
            break
    else:
        pytest.skip("there is one file system only")
    info = await discover(str(made.path))
    settings = settings_of()
    with tempfile.TemporaryDirectory(dir=parent) as root:
        async with trio.open_nursery() as nursery:
            bench = LocalWorkbench(info, root, "default", settings=lambda: settings, nursery=nursery)
            for number in (1, 2):
                worktree = Path(await bench.open_worktree(number, "executor_1", made.head))
                assert look(worktree) == fresh(made, made.head)
                (worktree / "app.py").write_text("COST = 1\n")
                found = await bench.collect(number, "executor_1", made.head, "Try\n", settings)
                assert found.paths == ("app.py",)
                await bench.worktrees.clean((), number, ())
                assert not worktree.exists()
            await bench.close()
        assert not (Path(root) / "pool").exists()


async def test_an_object_that_goes_away_while_a_tree_is_prepared_is_an_error_of_git(repo: MakeRepo) -> None:
    made = repo(FILES)
    other = made.commit({"lib/part.py": "y = 4\n"})
    checkout = PlainCheckout(str(made.path / ".git"), str(made.path.parent / "checkout"), indexed=True)
    await checkout.fill(made.git("rev-parse", f"{other}~"))
    blob = made.git("rev-parse", f"{other}:lib/part.py")
    (made.path / ".git/objects" / blob[:2] / blob[2:]).unlink()

    # Trees are prepared in the background, where no other error is expected: the daemon would leave.
    with pytest.raises(GitError):
        await checkout.fill(other)
