"""One candidate from worktree to win, and the user's own things left alone all the while."""

from __future__ import annotations

from pathlib import Path

import pytest

from sid_actors.git.master import GitMaster
from sid_actors.git.repository import discover
from tests.actors.workbench.conftest import OpenBay
from tests.conftest import MakeRepo
from tests.repos import Repo

FILES = {
    "app.py": "COST = 10\n",
    "bench.py": "from app import COST\nprint(COST)\n",
    "sub dir/ünï.txt": "text\n",
    "run.sh": "#!/bin/sh\n",
}
AT = "2026-01-02T03:04:05.000000+00:00"


def plant_hooks(repo: Repo) -> Path:
    """Hooks, filters and monitors that leave a trace if anything ever runs them."""
    trace = repo.path.parent / "trace"
    script = f"#!/bin/sh\necho $0 >> '{trace}'\ncat\n"
    for name in (
        *("pre-commit", "post-checkout", "post-commit", "reference-transaction", "post-index-change"),
        *("prepare-commit-msg", "commit-msg", "pre-push", "post-merge", "pre-merge-commit", "post-rewrite"),
    ):
        repo.write({f".git/hooks/{name}": script})
        (repo.path / ".git/hooks" / name).chmod(0o755)
    monitor = repo.path.parent / "monitor"
    monitor.write_text(script)
    monitor.chmod(0o755)
    for key in ("core.fsmonitor", "diff.external", "gpg.program"):
        repo.git("config", key, str(monitor))
    repo.git("config", "commit.gpgSign", "true")
    return trace


def dirty(repo: Repo) -> None:
    repo.write({"app.py": "COST = 99\n", "new file": "mine\n"})
    repo.git("add", "new file")


def other_branch(repo: Repo) -> None:
    repo.git("checkout", "-q", "-b", "user/work")
    repo.write({"app.py": "COST = 1234\n"})


def detached(repo: Repo) -> None:
    repo.git("checkout", "-q", "--detach")


def stashed(repo: Repo) -> None:
    repo.write({"app.py": "COST = 77\n"})
    repo.git("stash")


def own_worktree(repo: Repo) -> None:
    repo.git("worktree", "add", "-q", "-b", "mine", str(repo.path / "worktrees" / "mine"))
    (repo.path / "worktrees/mine/app.py").write_text("COST = 5\n")


@pytest.mark.parametrize("state", [dirty, other_branch, detached, stashed, own_worktree])
async def test_a_round_leaves_the_user_alone(repo: MakeRepo, open_bay: OpenBay, state) -> None:
    made = repo(FILES, name="späce y\tx")
    trace = plant_hooks(made)
    state(made)
    await GitMaster(await discover(str(made.path))).exclude_ours()  # hides worktrees/ from the user's status
    before = made.fingerprint()
    branch = made.git("rev-parse", "main")
    trace.unlink(missing_ok=True)

    async with open_bay(made) as bay:
        bay.base = await bay.master.ensure_branch("goal", "main")
        worktree = await bay.open()
        assert (worktree / "sub dir/ünï.txt").read_text() == "text\n"
        (worktree / "app.py").write_text("COST = 3\n")
        found = await bay.collect()
        assert found.refusal is None
        assert found.diff_stat == "1 file changed, 1 insertion(+), 1 deletion(-)"
        assert (found.net_lines, found.paths) == (0, ("app.py",))
        assert found.commit
        assert (await bay.bench.measure(bay.base, 1, bay.settings)).score == 10.0
        measured = await bay.bench.measure(found.commit, 1, bay.settings)
        assert (measured.score, measured.status) == (3.0, "success")
        guard = await bay.bench.check(found.commit, "test -f app.py && echo fine", 1, bay.settings)
        assert (guard.passed, guard.output) == (True, "fine")
        tree = await bay.master.build_merge(found.commit, bay.base)
        assert isinstance(tree, str)
        merge, ref = await bay.master.advance("goal", bay.base, found.commit, tree, "Iteration 1: x\n", AT)
        assert ref == "refs/heads/improve/goal"
        assert await bay.master.advance("goal", bay.base, found.commit, tree, "again\n", AT) == (merge, ref)
        tag = await bay.master.archive("default", 1, "executor_1", found.commit)
        view = Path(await bay.workbench.view(merge))
        assert (view / "app.py").read_text() == "COST = 3\n"

    assert not trace.exists(), trace.read_text()
    assert made.git("rev-parse", "main") == branch
    assert made.git("rev-parse", "improve/goal^2") == found.commit
    assert made.tags() == [tag]
    assert made.fingerprint() == before
    assert not (made.path / ".sid/topics/default/pool").exists()
    mine = [made.path / "worktrees/mine"] if state is own_worktree else []
    assert made.worktrees() == mine
