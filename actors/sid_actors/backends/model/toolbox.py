"""The tools of an agent that a model plays: look at files, search, edit, run a command, say that it is done.

The model back end offers them and carries the calls out. Files are reached through `confined`; searches and
commands run as jobs in the turn's sandbox. A call that cannot be carried out is answered with the reason, as a
result that the model can act on. Results are cut to a stated size, head and tail kept.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import trio

from sid_actors.backends.base import Turn
from sid_actors.backends.enclose import PASSED_ON, Enclose, watch
from sid_actors.backends.model.confined import Confined, ToolError
from sid_actors.backends.model.tool_schemas import DEFAULT_RUN_S
from sid_actors.jobs.job import Enclosure, JobResult, JobSpec
from sid_actors.jobs.limits import blame, limits_of
from sid_actors.jobs.overload import DiskRoom
from sid_actors.jobs.process import run_job
from sid_actors.watching.activity import ActivityLog
from sid_protocol.errors import WorldError

RESULT_LIMIT = 20_000
"""Characters of one tool's result."""
LINES_LIMIT = 1_000
"""Lines of a file that one `view` shows."""
RUN_LIMIT_S = 600.0
SEARCH_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolbox:
    """The tools of one turn.

    Attributes:
        turn: Whose.
        activity: Where calls and what they print are noted.
        files: Its working directory.
        enclose: Makes the sandbox of a job; None where the sandbox is off.
        environ: The environment that names are taken from.
        path: PATH of its jobs.
        readable: What they may read besides.
        git_dir: The repository's git directory, which an executor's commands may read.
        room: How much the turn's commands may write.
    """

    turn: Turn
    activity: ActivityLog
    files: Confined
    enclose: Enclose | None
    environ: Mapping[str, str]
    path: str
    readable: tuple[str, ...]
    git_dir: str | None
    room: DiskRoom | None = None

    async def use(self, name: str, arguments: dict[str, Any]) -> str:
        """Carry out one call.

        Raises:
            ToolError: it cannot be carried out; its text is for the model.
        """
        self.activity.tool(name, arguments)
        match name:
            case "view":
                return cut(await trio.to_thread.run_sync(self._view, arguments))
            case "search":
                return cut(await self._search(_text(arguments, "pattern"), str(arguments.get("path") or ".")))
            case "edit" if self.files.writable:
                told = await trio.to_thread.run_sync(self._edit, arguments)
                self.activity.edit()
                return told
            case "run" if self.files.writable:
                return cut(await self._run(_text(arguments, "command"), arguments.get("timeout_s")))
            case _:
                raise ToolError(f"there is no tool {name}")

    # Files

    def _view(self, arguments: dict[str, Any]) -> str:
        path = _text(arguments, "path")
        entries = self.files.entries(path)
        if entries is not None:
            return "\n".join(entries) or "(empty)"
        lines = _decoded(path, self.files.read(path)).split("\n")
        first = _whole(arguments, "first_line", 1, low=1)
        last = min(_whole(arguments, "last_line", len(lines), low=first), first + LINES_LIMIT - 1)
        shown = [f"{number}\t{line}" for number, line in enumerate(lines[first - 1 : last], first)]
        more = (
            f"\n(lines {first} to {min(last, len(lines))} of {len(lines)})" if len(shown) < len(lines) else ""
        )
        return "\n".join(shown) + more

    def _edit(self, arguments: dict[str, Any]) -> str:
        command, path = _text(arguments, "command"), _text(arguments, "path")
        new = _text(arguments, "new_text", empty=True)
        if command == "create":
            self.files.write(path, new.encode("utf-8", "replace"), new=True)
            return f"created {path}"
        old = _decoded(path, self.files.read(path))
        if command == "insert":
            lines = old.split("\n")
            line = _whole(arguments, "line", 0, low=0)
            if line > len(lines):
                raise ToolError(f"{path} has {len(lines)} lines")
            whole = "\n".join([*lines[:line], new.removesuffix("\n"), *lines[line:]])
        elif command == "str_replace":
            wanted = _text(arguments, "old_text")
            times = old.count(wanted)
            if times != 1:
                raise ToolError(
                    f"old_text stands {times} times in {path}, not once; show more of its surroundings"
                )
            whole = old.replace(wanted, new)
        else:
            raise ToolError("command is one of str_replace, insert, create")
        self.files.write(path, whole.encode("utf-8", "surrogateescape"), new=False)
        return f"changed {path}"

    # Jobs

    async def _search(self, pattern: str, path: str) -> str:
        where = await trio.to_thread.run_sync(self.files.found, path)
        argv = ("grep", "-rnIE", "-D", "skip", "--exclude-dir=.git", "-m", "200", "-e", pattern, "--", where)
        result = await self._job(argv, SEARCH_LIMIT_S)
        if result.timed_out:
            raise ToolError(f"the search took longer than {SEARCH_LIMIT_S:.0f} s")
        if result.exit_code not in (0, 1):
            raise ToolError(result.stderr.last_line() or f"grep ended with {result.exit_code}")
        return result.stdout.text() or "no line matches"

    async def _run(self, command: str, timeout_s: Any) -> str:
        asked = timeout_s if isinstance(timeout_s, int | float) and timeout_s > 0 else DEFAULT_RUN_S
        left = self.activity.started + self.turn.deadline_s - self.activity.clock.now()
        limit_s = max(1.0, min(float(asked), RUN_LIMIT_S, left))
        self.activity.touch(f"running {command}")
        result = await self._job(("/bin/sh", "-c", command), limit_s)
        if result.over is not None:
            end = f"ended: {result.over.why}"
        elif result.timed_out:
            end = f"ended after its time was up ({limit_s:.0f} s)"
        elif result.signal is not None:
            end = f"ended by signal {result.signal}"
        else:
            end = f"exit status {result.exit_code}"
        parts = [f"[{end}]", cut(result.stdout.text(), RESULT_LIMIT // 2)]
        limits = limits_of(self.turn.track.settings.limits)
        if result.over is None and result.exit_code != 0 and (limit := blame(result, limits)):
            parts.append(f"[{limit}]")
        if errors := result.stderr.text().strip():
            parts += ["[stderr]", cut(errors, RESULT_LIMIT // 2 - 200)]
        return "\n".join(parts)

    async def _job(self, argv: tuple[str, ...], limit_s: float) -> JobResult:
        settings = self.turn.track.settings
        names = [*PASSED_ON, *settings.agent_env]
        env = {name: self.environ[name] for name in names if name in self.environ}
        spec = JobSpec(
            argv=argv,
            cwd=self.turn.cwd,
            env=env | {"PATH": self.path},
            deadline_s=limit_s,
            limits=limits_of(settings.limits, output_mb=1),
            sandbox=self._sandbox(),
            room=self.room,
            stands_back=True,
        )
        try:
            result = await run_job(spec, on_output=self._printed, on_start=lambda h: watch(self.activity, h))
        except WorldError as error:
            raise ToolError(error.message) from error
        finally:
            self.activity.processes = None
        return result

    def _printed(self, _: str, piece: bytes) -> None:
        lines = piece.decode("utf-8", "replace").strip().splitlines()
        self.activity.output(lines[-1] if lines else "")

    def _sandbox(self) -> Enclosure | None:
        if self.enclose is None:
            return None
        cwd, sealed = self.turn.cwd, list(self.turn.sealed)
        writes = self.files.writable
        own_git = f"{cwd}/.git"
        if writes and own_git not in sealed and os.path.lexists(own_git):
            sealed.append(own_git)
        readable = [
            *self.readable,
            *([self.git_dir] if self.git_dir and writes else []),
            *([] if writes else [cwd]),
        ]
        return self.enclose(
            workdir=cwd,
            writable=(cwd,) if writes else (),
            readable=tuple(dict.fromkeys(readable)),
            sealed=tuple(sealed) if writes else (),
            network=self.turn.track.settings.agent_network,
            home=self.environ.get("HOME", "/"),
            mounts=self.turn.shown,
        )


def cut(text: str, limit: int = RESULT_LIMIT) -> str:
    """Return a result of at most `limit` characters and a line that says what was left out."""
    if len(text) <= limit:
        return text
    head, tail = text[: limit // 2], text[-(limit // 2) :]
    return f"{head}\n[... {len(text) - limit} characters left out ...]\n{tail}"


def _text(arguments: dict[str, Any], key: str, *, empty: bool = False) -> str:
    value = arguments.get(key)
    if not isinstance(value, str) or not (value or empty):
        raise ToolError(f"{key} must be a string{'' if empty else ' that is not empty'}")
    if "\0" in value or (not value.isascii() and value != value.encode("utf-8", "ignore").decode()):
        raise ToolError(f"{key} holds characters that are no text")
    return value


def _whole(arguments: dict[str, Any], key: str, default: int, *, low: int) -> int:
    value = arguments.get(key)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise ToolError(f"{key} must be a whole number from {low}")
    return value


def _decoded(path: str, content: bytes) -> str:
    if b"\0" in content[:8192]:
        raise ToolError(f"{path} is no text")
    return content.decode("utf-8", "surrogateescape")
