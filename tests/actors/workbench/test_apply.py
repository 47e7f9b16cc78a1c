"""Apply changes the target branch as `git merge` would, or nothing at all; what it prints undoes it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from sid_actors.git.apply import Applied, apply, plan_apply
from sid_actors.git.master import GitMaster
from sid_actors.git.refs import BranchMovedError
from sid_actors.git.repository import discover
from sid_protocol.errors import GitError, Refused
from tests.actors.workbench.test_git_master import candidate_elsewhere, win
from tests.conftest import MakeRepo
from tests.repos import Repo


async def improved(made: Repo, files: dict[str, str]) -> tuple[GitMaster, str]:
    master = GitMaster(await discover(str(made.path)))
    base = await master.ensure_branch("goal", "main")
    commit, _ = await win(master, candidate_elsewhere(made, base, files), base)
    return master, commit


async def carried_out(master: GitMaster) -> Applied:
    return await apply(master, await plan_apply(master, "main", "goal"))


def undo(applied: Applied) -> None:
    subprocess.run(applied.undo, shell=True, check=True, capture_output=True)


def plant(made: Repo) -> Path:
    trace = made.path.parent / "trace"
    for name in ("post-merge", "pre-merge-commit", "post-checkout", "reference-transaction"):
        made.write({f".git/hooks/{name}": f"#!/bin/sh\necho {name} >> '{trace}'\n"})
        (made.path / ".git/hooks" / name).chmod(0o755)
    return trace


async def test_a_clean_checkout_follows_and_can_be_taken_back(repo: MakeRepo) -> None:
    made = repo({"a": "1", "b": "1"}, name="my repo")
    old = made.head
    master, commit = await improved(made, {"a": "2"})
    trace = plant(made)
    plan = await plan_apply(master, "main", "goal")
    assert (plan.kind, plan.checkout) == ("fast_forward", str(made.path))
    assert "+2" in plan.diff
    applied = await apply(master, plan)
    assert applied.commit == commit == made.git("rev-parse", "main")
    assert (made.path / "a").read_text() == "2"
    assert made.git("status", "--porcelain") == ""
    assert not trace.exists()
    undo(applied)
    assert (made.git("rev-parse", "main"), (made.path / "a").read_text()) == (old, "1")


async def test_changes_elsewhere_in_the_checkout_are_kept(repo: MakeRepo) -> None:
    made = repo({"a": "1", "b": "1", "c": "1"})
    made.git("config", "merge.autoStash", "true")
    master, _ = await improved(made, {"a": "2"})
    made.write({"b": "mine", "new": "mine"})
    made.git("add", "b")
    made.write({"c": "mine"})
    applied = await carried_out(master)
    assert {name: (made.path / name).read_text() for name in ("a", "b", "c", "new")} == {
        "a": "2",
        "b": "mine",
        "c": "mine",
        "new": "mine",
    }
    assert made.git("status", "--porcelain") == "M  b\n M c\n?? new"
    assert made.git("stash", "list") == ""
    undo(applied)
    assert (made.path / "a").read_text() == "1"
    assert made.git("status", "--porcelain") == " M b\n M c\n?? new"  # as `reset --keep` leaves it: unstaged


@pytest.mark.parametrize("how", ["edited", "staged", "untracked", "merging"])
async def test_a_file_in_the_way_refuses_and_changes_nothing(repo: MakeRepo, how: str) -> None:
    made = repo({"a": "1", "b": "1"})
    master, commit = await improved(made, {"a": "2", "n": "2"})
    match how:
        case "edited":
            made.write({"a": "mine"})
        case "staged":
            made.write({"a": "mine"})
            made.git("add", "a")
        case "untracked":
            made.write({"n": "mine"})
        case "merging":
            made.write({".git/MERGE_HEAD": f"{commit}\n"})
    before = made.fingerprint()
    with pytest.raises(Refused) as caught:
        await carried_out(master)
    assert f"git -C {made.path} merge {commit}" in caught.value.hint
    assert "\n" not in str(caught.value)
    assert made.fingerprint() == before


async def test_a_target_that_went_on_gets_a_merge(repo: MakeRepo) -> None:
    made = repo({"a": "1", "b": "1"})
    master, commit = await improved(made, {"a": "2"})
    mine = made.commit({"b": "2"})
    plan = await plan_apply(master, "main", "goal")
    assert plan.kind == "merge"
    applied = await apply(master, plan)
    assert made.git("rev-parse", "main^1", "main^2").split() == [mine, commit]
    assert ((made.path / "a").read_text(), (made.path / "b").read_text()) == ("2", "2")
    undo(applied)
    assert made.head == mine


async def test_a_conflict_changes_nothing(repo: MakeRepo) -> None:
    made = repo({"a": "1"})
    master, _ = await improved(made, {"a": "2"})
    made.commit({"a": "3"})
    before = made.fingerprint()
    with pytest.raises(GitError, match="conflicts with main in a; nothing was changed"):
        await carried_out(master)
    assert made.fingerprint() == before


async def test_elsewhere_the_ref_alone_moves(repo: MakeRepo) -> None:
    made = repo({"a": "1"})
    old = made.head
    made.git("checkout", "-q", "-b", "work")
    master, commit = await improved(made, {"a": "2"})
    made.write({"a": "mine"})
    before = made.fingerprint()
    plan = await plan_apply(master, "main", "goal")
    applied = await apply(master, plan)
    assert (plan.checkout, made.git("rev-parse", "main")) == (None, commit)
    assert made.fingerprint() == before
    with pytest.raises(BranchMovedError):
        await apply(master, plan)
    undo(applied)
    assert made.git("rev-parse", "main") == old


async def test_the_checkout_of_another_worktree_is_updated(repo: MakeRepo) -> None:
    made = repo({"a": "1"})
    made.git("checkout", "-q", "-b", "work")
    other = Repo(made.path.parent / "other wt")
    made.git("worktree", "add", "-q", str(other.path), "main")
    master, _ = await improved(made, {"a": "2"})
    before = made.fingerprint()
    undo_it = await carried_out(master)
    assert (other.path / "a").read_text() == "2"
    assert other.git("status", "--porcelain") == ""
    assert made.fingerprint() == before
    undo(undo_it)
    assert (other.path / "a").read_text() == "1"


async def test_a_checkout_in_the_middle_of_a_rebase_is_left_alone(repo: MakeRepo) -> None:
    made = repo({"a": "1"})
    master, _ = await improved(made, {"b": "2"})
    made.git("branch", "other")
    made.commit({"a": "2"})
    made.git("checkout", "-q", "other")
    made.commit({"a": "3"})
    made.git("checkout", "-q", "main")
    with pytest.raises(AssertionError):
        made.git("rebase", "other")
    with pytest.raises(Refused, match="in the middle of a rebase"):
        await carried_out(master)


async def test_nothing_to_do_and_nowhere_to_go(repo: MakeRepo) -> None:
    made = repo({"a": "1"})
    master, _ = await improved(made, {"a": "2"})
    await carried_out(master)
    assert (await plan_apply(master, "main", "goal")).kind == "nothing"
    with pytest.raises(GitError):
        await plan_apply(master, "nowhere", "goal")


async def test_wins_that_wait_on_our_ref_are_applied_too(repo: MakeRepo) -> None:
    made = repo({"a": "1"})
    master = GitMaster(await discover(str(made.path)))
    base = await master.ensure_branch("goal", "main")
    made.git("checkout", "-q", "improve/goal")
    commit, ref = await win(master, candidate_elsewhere(made, base, {"a": "2"}), base)
    assert ref == "refs/sid/goal"
    assert (await carried_out(master)).commit == commit == made.git("rev-parse", "main")
