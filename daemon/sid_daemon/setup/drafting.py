"""What set-up works with: a repository behind a protocol, and the draft of a track from flags and files.

Used by `intake`. Drafting reads the user's files and decides nothing; writing happens once all checks are passed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pydantic import JsonValue

from sid_actors.backends.model.keys import has_key
from sid_actors.git.repository import RepoInfo, tracked_links
from sid_actors.workbench.base import BenchRun, CommandRun
from sid_actors.workbench.local import printable
from sid_daemon import track_config
from sid_daemon.core.state import RunState
from sid_daemon.goal import read_families, read_objective, read_rules, render_goal, render_harness
from sid_daemon.setup import gate
from sid_protocol.errors import Refused
from sid_protocol.ids import topic_slug
from sid_protocol.locations import topic_of, track_command, track_root
from sid_protocol.params import InitParams
from sid_protocol.settings import (
    TRUSTED_KEYS,
    Settings,
    check_family_count,
    parse_file,
    refuse_unknown,
)


class Site(Protocol):
    """A repository as set-up needs it; the composition root provides the real one."""

    info: RepoInfo

    async def target_commit(self, branch: str) -> str:
        """Return the commit of a branch; raises `GitError` where there is none."""

    async def improve_head(self, slug: str) -> str | None:
        """Return the head of an improvement branch, or None where it is missing."""

    async def sealed(self, commit: str, settings: Settings) -> tuple[tuple[str, ...], bool]:
        """Return the sealed paths of a commit, and whether anything editable is left in scope."""

    async def check(self, settings: Settings) -> str:
        """Return how jobs will be contained; raises `Refused` or `UsageError` where they cannot run."""

    def estimate(self, settings: Settings) -> str:
        """Return what models will cost, one line; empty without any."""

    async def measure(self, commit: str, settings: Settings) -> BenchRun:
        """Run the benchmark once on a commit."""

    async def guards_red(self, commit: str, settings: Settings) -> list[CommandRun]:
        """Return how the guard commands that fail on a commit ended."""

    async def give_up_round(self, state: RunState) -> None:
        """Archive the candidates of a round that was stopped and is taken back, and delete its branches."""

    async def exclude_ours(self) -> None:
        """Keep our folders out of `git status`; raises `GitError` where that cannot be written."""

    async def make_branch(self, slug: str, target_branch: str) -> None:
        """Create the improvement branch if it is missing."""

    async def close(self) -> None:
        """Remove what measuring left."""


class OpenSite(Protocol):
    """Opens a repository for set-up."""

    async def __call__(self, path: str, root: str | None, topic: str) -> Site:
        """Look at a repository; raises `GitError` where it cannot be worked on."""


@dataclass(frozen=True, slots=True)
class Draft:
    """What `init` is about to make."""

    root: Path
    topic: str
    raw: dict[str, JsonValue]
    settings: Settings
    objective: str
    harness: str
    fresh_goal: bool


def find_root(repo: str, topic: str | None, root: str | None) -> Path:
    """Return the root of a track, existing or new, unless what the repository itself brings along leads it elsewhere; blocks.

    Raises:
        GitError: the repository cannot be read.
        Refused: the repository holds a link on the way there, or below it.
    """
    found = track_root(repo, topic, root, lambda path: Path(path).is_dir())
    if links := tracked_links(repo, found):
        raise Refused(
            f"the repository holds a link in the place of the run's files: {printable(links[0])}",
            hint="take it out of the repository, or name a folder of your own: --root DIR",
        )
    return Path(found)


def default_branch(info: RepoInfo) -> str:
    """Return the target branch of a track whose flags name none."""
    if "main" in info.branches:
        return "main"
    return info.head_branch or info.branches[0]


def trusts(settings: Settings) -> dict[str, Any]:
    """Return the settings that trust covers, as data."""
    return settings.model_dump(mode="json", include=set(TRUSTED_KEYS))


def draft_of(root: Path, params: InitParams, default_branch: str) -> Draft:
    """Draft a track from what is there and the flags; blocks for some small files."""
    present = track_config.read_raw(root)
    raw = gate.merged_settings(present, params, default_branch, has_key=has_key())
    for key in params.set:
        refuse_unknown(key)
    settings = parse_file(raw)
    goal_text = track_config.read_text(root, "goal.md") or ""
    known = read_objective(goal_text)
    objective = (params.objective or "").strip() or known
    harness = track_config.read_text(root, "harness.md")
    if harness is None or params.rule or params.family:
        rules = (*read_rules(harness or ""), *params.rule)
        families = (*read_families(harness or ""), *gate.families_of(params))
        harness = render_harness(tuple(dict.fromkeys(rules)), tuple(dict.fromkeys(families)))
    check_family_count(settings, tuple(name for name, _ in read_families(harness)))
    return Draft(
        root=root,
        topic=topic_slug(params.topic or topic_of(str(root)) or str(raw.get("topic_slug", ""))),
        raw=raw,
        settings=settings,
        objective=objective,
        harness=harness,
        fresh_goal=bool(params.objective) and objective != known,
    )


def write_config(draft: Draft) -> None:
    """Write the user's files of a track, keeping what is theirs; blocks."""
    track_config.write_raw(draft.root, draft.raw)
    if draft.fresh_goal or track_config.read_text(draft.root, "goal.md") is None:
        goal = gate.goal_of(draft.settings, draft.objective)
        track_config.write_text(draft.root, "goal.md", render_goal(goal))
    track_config.write_text(draft.root, "harness.md", draft.harness)
    if track_config.read_text(draft.root, "idea.md") is None:
        track_config.write_text(draft.root, "idea.md", "")


def checked_config(root: Path, repo: str) -> track_config.TrackConfig:
    """Read a track's files and refuse one without a benchmark; blocks."""
    read = track_config.read_config(root)
    if not read.settings.benchmark_command.strip():
        how = track_command("init", repo, str(root), "--benchmark CMD --trust")
        raise Refused(f"{repo} has no benchmark", hint=f"name one: {how}")
    return read
