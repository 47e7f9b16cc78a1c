"""Refs move only from where they were believed to be, tags never, and the user's work never at all."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import time
from pathlib import Path

import pytest
import trio

from sid_actors.git import refs
from sid_actors.git.apply import open_pull_request, push
from sid_actors.git.cli import told
from sid_actors.git.master import Conflict, GitMaster, Head
from sid_actors.git.refs import BranchMovedError, checked_out_at
from sid_actors.git.repository import discover
from sid_actors.jobs import procfs
from sid_protocol.errors import GitError
from tests.conftest import MakeRepo
from tests.repos import Repo

AT = "2026-01-02T03:04:05.000000+00:00"


async def master_of(made: Repo) -> GitMaster:
    return GitMaster(await discover(str(made.path)))


def candidate(made: Repo, start: str, files: dict[str, str]) -> str:
    """A commit on top of another, without touching the checkout's branch."""
    here = made.git("symbolic-ref", "HEAD")
    made.git("checkout", "-q", "--detach", start)
    commit = made.commit(files, "candidate")
    made.git("checkout", "-q", here.removeprefix("refs/heads/"))
    return commit


async def win(master: GitMaster, commit: str, onto: str) -> tuple[str, str]:
    tree = await master.build_merge(commit, onto)
    assert isinstance(tree, str)
    return await master.advance("goal", onto, commit, tree, "Iteration 1: x (score: 1 → 2)\n", AT)


@pytest.mark.parametrize("name", ["repo", "späce & \"quote'", "li\nne"])
async def test_a_repository_is_discovered_from_anywhere_inside(repo: MakeRepo, name: str) -> None:
    made = repo({"a/b.txt": "1"}, name=name)
    info = await discover(str(made.path / "a"))
    assert (info.top, info.common_dir) == (str(made.path), str(made.path / ".git"))
    assert (info.head_branch, info.branches) == ("main", ("main",))
    assert info.identity == ("sid", "sid@localhost")
    made.git("config", "user.name", "Ada")
    made.git("config", "user.email", "ada@example.invalid")
    made.git("worktree", "add", "-q", "--detach", str(made.path.parent / "other"))
    linked = await discover(str(made.path.parent / "other"))
    assert (linked.top, linked.common_dir) == (str(made.path.parent / "other"), info.common_dir)
    assert (linked.head_branch, linked.identity) == (None, ("Ada", "ada@example.invalid"))


async def test_what_cannot_be_worked_on_is_refused_in_one_line_with_a_hint(
    repo: MakeRepo, short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (short_dir / "plain").mkdir()
    bare = repo(name="bare", bare=True)
    empty = repo(name="empty")
    sha256 = short_dir / "sha256"
    sha256.mkdir()
    Repo(sha256).git("init", "-q", "--object-format=sha256")
    newer = repo({"a": "1"}, name="it's newer")
    newer.git("config", "core.repositoryformatversion", "1")
    newer.git("config", "extensions.newkind", "true")
    whole = repo({"a": "1"})
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(short_dir))
    refused = {
        short_dir / "plain": "in no git repository",
        short_dir / "absent": "is not a folder",
        bare.path: "is a bare repository",
        empty.path: "has no commits",
        sha256: "sha256",
        newer.path: "unknown repository extension found: newkind",
        whole.path / ".git": "inside a git directory",
    }
    for path, words in refused.items():
        with pytest.raises(GitError, match=words) as caught:
            await discover(str(path))
        assert caught.value.hint
        assert "\n" not in str(caught.value)
        if path == newer.path:
            assert shlex.split(caught.value.hint) == ["try:", "git", "-C", str(path), "status"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
async def test_another_users_repository_is_refused_until_git_is_told_that_it_is_safe(
    repo: MakeRepo, short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = repo({"a": "1"})
    for path in (made.path, made.path / ".git"):
        os.chown(path, 12345, 12345)
    with pytest.raises(GitError, match="belongs to another user") as caught:
        await discover(str(made.path))
    assert "safe.directory" in caught.value.hint
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(short_dir / "gitconfig"))
    made.git("config", "--global", "safe.directory", "*")
    assert (await discover(str(made.path))).branches == ("main",)


async def test_the_improvement_branch_starts_from_the_target(repo: MakeRepo) -> None:
    made = repo({"a": "1"})
    master = await master_of(made)
    assert await master.ensure_branch("goal", "main") == made.head
    made.commit({"a": "2"})
    assert await master.ensure_branch("goal", "main") != made.head
    with pytest.raises(GitError, match="no branch master") as caught:
        await master.ensure_branch("other", "master")
    assert "main" in caught.value.hint
    made.git("branch", "improve-x")
    made.git("branch", "-m", "improve/goal", "saved")
    made.git("branch", "improve")
    with pytest.raises(GitError, match="leaves no room"):
        await master.ensure_branch("goal", "main")
    made.git("branch", "-m", "improve", "experiment")
    with pytest.raises(GitError, match="the branch experiment leaves no room for experiment/round_1"):
        await master.ensure_branch("goal", "main")
    made.git("branch", "-D", "experiment")
    made.git("tag", "-a", "-m", "mine", "archive")
    with pytest.raises(GitError, match="the tag archive leaves no room for archive/round_1") as refused:
        await master.ensure_branch("goal", "main")
    for command in refused.value.hint.removeprefix("rename it: git ").split(" && git "):
        made.git(*command.split())
    await master.ensure_branch("goal", "main")


async def test_our_folders_are_excluded_once(repo: MakeRepo) -> None:
    made = repo({"a": "1"})
    exclude = made.path / ".git/info/exclude"
    exclude.write_text("mine")
    exclude.chmod(0o640)
    master = await master_of(made)
    await master.exclude_ours()
    await master.exclude_ours()
    assert exclude.read_text() == "mine\n/.sid/\n/worktrees/\n"
    assert exclude.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in exclude.parent.iterdir()] == ["exclude"]


async def test_a_branch_that_somebody_moved_is_never_overwritten(repo: MakeRepo) -> None:
    made = repo({"a": "1", "b": "1"})
    master = await master_of(made)
    base = await master.ensure_branch("goal", "main")
    commit = candidate(made, base, {"a": "2"})
    moved = candidate(made, base, {"b": "2"})
    made.git("update-ref", "refs/heads/improve/goal", moved)
    with pytest.raises(BranchMovedError) as caught:
        await win(master, commit, base)
    assert (caught.value.expected, caught.value.actual) == (base, moved)
    assert made.git("rev-parse", "improve/goal") == moved
    made.git("update-ref", "-d", "refs/heads/improve/goal")
    with pytest.raises(BranchMovedError):
        await win(master, commit, base)
    assert "improve/goal" not in made.branches()


async def test_of_two_winners_at_once_one_loses(repo: MakeRepo) -> None:
    made = repo({"a": "1", "b": "1"})
    master = await master_of(made)
    base = await master.ensure_branch("goal", "main")
    commits = [candidate(made, base, {name: "2"}) for name in ("a", "b")]
    ended: list[str] = []

    async def run(commit: str) -> None:
        try:
            await win(master, commit, base)
            ended.append("won")
        except BranchMovedError:
            ended.append("moved")

    async with trio.open_nursery() as nursery:
        for commit in commits:
            nursery.start_soon(run, commit)
    assert sorted(ended) == ["moved", "won"]


async def test_merges_are_built_without_a_checkout(repo: MakeRepo) -> None:
    made = repo({"a": "1\n2\n3\n", "b": "1\n"})
    master = await master_of(made)
    base = await master.ensure_branch("goal", "main")
    one = candidate(made, base, {"a": "1\n2\n4\n"})
    other = candidate(made, base, {"b": "2\n"})
    clash = candidate(made, base, {"a": "1\n2\n5\n"})
    before = made.fingerprint()
    merge, _ = await win(master, one, base)
    assert made.git("rev-parse", f"{merge}^{{tree}}") == made.git("rev-parse", f"{one}^{{tree}}")
    assert await master.build_merge(clash, merge) == Conflict(("a",))
    second, ref = await win(master, other, merge)
    assert made.git("show", f"{ref}:a") == "1\n2\n4"
    assert made.git("show", f"{ref}:b") == "2"
    assert made.git("log", "--first-parent", "--format=%H", "improve/goal").split() == [second, merge, base]
    assert made.git("log", "-1", "--format=%aI", merge) == "2026-01-02T03:04:05+00:00"
    assert made.fingerprint() == before


async def test_the_same_win_again_is_the_same_commit(repo: MakeRepo) -> None:
    made = repo({"a": "1"})
    master = await master_of(made)
    base = await master.ensure_branch("goal", "main")
    commit = candidate(made, base, {"a": "2"})
    first = await win(master, commit, base)
    assert await win(master, commit, base) == first
    made.git("update-ref", "refs/heads/improve/goal", base)  # as if the move had not happened before a crash
    assert await win(master, commit, base) == first


async def test_wins_wait_on_a_ref_of_ours_while_the_user_has_the_branch(repo: MakeRepo) -> None:
    made = repo({"a": "1"})
    master = await master_of(made)
    base = await master.ensure_branch("goal", "main")
    made.git("checkout", "-q", "improve/goal")
    made.write({"a": "mine"})
    before = made.fingerprint()
    commit = candidate_elsewhere(made, base, {"a": "2"})
    merge, ref = await win(master, commit, base)
    assert ref == "refs/sid/goal"
    assert await win(master, commit, base) == (merge, ref)
    second, ref = await win(master, candidate_elsewhere(made, merge, {"a": "3"}), merge)
    assert await master.head("goal") == Head(second, on_side_ref=True)
    assert made.git("rev-parse", "improve/goal") == base
    assert made.fingerprint() == before
    made.git("checkout", "-q", "-f", "main")
    assert await master.head("goal") == Head(second, on_side_ref=False)
    assert made.git("rev-parse", "improve/goal") == second
    assert made.git("for-each-ref", "refs/sid") == ""


async def test_a_free_branch_follows_with_the_next_win(repo: MakeRepo) -> None:
    made = repo({"a": "1"})
    master = await master_of(made)
    base = await master.ensure_branch("goal", "main")
    made.git("checkout", "-q", "improve/goal")
    first, _ = await win(master, candidate_elsewhere(made, base, {"a": "2"}), base)
    made.git("checkout", "-q", "main")
    second, ref = await win(master, candidate_elsewhere(made, first, {"a": "3"}), first)
    assert ref == "refs/heads/improve/goal"
    assert made.git("rev-parse", "improve/goal") == second
    assert made.git("for-each-ref", "refs/sid") == ""


async def test_what_the_user_committed_on_the_branch_is_never_lost(repo: MakeRepo) -> None:
    made = repo({"a": "1", "b": "1"})
    master = await master_of(made)
    base = await master.ensure_branch("goal", "main")
    made.git("checkout", "-q", "improve/goal")
    first, _ = await win(master, candidate_elsewhere(made, base, {"a": "2"}), base)
    mine = made.commit({"b": "mine"})
    made.git("checkout", "-q", "main")
    assert await master.head("goal") == Head(mine, on_side_ref=False)
    with pytest.raises(BranchMovedError):
        await win(master, candidate_elsewhere(made, first, {"a": "3"}), first)
    assert made.git("rev-parse", "improve/goal") == mine
    assert made.git("rev-parse", "refs/sid/goal") == first


def candidate_elsewhere(made: Repo, start: str, files: dict[str, str]) -> str:
    """A commit made without any checkout."""
    tree = {line.split("\t")[1]: line.split("\t")[0] for line in made.git("ls-tree", start).splitlines()}
    for name, text in files.items():
        tree[name] = f"100644 blob {made.git('hash-object', '-w', '--stdin', data=text)}"
    lines = "\n".join(f"{entry}\t{name}" for name, entry in tree.items())
    made_tree = made.git("mktree", data=f"{lines}\n")
    return made.git("commit-tree", made_tree, "-p", start, "-m", "candidate")


def test_where_a_branch_is_in_use(repo: MakeRepo) -> None:
    made = repo({"a": "1"})
    common = str(made.path / ".git")
    other = made.path.parent / "ö ther"
    made.git("worktree", "add", "-q", "-b", "side", str(other))
    assert checked_out_at(common, "main") == [str(made.path)]
    assert checked_out_at(common, "side") == [str(other)]
    Repo(other).commit({"a": "2"})
    made.commit({"a": "3"})
    with pytest.raises(AssertionError):
        Repo(other).git("rebase", "main")
    assert checked_out_at(common, "side") == [str(other)]
    Repo(other).git("rebase", "--abort")
    other.rename(other.parent / "unplugged")
    assert checked_out_at(common, "side") == []


async def test_tags_are_never_moved(repo: MakeRepo) -> None:
    made = repo({"a": "1"})
    master = await master_of(made)
    one, two = (candidate(made, made.head, {"a": text}) for text in "23")
    made.git("tag", "archive/round_1_executor_1", made.head)
    assert await master.archive("default", 1, "executor_1", one) == "archive/round_1_executor_1-2"
    assert await master.archive("default", 1, "executor_1", two) == "archive/round_1_executor_1-3"
    assert await master.archive("default", 1, "executor_1", one) == "archive/round_1_executor_1-2"
    assert await master.archive("speed", 1, "executor_1", one) == "archive/speed/round_1_executor_1"
    assert made.git("rev-parse", "archive/round_1_executor_1") == made.head
    assert made.git("rev-parse", "archive/round_1_executor_1-3") == two


async def test_a_candidates_branch_is_deleted_unless_the_user_looks_at_it(repo: MakeRepo) -> None:
    made = repo({"a": "1"})
    master = await master_of(made)
    for number in (1, 2):
        made.git("branch", f"experiment/round_1_executor_{number}")
    made.git("worktree", "add", "-q", str(made.path.parent / "look"), "experiment/round_1_executor_2")
    assert await master.delete_branch("default", 1, "executor_1")
    assert await master.delete_branch("default", 1, "executor_1")
    assert not await master.delete_branch("default", 1, "executor_2")
    assert made.branches() == ["experiment/round_1_executor_2", "main"]


def lock_of(made: Repo, ref: str, made_at: float | None = None) -> Path:
    """A lock file, as who writes a ref makes it."""
    lock = made.path / ".git" / f"{ref}.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.touch()
    if made_at is not None:
        os.utime(lock, (made_at, made_at))
    return lock


async def test_a_ref_that_somebody_writes_is_waited_for(
    repo: MakeRepo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refs, "LOCK_WAIT_S", 60.0)
    made = repo({"a": "1"})
    master = await master_of(made)
    made.git("branch", "experiment/round_1_executor_1")
    made.git("pack-refs", "--all")
    tag, branch = lock_of(made, "refs/tags/archive/round_1_executor_1"), lock_of(made, "packed-refs")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(master.archive, "default", 1, "executor_1", made.head)
        nursery.start_soon(master.delete_branch, "default", 1, "executor_1")
        await trio.sleep(0.1)
        tag.unlink()
        branch.unlink()
    assert made.git("rev-parse", "archive/round_1_executor_1") == made.head
    assert made.branches() == ["main"]


async def test_a_ref_that_is_held_is_named_and_its_lock_left_alone(
    repo: MakeRepo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refs, "LOCK_WAIT_S", 0.05)
    made = repo({"a": "1"})
    master = await master_of(made)
    lock = lock_of(made, "refs/heads/improve/goal")
    with pytest.raises(GitError, match=re.escape(f"{lock} is held by another process")):
        await master.ensure_branch("goal", "main")
    assert await master.drop_dead_locks() == []
    assert lock.exists()


@pytest.mark.parametrize(
    "made_at", [1.7e9, 1.7e10], ids=["before this process", "before a clock was set back"]
)
async def test_a_lock_that_a_killed_daemon_left_is_removed(
    repo: MakeRepo, monkeypatch: pytest.MonkeyPatch, made_at: float
) -> None:
    monkeypatch.setattr(refs, "LOCK_WAIT_S", 0.05)
    made = repo({"a": "1"})
    master = await master_of(made)
    lock_of(made, "refs/heads/improve/goal", made_at)
    assert await master.ensure_branch("goal", "main") == made.head

    names = ("heads/improve/goal", "heads/experiment/t/round_1_executor_1", "tags/archive/x", "sid/goal")
    dead = [str(lock_of(made, f"refs/{name}", made_at)) for name in names]
    theirs = [lock_of(made, f"refs/{name}", made_at) for name in ("heads/main", "tags/v1")]
    assert await master.drop_dead_locks() == sorted(dead)
    assert all(lock.exists() for lock in theirs), "a lock of a ref that is not ours"


async def test_the_diff_is_what_the_branch_changes(repo: MakeRepo) -> None:
    made = repo({"a": "1\n"})
    made.git("config", "diff.external", "false")
    master = await master_of(made)
    base = await master.ensure_branch("goal", "main")
    await win(master, candidate(made, base, {"ü": "2\n"}), base)
    made.commit({"a": "elsewhere\n"})
    diff = await master.diff("main", "goal")
    assert "+2" in diff
    assert "elsewhere" not in diff
    with pytest.raises(GitError, match="no branch nowhere") as missing:
        await master.diff("nowhere", "goal")
    assert "main" in missing.value.hint


async def test_push_runs_no_hook_and_reports_in_a_line(repo: MakeRepo) -> None:
    made = repo({"a": "1"})
    origin = repo(name="origin", bare=True)
    made.write({".git/hooks/pre-push": "#!/bin/sh\nexit 1\n"})
    (made.path / ".git/hooks/pre-push").chmod(0o755)
    master = await master_of(made)
    base = await master.ensure_branch("goal", "main")
    failed = await push(master, "goal", "", base)
    assert failed.startswith("Push to origin failed: git push failed:")
    assert "\n" not in failed
    made.git("remote", "add", "origin", str(origin.path))
    assert await push(master, "goal", "", base) == "Pushed improve/goal to origin"
    assert origin.git("rev-parse", "improve/goal") == base
    secret = await push(master, "goal", "https://me:token@localhost:1/x.git", base)
    assert "token" not in secret
    assert "failed" in secret


async def test_a_pull_request_goes_through_gh(repo: MakeRepo, monkeypatch: pytest.MonkeyPatch) -> None:
    made = repo({"a": "1"})
    tools = made.path.parent / "bin"
    tools.mkdir()
    gh = tools / "gh"
    gh.write_text('#!/bin/sh\necho "$@" > "$HOME/asked"\necho https://example.invalid/pull/1\n')
    gh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    master = await master_of(made)
    line = await open_pull_request(master, "goal", "main", "me/repo", "Title", "Body")
    assert line == "Opened a pull request: https://example.invalid/pull/1"
    asked = (Path.home() / "asked").read_text()
    assert asked == "pr create --head improve/goal --base main --title Title --body Body --repo me/repo\n"
    gh.write_text("#!/bin/sh\necho no auth >&2\nexit 4\n")
    assert await open_pull_request(master, "goal", "main", "", "T", "B") == "PR creation failed: no auth"


def test_what_was_there_before_a_process_is_older_than_it() -> None:
    for _ in range(40):
        before = time.time()
        with subprocess.Popen(["sleep", "60"]) as process:
            try:
                assert procfs.started_at(process.pid) >= before
            finally:
                process.kill()


def test_a_filter_that_is_not_installed_is_named() -> None:
    said = "git-lfs filter-process: 1: git-lfs: not found\nfatal: the remote end hung up unexpectedly\n"
    assert told(said) == " ".join(said.split())
    assert told("hint: do this\nfatal: bad\n") == "fatal: bad"
