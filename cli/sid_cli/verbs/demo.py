"""`sictl demo`: the whole thing on a small real repository, offline, in a daemon of its own.

Everything that it makes lies in one temporary folder (the repository in DIR with --keep) and is gone when it leaves, however it
leaves; only the chart stays.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import click

from sid_cli import places
from sid_cli.client import Client
from sid_cli.follow import Outcome, start_and_follow
from sid_cli.options import completed, verb
from sid_cli.round_text import history_table
from sid_cli.session import Session
from sid_cli.spawn import daemon_command, start_daemon
from sid_cli.status_text import Look
from sid_cli.text import clean
from sid_cli.verbs.diff import painted
from sid_cli.verbs.history import all_rounds
from sid_cli.verbs.plot import write_whole
from sid_protocol.errors import SidError, UsageError
from sid_protocol.locations import shell_word

_IDLE_EXIT_S = 60
_LEAVE_S = 10.0
_DIFF_LINES = 80
_SHORT_ENOUGH = 60
NEXT = ("cd YOUR/REPOSITORY && sictl init", "sictl start --wait", "sictl apply")
"""What to type to have it on a repository of one's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where a demo lives."""

    base: Path
    repo: Path

    @property
    def socket(self) -> str:
        """The socket of its daemon."""
        return str(self.base / "sid.sock")

    @property
    def state(self) -> Path:
        """The state of its daemon."""
        return self.base / "state"

    def environ(self, own: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of its daemon: nothing of the user's own daemon, and no key."""
        kept = {name: value for name, value in own.items() if not name.startswith(("SID_", "ANTHROPIC_"))}
        debug = {name: own[name] for name in ("SID_DEBUG", "SID_TEST_SESSION") if name in own}
        return {
            **kept,
            **debug,
            "SID_SOCKET": self.socket,
            "SID_STATE_DIR": str(self.state),
            "SID_CONFIG": str(self.base / "sid.toml"),
            "XDG_RUNTIME_DIR": str(self.base),
            "XDG_STATE_HOME": str(self.base / "xdg-state"),
            "XDG_CONFIG_HOME": str(self.base / "xdg-config"),
        }


@verb("demo", example="sictl demo\nsictl demo --rounds 2 --keep ~/sid-demo")
@click.option("--rounds", metavar="N", type=click.IntRange(min=1), help="Run at most N rounds.")
@click.option("--agents", metavar="N", type=click.IntRange(min=1), help="Plans per round.")
@click.option(
    "--keep",
    metavar="DIR",
    shell_complete=completed("folder"),
    help="Create the repository in DIR, and keep it.",
)
def command(session: Session, *, rounds: int | None, agents: int | None, keep: str | None) -> None:
    """Watch a daemon improve a small program: offline, without a key, by measured, merged steps."""
    console = session.console
    kept = _new_folder(keep) if keep is not None else None
    console.say(
        "sid demo: a small slow program gets faster by measured, merged steps; offline, about a minute"
    )
    session.interrupt_note = (
        "the demo and its daemon are gone"
        if kept is None
        else f"its daemon is gone; what it made is in {clean(str(kept))}"
    )
    with _home(kept) as demo, _own_signals():
        params = _make_repository(demo)
        console.say(f"made {clean(demo.repo)}; starting a daemon of its own")
        wanted = {"rounds": rounds, "agents": agents}
        params |= {name: value for name, value in wanted.items() if value is not None}
        with _daemon(demo), Client(demo.socket) as client:
            console.say("measuring the baseline three times")
            set_up = client.call("run.init", params, timeout_s=None)
            if set_up["run_id"] is None:
                raise SidError(f"the demo could not be set up: {', '.join(set_up['missing'])} missing")
            start = {"repo": params["repo"]}
            outcome = start_and_follow(demo.socket, start, console, started=lambda _: None)
            _finish(session, client, outcome, gone=None if kept else demo.base)


def _finish(session: Session, client: Client, outcome: Outcome, *, gone: Path | None) -> None:
    console, row = session.console, outcome.row
    run = {"run": row["run_id"]}
    rounds = all_rounds(client, row["run_id"])
    diff = client.call("run.diff", run)["diff"]
    chart = _chart(client, row["run_id"], outlive=gone is not None)
    us = "sictl" if shutil.which("sictl") else shlex.quote(str(Path(sys.argv[0]).resolve()))
    commands = [*([] if gone else [f"git -C {shell_word(row['repo'])} log --graph --oneline --all"]), *NEXT][
        :3
    ]
    commands = [command.replace("sictl", us) for command in commands]
    # Where the demo's repository goes away, a line that names it or its branch is of no use.
    useless = (str(gone), "improve/") if gone else ()
    summary = [line for line in outcome.shown.split("\n") if not any(word in line for word in useless)]
    session.exit_code = 1 if outcome.status == "failed" else 0
    content = {
        "status": outcome.status,
        "summary": outcome.fields,
        "rounds": rounds,
        "diff": diff,
        "chart": chart,
        "next": commands,
    }
    look = Look(paint=console.paint, marks=console.marks, width=console.width)
    lines = diff.rstrip("\n").split("\n")
    more = [f"({len(lines) - _DIFF_LINES} more lines)"] if len(lines) > _DIFF_LINES else []
    blocks = [
        "\n".join(summary),
        history_table(rounds, look),
        "\n".join([painted("\n".join(lines[:_DIFF_LINES]), console.paint), *more]),
        f"chart: {clean(chart)}",
        "\n".join(["next:", *(f"  {clean(line)}" for line in commands)]),
    ]
    console.result(content, "\n\n".join(blocks))


def _chart(client: Client, run_id: str, *, outlive: bool) -> str:
    """Draw the chart and return its path, or why there is none; it may have to outlive the demo's folder."""
    try:
        drawn = client.call("run.plot", {"run": run_id, "format": "png"}, timeout_s=None)
        if not outlive and drawn.get("path"):
            return str(drawn["path"])
        path = Path(tempfile.gettempdir()) / f"sid-demo-{os.getuid()}.png"
        write_whole(path, base64.b64decode(drawn["data"]))
    except SidError as error:
        return f"none ({error})"
    return str(path)


def _make_repository(demo: Places) -> dict[str, Any]:
    """Have the daemon's executable write the repository; returns the parameters of `run.init` for it."""
    argv = [*daemon_command(), "--demo-repo", str(demo.repo)]
    done = subprocess.run(
        argv,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env=demo.environ(os.environ),
    )
    if done.returncode != 0:
        told = done.stderr.strip().splitlines()
        why = told[-1].removeprefix("sid: ") if told else f"exit code {done.returncode}"
        raise SidError(f"cannot make the demo's repository: {why}")
    params: dict[str, Any] = json.loads(done.stdout)
    return {**params, "repo": str(demo.repo), "backend": "local", "trust": True}


def _new_folder(keep: str) -> Path:
    path = Path(places.absolute(keep))
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UsageError(f"{path} is not empty", hint="--keep takes a new folder")
    return path


@contextlib.contextmanager
def _home(kept: Path | None) -> Iterator[Places]:
    # A Unix socket's path is at most 107 bytes long, and some temporary folders are deeper than that.
    parent = tempfile.gettempdir()
    short = parent if len(parent) < _SHORT_ENOUGH else "/tmp"  # noqa: S108 - mkdtemp makes a private folder in it
    base = Path(tempfile.mkdtemp(prefix="sid-demo-", dir=short))
    try:
        yield Places(base=base, repo=kept or base / "parcels")
    finally:
        shutil.rmtree(base, ignore_errors=True)


@contextlib.contextmanager
def _daemon(demo: Places) -> Iterator[None]:
    process = start_daemon(demo.state, idle_exit_s=_IDLE_EXIT_S, environ=demo.environ(os.environ), own=True)
    try:
        yield
    finally:
        # A second Ctrl-C must not leave the daemon behind.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with contextlib.suppress(SidError), Client(demo.socket) as client:
            client.call("daemon.shutdown", {"now": True}, timeout_s=_LEAVE_S)
        for end in (process.terminate, process.kill):
            try:
                process.wait(_LEAVE_S)
            except subprocess.TimeoutExpired:
                end()
        process.wait()


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP unwind as Ctrl-C does, so that nothing is left behind."""

    def leave(number: int, _frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    kinds = (signal.SIGTERM, signal.SIGHUP)
    before = {kind: signal.signal(kind, leave) for kind in kinds}
    interrupt = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        for kind in kinds:
            signal.signal(kind, before[kind])
        signal.signal(signal.SIGINT, interrupt)
