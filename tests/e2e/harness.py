"""A world for end-to-end tests: the real `sid` and `sictl`, a scripted agent, and a small JSON-RPC client.

Made by the `world` fixture of `conftest.py`. Waiting is always for a record of the log, never for time; the
limits here only turn a hang into a failure. Everything a world started is ended with it.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import psutil
import pytest

from tests.conftest import FOREIGN, FOREIGN_NAMES, world_of
from tests.leaks import MARKER
from tests.repos import Repo

BIN = Path(sys.executable).parent
HANG_S = 60.0
SEALED_BENCHMARK = {"bench.sh": "cat value.txt\n", "value.txt": "1\n", "README.md": "One number.\n"}
_AGENT = Path(__file__).parent / "agents" / "scripted.py"


def environment(base: Path) -> dict[str, str]:
    """Return what processes of a world in `base` get, and make its folders; as `own_world` does for a test."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name == MARKER or not (name.startswith(FOREIGN) or name in FOREIGN_NAMES)
    }
    (base / "home").mkdir(mode=0o700)
    (base / "run").mkdir(mode=0o700)
    return kept | {name: str(value) for name, value in world_of(base).items()}


@functools.cache
def sandbox_works() -> bool:
    """Whether bubblewrap makes a sandbox on this machine."""
    probe = ["bwrap", "--ro-bind", "/", "/", "--unshare-all", "true"]
    return shutil.which("bwrap") is not None and subprocess.run(probe, check=False).returncode == 0


@dataclass(frozen=True, slots=True)
class Done:
    """How a call of `sictl` ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document on stdout."""
        return json.loads(self.out)


class Wire:
    """A connection to the daemon that keeps notifications in order."""

    def __init__(self, path: Path, limit_s: float = HANG_S) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(limit_s)
        try:
            self.socket.connect(str(path))
        except OSError:
            self.socket.close()
            raise
        self._file = self.socket.makefile("rb")
        self._number = 0
        self._records: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self.socket.close()

    def send(self, line: bytes) -> None:
        """Send bytes as they are."""
        self.socket.sendall(line)

    def line(self) -> dict[str, Any] | None:
        """Return the next line; None at the end of the connection."""
        line = self._file.readline()
        return json.loads(line) if line else None

    def answer(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method and return the whole response."""
        self._number += 1
        request = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        self.send(json.dumps(request).encode() + b"\n")
        while (message := self.line()) is not None:
            if message.get("id") == self._number:
                return message
            self._take(message)
        raise AssertionError(f"the daemon closed the connection at {method}")

    def call(self, method: str, **params: Any) -> Any:
        """Call a method and return its result."""
        response = self.answer(method, **params)
        assert "result" in response, response
        return response["result"]

    def follow(self, since: int = 0, **wanted: Any) -> Wire:
        """Subscribe to the log from a cursor on."""
        self.call("log.subscribe", since=since, **wanted)
        return self

    def record(self) -> dict[str, Any]:
        """Return the next log record."""
        while not self._records:
            message = self.line()
            assert message is not None, "the daemon left"
            self._take(message)
        return self._records.pop(0)

    def until(self, event: str, **fields: Any) -> dict[str, Any]:
        """Return the next record of an event with these fields."""
        seen = []
        try:
            while True:
                record = self.record()
                if record["event"] == event and all(
                    record.get(name) == value for name, value in fields.items()
                ):
                    return record
                seen.append(f"{record['event']} {record.get('actor', '')} {record.get('reason', '')}")
        except (TimeoutError, AssertionError) as error:
            told = "\n  ".join(seen[-40:])
            raise AssertionError(f"no {event} {fields}: {error}; seen:\n  {told}") from None

    def _take(self, message: Mapping[str, Any]) -> None:
        if message.get("method") == "log.record":
            self._records.append({"cursor": message["params"]["cursor"], **message["params"]["record"]})


@dataclass
class Agent:
    """The scripted agent of one repository."""

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> Agent:
        """Put an agent into a new folder."""
        for name in (folder, folder / "seen", folder / "gates"):
            name.mkdir()
        shutil.copy(_AGENT, folder / "agent.py")
        agent = cls(folder)
        agent.script()
        return agent

    @property
    def command(self) -> str:
        """What to set as `agent_command`."""
        return f"python3 -IS '{self.folder}/agent.py'"

    def script(self, *rules: Mapping[str, Any]) -> None:
        """Say what it does; the first rule that fits a turn counts."""
        for rule in rules:
            if "wait" in rule and not (gate := self.folder / "gates" / rule["wait"]).exists():
                os.mkfifo(gate)
        beside = self.folder / "script.new"
        beside.write_text(json.dumps(rules))
        beside.replace(self.folder / "script.json")

    def open_gate(self, name: str) -> None:
        """Let the turn that waits at a gate go on."""
        with (self.folder / "gates" / name).open("w"):
            pass

    def turns(self) -> list[str]:
        """Return `round.role.agent.turn` of every turn so far, sorted."""
        return sorted(path.name for path in (self.folder / "seen").iterdir())

    def seen(self, name: str) -> dict[str, Any]:
        """Return prompt, environment and working directory of one turn."""
        told: dict[str, Any] = json.loads((self.folder / "seen" / name).read_text())
        return told


@dataclass
class World:
    """One user's machine: a HOME, a daemon's places, repositories.

    Attributes:
        base: Its folder; short, since a socket lies in it.
        env: What every process of it gets.
        started: All processes that it started.
    """

    base: Path
    env: dict[str, str]
    started: list[subprocess.Popen[Any]] = field(default_factory=list)

    @property
    def socket(self) -> Path:
        """The daemon's socket."""
        return Path(self.env["SID_SOCKET"])

    @property
    def state(self) -> Path:
        """The daemon's state directory."""
        return Path(self.env["SID_STATE_DIR"])

    def spawn(self, argv: Sequence[str | Path], **options: Any) -> subprocess.Popen[Any]:
        """Start a process of this world, in a session of its own."""
        env = {**self.env, **options.pop("env", {})}
        process = subprocess.Popen(argv, start_new_session=True, env=env, **options)
        self.started.append(process)
        return process

    # Commands

    def start_sictl(
        self, *args: str | Path, cwd: Path | None = None, **options: Any
    ) -> subprocess.Popen[str]:
        """Start `sictl` and return the process."""
        return self.spawn(
            [BIN / "sictl", *map(str, args)],
            cwd=cwd or self.base,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )

    def finish(self, process: subprocess.Popen[str]) -> Done:
        """Wait for a `sictl` and check what holds for every one: no traceback, problems in one line."""
        out, err = process.communicate(timeout=100)
        assert "Traceback" not in err + out, err + out
        return Done(process.returncode, out, err)

    def sictl(self, *args: str | Path, cwd: Path | None = None, code: int | None = 0, **options: Any) -> Done:
        """Run `sictl` and return how it ended; fails on another exit code, unless that is None."""
        done = self.finish(self.start_sictl(*args, cwd=cwd, **options))
        assert code is None or done.code == code, f"sictl {args}: {done}\n{self._told(done)}"
        return done

    def _told(self, done: Done) -> str:
        """Return what daemons printed, where one says that it had a fault."""
        if "fault of the daemon" not in done.err:
            return ""
        files = [*self.base.glob("sid.*.stderr"), self.state / "sid.stderr"]
        return "\n".join(file.read_text()[-4000:] for file in files if file.exists())

    # Daemons

    def daemon(self, *args: str, code: int | None = None) -> subprocess.Popen[Any]:
        """Start `sid` in the foreground and return once its socket answers, or once it has left with `code`."""
        read_end, write_end = os.pipe()
        stderr = (self.base / f"sid.{len(self.started)}.stderr").open("wb")
        with os.fdopen(read_end, "rb") as ready, stderr:
            process = self.spawn(
                [BIN / "sid", "--ready-fd", str(write_end), *args],
                pass_fds=(write_end,),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                cwd="/",
            )
            os.close(write_end)
            line = ready.readline()
        if code is None:
            assert line == b"ready\n", f"{line!r} {Path(stderr.name).read_text()[-2000:]}"
            return process
        assert process.wait(HANG_S) == code, line
        return process

    def wire(self, limit_s: float = HANG_S) -> Wire:
        """Connect to the daemon."""
        return Wire(self.socket, limit_s)

    def daemon_pid(self) -> int:
        """The pid of the daemon that answers."""
        with self.wire() as wire:
            pid: int = wire.call("daemon.info")["pid"]
        return pid

    def kill(self, *, group: bool = False, by: signal.Signals = signal.SIGKILL) -> None:
        """Signal the daemon, alone or with its process group, and wait until it is gone."""
        pid = self.daemon_pid()
        with watched([pid]) as watch:
            (os.killpg if group else os.kill)(pid, by)
            assert watch.alive() == []

    # Runs

    def agent(self, name: str = "agent") -> Agent:
        """Make a scripted agent."""
        return Agent.make(self.base / name)

    def init(
        self, repo: Repo, agent: Agent, *more: str | Path, agents: int = 1, code: int | None = 0
    ) -> Done:
        """Set a repository up with a scripted agent, trusted."""
        sandbox = [] if sandbox_works() else ["--set", 'sandbox="off"']
        return self.sictl(
            *("init", repo.path, "--objective", "raise the number", "--agents", str(agents), "--trust"),
            *("--benchmark", "sh bench.sh", "--format", "number", "--agent-command", agent.command),
            *("--set", f'agent_paths=["{agent.folder}/seen:rw"]', "--set", "grace_s=0.2", *sandbox),
            *more,
            code=code,
        )

    def run(self, repo: Repo, *args: str, code: int = 0) -> Done:
        """Start the run of a repository and wait for its end."""
        return self.sictl("start", repo.path, "--wait", *args, code=code)

    def row(self, repo: Repo) -> dict[str, Any]:
        """Return the run's row."""
        row: dict[str, Any] = self.sictl("status", repo.path, "--json").json["run"]
        return row

    def rounds(self, repo: Repo) -> list[dict[str, Any]]:
        """Return the recorded rounds' rows."""
        rounds: list[dict[str, Any]] = self.sictl("history", repo.path, "--json").json["rounds"]
        return rounds

    # The end

    def processes(self) -> list[psutil.Process]:
        """Every process that works for this world, the daemon too, however far it has run away."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):  # such as a folder of too deep a name
                if process.pid != os.getpid() and self._is_ours(process):
                    found.append(process)
        return found

    def _is_ours(self, process: psutil.Process) -> bool:
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        environ = process.environ()
        return (
            environ.get("SID_STATE_DIR") == str(self.state)
            or str(self.base) in " ".join(process.cmdline())
            or Path(process.cwd()).is_relative_to(self.base)
        )

    def jobs(self) -> list[str]:
        """Return what runs for this world beside daemons and `sictl`s, as command lines."""
        lines = []
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                words = process.cmdline()
                # The chart is drawn beside the run and ends with the daemon.
                drawn = "sid_daemon.report.chart" in words
                if not drawn and not any(word.endswith(("/bin/sid", "/bin/sictl")) for word in words[:2]):
                    lines.append(" ".join(words))
        return lines

    def _shut_down(self, wire: Wire) -> None:
        with watched([wire.call("daemon.info")["pid"]]) as watch:
            wire.call("daemon.shutdown", now=True)
            watch.alive()

    def end(self) -> list[str]:
        """Shut the daemon down and return what still runs after it, which is then killed."""
        with contextlib.suppress(OSError, AssertionError), self.wire() as wire:
            self._shut_down(wire)
        left = []
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                left.append(" ".join(process.cmdline()) or process.name())
                process.kill()
        for child in self.started:
            with child:  # closes its pipes and waits
                child.kill()
        return left


class Watch:
    """Sees processes end, also those whose parent is slow to reap them."""

    def __init__(self, descriptors: dict[int, int]) -> None:
        self._descriptors = descriptors

    def alive(self) -> list[int]:
        """Wait until all have ended, and return the pids of those that do not."""
        alive = dict(self._descriptors)
        while alive:
            ready, _, _ = select.select(list(alive), [], [], HANG_S)
            if not ready:
                break
            for descriptor in ready:
                del alive[descriptor]
        return list(alive.values())


@contextlib.contextmanager
def watched(pids: Iterable[int]) -> Iterator[Watch]:
    """Watch processes, from before they are told to end."""
    with contextlib.ExitStack() as stack:
        descriptors = {}
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                descriptor = os.pidfd_open(pid)
                stack.callback(os.close, descriptor)
                descriptors[descriptor] = pid
        yield Watch(descriptors)


@contextlib.contextmanager
def module_world(session_dir: Path) -> Iterator[World]:
    """A world that several tests share; `Repo` works in it, too, as long as it is there."""
    base = Path(tempfile.mkdtemp(prefix="w", dir=session_dir))
    env = environment(base)
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name not in env]:
            patch.delenv(name)
        for name, value in env.items():
            patch.setenv(name, value)
        world = World(base, env)
        try:
            yield world
        finally:
            left = world.end()
            shutil.rmtree(base)
    assert left == [], "still running after the daemon left"


def events_of(records: Sequence[Mapping[str, Any]], name: str) -> list[Mapping[str, Any]]:
    """Return the records of one event."""
    return [record for record in records if record["event"] == name]


@contextlib.contextmanager
def clean_repository(repo: Repo) -> Iterator[None]:
    """Check that a block leaves no worktree and no experiment branch in a repository."""
    yield
    assert repo.worktrees() == []
    assert [name for name in repo.branches() if name.startswith("experiment/")] == []
    folder = repo.path / "worktrees"
    assert not folder.exists() or not any(folder.iterdir())
