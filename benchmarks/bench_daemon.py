"""The daemon itself: its start, `sictl status`, answers while a run is at work, many followers of the log, wake-ups at rest.

Whole processes are timed side by side with `python -c pass`, in turn, so that a busy machine slows both; told are the least and the
median of each, and CPU time before wall time, which says more about the machine's other users. Answers are timed with a run of
32 executors at work and ten subscribers. A loop's lag is what an answer that needs no thread (`daemon.info`) took beyond the
quickest.

    python benchmarks/bench_daemon.py [--times 40] [--calls 400] [--followers 200] [--rate 2000]
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
import time
from collections.abc import Callable
from functools import partial
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
RUN = argparse.Namespace(folder=None, agent_s=0.5, bench_s=0.1, files=0, candidates=0)


def timed(argv: list[str | Path], env: dict[str, str]) -> tuple[float, float]:
    """Run a process; returns its wall and its CPU seconds."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(argv, check=True, env=env, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - begun, cpu


def compare(things: dict[str, Callable[[], tuple[float, float]]], times: int) -> None:
    """Measure things in turn; print least and median of each, and how they stand to those of the first."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in things}
    for _ in range(times):
        for name, thing in things.items():
            taken[name].append(thing())
    first = next(iter(taken.values()))
    for name, pairs in taken.items():
        told = []
        for kind, number in (("CPU", 1), ("wall", 0)):
            values, beside = [pair[number] for pair in pairs], [pair[number] for pair in first]
            least, middle = min(values), statistics.median(values)
            times_more = least / min(beside), middle / statistics.median(beside)
            told.append(
                f"{kind} {1000 * least:.1f} ({1000 * middle:.1f}) ms, {times_more[0]:.2f} ({times_more[1]:.2f}) times"
            )
        print(f"  {name:22} {'; '.join(told)}")


def started(daemon: Daemon, *calls: tuple[str, dict[str, str]]) -> tuple[float, float]:
    """Start a daemon where one has been, call it; returns wall and CPU seconds until the last answer."""
    read_end, write_end = os.pipe()
    begun = time.perf_counter()
    process = subprocess.Popen(
        [BIN / "sid", "--ready-fd", str(write_end)],
        env=daemon.env,
        pass_fds=(write_end,),
        stderr=subprocess.DEVNULL,
    )
    os.close(write_end)
    with os.fdopen(read_end, "rb") as ready:
        ready.readline()
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(daemon.env["SID_SOCKET"])
        lines = client.makefile("rb")
        for method, params in calls:
            request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            client.sendall(json.dumps(request).encode() + b"\n")
            reply = json.loads(lines.readline())
            assert "result" in reply, reply
        wall = time.perf_counter() - begun
        # The clock of another process's CPU time, from clock_getcpuclockid(3).
        cpu = time.clock_gettime((~process.pid << 3) | 2)
        if calls[-1][0] == "run.start":
            params = {"run": reply["result"]["run_id"], "now": True}
            client.sendall(json.dumps({**request, "method": "run.cancel", "params": params}).encode() + b"\n")
            lines.readline()
    process.terminate()
    process.wait(60)
    return wall, cpu


def at_rest(times: int) -> None:
    """Measure what needs no work of a run."""
    none = lambda: timed([sys.executable, "-c", "pass"], dict(os.environ))  # noqa: E731 - one line says it
    with daemon_with_run(3, 50, RUN) as (daemon, repo):
        words: dict[str, list[str | Path]] = {
            "sictl status": [BIN / "sictl", "status"],
            "sictl status .": [BIN / "sictl", "status", repo],
            "sictl status --json": [BIN / "sictl", "status", "--json"],
        }
        print("sictl, whole processes:")
        compare(
            {
                "python -c pass": none,
                **{name: partial(timed, argv, daemon.env) for name, argv in words.items()},
            },
            times,
        )
        time.sleep(12)  # the threads of its start are gone then
        before, waited = wake_ups(daemon.process.pid), 20.0
        time.sleep(waited)
        after = wake_ups(daemon.process.pid)
        woken = sum(after[name] - before.get(name, 0) for name in after)
        print(f"at rest: {woken / waited:.2f} wake-ups a second")
        daemon.process.terminate()
        daemon.process.wait(30)
        info, start = ("daemon.info", {}), ("run.start", {"repo": repo})
        print("sid, from its start until it has answered:")
        compare(
            {
                "python -c pass": none,
                "daemon.info": lambda: started(daemon, info),
                "run.start": lambda: started(daemon, start),
                "daemon.info, run.start": lambda: started(daemon, info, start),
            },
            max(3, times // 3),
        )


def wake_ups(pid: int) -> dict[str, int]:
    """Return how often each thread of a process has slept so far."""
    told = {path.parent.name: path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/status")}
    return {name: int(text.split("voluntary_ctxt_switches:")[1].split()[0]) for name, text in told.items()}


def loop_s(daemon: Daemon) -> tuple[float, float]:
    """Return how long a daemon's loop has run, and stood ready to run while others had the processors, in seconds."""
    ran, waited, _ = (
        Path(f"/proc/{daemon.process.pid}/task/{daemon.process.pid}/schedstat").read_text().split()
    )
    return int(ran) / 1e9, int(waited) / 1e9


def at_work(calls: int) -> None:
    """Measure answers beside a run."""
    with daemon_with_run(32, 50, RUN) as (daemon, repo):
        daemon.call("run.start", repo=repo)
        run = daemon.call("run.list")["runs"][0]["run_id"]
        readers = []
        for _ in range(10):
            reader = socket.socket(socket.AF_UNIX)
            reader.connect(daemon.env["SID_SOCKET"])
            reader.sendall(b'{"jsonrpc":"2.0","id":1,"method":"log.subscribe","params":{"since":0}}\n')
            readers.append(reader)
        before = loop_s(daemon)
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
        used, waited = (now - then for now, then in zip(loop_s(daemon), before, strict=True))
        print(f"the loop used {used:.1f} s of a processor and waited {waited:.1f} s for one")
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
    parser.add_argument("--times", type=int, default=40)
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
