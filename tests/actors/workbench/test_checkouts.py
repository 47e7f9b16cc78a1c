"""Worktrees come and go; what is not of this run is reported and left alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from sid_protocol.errors import GitError
from tests.actors.workbench.conftest import OpenBay
from tests.conftest import MakeRepo
from tests.repos import Repo

FILES = {"app.py": "COST = 10\n", "a\nb/c d\u00fc.txt": "x\n", "bench.py": "print(1)\n"}


async def test_a_worktree_is_a_whole_ordinary_one(repo: MakeRepo, open_bay: OpenBay) -> None:
    made = repo(FILES)
    async with open_bay(made) as bay:
        worktree = await bay.open()
        assert (worktree / "a\nb/c dü.txt").read_text() == "x\n"
        assert Repo(worktree).git("status", "--porcelain") == ""
        assert Repo(worktree).git("symbolic-ref", "--short", "HEAD") == "experiment/round_1_executor_1"
        assert made.worktrees() == [worktree]
    assert made.worktrees() == []
    assert not (made.path / "worktrees").exists()


async def test_a_topic_has_its_own_names(repo: MakeRepo, open_bay: OpenBay) -> None:
    made = repo(FILES)
    async with open_bay(made, topic="speed") as bay:
        worktree = await bay.open()
        assert worktree == made.path / "worktrees/speed/round_1_executor_1"
        assert "experiment/speed/round_1_executor_1" in made.branches()
        assert await bay.workbench.worktrees.clean({"executor_1"}, 1, ()) == []
        assert worktree.exists()
    assert not (made.path / "worktrees").exists()


async def test_making_it_anew_leaves_nothing_of_before(repo: MakeRepo, open_bay: OpenBay) -> None:
    made = repo(FILES)
    async with open_bay(made) as bay:
        first = await bay.attempt(lambda top: (top / "left.py").write_text("x"))
        worktree = await bay.open()
        assert not (worktree / "left.py").exists()
        assert made.git("rev-parse", "experiment/round_1_executor_1") == bay.base != first.commit
        (worktree / "locked").mkdir()
        (worktree / "locked/f").write_text("x")
        (worktree / "locked").chmod(0)
        await bay.open()


@pytest.mark.parametrize("kind", ["folder", "file", "link", "dangling", "branch", "worktrees"])
async def test_what_is_in_the_way_is_refused_and_kept(repo: MakeRepo, open_bay: OpenBay, kind: str) -> None:
    made = repo(FILES)
    path = made.path / "worktrees/round_1_executor_1"
    if kind != "worktrees":
        path.parent.mkdir()
    match kind:
        case "folder":
            made.git("worktree", "add", "-q", "-b", "mine", str(path))
        case "file":
            path.write_text("mine")
        case "link":
            path.symlink_to(made.path)
        case "dangling":
            path.symlink_to("nowhere")
        case "branch":
            made.git("branch", "experiment/round_1_executor_1")
        case "worktrees":
            path.parent.write_text("mine")
    before = [made.worktrees(), made.git("for-each-ref", "refs/heads/experiment")]
    async with open_bay(made) as bay:
        with pytest.raises(GitError, match="in the way") as caught:
            await bay.open()
        assert caught.value.hint
        assert "\n" not in str(caught.value)
        assert (await bay.open(2)).exists() if kind != "worktrees" else True
    assert [made.worktrees(), made.git("for-each-ref", "refs/heads/experiment")][0] == before[0]
    assert kind in ("branch", "worktrees") or path.is_symlink() or path.exists()


async def test_a_dead_daemons_worktrees_are_removed_by_the_records_alone(
    repo: MakeRepo, open_bay: OpenBay
) -> None:
    made = repo(FILES)
    worktrees = made.path / "worktrees"
    root = made.path / ".sid/topics/default"
    for number in (1, 2, 3, 4):
        mark = ["--lock", "--reason", f"sid: {root}"] if number < 3 else []
        path = worktrees / f"round_1_executor_{number}"
        made.git("worktree", "add", "-q", *mark, "-b", f"b{number}", str(path))
    elsewhere = made.path.parent / "unplugged"
    made.git("worktree", "add", "-q", "-b", "away", str(elsewhere))
    elsewhere.rename(made.path.parent / "taken away")
    (worktrees / "notes").mkdir()
    pool = root / "pool"
    (pool / "trash-1/deep").mkdir(parents=True)
    async with open_bay(made) as bay:
        # The fourth has a name of this run's, but this run did not make it.
        known = [f"round_1_executor_{number}" for number in (1, 2, 4, 9)]
        notes = await bay.workbench.worktrees.clean({"executor_2"}, 1, known)
        left = [worktrees / f"round_1_executor_{number}" for number in (3, 4)]
        assert notes == [f"{path} is not of this run and was left alone" for path in left]
        assert await bay.workbench.worktrees.clean({"executor_2"}, 1, known) == notes
        assert not (worktrees / "round_1_executor_1").exists()
        assert (worktrees / "round_1_executor_2").exists()
        assert elsewhere in made.worktrees()  # git would forget it on a prune
        worktree = await bay.open(1)
        assert worktree.exists()
    assert not pool.exists()
    assert sorted(path.name for path in worktrees.iterdir()) == [
        "notes",
        "round_1_executor_3",
        "round_1_executor_4",
    ]


@pytest.mark.parametrize("lock", [None, "", "sid: ", "whole"])
async def test_what_a_daemon_left_that_was_killed_while_it_told_git_is_forgotten(
    repo: MakeRepo, open_bay: OpenBay, lock: str | None
) -> None:
    made = repo(FILES)
    admin = made.path / ".git/worktrees"
    mark = f"sid: {made.path}/.sid/topics/default\n"
    async with open_bay(made) as bay:
        for name in ("round_1_executor_1", "of the users"):
            (admin / name).mkdir(parents=True)
            if lock is not None:
                (admin / name / "locked").write_text(mark if lock == "whole" else lock)
        assert (await bay.open(1)).exists()
        await bay.workbench.worktrees.clean((), 1, ["round_1_executor_1"])
        left = {path.name for path in admin.iterdir()}
    assert left == (set() if lock == "whole" else {"of the users"})


async def test_many_at_once(repo: MakeRepo, open_bay: OpenBay) -> None:
    made = repo(FILES)

    async def live(number: int) -> None:
        for _ in range(2):
            await bay.attempt(lambda top: (top / "n.py").write_text(str(number)), number)
        await bay.master.delete_branch("default", 1, f"executor_{number}")

    async with open_bay(made) as bay, trio.open_nursery() as nursery:
        for number in range(1, 7):
            nursery.start_soon(live, number)
    assert made.worktrees() == []
    assert made.branches() == ["improve/goal", "main"]
    made.git("fsck", "--strict")


def names_in(folder: str) -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir())


async def test_a_view_shows_one_commit(repo: MakeRepo, open_bay: OpenBay) -> None:
    made = repo(FILES)
    async with open_bay(made) as bay:
        first = await bay.workbench.view(bay.base)
        found = await bay.attempt(lambda top: (top / "app.py").rename(top / "new.py"))
        assert found.commit
        assert names_in(first) == ["a\nb", "app.py", "bench.py"]
        assert names_in(await bay.workbench.view(found.commit)) == ["a\nb", "bench.py", "new.py"]
        assert made.worktrees() == [made.path / "worktrees/round_1_executor_1"]


async def test_a_sparse_checkout_of_the_users_changes_nothing_for_candidates(
    repo: MakeRepo, open_bay: OpenBay
) -> None:
    made = repo({**FILES, "far/x.py": "x\n"})
    made.git("sparse-checkout", "set", "near")
    before = made.fingerprint()
    async with open_bay(made) as bay:
        found = await bay.attempt(lambda top: (top / "far/x.py").write_text("y\n"))
        assert found.paths == ("far/x.py",)
        run = await bay.bench.measure(bay.base, 1, bay.settings)
        assert run.score == 1.0
    assert made.fingerprint() == before
