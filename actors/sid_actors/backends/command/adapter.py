"""The command back end: any program that reads a prompt and writes an answer, one process tree a turn.

Role actors ask it when `agent_backend` is `command`. The program is started without a shell, in a sandbox unless
that is off, with a scrubbed environment; standard input is the prompt, standard output the answer or a stream
of events, standard error activity. It never retries, trusts no word about a score, and when it is cancelled
no process of the turn is left. The table of the command back end in the interfaces is its rule.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import trio

from sid_actors.backends.base import Answer, Turn
from sid_actors.backends.command.stream import StreamReader
from sid_actors.backends.command.turnstile import Turnstile
from sid_actors.backends.command.visible import AgentProgram, agent_paths, resolve_command
from sid_actors.backends.enclose import PASSED_ON, Enclose, run_watched
from sid_actors.jobs import scratch
from sid_actors.jobs.job import Enclosure, JobResult, JobSpec, JobStartError
from sid_actors.jobs.limits import blame, limits_of
from sid_actors.jobs.overload import room_in
from sid_actors.naming import naming
from sid_actors.watching.activity import ActivityLog
from sid_protocol.errors import BackendError, WorktreeFull
from sid_protocol.settings import Settings

_LINE_LIMIT = 4000
_TOLD_BYTES = 16 << 20
"""What of one turn's standard error goes to the log: half a minute of 2,000 lines a second, and a fortieth of what the log keeps.

Without a bound one agent could push the records of all others out of it.
"""
_RECORD_BYTES = 200
"""What a record takes beside its line."""
_RANKS = {"executor": 0, "critic": 1, "architect": 2, "planner": 3, "researcher": 4}


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandBackend:
    """Answers prompts with the user's own program.

    Attributes:
        repo: Absolute path of the repository's top.
        enclose: Makes the sandbox of a turn; None where the sandbox is off or does not work.
        environ: The environment that names are taken from.
        path: PATH of the agent; by default that of `environ`.
        readable: What every agent may read besides: the interpreters of PATH.
        git_dir: The repository's git directory, which an executor may read; its worktree points there.
        on_stderr: Called with each line of standard error, for the log.
        hurry: Set when a stop must not wait: from then on a cancelled program gets no grace.
        turnstile: What all programs of this machine go through until they run.
    """

    repo: str
    enclose: Enclose | None
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    path: str | None = None
    readable: tuple[str, ...] = ()
    git_dir: str | None = None
    on_stderr: Callable[[Turn, str], None] | None = None
    hurry: trio.Event = field(default_factory=trio.Event)
    turnstile: Turnstile

    async def answer(self, turn: Turn, activity: ActivityLog) -> Answer:
        """Start the program, give it the prompt, and return what it answered.

        Raises:
            BackendError: it could not be started, failed, or answered nothing.
            SettingsInvalid: the command is empty, cannot be split, or its program is missing.
        """
        settings = turn.track.settings
        reader, errors = StreamReader(activity), _ErrorLines(turn, activity, self.on_stderr)
        with await self.turnstile.enter(_RANKS.get(turn.role, 0)) as place:
            spec, folder = await trio.to_thread.run_sync(self._prepare, turn, settings)
            try:
                result = await run_watched(
                    spec,
                    activity,
                    self.hurry,
                    lambda name, piece: reader.feed(piece) if name == "stdout" else errors.feed(piece),
                    place.leave,
                )
            except JobStartError as error:
                raise BackendError(
                    f"the agent's command could not be started: {error.message}", hint=error.hint
                ) from error
            finally:
                with trio.CancelScope(shield=True):
                    await trio.to_thread.run_sync(
                        functools.partial(shutil.rmtree, folder, ignore_errors=True)
                    )
        reader.close()
        errors.close()
        activity.processes_killed = result.processes_killed
        _check_end(result, spec, reader, errors.last_line)
        if turn.schema is not None and not reader.text.strip():
            raise BackendError("the agent's command printed no answer", hint=_quoted(errors.last_line))
        return Answer(reader.text, reader.cost)

    def _prepare(self, turn: Turn, settings: Settings) -> tuple[JobSpec, str]:
        """Return the job of a turn, and the folder with what it is told the paths of."""
        folder = scratch.make("turn")
        try:
            return self._spec(turn, settings, folder), folder
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def _spec(self, turn: Turn, settings: Settings, folder: str) -> JobSpec:
        _write_files(turn, folder)
        home = self.environ.get("HOME", "/")
        path = self.path or self.environ.get("PATH", os.defpath)
        program = resolve_command(settings.agent_command, repo=self.repo, home=home, path=path)
        return JobSpec(
            argv=program.argv,
            cwd=turn.cwd,
            env=self._environment(turn, settings.agent_env, folder, path),
            stdin=turn.prompt.encode("utf-8", "replace"),
            deadline_s=None,  # the core decides, after it has looked at what the agent is doing
            grace_s=settings.grace_s,
            limits=limits_of(settings.limits, output_mb=1),  # the reader keeps the answer
            sandbox=self._sandbox(turn, settings, folder, program, home),
            room=room_in(turn.cwd, settings.limits) if turn.role == "executor" else None,
            stands_back=True,
        )

    def _environment(self, turn: Turn, more: Iterable[str], folder: str, path: str) -> dict[str, str]:
        names = [*PASSED_ON, *more]
        passed = {name: self.environ[name] for name in names if name in self.environ}
        own = {
            "PATH": path,
            "SID_ROLE": turn.role,
            "SID_RUN_ID": turn.track.run_id,
            "SID_ITERATION": str(turn.iteration),
            "SID_AGENT_ID": turn.agent_id,
            "SID_DEADLINE_S": f"{turn.deadline_s:g}",
        }
        if turn.schema is not None:
            own["SID_OUTPUT_SCHEMA"] = f"{folder}/{_SCHEMA}"
        if turn.role == "executor":
            own |= {"SID_WORKTREE": turn.cwd, "SID_PLAN_FILE": f"{folder}/{_PLAN}"}
        return passed | own

    def _sandbox(
        self, turn: Turn, settings: Settings, folder: str, program: AgentProgram, home: str
    ) -> Enclosure | None:
        if self.enclose is None:
            return None
        shown, writable = agent_paths(settings.agent_paths, repo=self.repo, home=home)
        readable = [*self.readable, *program.shown, *shown, folder]
        sealed = list(turn.sealed)
        if turn.role == "executor":
            writable = (turn.cwd, *writable)
            readable += [self.git_dir] if self.git_dir else []
            own_git = str(Path(turn.cwd, ".git"))
            sealed += [own_git] if Path(own_git).exists() and own_git not in sealed else []
        else:
            readable.append(turn.cwd)
        return self.enclose(
            workdir=turn.cwd,
            writable=writable,
            readable=tuple(dict.fromkeys(readable)),
            sealed=tuple(sealed),
            network=settings.agent_network,
            home=home,
            mounts=turn.shown,
        )


_SCHEMA, _PLAN = "schema.json", "plan.json"


def _write_files(turn: Turn, folder: str) -> None:
    """Write what the agent is told the paths of."""
    with naming(folder):
        if turn.schema is not None:
            Path(folder, _SCHEMA).write_text(json.dumps(turn.schema), encoding="utf-8")
        if turn.plan is not None and turn.role == "executor":
            Path(folder, _PLAN).write_text(turn.plan.model_dump_json(indent=1), encoding="utf-8")


def _check_end(result: JobResult, spec: JobSpec, reader: StreamReader, last_line: str) -> None:
    """Raise for a program that did not end well, with its own last words."""
    if result.over is not None:
        kind = WorktreeFull if result.over.name == "worktree_mb" else BackendError
        raise kind(f"the agent's command was ended: {result.over.why}")
    said = reader.failure or last_line or _quoted(reader.activity.error or "")
    words = f": {said[:400]}" if said else ""
    if limit := blame(result, spec.limits):
        words = f"{words} ({limit})"
    if result.signal is not None:
        raise BackendError(f"the agent's command was ended by signal {result.signal}{words}")
    if result.exit_code:
        raise BackendError(f"the agent's command failed with exit status {result.exit_code}{words}")
    if reader.failure:
        raise BackendError(f"the agent's turn failed{words}")


def _quoted(line: str) -> str:
    return f"it said: {line[:400]}" if line else ""


class _ErrorLines:
    """Standard error, line by line, as activity; the log gets the first of it, the last line, and how much lay between."""

    def __init__(
        self, turn: Turn, activity: ActivityLog, on_line: Callable[[Turn, str], None] | None
    ) -> None:
        self._turn = turn
        self._activity = activity
        self._on_line = on_line
        self._partial = b""
        self._room = _TOLD_BYTES
        self._untold = 0
        self.last_line = ""

    def feed(self, piece: bytes) -> None:
        *lines, partial = (self._partial + piece).split(b"\n")
        self._partial = partial[:_LINE_LIMIT]
        self._activity.unfinished = self._partial.decode("utf-8", "replace")
        for line in lines:
            self._line(line)

    def close(self) -> None:
        self._line(self._partial)
        self._partial = b""
        if self._untold and self._on_line:
            self._on_line(self._turn, f"[{self._untold} lines are not in the log; this is the last one:]")
            self._on_line(self._turn, self.last_line)

    def _line(self, raw: bytes) -> None:
        line = raw[:_LINE_LIMIT].decode("utf-8", "replace").strip()
        if not line:
            return
        self.last_line = line
        self._activity.output(line)
        self._room -= len(line) + _RECORD_BYTES
        if self._room < 0:
            self._untold += 1
        elif self._on_line:
            self._on_line(self._turn, line)
