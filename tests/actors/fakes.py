"""Small stand-ins for what role actors hold: a track, a workbench and a back end, all in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sid_actors.backends.base import Answer, Turn
from sid_actors.jobs.job import Mount
from sid_actors.track import Attempt, Told
from sid_actors.watching.activity import ActivityLog
from sid_actors.workbench.base import Collected
from sid_protocol.errors import GitError
from sid_protocol.records import FAMILIES, IterationHistory, Plan, ResearchBrief
from sid_protocol.settings import Settings

PLAN = Plan(
    plan_id="round_2_planner_a",
    planner_id="planner_a",
    round=2,
    hypothesis="Caching f halves the work, since it is called twice.",
    approach_family="optimization",
    target_files=["app.py"],
    steps=[{"step": 1, "file": "app.py", "change": "cache f"}],
)


LEFT = Collected(commit="c1", diff_stat="1 file changed", net_lines=2, paths=("app.py",))


@dataclass
class FakeTrack:
    """What an agent may know of a run; all of it plain attributes."""

    repo: str = "/repo"
    root: str = "/repo/.sid/topics/default"
    run_id: str = "run-1"
    topic: str = "default"
    settings: Settings = field(default_factory=Settings)
    goal: str = "# Goal\n\nMake it faster."
    rules: tuple[str, ...] = ()
    families: tuple[str, ...] = FAMILIES
    sealed: tuple[str, ...] = ()
    ideas: tuple[str, ...] = ()
    brief: ResearchBrief | None = None
    streak_family: str | None = None
    winner_families: tuple[str | None, ...] = ()
    best_score: float | None = 10.0
    past: list[IterationHistory] = field(default_factory=list)
    tried: list[Attempt] = field(default_factory=list)
    learned: list[tuple[tuple[str, ...], Told]] = field(default_factory=list)
    ladder: str | None = None
    page: str = ""

    async def memory(self) -> str:
        return self.page

    def lessons(self, role: str) -> tuple[Told, ...]:
        return tuple(told for roles, told in self.learned if role in roles)

    async def history(self, last: int) -> list[IterationHistory]:
        return self.past[-last:]

    async def attempts(self, last: int) -> list[Attempt]:
        return [one for one in self.tried if one.iteration > self.tried[-1].iteration - last]


@dataclass
class FakeWorkbench:
    """Worktrees by name; `left` is what an executor will be found to have left."""

    left: Collected = LEFT
    broken: str = ""
    hint: str = "mend it"
    opened: list[tuple[Any, ...]] = field(default_factory=list)

    async def open_worktree(self, iteration: int, executor: str, base: str, start: str | None = None) -> str:
        if self.broken:
            raise GitError(self.broken, hint=self.hint)
        self.opened.append((iteration, executor, base, start))
        return f"/worktrees/round_{iteration}_{executor}"

    async def sealed_paths(self, worktree: str) -> tuple[str, ...]:
        return (f"{worktree}/bench.py",)

    async def shown_paths(self, worktree: str) -> tuple[Mount, ...]:
        return (Mount(f"{worktree}/.venv", source="/shared/.venv"),)

    async def collect(
        self, iteration: int, executor: str, base: str, message: str, settings: Settings
    ) -> Collected:
        return self.left

    async def view(self, commit: str) -> str:
        if self.broken:
            raise GitError(self.broken, hint=self.hint)
        return f"/views/{commit}"


@dataclass
class FakeBackend:
    """Answers every turn with what `say` returns, or raises what it raises."""

    say: Callable[[Turn], Answer | str]
    turns: list[Turn] = field(default_factory=list)

    async def answer(self, turn: Turn, activity: ActivityLog) -> Answer:
        self.turns.append(turn)
        said = self.say(turn)
        return Answer(said) if isinstance(said, str) else said
