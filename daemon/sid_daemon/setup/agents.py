"""The agents of set-up: one asks the user about the goal, one writes a benchmark where there is none.

The methods `setup.clarify` and `setup.benchmark`. Both are one cold turn of the back end that the track would have, on a
read-only checkout, and only once the user has confirmed that this agent may look at this repository. Neither decides
anything: the answers go back to the user, and `run.init` validates, asks for trust and seals as ever. A benchmark is kept
by its content under the daemon's state directory, out of every agent's reach, and its command checks the
content at every run.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import trio

from sid_actors.backends.base import Backend, Turn
from sid_actors.backends.command.adapter import CommandBackend
from sid_actors.backends.model.anthropic_api import AnthropicBackend
from sid_actors.backends.model.purse import Purse
from sid_actors.backends.parse import parse_answer
from sid_actors.git.repository import RepoInfo
from sid_actors.jobs import scratch
from sid_actors.prompts.setup import SetupRole, setup_prompt
from sid_actors.track import Attempt, Told
from sid_actors.watching.activity import ActivityLog
from sid_actors.workbench.checkouts.pool import PlainCheckout
from sid_actors.workbench.sandbox.bwrap import Sandbox
from sid_actors.workbench.sandbox.toolchain import find_toolchain
from sid_daemon.setup.drafting import OpenSite, default_branch, draft_of, find_root
from sid_daemon.setup.site import Machine
from sid_daemon.store.files import write_whole
from sid_protocol.errors import BackendError, Refused
from sid_protocol.ids import topic_slug
from sid_protocol.params import SetupParams
from sid_protocol.records import FAMILIES, Cost, IterationHistory, Record, ResearchBrief
from sid_protocol.settings import Settings
from sid_protocol.setup_answers import FILE, BuiltBenchmark, Clarification
from sid_protocol.status import BenchmarkDraft, ClarifyResult

R = TypeVar("R", bound=Record)
ATTEMPTS = 2
"""A turn that failed is repeated once."""


@dataclass(frozen=True)
class SetupTrack:
    """What an agent may know where there is no run yet: the settings, and nothing else."""

    repo: str
    root: str
    settings: Settings
    topic: str = "default"
    run_id: str = "setup"
    goal: str = ""
    rules: tuple[str, ...] = ()
    families: tuple[str, ...] = FAMILIES
    sealed: tuple[str, ...] = ()
    ideas: tuple[str, ...] = ()
    brief: ResearchBrief | None = None
    streak_family: str | None = None
    winner_families: tuple[str | None, ...] = ()
    best_score: float | None = None
    ladder: str | None = None

    def lessons(self, _role: str) -> tuple[Told, ...]:
        """Return nothing: no round has taught anything."""
        return ()

    async def memory(self) -> str:
        """Return nothing."""
        return ""

    async def history(self, _last: int) -> list[IterationHistory]:
        """Return nothing."""
        return []

    async def attempts(self, _last: int) -> list[Attempt]:
        """Return nothing."""
        return []


class SetupAgents:
    """Asks the agents of set-up.

    Args:
        open_site: Opens repositories.
        machine: What this machine can do.
        state_dir: Where benchmarks are kept.
    """

    def __init__(self, open_site: OpenSite, machine: Machine, state_dir: Path) -> None:
        self._open_site = open_site
        self._machine = machine
        self._state_dir = state_dir

    def handlers(self) -> Mapping[str, Callable[[Any, Any], Awaitable[Any]]]:
        """Return method → what carries it out."""
        return {"setup.clarify": self.clarify, "setup.benchmark": self.benchmark}

    async def clarify(self, params: SetupParams, _call: object) -> ClarifyResult:
        """`setup.clarify`."""
        said, cost = await self._asked(params, "goal_clarifier", Clarification)
        return ClarifyResult(
            question=said.question.strip(),
            scores=said.scores.model_dump(include={"objective", "metric", "target", "scope"}),
            objective=said.objective,
            direction=said.direction,
            target=said.target,
            scope=said.scope,
            **_spent(cost),
        )

    async def benchmark(self, params: SetupParams, _call: object) -> BenchmarkDraft:
        """`setup.benchmark`."""
        built, cost = await self._asked(params, "benchmark_builder", BuiltBenchmark)
        digest = hashlib.sha256(built.text.encode()).hexdigest()
        path = self._state_dir / "benchmarks" / digest[:16] / built.file
        await trio.to_thread.run_sync(write_whole, path, built.text.encode())
        place = shlex.quote(str(path))
        check = f"echo {shlex.quote(f'{digest}  {path}')} | sha256sum --check --status"
        changed = "echo 'the benchmark was changed since it was trusted' >&2"
        return BenchmarkDraft(
            file=str(path),
            text=built.text,
            command=f"{{ {check} || {{ {changed}; false; }}; }} && {built.run.replace(FILE, place)}",
            paths=[str(path.parent)],
            format=built.format,
            direction=built.direction,
            why=built.why,
            **_spent(cost),
        )

    async def _asked(self, params: SetupParams, role: SetupRole, model: type[R]) -> tuple[R, Cost]:
        if not params.confirmed:
            raise Refused(
                "an agent would read the repository", hint="confirm it: sictl init asks on a terminal"
            )
        site = await self._open_site(params.repo, params.root, topic_slug(params.topic or ""))
        root = await trio.to_thread.run_sync(find_root, site.info.top, params.topic, params.root)
        draft = await trio.to_thread.run_sync(draft_of, root, params, default_branch(site.info))
        settings = draft.settings
        if settings.agent_backend not in ("anthropic", "command"):
            raise Refused(
                f"the {settings.agent_backend} back end has nobody to ask",
                hint="name one that has: --backend anthropic, or --agent claude",
            )
        await site.check(settings)
        commit = await site.target_commit(settings.target_branch)
        schema = model.model_json_schema()
        known = {
            "Objective": draft.objective,
            "Benchmark": settings.benchmark_command,
            "Direction": params.direction or "",
            "Target": "" if params.target is None else repr(params.target),
            "Scope": ", ".join(params.scope),
        }
        prompt = setup_prompt(role, known, [(one.question, one.answer) for one in params.answers], schema)
        folder = await trio.to_thread.run_sync(scratch.make, "setup")
        try:
            await PlainCheckout(site.info.common_dir, f"{folder}/view").fill(commit)
            turn = Turn(
                role=role,
                agent_id=role,
                iteration=0,
                prompt=prompt,
                schema=schema,
                cwd=f"{folder}/view",
                deadline_s=settings.deadlines.researcher,
                track=SetupTrack(repo=site.info.top, root=str(root), settings=settings),
            )
            return await self._answered(await self._backend(site.info, settings), turn, model)
        finally:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(lambda: shutil.rmtree(folder, ignore_errors=True))

    async def _answered(self, backend: Backend, turn: Turn, model: type[R]) -> tuple[R, Cost]:
        spent = Cost()
        for attempt in range(1, ATTEMPTS + 1):
            activity = ActivityLog()
            try:
                with trio.fail_after(turn.deadline_s):
                    answer = await backend.answer(turn, activity)
                return parse_answer(answer.text, model), spent + answer.cost
            except trio.TooSlowError:
                raise BackendError(f"the {turn.role} gave no answer in {turn.deadline_s:g} s") from None
            except BackendError:
                spent += activity.cost
                if attempt == ATTEMPTS:
                    raise
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _backend(self, info: RepoInfo, settings: Settings) -> Backend:
        path, home = os.environ.get("PATH", os.defpath), os.environ.get("HOME", "/")
        tools = await trio.to_thread.run_sync(lambda: find_toolchain(path, home=home))
        enclose = Sandbox if self._machine.contained(settings) else None
        if settings.agent_backend == "command":
            return CommandBackend(
                repo=info.top,
                enclose=enclose,
                path=tools.path,
                readable=tools.readable,
                git_dir=info.common_dir,
                turnstile=self._machine.turnstile,
            )
        return AnthropicBackend(
            repo=info.top,
            enclose=enclose,
            purse=Purse(),
            service=self._machine.service,
            path=tools.path,
            readable=tools.readable,
            git_dir=info.common_dir,
        )


def _spent(cost: Cost) -> dict[str, Any]:
    return {"usd": cost.usd, "input_tokens": cost.input_tokens, "output_tokens": cost.output_tokens}
