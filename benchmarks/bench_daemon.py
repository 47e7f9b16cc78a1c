"""The daemon itself: its start, `sictl status`, answers while a run is at work, many followers of the log, wake-ups at rest.

Whole processes are timed side by side with `python -c pass`, in turn, so that a busy machine slows both; the ratio is the median
of the pairs. Answers are timed with a run of eight executors at work and ten subscribers. A loop's lag is what an answer that
needs no thread (`daemon.info`) took beyond the quickest.

    python benchmarks/bench_daemon.py [--times 15] [--calls 400] [--followers 200] [--rate 2000]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shlex
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench_efficiency import BIN, Daemon, daemon_with_run

FOLLOWERS = Path(__file__).parents[1] / "tests" / "faults" / "followers.py"
TALK = """
import sys, time
at = time.monotonic()
for _ in range(250):
    sys.stderr.write("a line of what an agent says while it works on its plan\\n" * {lines})
    sys.stderr.flush()
    at += 0.02
    time.sleep(max(0.0, at - time.monotonic()))
"""
RUN = argparse.Namespace(folder=None, agent_s=0.5, bench_s=0.1, files=0, at_once=0)


def timed(argv: list[str | Path], env: dict[str, str]) -> tuple[float, float]:
    """Run a process; returns its wall and its CPU seconds."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(argv, check=True, env=env, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - begun, cpu


def ratios(
    one: Callable[[], tuple[float, float]], other: Callable[[], tuple[float, float]], times: int
) -> str:
    """Return how two things compare, measured in turn."""
    pairs = [(one(), other()) for _ in range(times)]
    wall = statistics.median(a[0] for a, _ in pairs), statistics.median(b[0] for _, b in pairs)
    cpu = statistics.median(a[1] for a, _ in pairs), statistics.median(b[1] for _, b in pairs)
    ratio = statistics.median(a[0] / b[0] for a, b in pairs)
    return (
        f"{1000 * wall[0]:.0f} ms ({1000 * cpu[0]:.0f} CPU) beside {1000 * wall[1]:.0f} ({1000 * cpu[1]:.0f} CPU): "
        f"wall {ratio:.1f} times, CPU {cpu[0] / cpu[1]:.1f} times"
    )


def started(base: Path, env: dict[str, str]) -> tuple[float, float]:
    """Start a daemon and ask it `daemon.info`; returns wall and CPU seconds until the answer."""
    read_end, write_end = os.pipe()
    begun = time.perf_counter()
    process = subprocess.Popen(
        [BIN / "sid", "--ready-fd", str(write_end)], env=env, pass_fds=(write_end,), stderr=subprocess.DEVNULL
    )
    os.close(write_end)
    with os.fdopen(read_end, "rb") as ready:
        ready.readline()
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(base / "s/sid.sock"))
        client.sendall(b'{"jsonrpc":"2.0","id":1,"method":"daemon.info"}\n')
        client.recv(65536)
        wall = time.perf_counter() - begun
    fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    process.terminate()
    process.wait(60)
    return wall, (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def at_rest(times: int) -> None:
    """Measure what needs no run."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(
        prefix="bench", dir=memory if os.access(memory, os.W_OK) else None
    ) as name:
        base = Path(name)
        daemon = Daemon(base)
        none = lambda: timed([sys.executable, "-c", "pass"], daemon.env)  # noqa: E731 - one line says it
        try:
            print("sictl status:", ratios(lambda: timed([BIN / "sictl", "status"], daemon.env), none, times))
            time.sleep(12)  # the threads of its start are gone then
            before, waited = wake_ups(daemon.process.pid), 20.0
            time.sleep(waited)
            after = wake_ups(daemon.process.pid)
            woken = sum(after[name] - before.get(name, 0) for name in after)
            print(f"at rest: {woken / waited:.2f} wake-ups a second")
        finally:
            daemon.process.terminate()
            daemon.process.wait(30)
        print("start to daemon.info:", ratios(lambda: started(base, daemon.env), none, max(3, times // 3)))


def wake_ups(pid: int) -> dict[str, int]:
    """Return how often each thread of a process has slept so far."""
    told = {path.parent.name: path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/status")}
    return {name: int(text.split("voluntary_ctxt_switches:")[1].split()[0]) for name, text in told.items()}


def at_work(calls: int) -> None:
    """Measure answers beside a run."""
    with daemon_with_run(8, 50, RUN) as (daemon, repo):
        daemon.call("run.start", repo=repo)
        run = daemon.call("run.list")["runs"][0]["run_id"]
        readers = []
        for _ in range(10):
            reader = socket.socket(socket.AF_UNIX)
            reader.connect(daemon.env["SID_SOCKET"])
            reader.sendall(b'{"jsonrpc":"2.0","id":1,"method":"log.subscribe","params":{"since":0}}\n')
            readers.append(reader)
        for method, params in (("daemon.info", {}), ("run.status", {"run": run})):
            took = []
            for _ in range(calls):
                begun = time.perf_counter()
                daemon.call(method, **params)
                took.append(1000 * (time.perf_counter() - begun))
                time.sleep(0.005)
            took.sort()
            p50, p99 = took[len(took) // 2], took[int(len(took) * 0.99)]
            told = f", lag p99 {p99 - took[0]:.1f} ms" if method == "daemon.info" else ""
            print(f"{method} at work: p50 {p50:.2f} ms, p99 {p99:.1f} ms, most {took[-1]:.1f}{told}")
        print(json.dumps({"rss_mb": round(daemon.rss_mb(), 1)}))
        for reader in readers:
            reader.close()


def followed(followers: int, rate: int) -> dict[str, float]:
    """Run one round whose four executors log so many records a second for five seconds; return what it took."""
    with daemon_with_run(4, 1, RUN) as (daemon, repo):
        script = daemon.base / "agent.sh"
        talks = f"python3 -c {shlex.quote(TALK.format(lines=rate // 4 // 50))}"
        script.write_text(script.read_text().replace(f"sleep {RUN.agent_s};", f"{talks};"))
        reader = subprocess.Popen(
            [sys.executable, str(FOLLOWERS), daemon.env["SID_SOCKET"], str(followers), "0"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert reader.stdin is not None
        assert reader.stdout is not None
        reader.stdout.readline()
        before, begun = daemon.cpu_s()[0], time.perf_counter()
        daemon.call("run.start", repo=repo)
        while daemon.call("daemon.info")["runs"]:
            time.sleep(0.05)
        took, cpu = time.perf_counter() - begun, daemon.cpu_s()[0] - before
        last = daemon.call("log.subscribe", follow=False)["cursor"]
        told = json.loads(reader.communicate(f"{last}\n")[0])
        lost = sum(one["lost"] for one in told) / max(1, sum(one["last"] for one in told))
        return {"took": took, "cpu": cpu, "records": last, "lost": lost, "rss": daemon.rss_mb()}


def followers(count: int, rate: int) -> None:
    """Measure a run with many followers beside the same run with none."""
    none, many = followed(0, rate), followed(count, rate)
    each = (many["cpu"] - none["cpu"]) / (many["records"] * count)
    print(
        f"{count} followers at {rate} records a second: the run {many['took'] / none['took']:.2f} times as long as with none "
        f"({many['took']:.1f} and {none['took']:.1f} s), the daemon's CPU {many['cpu'] / none['cpu']:.2f} times, "
        f"{1e6 * each:.2f} µs a record and follower; {100 * many['lost']:.0f} % lost; {many['rss']:.0f} MiB and {none['rss']:.0f}"
    )


def main() -> None:
    """Print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--times", type=int, default=15)
    parser.add_argument("--calls", type=int, default=400)
    parser.add_argument("--followers", type=int, default=200)
    parser.add_argument("--rate", type=int, default=2000)
    options = parser.parse_args()
    print(f"load before: {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores")
    at_rest(options.times)
    at_work(options.calls)
    followers(options.followers, options.rate)
    print(f"load after: {os.getloadavg()[0]:.2f}")


if __name__ == "__main__":
    main()
