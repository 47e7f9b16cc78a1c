"""Where candidates are made and measured: protocols that know commits and trees, not machines.

Role actors and the git-master hold these; the local implementation is beside this file, a pool of
other machines can stand behind the same protocols. All runs of one decision go to one `Bench`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from sid_actors.jobs.job import Mount
from sid_protocol.records import Category
from sid_protocol.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What an executor left in its worktree.

    Attributes:
        commit: The commit of its edits (also of refused ones, for the archive), or None.
        diff_stat: For example `2 files changed, 5 insertions(+), 1 deletion(-)`.
        net_lines: Insertions less deletions.
        paths: The changed paths; of a refused one those that no candidate may change, if that is why.
        refusal: Why it cannot be measured: category and one line; None when it can.
        findings: What scope and detectors warn of or reject for, one line each.
        patch: Fingerprint of the change; empty for what is refused.
        tree: The commit's git tree; empty for what is refused.
    """

    commit: str | None
    diff_stat: str
    net_lines: int
    paths: tuple[str, ...]
    refusal: tuple[Category, str] | None = None
    findings: tuple[str, ...] = ()
    patch: str = ""
    tree: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRun:
    """One benchmark process, as it was: never a judgement.

    Attributes:
        score: The score, or None.
        category: Failure category where there is no score.
        why: One line, with the command's own words where it failed.
        raw: What it printed on stdout, capped, the cap said.
    """

    score: float | None
    status: Literal["success", "error", "timeout"]
    category: Category | None
    why: str
    sub_scores: dict[str, float]
    raw: str
    exit_code: int | None
    started_at: str
    wall_s: float
    cpu_s: float
    load1: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRun:
    """One guard or set-up command's end."""

    command: str
    passed: bool
    output: str
    timed_out: bool


@dataclass(frozen=True, slots=True)
class Company:
    """Who may be at work on the machine during a run.

    Attributes:
        slots: How many benchmarks at a time, this one among them; 1 is to be alone.
        quiet: The agents of other runs stand still.
    """

    slots: int = 1
    quiet: bool = False


ALONE = Company()


class Workbench(Protocol):
    """Worktrees, views and commits of candidates."""

    async def open_worktree(self, iteration: int, executor: str, base: str, start: str | None = None) -> str:
        """Make (or make anew) the worktree and branch of a candidate; return its path.

        Args:
            iteration: The round.
            executor: For example `executor_1`.
            base: The commit of the improvement branch that the candidate is a change of.
            start: Where the worktree begins instead of at `base`: a candidate's commit that is reworked.

        Raises:
            GitError: git failed, or something of the user's is in the way.
        """

    async def sealed_paths(self, worktree: str) -> tuple[str, ...]:
        """Return the absolute sealed paths that exist in a worktree."""

    async def shown_paths(self, worktree: str) -> tuple[Mount, ...]:
        """Return what a sandbox must show in a worktree or view besides it: shared paths, the set-up's result."""

    async def collect(
        self, iteration: int, executor: str, base: str, message: str, settings: Settings
    ) -> Collected:
        """Check and commit what is in the candidate's worktree; the branch points at the commit."""

    async def view(self, commit: str) -> str:
        """Return the path of a read-only checkout of `commit`, for agents that only read."""


class Bench(Protocol):
    """Runs the benchmark and other commands on exactly one tree."""

    async def measure(
        self, tree: str, iteration: int, settings: Settings, company: Company = ALONE
    ) -> BenchRun:
        """Run the benchmark once in a clean checkout of `tree`.

        Raises:
            BenchmarkError: it could not be run at all.
            GitError: the checkout failed.
        """

    async def measure_both(
        self, tree: str, beside: str, iteration: int, settings: Settings, company: Company = ALONE
    ) -> tuple[BenchRun, BenchRun]:
        """Run the benchmark on two trees at once, each at the same path of its own sandbox.

        Raises:
            BenchmarkError: there is no sandbox, or it could not be run at all.
            GitError: a checkout failed.
        """

    async def holdout(
        self, tree: str, iteration: int, settings: Settings, company: Company = ALONE
    ) -> BenchRun:
        """Run the hold-out command once, as `measure` runs the benchmark; raises as it does."""

    async def check(self, tree: str, command: str, iteration: int, settings: Settings) -> CommandRun:
        """Run one guard command in a clean checkout of `tree`."""
