"""The `local` back end: every role answered by code, without a model and without the network.

Role actors ask it when `agent_backend` is `local`. What reads or runs the repository's code happens in child
processes, enclosed where a sandbox works: the survey, the edit, and one run of the benchmark under a profiler,
whose output is never a score. One survey serves all planners of a round; beyond that it keeps nothing.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import trio

import sid_actors
from sid_actors.backends.base import Answer, Turn
from sid_actors.backends.enclose import Enclose, watch
from sid_actors.backends.local import answers
from sid_actors.backends.local.hotspots import CHILD, HotSpots, parse_profile, profile_argv
from sid_actors.backends.local.lint import find_ruff, lint_argv, parse_lint
from sid_actors.backends.local.recipe import Attempt
from sid_actors.jobs import scratch
from sid_actors.jobs.job import Enclosure, JobResult, JobSpec, JobStartError, Mount
from sid_actors.jobs.limits import limits_of
from sid_actors.jobs.overload import room_in
from sid_actors.jobs.process import run_job
from sid_actors.watching.activity import ActivityLog
from sid_protocol.errors import BackendError
from sid_protocol.records import Cost, Plan

FREE = Cost(input_tokens=0, output_tokens=0, usd=0.0)

_CHILD = "sid_actors.backends.local.child"
_ROUNDS = 1000
"""Rounds whose attempts are known: more than a catalogue lasts, and an end to what a run of weeks holds in memory."""
_OUTPUT_MB = 16
_TOOL_S = 120.0  # copying a large checkout on a busy disk


@dataclass(slots=True)
class _Round:
    """The survey of one round, once it is there."""

    key: tuple[str, int]
    lock: trio.Lock = field(default_factory=trio.Lock)
    survey: dict[str, Any] | None = None
    profiled: bool = False


@dataclass(slots=True, kw_only=True)
class LocalBackend:
    """Answers every role by looking things up.

    Attributes:
        enclose: Makes the sandbox of a child; None where the sandbox is off or does not work.
        environ: The environment that the benchmark's PATH and HOME are taken from.
        path: PATH of the benchmark that is profiled; by default that of `environ`.
        readable: What that benchmark may read besides its checkout: the interpreters of PATH.
        prefix: The environment beside whose interpreter ruff is looked for where PATH has none.
    """

    enclose: Enclose | None
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    path: str | None = None
    readable: tuple[str, ...] = ()
    prefix: str = sys.prefix
    _rounds: dict[str, _Round] = field(default_factory=dict)

    async def answer(self, turn: Turn, activity: ActivityLog) -> Answer:
        """Answer one turn.

        Raises:
            BackendError: there is no idea left, the plan has no recipe or it does not apply, or a child failed.
            OSError: a temporary folder could not be made.
        """
        activity.cost = FREE
        match turn.role:
            case "researcher":
                document = await self._research(turn, activity)
            case "planner":
                document = await self._plan(turn, activity)
            case "architect":
                document = await self._advise(turn)
            case "critic":
                attempts = await _attempts(turn)
                document = answers.judgement(_plan_of(turn), attempts, turn.track.streak_family)
            case "executor":
                return Answer(await self._execute(turn, activity), FREE)
            case "goal_clarifier" | "benchmark_builder":
                raise BackendError(f"the local back end plays no {turn.role}", hint="name a model's back end")
        return Answer(json.dumps(document), FREE)

    async def _research(self, turn: Turn, activity: ActivityLog) -> dict[str, Any]:
        known = await self._surveyed(turn, activity)
        assert known.survey is not None
        track = turn.track
        return answers.brief(
            known.survey, profiled=known.profiled, ideas=len(track.ideas), rules=len(track.rules)
        )

    async def _plan(self, turn: Turn, activity: ActivityLog) -> dict[str, Any]:
        known = await self._surveyed(turn, activity)
        assert known.survey is not None
        track = turn.track
        idea = answers.choose(known.survey["ideas"], turn.number, track.streak_family)
        return answers.plan(idea, track.settings, await track.attempts(_ROUNDS))

    async def _advise(self, turn: Turn) -> dict[str, Any]:
        plan, track = _plan_of(turn), turn.track
        missing = [target for target in plan.target_files if not await trio.Path(turn.cwd, target).is_file()]
        attempts = await _attempts(turn)
        return answers.advice(plan, attempts, track.settings, missing=missing, sealed=track.sealed)

    async def _execute(self, turn: Turn, activity: ActivityLog) -> str:
        recipe = answers.recipe_of(_plan_of(turn))
        if turn.guard_output:
            raise answers.OutOfIdeas("a red guard needs a mend that the catalogue does not have")
        if recipe is None:
            raise answers.OutOfIdeas("the plan has no recipe: this back end carries out its own plans only")
        activity.touch(f"{recipe.transformation} in {recipe.path}")
        await self._child(turn, activity, "apply", {"root": turn.cwd, "recipe": recipe.to_json()})
        activity.edit()
        return f"Carried out {recipe.transformation} at {recipe.symbol} in {recipe.path}."

    # The survey

    async def _surveyed(self, turn: Turn, activity: ActivityLog) -> _Round:
        """Return the round's survey; who asks first makes it, the others wait."""
        key = (turn.track.run_id, turn.iteration)
        known = self._rounds.get(turn.track.run_id)
        if known is None or known.key != key:
            known = self._rounds[turn.track.run_id] = _Round(key)
        async with known.lock:
            if known.survey is None:
                hot = await self._profile(turn, activity)
                known.profiled = hot is not None
                known.survey = await self._survey(turn, activity, hot)
        return known

    async def _survey(self, turn: Turn, activity: ActivityLog, hot: HotSpots | None) -> dict[str, Any]:
        lint = await self._lint(turn, activity)
        activity.touch("reading the code in scope")
        scope = turn.track.settings.scope
        request = {
            "root": turn.cwd,
            "include": list(scope.include),
            "exclude": list(scope.exclude),
            "sealed": list(turn.track.sealed),
            "attempts": [attempt.to_json() for attempt in await _attempts(turn)],
            "hot": hot.to_json() if hot else None,
            "streak_family": turn.track.streak_family,
            "lint": lint,
        }
        return await self._child(turn, activity, "survey", request)

    async def _lint(self, turn: Turn, activity: ActivityLog) -> dict[str, Any]:
        """Return what ruff would change, if there is a ruff; it only reads the checkout."""
        program = await trio.to_thread.run_sync(find_ruff, self._path, self.prefix)
        if program is None:
            return {}
        activity.touch("asking ruff")
        spec = JobSpec(
            argv=lint_argv(program),
            cwd=turn.cwd,
            env={"PATH": os.defpath, "HOME": self._home},
            deadline_s=_TOOL_S,
            limits=limits_of(turn.track.settings.limits, output_mb=_OUTPUT_MB),
            sandbox=self._sandbox(turn.cwd, writes=False, readable=(program,)),
            stands_back=True,
        )
        result = await _run(spec, activity)
        if result.exit_code != 0 or result.stdout.dropped:
            activity.touch("ruff had no answer")
            return {}
        return parse_lint(result.stdout.head + result.stdout.tail, str(await trio.Path(turn.cwd).resolve()))

    async def _child(
        self, turn: Turn, activity: ActivityLog, verb: str, request: dict[str, Any]
    ) -> dict[str, Any]:
        """Ask our own code in a process of its own; it may write in the worktree of an executor alone."""
        own = (sys.prefix, sys.base_prefix, str(Path(sid_actors.__file__).parent))
        editing = turn.role == "executor"
        sandbox = self._sandbox(
            turn.cwd,
            writes=editing,
            readable=own,
            sealed=turn.sealed if editing else (),
        )
        spec = JobSpec(
            # isolated: the checkout is the working directory, and its modules must not stand in for ours
            argv=(sys.executable, "-I", "-m", _CHILD, verb),
            cwd=turn.cwd,
            env={"PATH": os.defpath, "HOME": self._home},
            stdin=json.dumps(request).encode(),
            deadline_s=None,
            limits=limits_of(turn.track.settings.limits, output_mb=_OUTPUT_MB),
            sandbox=sandbox,
            stands_back=True,
        )
        result = await _run(spec, activity)
        try:
            answer = json.loads(result.stdout.text())
        except ValueError:
            answer = {}
        if result.exit_code != 0 or not isinstance(answer, dict) or not answer:
            said = answer.get("error") if isinstance(answer, dict) else None
            why = said or result.stderr.last_line() or f"exit status {result.exit_code}"
            raise BackendError(f"the {verb} of the code failed: {why}")
        return answer

    # The profile

    async def _profile(self, turn: Turn, activity: ActivityLog) -> HotSpots | None:
        """Run the benchmark once under a profiler, in a copy of the checkout; None where that cannot be done."""
        settings = turn.track.settings
        command = profile_argv(settings.benchmark_command)
        if command is None:
            return None
        activity.touch("profiling the benchmark")
        folder = await trio.to_thread.run_sync(scratch.make, "profile")
        try:
            if not await self._copied(turn.cwd, folder, activity):
                return None
            passed = {
                name: self.environ[name] for name in ("HOME", "LANG", "USER", "TERM") if name in self.environ
            }
            env = passed | {"PATH": self._path, "SID_ITERATION": str(turn.iteration)} | dict(command.env)
            sandbox = self._sandbox(
                folder,
                writes=True,
                readable=(*self.readable, str(CHILD)),
                network=settings.benchmark_network,
                mounts=tuple(_moved(mount, turn.cwd, folder) for mount in turn.shown),
            )
            spec = JobSpec(
                argv=command.argv,
                cwd=folder,
                env={**env, "PYTHONDONTWRITEBYTECODE": "1"},
                deadline_s=min(settings.deadlines.benchmark, turn.deadline_s / 2),
                limits=limits_of(settings.limits, output_mb=_OUTPUT_MB),
                sandbox=sandbox,
                room=room_in(folder, settings.limits),
                stands_back=True,
            )
            result = await _run(spec, activity)
            printed = result.stdout
            return parse_profile(printed.tail if printed.dropped else printed.head + printed.tail)
        finally:
            with trio.CancelScope(shield=True):
                await _tool(("rm", "-rf", "--", folder), activity)

    async def _copied(self, source: str, folder: str, activity: ActivityLog) -> bool:
        copied = await _tool(("cp", "-R", "--", f"{source}/.", folder), activity)
        return copied.exit_code == 0

    def _sandbox(
        self,
        folder: str,
        *,
        writes: bool,
        readable: tuple[str, ...],
        sealed: tuple[str, ...] = (),
        network: bool = False,
        mounts: tuple[Mount, ...] = (),
    ) -> Enclosure | None:
        if self.enclose is None:
            return None
        return self.enclose(
            workdir=folder,
            writable=(folder,) if writes else (),
            readable=readable if writes else (*readable, folder),
            sealed=sealed,
            network=network,
            home=self._home,
            mounts=mounts,
        )

    @property
    def _home(self) -> str:
        return self.environ.get("HOME", "/")

    @property
    def _path(self) -> str:
        return self.path or self.environ.get("PATH", os.defpath)


def _moved(mount: Mount, old: str, new: str) -> Mount:
    """Return what is shown in a checkout as it is shown in its copy."""
    inside = mount.path.startswith(f"{old}/")
    path = new + mount.path.removeprefix(old) if inside else mount.path
    return replace(mount, path=path, source=new if mount.source == old else mount.source)


def _plan_of(turn: Turn) -> Plan:
    if turn.plan is None:
        raise BackendError(f"{turn.agent_id} was given no plan")
    return turn.plan


async def _attempts(turn: Turn) -> list[Attempt]:
    return answers.past_attempts(await turn.track.attempts(_ROUNDS), turn.track.settings)


async def _run(spec: JobSpec, activity: ActivityLog) -> JobResult:
    try:
        return await run_job(
            spec, on_output=lambda *_: activity.touch(), on_start=functools.partial(watch, activity)
        )
    except JobStartError as error:
        raise BackendError(error.message, hint=error.hint) from error


async def _tool(argv: tuple[str, ...], activity: ActivityLog) -> JobResult:
    """Run a tool of the system on a folder of our own."""
    env = {"PATH": os.defpath}
    return await _run(JobSpec(argv=argv, cwd="/", env=env, deadline_s=_TOOL_S, sandbox=None), activity)
