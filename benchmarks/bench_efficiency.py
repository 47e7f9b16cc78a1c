"""How much of a run's time is spent outside agents and benchmark: orchestration efficiency, through the real daemon.

A round of N candidates, P at a time, has an ideal time: what the longest chain of sleeps takes when everything between them costs
nothing. N/P times an agent and a benchmark, one after the other, and once more the benchmark, of what was merged; `pipelined`,
where an agent takes the next plan while its candidate is measured, N/P times the longer of the two and once the shorter. Research,
plans and reviews count as nothing. Efficiency is that ideal over the time that was taken.

    python benchmarks/bench_efficiency.py [--slots 4 16] [--candidates 64] [--rounds 3] [--agent-s 0.5] [--bench-s 0.5] [--files 200]
                                          [--folder DIR] [--other NAME=COMMAND ...]

COMMAND is run once for each P, with P, CANDIDATES, ROUNDS, AGENT_S and BENCH_S in its environment; it prints the seconds that it took,
and its ratio is put beside ours. Load averages are printed, so that a busy machine is seen to be one.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sid_protocol.ids import planner_id

BIN = Path(sys.executable).parent
AGENT = Path(__file__).parents[1] / "tests" / "faults" / "agent.sh"


class Daemon:
    """A daemon of its own in a folder of its own."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.env = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("SID_R", "GIT_"))},
            "HOME": str(base),
            "SID_SOCKET": str(base / "s/sid.sock"),
            "SID_STATE_DIR": str(base / "state"),
            "SID_CONFIG": str(base / "sid.toml"),
        }
        self.process = subprocess.Popen([BIN / "sid"], env=self.env, stderr=subprocess.DEVNULL)
        give_up = time.monotonic() + 30
        while not (base / "s/sid.sock").exists():
            if time.monotonic() > give_up or self.process.poll() is not None:
                raise SystemExit("the daemon did not come up")
            time.sleep(0.005)
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(self.env["SID_SOCKET"])
        self.lines = self.socket.makefile("rb")
        self.records: list[dict[str, Any]] = []

    def call(self, method: str, **params: object) -> Any:
        """Call a method; what the log says meanwhile is kept."""
        request = {"jsonrpc": "2.0", "id": method, "method": method, "params": params}
        self.socket.sendall(json.dumps(request).encode() + b"\n")
        while True:
            message = json.loads(self.lines.readline())
            if message.get("id") == method:
                if "error" in message:
                    raise SystemExit(f"{method}: {message['error']['message']}")
                return message["result"]
            self.keep(message)

    def keep(self, message: dict[str, Any]) -> None:
        """Keep a log record."""
        if message.get("method") == "log.record":
            self.records.append(message["params"]["record"])

    def until(self, event: str) -> dict[str, Any]:
        """Return the next record of an event."""
        while True:
            while self.records:
                record = self.records.pop(0)
                if record["event"] == event:
                    return record
            self.keep(json.loads(self.lines.readline()))

    def cpu_s(self) -> tuple[float, float]:
        """Return the daemon's own CPU time, and that of all processes that it has reaped."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        ticks = os.sysconf("SC_CLK_TCK")
        return (int(fields[11]) + int(fields[12])) / ticks, (int(fields[13]) + int(fields[14])) / ticks

    def rss_mb(self) -> float:
        """Return what it weighs."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024


@contextmanager
def daemon_with_run(slots: int, rounds: int, options: argparse.Namespace) -> Iterator[tuple[Daemon, str]]:
    """Set a run up with so many executors at once, and yield its daemon and the repository."""
    agents = options.candidates or slots
    memory = Path("/dev/shm")
    place = options.folder or (memory if os.access(memory, os.W_OK) else None)
    agent_s, bench_s = options.agent_s, options.bench_s
    base = Path(tempfile.mkdtemp(prefix="bench", dir=place))
    daemon = Daemon(base)
    try:
        repo = base / "repo"
        repo.mkdir()
        (repo / "bench.sh").write_text(f"sleep {bench_s}\ncat value.txt\n")
        (repo / "value.txt").write_text("1\n")
        for number in range(options.files):
            path = repo / f"d{number % 97}/e{number % 5}/f{number}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{number}\n" * 20)
        for words in (("init", "-q", "-b", "main"), ("add", "."), ("commit", "-qm", "Start")):
            identity = ("-c", "user.name=bench", "-c", "user.email=bench@example.invalid")
            subprocess.run(["git", "-C", repo, *identity, *words], check=True, env=daemon.env)
        shutil.copy(AGENT, base / "agent.sh")
        script = (base / "agent.sh").read_text()
        script = script.replace("executor) ", f"executor) sleep {agent_s}; ")
        # Another executor wins each round, so that no family is barred for winning twice.
        won = f"$((1000 * n + (${{SID_AGENT_ID##*_}} + n) % {agents})) > value.txt"
        script = script.replace("$((10 * n - k)) > value.txt", won)
        script = script.replace('\\"$1\\"', '\\"family_$SID_AGENT_ID\\"')
        (base / "agent.sh").write_text(script)
        families = [f"family_{planner_id(n + 1)}" for n in range(agents)]
        words = [BIN / "sictl", "init", repo, "--objective", "raise it", "--agents", str(agents), "--trust"]
        words += [
            "--benchmark",
            "sh bench.sh",
            "--format",
            "number",
            "--rounds",
            str(rounds),
            "--backend",
            "command",
        ]
        words += ["--set", f"measurement.slots={slots}", "--set", f"max_parallel_executors={slots}"]
        words += ["--agent-command", f"sh {shlex.quote(str(base / 'agent.sh'))}"]
        for family in families:
            words += ["--family", family]
        subprocess.run(words, check=True, env=daemon.env, stdout=subprocess.DEVNULL, cwd=base)
        yield daemon, str(repo)
    finally:
        daemon.process.terminate()
        daemon.process.wait(30)
        shutil.rmtree(base, ignore_errors=True)


def ideal_s(slots: int, candidates: int, options: argparse.Namespace, *, pipelined: bool) -> float:
    """Return what a round with a merge takes when nothing but agents and benchmarks takes time."""
    waves, agent_s, bench_s = math.ceil(candidates / slots), options.agent_s, options.bench_s
    if pipelined:
        return float(bench_s + waves * max(agent_s, bench_s) + min(agent_s, bench_s))
    return float(bench_s + waves * (agent_s + bench_s))


def measure(slots: int, rounds: int, options: argparse.Namespace) -> dict[str, float]:
    """Run so many rounds; return seconds a round, and what the daemon used."""
    with daemon_with_run(slots, rounds, options) as (daemon, repo):
        daemon.call("log.subscribe", since=0)
        daemon.call("run.start", repo=repo)
        times: list[float] = []
        begun, cpu = time.monotonic(), daemon.cpu_s()
        for _ in range(rounds):
            daemon.until("round_recorded")
            times.append(time.monotonic() - begun)
            begun = time.monotonic()
        daemon.until("run_ended")
        run = daemon.call("run.list")["runs"][0]["run_id"]
        last = daemon.call("run.round", run=run, iteration=rounds)
        if len(last["runs"]) != len(last["results"]) + 1:
            raise SystemExit(
                f"the last round had {len(last['runs'])} benchmark runs; it counts as one with a merge"
            )
        candidates = len(last["results"])
        used = [(now - then) / (candidates * rounds) for now, then in zip(daemon.cpu_s(), cpu, strict=True)]
        later = times[1:] or times
        return {
            "round_s": sum(later) / len(later),
            "first_s": times[0],
            "candidates": candidates,
            "cpu_ms": 1000 * used[0],
            "jobs_cpu_ms": 1000 * used[1],
            "rss_mb": daemon.rss_mb(),
        }


def other(command: str, slots: int, options: argparse.Namespace) -> float:
    """Return the seconds that another system says it took."""
    env = {
        **os.environ,
        "P": str(slots),
        "CANDIDATES": str(options.candidates or slots),
        "ROUNDS": str(options.rounds),
        "AGENT_S": str(options.agent_s),
        "BENCH_S": str(options.bench_s),
    }
    done = subprocess.run(shlex.split(command), check=True, env=env, stdout=subprocess.PIPE, text=True)
    return float(done.stdout.split()[-1])


def main() -> None:
    """Print a row for each P."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--slots", type=int, nargs="+", default=[4, 16])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--agent-s", type=float, default=0.5)
    parser.add_argument("--bench-s", type=float, default=0.5)
    parser.add_argument("--candidates", type=int, default=0, help="a round; by default as many as slots")
    parser.add_argument("--files", type=int, default=0, help="further files in the repository")
    parser.add_argument("--folder", help="where the repository lies; by default in memory")
    parser.add_argument("--other", action="append", default=[], metavar="NAME=COMMAND")
    options = parser.parse_args()
    print(f"load before: {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores; the first round is left out")
    for slots in options.slots:
        got = measure(slots, options.rounds, options)
        candidates = int(got["candidates"])
        plain, pipelined = (ideal_s(slots, candidates, options, pipelined=one) for one in (False, True))
        over = 1000 * (got["round_s"] - plain) / candidates
        print(
            f"P={slots:<3} candidates {candidates}: {got['round_s']:.2f} s a round; ideal {plain:.2f}, efficiency {plain / got['round_s']:.3f}; "
            f"pipelined {pipelined:.2f}, {pipelined / got['round_s']:.3f}; {over:.0f} ms over ideal, {got['cpu_ms']:.0f} ms CPU of the daemon "
            f"and {got['jobs_cpu_ms']:.0f} of its jobs a candidate; {got['rss_mb']:.0f} MiB; first round {got['first_s']:.2f} s"
        )
        for name, _, command in (one.partition("=") for one in options.other):
            seconds = other(command, slots, options) / options.rounds
            print(f"P={slots:<3} {name}: {seconds:.2f} s a round, efficiency {plain / seconds:.3f}")
    print(f"load after: {os.getloadavg()[0]:.2f}")


if __name__ == "__main__":
    main()
