"""What leaves the improvement branch, at the user's word only: apply, push, pull request.

`sictl apply` ends in `apply`: the target branch takes the improvement over by fast-forward or merge. Where the
target branch is checked out, that checkout is updated as `git merge` would, and only if no file to be changed
has uncommitted changes; elsewhere the ref alone moves, by compare-and-swap. Push and pull request run at a
round's end where the settings ask for them; their failure is a line for the user, never an error of the run.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import pygit2
import trio

from sid_actors.git import refs
from sid_actors.git.cli import git, told, without_credentials
from sid_actors.git.master import GitMaster
from sid_actors.git.repository import metadata_lock
from sid_actors.git.trees import open_repository
from sid_actors.jobs.job import JobLimits, JobSpec
from sid_actors.jobs.process import run_job
from sid_protocol.errors import GitError, Refused
from sid_protocol.ids import improve_branch
from sid_protocol.locations import shell_word

PUSH_DEADLINE_S = 120.0
_PASSED = ("PATH", "HOME", "USER", "XDG_CONFIG_HOME", "GH_TOKEN", "GITHUB_TOKEN", "GH_HOST", "GH_CONFIG_DIR")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyPlan:
    """What `apply` would do.

    Attributes:
        kind: `nothing`, `fast_forward` or `merge`.
        target_branch: The branch that takes the improvement over.
        old: Its commit now.
        head: The improvement's commit.
        checkout: The folder where the target branch is checked out, or None.
        diff: The patch.
    """

    kind: str
    target_branch: str
    goal_slug: str
    old: str
    head: str
    checkout: str | None
    diff: str


@dataclass(frozen=True, slots=True)
class Applied:
    """What `apply` did: the target branch's commit now, and the one command that undoes it."""

    commit: str
    undo: str


async def plan_apply(master: GitMaster, target_branch: str, goal_slug: str) -> ApplyPlan:
    """Look at what `apply` would do, without doing it.

    Raises:
        GitError: one of the branches does not exist.
        Refused: the target branch is checked out in several worktrees.
    """
    head = (await master.head(goal_slug)).commit
    diff = await master.diff(target_branch, goal_slug)

    def look() -> ApplyPlan:
        repo = open_repository(master.info.common_dir)
        old = refs.target(repo, f"refs/heads/{target_branch}")
        if old is None:
            raise GitError(f"there is no branch {target_branch}", hint="sictl config set target_branch NAME")
        base = repo.merge_base(pygit2.Oid(hex=old), pygit2.Oid(hex=head))
        kind = "merge" if base is None or str(base) != old else "fast_forward"
        if base is not None and str(base) == head:
            kind = "nothing"
        places = refs.checked_out_at(master.info.common_dir, target_branch)
        if len(places) > 1 and kind != "nothing":
            raise Refused(
                f"{target_branch} is checked out in {len(places)} worktrees",
                hint=f"run there: {_merge_command(places[0], head)}",
            )
        return ApplyPlan(
            kind=kind,
            target_branch=target_branch,
            goal_slug=goal_slug,
            old=old,
            head=head,
            checkout=places[0] if places else None,
            diff=diff,
        )

    return await trio.to_thread.run_sync(look)


async def apply(master: GitMaster, plan: ApplyPlan) -> Applied:
    """Carry out a plan.

    Raises:
        GitError: the branches conflict, or the target branch moved since the plan; nothing was changed.
        Refused: the checkout has uncommitted changes in what would change; the hint is the command to run.
    """
    if plan.kind == "nothing":
        return Applied(plan.old, "true")
    new = plan.head if plan.kind == "fast_forward" else await _merge(master, plan)
    repository = shell_word(master.info.top)
    ref = f"refs/heads/{plan.target_branch}"
    if plan.checkout is None:
        async with metadata_lock(master.info.common_dir):
            await trio.to_thread.run_sync(_move, master.info.common_dir, ref, plan.old, new)
        return Applied(new, f"git -C {repository} update-ref {shell_word(ref)} {plan.old} {new}")
    await _check_place(plan)
    flags = ("--ff-only", "--no-autostash", "--no-stat", "--no-verify-signatures", "--quiet")
    # Not to be ended half-way, by whatever happens to the daemon or to who asked for it.
    with trio.CancelScope(shield=True):
        done = await git("merge", *flags, new, cwd=plan.checkout, expect=range(256), outlives=True)
    if done.code:
        files = [line.strip() for line in done.err.splitlines() if line.startswith("\t")]
        why = f"uncommitted changes in {', '.join(files[:5])}" if files else told(done.err)
        raise Refused(
            f"the checkout of {plan.target_branch} cannot be updated: {why}",
            hint=f"commit or stash them, then: {_merge_command(plan.checkout, plan.head)}",
        )
    return Applied(new, f"git -C {shell_word(plan.checkout)} reset --keep {plan.old}")


async def push(master: GitMaster, goal_slug: str, fork_url: str, commit: str) -> str:
    """Push the improvement to `fork_url`, else `origin`: no prompt, no hook, a deadline; return a line."""
    branch = improve_branch(goal_slug)
    remote = fork_url or "origin"
    shown = without_credentials(remote)
    try:
        await git(
            "push",
            "--no-verify",
            "--quiet",
            "--end-of-options",
            remote,
            f"{commit}:refs/heads/{branch}",
            cwd=master.info.top,
            deadline_s=PUSH_DEADLINE_S,
        )
    except GitError as error:
        return f"Push to {shown} failed: {error.message}"
    return f"Pushed {branch} to {shown}"


async def open_pull_request(
    master: GitMaster, goal_slug: str, target_branch: str, upstream_url: str, title: str, body: str
) -> str:
    """Open a pull request with `gh`, at `upstream_url`, else where `origin` is; return a line."""
    where = ("--repo", upstream_url) if upstream_url else ()
    passed = {name: value for name in _PASSED if (value := os.environ.get(name)) is not None}
    spec = JobSpec(
        argv=(
            *("gh", "pr", "create", "--head", improve_branch(goal_slug), "--base", target_branch),
            *("--title", title, "--body", body, *where),
        ),
        cwd=master.info.top,
        env={**passed, "GH_PROMPT_DISABLED": "1", "NO_COLOR": "1", "GIT_TERMINAL_PROMPT": "0"},
        deadline_s=PUSH_DEADLINE_S,
        limits=JobLimits(processes=None),
        sandbox=None,
    )
    result = await run_job(spec)
    if result.exit_code == 0 and not result.timed_out:
        return f"Opened a pull request: {result.stdout.last_line() or ''}"
    if result.timed_out:
        return f"PR creation failed: gh did not end within {PUSH_DEADLINE_S:.0f} s"
    said = result.stderr.last_line() or f"exit code {result.exit_code}"
    return f"PR creation failed: {without_credentials(said)[:300]}"


async def _merge(master: GitMaster, plan: ApplyPlan) -> str:
    """Return a merge commit of the two branches, which no ref holds yet."""

    def build() -> str:
        repo = open_repository(master.info.common_dir)
        ours, theirs = pygit2.Oid(hex=plan.old), pygit2.Oid(hex=plan.head)
        index = repo.merge_commits(ours, theirs)
        if index.conflicts is not None:
            sides = (entry for conflict in index.conflicts for entry in conflict)
            paths = sorted({entry.path for entry in sides if entry})
            raise GitError(
                f"{improve_branch(plan.goal_slug)} conflicts with {plan.target_branch} in "
                f"{', '.join(paths[:5])}; nothing was changed",
                hint=f"merge by hand: {_merge_command(master.info.top, plan.head)}",
            )
        signature = pygit2.Signature(*master.info.identity)
        message = f"Merge branch '{improve_branch(plan.goal_slug)}' into {plan.target_branch}\n"
        tree = index.write_tree(repo)
        return str(repo.create_commit(None, signature, signature, message, tree, [ours, theirs]))

    return await trio.to_thread.run_sync(build)


async def _check_place(plan: ApplyPlan) -> None:
    """Make sure that the checkout is where the plan found it, and not in the middle of something."""
    if plan.checkout is None:
        return
    branch = await git("symbolic-ref", "--quiet", "HEAD", cwd=plan.checkout, expect=(0, 1))
    commit = await git("rev-parse", "HEAD", cwd=plan.checkout)
    if branch.line != f"refs/heads/{plan.target_branch}":
        raise Refused(
            f"{plan.checkout} is in the middle of a rebase or on another branch by now",
            hint="finish that first, then: sictl apply",
        )
    if commit.line != plan.old:
        raise refs.BranchMovedError(branch.line, plan.old, commit.line)


def _move(common_dir: str, ref: str, old: str, new: str) -> None:
    refs.move(open_repository(common_dir), ref, old, new, "sid: apply")


def _merge_command(folder: str, commit: str) -> str:
    return f"git -C {shell_word(folder)} merge {commit}"
