"""A run that can be killed anywhere, put back to its start, and looked over after it has gone on by itself.

Built on the end-to-end world. Setting a run up takes seconds, so it is done once: `Stage` keeps the folders as they were
then, and puts them back, at the same paths, before every case.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sid_daemon.core.run import step
from sid_daemon.core.state import RunState
from sid_daemon.log.event_records import log_records
from sid_daemon.store.journal import Journal
from sid_protocol.events import parse_event
from tests.e2e.harness import HANG_S, SEALED_BENCHMARK, World, sandbox_works
from tests.repos import Repo

TOP = Path(__file__).parents[2]
AGENT = Path(__file__).parent / "agent.sh"


@dataclass
class Stage:
    """A repository with a run that is set up and not yet started.

    Attributes:
        world: Where it lives.
        repo: The repository.
        rounds: How many rounds the run may take.
        before: What of the user's must stay as it is.
        run_id: The run.
    """

    world: World
    repo: Repo
    rounds: int = 2
    before: dict[str, str] = field(default_factory=dict)
    run_id: str = ""

    @classmethod
    def make(cls, world: World, *, rounds: int = 2, agents: int = 2) -> Stage:
        """Set a run up in a world, and keep it."""
        path = world.base / "repo"
        path.mkdir()
        repo = Repo(path)
        repo.git("init", "--quiet", "--initial-branch=main")
        repo.commit(SEALED_BENCHMARK, "Start")
        repo.write({"README.md": "One number, being edited.\n", "mine.txt": "untracked\n"})
        shutil.copy(AGENT, world.base / "agent.sh")
        sandbox = [] if sandbox_works() else ["--set", 'sandbox="off"']
        world.sictl(
            *(
                "init",
                path,
                "--objective",
                "raise the number",
                "--agents",
                str(agents),
                "--rounds",
                str(rounds),
            ),
            *("--trust", "--benchmark", "sh bench.sh", "--format", "number", "--backend", "command"),
            *("--agent-command", f"sh '{world.base}/agent.sh'", "--set", "grace_s=0.2", *sandbox),
        )
        stage = cls(world, repo, rounds)
        with world.wire() as wire:
            stage.run_id = wire.call("run.list")["runs"][0]["run_id"]
        world.end()
        stage.before = repo.fingerprint()
        for name in ("repo", "state"):
            shutil.copytree(world.base / name, world.base / f"kept-{name}", symlinks=True)
        return stage

    @property
    def root(self) -> Path:
        """The track's root."""
        return self.repo.path / ".sid/topics/default"

    @property
    def database(self) -> Path:
        """The run's journal."""
        return self.root / "state/run.db"

    def reset(self) -> None:
        """Put repository and state directory back to where they were before the run was started."""
        for name in ("repo", "state"):
            subprocess.run(["rm", "-rf", self.world.base / name], check=True)
            subprocess.run(["cp", "-a", self.world.base / f"kept-{name}", self.world.base / name], check=True)

    def fault_daemon(
        self, module: str = "tests.faults.daemon", under: Sequence[str] = (), **env: str
    ) -> subprocess.Popen[Any]:
        """Start the daemon with crash points, or as another module runs it, and return once it answers.

        Args:
            module: What runs it.
            under: Words before its own, such as a tracer's that becomes it.
            env: More variables.
        """
        read_end, write_end = os.pipe()
        with os.fdopen(read_end, "rb") as ready:
            process = self.world.spawn(
                [*under, sys.executable, "-m", module, "--ready-fd", str(write_end)],
                pass_fds=(write_end,),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=TOP,
                env=env,
            )
            os.close(write_end)
            is_up = ready.readline() == b"ready\n"
        assert is_up or process.wait(HANG_S) == -signal.SIGKILL, "the daemon did not come up"
        return process

    def start(self) -> None:
        """Start the run; a daemon that dies at it is fine."""
        try:
            with self.world.wire() as wire:
                wire.answer("run.start", repo=str(self.repo.path))
        except (OSError, AssertionError):
            return

    def leave(self, daemon: subprocess.Popen[Any]) -> None:
        """Shut a daemon down and wait until it is gone."""
        with self.world.wire() as wire:
            wire.call("daemon.shutdown")
        daemon.wait(HANG_S)

    def crash_at(self, point: str, under: Sequence[str] = (), **env: str) -> bool:
        """Run until the daemon dies at a crash point; says whether it came to that."""
        daemon = self.fault_daemon(under=under, SID_FAULT=point, **env)
        self.start()
        if self.until_end(daemon):
            assert daemon.returncode == -signal.SIGKILL, f"the daemon ended by itself: {daemon.returncode}"
            return True
        with suppress(OSError, AssertionError):  # it may die of what comes after the run's end
            self.leave(daemon)
        return daemon.wait(HANG_S) == -signal.SIGKILL

    def until_end(self, daemon: subprocess.Popen[Any]) -> bool:
        """Wait for the run's end or the daemon's; says whether it was the daemon's."""
        try:
            with self.world.wire() as wire:
                wire.follow(since=0, run=self.run_id).until("run_ended")
        except (OSError, AssertionError):
            daemon.wait(HANG_S)
            return True
        return False

    def points(self) -> list[str]:
        """Return every crash point of a whole run, in the order in which they are passed."""
        log = self.world.base / "points"
        daemon = self.fault_daemon(SID_FAULT_LOG=str(log))
        self.start()
        assert not self.until_end(daemon), "the daemon died without being told to"
        self.leave(daemon)
        return log.read_text().split()

    def go_on(self) -> subprocess.Popen[Any]:
        """Start a daemon, which goes on with the run by itself, and wait for the run's end."""
        daemon = self.world.daemon()
        with self.world.wire() as wire:
            begun = self.has_begun()
            if not begun:
                wire.call("run.start", repo=str(self.repo.path))
            # The last record of one that had ended may have died with the daemon.
            ended = wire.call("run.status", run=self.run_id)["status"] == "max_iterations"
        assert ended or not self.until_end(daemon), "the daemon died"
        return daemon

    def has_begun(self) -> bool:
        """Whether the run was ever recorded as active, so that a daemon goes on with it by itself."""
        with closing(sqlite3.connect(self.world.state / "sid.db")) as registry:
            (active,) = registry.execute("SELECT active FROM runs").fetchone()
        return bool(active) or bool(self.bodies("run_started"))

    def bodies(self, kind: str) -> list[str]:
        """Return the journal's events of a kind."""
        with closing(sqlite3.connect(self.database)) as database:
            found = database.execute("SELECT body FROM events WHERE kind = ? ORDER BY seq", (kind,))
            return [row[0] for row in found]

    def wrongly_told(self) -> list[str]:
        """Return the log records that the journal tells of and that are not in the log, or not as often."""
        due: Counter[str] = Counter()
        state: RunState | None = None
        with closing(Journal(self.database)) as journal:
            for _, body in journal.each_event():
                event = parse_event(body)
                after, _ = step(state, event)
                records = log_records(state, event, after) if state else []
                for level, name, fields in records:
                    due[as_told({"level": level, "event": name, "run_id": self.run_id, **fields})] += 1
                state = after
        found = Counter(
            as_told(json.loads(line))
            for file in (self.world.state / "logs").iterdir()
            for line in file.read_text().splitlines()
            if self.run_id in line
        )
        return [
            f"{found[one]} times, not {times}: {one}" for one, times in due.items() if found[one] != times
        ]

    def disagreements(self) -> list[str]:
        """Return what `run.verify` says."""
        with self.world.wire() as wire:
            lines: list[str] = wire.call("run.verify", run=self.run_id)["disagreements"]
        return lines

    def check(self, daemon: subprocess.Popen[Any], measured_before: list[str] | None = None) -> None:
        """Look the finished run over: every round once, nothing lost, nothing left, the user's things untouched."""
        found = self.disagreements()
        assert found == [], found
        with self.world.wire() as wire:
            row = wire.call("run.status", run=self.run_id)
            rounds = wire.call("run.history", run=self.run_id)["rounds"]
        assert (row["status"], row["iteration"]) == ("max_iterations", self.rounds), row
        assert row["best_score"] == 10.0 * self.rounds
        assert [one["iteration"] for one in rounds] == list(range(1, self.rounds + 1))
        measured = self.bodies("run_measured")
        assert measured[: len(measured_before or [])] == (measured_before or []), "a measurement was lost"
        once = ("run_measured", "candidate_committed")
        causes = [cause_of(body) for kind in once for body in self.bodies(kind)]
        assert len(causes) == len(set(causes)), f"something was done twice: {causes}"
        self.leave(daemon)
        assert not (wrong := self.wrongly_told()), "\n".join(wrong)
        assert self.world.jobs() == [], "a process was left"
        assert self.repo.worktrees() == []
        assert [name for name in self.repo.branches() if name.startswith("experiment/")] == []
        assert not (self.root / "pool").exists()
        assert not (self.repo.path / "worktrees").exists()
        assert not [str(path) for path in (self.repo.path / ".git").rglob("*.lock")]
        assert not [str(path) for top in (self.root, self.world.state) for path in top.rglob("*.new")]
        assert self.repo.fingerprint() == self.before


def as_told(record: dict[str, Any]) -> str:
    """Return a log record as text, whenever it was told."""
    return json.dumps({name: record[name] for name in sorted(record) if name not in ("timestamp", "cursor")})


def cause_of(body: str) -> str:
    """Return the id of the command that an event answers."""
    return body.split('"cause":"', 1)[1].split('"', 1)[0]
