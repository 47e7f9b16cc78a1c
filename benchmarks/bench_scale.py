"""What a round costs after many others: a run is given so many recorded rounds, resumed, and goes on for a few.

A real run of three rounds is made once. Its second round is then entered into the database as often as is asked for, with
its documents, and in git with a tag, and a daemon is started on it. Printed are the time until the run goes on, and wall time,
CPU time of the daemon and its memory for each round that follows, beside the same with few rounds; then what it takes to look at
the run. What verifying finds is not told: of rounds that never were there are no files and no merges.

    python benchmarks/bench_scale.py [--rounds 50 10000] [--more 5]
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import statistics
import subprocess
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from bench_efficiency import Daemon, daemon_with_run

from sid_daemon.runs.snapshots import STATE_VERSION, dump_state, fold
from sid_daemon.store.journal import Journal

RUN = argparse.Namespace(folder=None, agent_s=0.0, bench_s=0.0, files=0, candidates=0)


def multiplied(database: Path, rounds: int) -> None:
    """Enter the second round again and again, until there are so many."""
    journal = Journal(database)
    state = fold(journal)
    journal.close()
    assert state is not None
    with closing(sqlite3.connect(database)) as db:
        ends = dict(
            db.execute(
                "SELECT path, seq FROM documents WHERE path LIKE 'state/iteration_history/%'"
            ).fetchall()
        )
        first, last = (ends[f"state/iteration_history/round_{n}.json"] for n in (1, 2))
        events = db.execute(
            "SELECT at, kind, body FROM events WHERE seq > ? AND seq <= ?", (first, last)
        ).fetchall()
        documents = db.execute(
            "SELECT path, body FROM documents WHERE path LIKE '%/round_2/%' OR path LIKE '%/round_2.json'"
        ).fetchall()
        entries = db.execute(
            "SELECT file, body FROM entries WHERE body LIKE '{\"iteration\": 2,%' OR body LIKE '{\"round\": 2,%' OR body LIKE '2\t%'"
        ).fetchall()
        (seq,) = db.execute("SELECT max(seq) FROM events").fetchone()
        for number in range(state.completed + 1, rounds + 1):
            for at, kind, body in events:
                seq += 1
                db.execute("INSERT INTO events VALUES (?, ?, ?, ?)", (seq, at, kind, as_round(body, number)))
            for path, body in documents:
                row = (path.replace("round_2", f"round_{number}"), as_round(body, number), seq)
                db.execute("INSERT INTO documents VALUES (?, ?, ?)", row)
            for file, body in entries:
                row = (file, as_round(body, number), file)
                db.execute(
                    "INSERT INTO entries SELECT ?, coalesce(max(ord), 0) + 1, ? FROM entries WHERE file = ?",
                    row,
                )
        grown = replace(state, completed=rounds, iteration=rounds)
        db.execute(
            "INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?)", (seq, STATE_VERSION, dump_state(grown))
        )
        db.execute("UPDATE marks SET seq = ?", (seq,))
        db.commit()


def tagged(repo: str, rounds: int, env: dict[str, str]) -> None:
    """Give every round that was entered the tag of its loser."""
    head = subprocess.check_output(["git", "-C", repo, "rev-parse", "main"], env=env, text=True).strip()
    refs = (f"create refs/tags/archive/round_{number}_executor_1 {head}\n" for number in range(4, rounds + 1))
    subprocess.run(
        ["git", "-C", repo, "update-ref", "--stdin"], input="".join(refs), text=True, check=True, env=env
    )


def looked_at(daemon: Daemon, rounds: int) -> str:
    """Time what reads a run; returns a line of it."""
    run = daemon.call("run.list")["runs"][0]["run_id"]
    told = []
    for method, params in (
        ("run.list", {}),
        ("run.status", {"run": run}),
        ("run.round", {"run": run, "iteration": rounds // 2}),
        ("run.history", {"run": run, "since": max(0, rounds - 100)}),
        ("run.verify", {"run": run}),
    ):
        begun, cpu = time.monotonic(), daemon.cpu_s()[0]
        daemon.call(method, **params)
        took, used = time.monotonic() - begun, daemon.cpu_s()[0] - cpu
        told.append(f"{method} {1000 * took:.0f} ms ({1000 * used:.0f} CPU, {daemon.rss_mb():.0f} MiB)")
    return ", ".join(told)


def as_round(text: str, number: int) -> str:
    """Return a text of the second round as one of another."""
    for old, new in (
        ('"r2.', f'"r{number}.'),
        ("round_2", f"round_{number}"),
        ('"iteration": 2', f'"iteration": {number}'),
        ('"round": 2', f'"round": {number}'),
        ('"round":2', f'"round":{number}'),
    ):
        text = text.replace(old, new)
    return f"{number}{text[1:]}" if text.startswith("2\t") else text


def measure(rounds: int, more: int) -> tuple[dict[str, float], str]:
    """Resume a run of so many rounds, let it go on for some more, and look at it."""
    with daemon_with_run(2, 3, RUN) as (daemon, repo):
        daemon.call("log.subscribe", since=0)
        daemon.call("run.start", repo=repo)
        daemon.until("run_ended")
        daemon.process.terminate()
        daemon.process.wait(30)
        database = Path(repo, ".sid/topics/default/state/run.db")
        multiplied(database, rounds)
        tagged(repo, rounds, daemon.env)
        settings = Path(repo, ".sid/topics/default/config/settings.json")
        go_on = {
            "max_iterations": rounds + more,
            "plateau_window": rounds,
            "circuit_breaker_threshold": rounds,
        }
        settings.write_text(json.dumps({**json.loads(settings.read_text()), **go_on}))
        for copy in (daemon.base / "state/copies").glob("*.db"):
            copy.unlink()
        (daemon.base / "s/sid.sock").unlink(missing_ok=True)

        begun = time.monotonic()
        again = Daemon(daemon.base)
        again.socket.settimeout(120)
        daemon.process = again.process
        (cursor,) = (again.call("log.subscribe")["cursor"],)
        up = time.monotonic()
        again.call("run.start", repo=repo)
        started = time.monotonic()
        again.records.clear()
        walls, cpus, weights = [], [], []
        for _ in range(more):
            at, cpu = time.monotonic(), again.cpu_s()[0]
            again.until("round_recorded")
            walls.append(time.monotonic() - at)
            cpus.append(again.cpu_s()[0] - cpu)
            weights.append(again.rss_mb())
        again.until("run_ended")
        assert cursor >= 0
        figures = {
            "mb": database.stat().st_size / 2**20,
            "up_s": up - begun,
            "resume_s": started - up,
            "wall_s": statistics.median(walls[1:]),
            "cpu_s": statistics.median(cpus[1:]),
            "rss_mb": weights[-1],
        }
        return figures, looked_at(again, rounds)


def main() -> None:
    """Print a row for each number of rounds."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, nargs="+", default=[50, 10_000])
    parser.add_argument("--more", type=int, default=5)
    options = parser.parse_args()
    print(f"load before: {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores; two candidates a round")
    first: dict[str, float] = {}
    for rounds in options.rounds:
        got, looks = measure(rounds, options.more)
        first = first or got
        print(
            f"{rounds} rounds recorded, {got['mb']:.0f} MiB: up in {got['up_s']:.2f} s, going on {got['resume_s']:.2f} s later; "
            f"a round {got['wall_s']:.2f} s, {1000 * got['cpu_s']:.0f} ms CPU ({got['cpu_s'] / first['cpu_s']:.2f} times); "
            f"{got['rss_mb']:.0f} MiB\n  {looks}"
        )
    print(f"load after: {os.getloadavg()[0]:.2f}")


if __name__ == "__main__":
    main()
