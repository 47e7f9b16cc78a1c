"""On a real terminal: Ctrl-C detaches, the interview asks, trust is asked for, the live block draws, signals clean up."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.fake_daemon import FakeDaemon, run_row
from tests.cli.test_follow import SUMMARY, ends_as
from tests.cli.test_init import READY

RUN = "r7f3a9c2"
ENTRY = "from sid_cli.entry import main; main()"
# Makes the terminal the controlling one, so that a typed Ctrl-C becomes a SIGINT.
CONTROL = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"


class Terminal:
    """A child on a pseudo-terminal: what it shows, and a keyboard."""

    def __init__(self, argv: list[str], cwd: Path) -> None:
        self.shown = ""
        self._master, slave = pty.openpty()
        environ = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "40"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", CONTROL, *argv],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            cwd=cwd,
            env=environ,
        )
        os.close(slave)

    def until(self, pattern: str) -> str:
        """Read until something is shown; fails with all that was."""
        deadline = time.monotonic() + 30
        while not re.search(pattern, self.shown):
            left = deadline - time.monotonic()
            assert left > 0, f"{pattern!r} was not shown:\n{self.shown}"
            if select.select([self._master], [], [], left)[0] and not self._read():
                assert re.search(pattern, self.shown), (
                    f"{pattern!r} was not shown before the end:\n{self.shown}"
                )
        return self.shown

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def interrupt(self) -> None:
        self.type("\x03")

    def end(self) -> int:
        """Read to the end and return the exit code."""
        while self._read():
            pass
        return self.process.wait(30)

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self._master)

    def _read(self) -> bool:
        try:
            data = os.read(self._master, 65_536)
        except OSError:  # how a pseudo-terminal tells that its last writer is gone
            return False
        self.shown += data.decode(errors="replace")
        return bool(data)


@pytest.fixture
def terminal(short_dir: Path):
    opened: list[Terminal] = []

    def run(*args: str, program: list[str] | None = None, cwd: Path = short_dir) -> Terminal:
        made = Terminal([*(program or [sys.executable, "-c", ENTRY]), *args], cwd)
        opened.append(made)
        return made

    yield run
    for made in opened:
        made.close()


@pytest.fixture
def daemon(daemon: FakeDaemon) -> FakeDaemon:
    daemon.rows = [run_row()]
    daemon.answers["run.summary"] = {"text": SUMMARY, "fields": {}}
    return daemon


def test_ctrl_c_detaches_from_attach_and_the_last_line_says_how_to_stop(daemon, terminal):
    daemon.push("round_started", run_id=RUN)
    screen = terminal("attach")
    screen.until("round_started")
    screen.interrupt()

    assert screen.end() == 130
    assert (
        screen.shown.splitlines()[-1]
        == f"sictl: interrupted; the run goes on; stop it with 'sictl stop {RUN}'"
    )
    assert "Traceback" not in screen.shown
    assert daemon.called("run.cancel") == []


def test_attach_folds_what_only_repeats(daemon, terminal):
    daemon.push("round_started", run_id=RUN)
    screen = terminal("attach")
    screen.until("round_started")
    for _ in range(5):
        daemon.push("benchmark_sample", run_id=RUN, score=1.0)
    daemon.push("merged", run_id=RUN)
    screen.until(r"merged")
    assert screen.shown.count("benchmark_sample") == 1
    assert "(repeated 4 times)" in screen.shown


@pytest.mark.parametrize("json_flag", [(), ("--json",)])
def test_ctrl_c_detaches_from_start_wait_and_the_run_goes_on(daemon, terminal, json_flag):
    waiting = threading.Event()
    daemon.answers["run.start"] = {"run_id": RUN, "resumed": False}
    daemon.after["run.start"] = waiting.set
    screen = terminal("start", "r7f3", "--wait", *json_flag)
    if json_flag:
        assert waiting.wait(30)
    else:
        screen.until("executor_2")
    screen.interrupt()

    assert screen.end() == 130
    lines = screen.shown.splitlines()
    assert lines[-1].startswith("sictl: interrupted")
    assert "Traceback" not in screen.shown
    assert daemon.called("run.cancel") == []
    if json_flag:
        assert json.loads(lines[0].removeprefix("^C"))["error"]["code"] == "failed"
    else:
        assert lines[-1].endswith(f"the run goes on; stop it with 'sictl stop {RUN}'")
        assert screen.shown.count("\x1b[?25l") == screen.shown.count("\x1b[?25h")  # the cursor is back


def test_start_wait_draws_one_live_block_and_ends_with_the_summary(daemon, terminal):
    ends_as(daemon, "plateau")
    screen = terminal("start", "r7f3", "--wait")

    assert screen.end() == 0
    assert RUN in screen.shown.splitlines()[0]
    assert "=== Self-Improvement Loop Complete ===" in screen.shown


def test_the_interview_asks_shows_and_needs_a_typed_yes(daemon, terminal, repo):
    made = repo({"bench.py": "print(json.dumps({}))", "test_x.py": "import pytest"})
    ready = {**READY, "repo": str(made.path), "trusted": False, "trusts": {}}

    def init(params):
        missing = [] if params["trust"] else ["--trust"]
        missing += [flag for flag in ("--objective", "--benchmark") if flag.removeprefix("--") not in params]
        return {**ready, "missing": missing, "run_id": None if params["dry_run"] or missing else RUN}

    daemon.answers["run.init"] = init
    screen = terminal("init", cwd=made.path)
    for question, answer in (
        ("What is to get better", "make the sieve faster"),
        (r"1\) python3 bench.py", "1"),
        ("Which value would be enough", "quick"),
        ("that does not fit: a number", ""),
        ("Which files may change", "src/**"),
        ("higher or a lower", "l"),
        ("Must every candidate pass 'python3 -m pytest -q'", "y"),
        (r"Trust this path with these settings\? \[y/N\]", "y"),
    ):
        screen.until(question)
        screen.type(f"{answer}\n")

    assert screen.end() == 0
    assert "next: " in screen.shown
    first, second, last = daemon.called("run.init")
    assert [(params["dry_run"], params["trust"]) for params in (first, second)] == [(True, False)] * 2
    assert last == {
        "repo": str(made.path),
        "objective": "make the sieve faster",
        "benchmark": "python3 bench.py",
        "format": "json",
        "direction": "lower",
        "scope": ["src/**"],
        "guard": ["python3 -m pytest -q"],
        "trust": True,
        "dry_run": False,
    }


def test_a_model_may_interview_and_write_a_benchmark_that_is_shown_whole(daemon, terminal, repo):
    made = repo({"a.py": "x = 1"})
    ready = {**READY, "repo": str(made.path), "trusted": False, "trusts": {"agent_backend": "anthropic"}}

    def init(params):
        missing = [] if params["trust"] else ["--trust"]
        missing += [flag for flag in ("--objective", "--benchmark") if flag.removeprefix("--") not in params]
        return {**ready, "missing": missing, "run_id": None if params["dry_run"] or missing else RUN}

    def clarify(params):
        clear = bool(params["answers"])
        known = {"objective": "make x cheaper", "direction": "lower", "target": None, "scope": ["a.py"]}
        score = 90 if clear else 20
        scores = dict.fromkeys(("objective", "metric", "target", "scope"), score)
        return {**known, "question": "" if clear else "Cheaper\x1b[31m how?", "scores": scores, "usd": None}

    drafted = {
        "file": "/s/b.py",
        "text": "print(1)\nprint('\x1b]0;x')\n",
        "command": "check && python3 /s/b.py",
        "paths": ["/s"],
        "format": "number",
        "direction": "lower",
        "why": "It counts.",
    }
    daemon.answers |= {"run.init": init, "setup.clarify": clarify, "setup.benchmark": drafted}
    screen = terminal("init", cwd=made.path)
    for question, answer in (
        ("Let the model interview you", "y"),
        ("how\\?", "fewer calls"),
        ("Is that the goal", "y"),
        ("Let the model write a benchmark", "y"),
        ("Use this benchmark", "y"),
        ("Which value would be enough", ""),
        ("Trust this path", "y"),
    ):
        screen.until(question)
        screen.type(f"{answer}\n")

    assert screen.end() == 0
    assert "print(1)" in screen.shown
    assert "\x1b]0;x" not in screen.shown
    assert [one["confirmed"] for one in daemon.called("setup.clarify")] == [True, True]
    assert daemon.called("setup.clarify")[1]["answers"][0]["answer"] == "fewer calls"
    last = daemon.called("run.init")[-1]
    assert (last["benchmark"], last["set"]["benchmark_paths"]) == ("check && python3 /s/b.py", ["/s"])
    assert (last["objective"], last["direction"], last["scope"]) == ("make x cheaper", "lower", ["a.py"])


@pytest.mark.parametrize("answer", ["\n", "n\n", "x\n", "\x04"])
def test_anything_but_yes_trusts_nothing(daemon, terminal, repo, answer):
    made = repo({"a": "b"})
    daemon.answers["run.init"] = {
        **READY,
        "run_id": None,
        "trusted": False,
        "repo": str(made.path),
        "missing": ["--trust"],
    }
    screen = terminal("init", cwd=made.path)
    screen.until("Trust this path")
    assert "sealed   bench.py" in screen.shown
    screen.type(answer)

    assert screen.end() == 5
    assert "nothing was written or run" in screen.shown.splitlines()[-1]
    assert [params["dry_run"] for params in daemon.called("run.init")] == [True]


def test_ctrl_c_in_the_interview_leaves_with_130(daemon, terminal, repo):
    daemon.answers["run.init"] = {
        "run_id": None,
        "root": "/r",
        "missing": ["--objective", "--benchmark", "--trust"],
    }
    screen = terminal("init", cwd=repo({"a": "b"}).path)
    screen.until("What is to get better")
    screen.interrupt()
    assert screen.end() == 130
    assert "Traceback" not in screen.shown


def test_apply_asks_on_a_terminal_and_no_is_what_enter_means(daemon, terminal):
    plan = {
        "applied": False,
        "diff": "-a\n+\x1b[2Jb\n",
        "stat": "1 file",
        "undo": None,
        "target_branch": "main",
    }
    daemon.answers["run.apply"] = plan
    screen = terminal("apply", "--color", "never")
    screen.until(r"Apply it\? \[y/N\]")
    screen.type("\n")
    assert screen.end() == 5
    assert "\x1b[2J" not in screen.shown
    assert [params["confirm"] for params in daemon.called("run.apply")] == [False]


def test_stop_now_asks_while_somebody_is_at_work(daemon, terminal):
    daemon.answers["run.cancel"] = {"status": "user_stopped"}
    screen = terminal("stop", "--now")
    screen.until(r"Stop at once\? \[y/N\]")
    screen.type("y\n")
    assert screen.end() == 0
    assert daemon.called("run.cancel") == [{"run": RUN, "now": True}]


# demo

DEMO: dict[str, Any] = {
    "demo": {"objective": "less work", "benchmark": "python3 bench.py"},
    "rows": [run_row(status="plateau", repo="/demo")],
    "answers": {
        "run.init": {"run_id": RUN, "root": "/r", "missing": []},
        "run.start": {"run_id": RUN, "resumed": False, "status": "plateau"},
        "run.summary": {"text": SUMMARY, "fields": {"iterations": 3}},
        "run.diff": {"diff": "-slow\n+fast\n", "base": "b", "head": "h", "stat": ""},
        "run.plot": {"format": "png", "data": "cGljdHVyZQ==", "path": "/kept/progress.png"},
    },
}


@pytest.fixture
def demo_world(short_dir: Path, monkeypatch) -> Path:
    folder = short_dir / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    monkeypatch.setenv("FAKE_SID", json.dumps(DEMO))
    return folder


def test_the_demo_runs_in_a_daemon_of_its_own_and_leaves_the_chart_alone(installed, demo_world):
    done = subprocess.run(
        [installed / "sictl", "demo", "--rounds", "2"], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("sid demo: ")
    for told in (
        *SUMMARY.splitlines(),
        "-slow",
        "+fast",
        f"chart: {demo_world}/sid-demo-{os.getuid()}.png",
        "next:",
    ):
        assert told in lines
    assert [path.name for path in demo_world.iterdir()] == [f"sid-demo-{os.getuid()}.png"]
    assert not Path(os.environ["SID_SOCKET"]).exists()


def test_the_demo_as_one_document_with_its_repository_kept(installed, demo_world, short_dir):
    kept = short_dir / "kept"
    kept.mkdir()
    done = subprocess.run(
        [installed / "sictl", "demo", "--keep", str(kept), "--json"],
        capture_output=True,
        text=True,
        check=False,
    )

    document = json.loads(done.stdout)
    assert (document["schema"], document["status"], document["diff"]) == (1, "plateau", "-slow\n+fast\n")
    assert document["chart"] == "/kept/progress.png"
    assert len(document["next"]) == 3
    assert list(demo_world.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_whatever_ends_the_demo_its_daemon_and_files_are_gone(
    installed, demo_world, terminal, monkeypatch, number, code
):
    answers = {**DEMO["answers"], "run.start": {"run_id": RUN, "resumed": False, "status": "running"}}
    monkeypatch.setenv("FAKE_SID", json.dumps({**DEMO, "answers": answers, "rows": [run_row(repo="/demo")]}))
    screen = terminal("demo", program=[str(installed / "sictl")])
    screen.until("executor_2")
    assert list(demo_world.iterdir()) != []
    if number is signal.SIGINT:
        screen.interrupt()
    else:
        os.kill(screen.process.pid, number)

    assert screen.end() == code
    assert list(demo_world.iterdir()) == []
    assert "Traceback" not in screen.shown
