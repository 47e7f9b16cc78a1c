"""Measuring through the real daemon: a benchmark whose truth is known, and what the daemon makes of it.

The benchmark prints a number times seeded noise, so a test can ask for any truth; it notes when each of its runs
began and ended, outside of the daemon's reach.
"""

from __future__ import annotations

import json
import os
import time
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from sid_daemon.core.measuring import selection
from sid_daemon.core.run import step
from sid_daemon.runs.snapshots import dump_state, fold
from sid_daemon.store.journal import Journal
from sid_protocol.events import parse_event
from tests.conftest import MakeRepo
from tests.e2e.harness import World, sandbox_works
from tests.repos import Repo

BENCH = """\
import fcntl, hashlib, math, os, sys, time
began = time.monotonic_ns()
folder, sd = sys.argv[1], float(sys.argv[2])
with open(folder + "/count", "a+") as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    file.seek(0)
    run = int(file.read() or 0)
    file.truncate(0)
    file.write(str(run + 1))
bits = hashlib.blake2b(f"7 {run}".encode(), digest_size=16).digest()
u, v = (int.from_bytes(bits[i : i + 8], "big") / 2**64 for i in (0, 8))
noise = math.sqrt(-2 * math.log(1 - u)) * math.cos(2 * math.pi * v)
text = open("value.txt").read().strip()
time.sleep(600 if text == "slow" else 0)
print(text if text == "nan" else float(text) * (1 + sd * noise))
with open(folder + "/spans", "a") as file:
    file.write(f"{began} {time.monotonic_ns()}\\n")
"""


LIMIT_S = 20
"""An executor's deadline: more than the other run takes from its start to its first run that counts."""


def noisy_repo(world: World, repo: MakeRepo, name: str = "repo") -> tuple[Repo, Path]:
    """Return a repository whose score is about 100, and the folder in which its benchmark notes its runs."""
    out = world.base / f"out-{name}"
    out.mkdir()
    return repo({"bench.py": BENCH, "value.txt": "100.0\n", "README.md": "One number.\n"}, name=name), out


def set_up(
    world: World, repo: Repo, out: Path, *values: Any, sd: float = 0.01, agents: int = 1, **more: Any
) -> Any:
    """Set a noisy repository up; each planner's candidate sets the next of `values`."""
    agent = world.agent(f"agent-{out.name}")
    names = [f"planner_{letter}" for letter in "abcd"]
    agent.script(
        *(
            {"role": "planner", "agent": name, "change": f"{value}\n"}
            for name, value in zip(names, values, strict=False)
        )
    )
    settings = {"measurement": {"screen_blocks": 2, **more.pop("measurement", {})}, **more}
    world.init(
        repo,
        agent,
        *("--benchmark", f"python3 -IS bench.py {out} {sd}", "--sealed", "bench.py"),
        *("--set", f'benchmark_paths=["{out}:rw"]'),
        *(word for key, value in settings.items() for word in ("--set", f"{key}={json.dumps(value)}")),
        agents=max(agents, len(values)),
    )
    return agent


def whole(world: World, repo: Repo, number: int) -> dict[str, Any]:
    """Return a round whole."""
    found: dict[str, Any] = world.sictl("show", repo.path, str(number), "--json").json["round"]
    return found


def spans(*folders: Path) -> list[tuple[int, int]]:
    """Return when benchmark runs began and ended, in the order of their beginnings."""
    found = []
    for folder in folders:
        for line in (folder / "spans").read_text().splitlines():
            began, ended = line.split()
            found.append((int(began), int(ended)))
    return sorted(found)


def database(repo: Repo) -> Path:
    return repo.path / ".sid/topics/default/state/run.db"


def test_a_true_gain_is_found_in_noise_and_its_whole_story_is_told(world: World, repo: MakeRepo) -> None:
    made, out = noisy_repo(world, repo)
    set_up(world, made, out, 110.0)
    said = world.run(made, "--rounds", "1").out
    found = whole(world, made, 1)

    assert found["summary"]["status"] == "merged", found["summary"]
    low, high = found["summary"]["ci"]
    told = found["merge_report"]["measurement"]
    # Of log 1.1, by four standard errors of the fewest pairs: the order of arms, and with it the noise, is each run's own.
    true_gain = pytest.approx(0.0953, abs=0.03)
    assert told["gain"] == true_gain
    assert low < told["gain"] < high
    assert told["n_pairs"] == found["summary"]["n"] >= 4
    pairs = [run for run in found["runs"] if run["stage"] == "confirm"]
    assert {run["arm"] for run in pairs} == {"A", "merged"}
    assert len(pairs) == 2 * told["n_pairs"] + 2 * told["void_pairs"]
    assert "".join("A" if run["arm"] == "A" else "B" for run in pairs) == told["order"]
    assert all(run["exit"] == 0 and run["at"] and run["cpu_s"] > 0 and run["tree"] for run in found["runs"])
    result = found["results"][0]["measurement"]
    assert result["samples"] == [run["score"] for run in pairs if run["arm"] == "merged"]
    assert result["n"] == told["n_pairs"]
    assert result["interval"] == found["summary"]["ci"] or result["interval"][0] == pytest.approx(
        low, abs=1e-4
    )
    message = made.git("log", "-1", "--format=%B", f"improve/{'raise_the_number'}")
    assert f"n={told['n_pairs']} pairs" in message
    assert "p<=" in message
    past = world.sictl("history", made.path).out
    assert past.splitlines()[-1].startswith("total since baseline +")
    shown = world.sictl("show", made.path, "1").out
    assert "benchmark runs" in shown
    assert f"n={told['n_pairs']}" in shown
    events = json.loads((made.path / ".sid/topics/default/tracking/events.json").read_text())
    audit = next(one for one in events if one["event_type"] == "audit")["details"]
    assert audit["gain"] == true_gain
    assert audit["ci"][0] < audit["gain"] < audit["ci"][1]
    assert f"n={audit['n']} pairs (sum of wins would say" in said
    raw = json.loads((made.path / ".sid/topics/default/tracking/raw_data.json").read_text())
    assert raw[0]["measurement"]["n"] == told["n_pairs"]
    assert all(later[0] >= earlier[1] for earlier, later in pairwise(spans(out)))


def test_a_daemon_killed_in_mid_decision_loses_one_pair_at_most_and_counts_none_twice(
    world: World, repo: MakeRepo
) -> None:
    made, out = noisy_repo(world, repo)
    set_up(world, made, out, 103.0, measurement={"max_pairs": 12, "audit_every": 50})
    with world.wire() as wire:
        wire.follow()
        world.sictl("start", made.path, "--rounds", "1")
        for _ in range(5):
            wire.until("benchmark_sample", stage="confirm")
    world.kill()
    journal = Journal(database(made))
    before, seq = fold(journal), journal.seq
    journal.close()
    assert before is not None
    assert before.round is not None
    assert before.round.selection is not None

    world.run(made, "--rounds", "1")

    journal = Journal(database(made))
    kept = [body for number, body in journal.events_after(0) if number <= seq]
    journal.close()
    state = None
    for body in kept:
        state = stepped(state, body)
    assert state is not None
    assert dump_state(state) == dump_state(before)
    assert selection.next_ask(state.now_round.selection) == selection.next_ask(before.round.selection)
    found = whole(world, made, 1)
    pairs = [(run["block"], run["arm"]) for run in found["runs"] if run["stage"] == "confirm"]
    assert len(pairs) == len(set(pairs))
    assert found["merge_report"]["measurement"]["n_pairs"] == len(pairs) // 2


def stepped(state: Any, body: str) -> Any:
    """Fold one event of a journal, as the daemon does."""
    after, _ = step(state, parse_event(body))
    return after


def test_benchmarks_of_two_runs_never_overlap(world: World, repo: MakeRepo) -> None:
    first, out = noisy_repo(world, repo, "first")
    second, other = noisy_repo(world, repo, "second")
    set_up(world, first, out, "100.00", measurement={"max_pairs": 6})
    set_up(world, second, other, "100.00", measurement={"max_pairs": 6})

    going = [world.start_sictl("start", one.path, "--rounds", "1", "--wait") for one in (first, second)]
    assert [world.finish(process).code for process in going] == [0, 0]

    found = spans(out, other)
    assert len(spans(out)) > 8
    assert len(spans(other)) > 8
    assert all(later[0] >= earlier[1] for earlier, later in pairwise(found))


@pytest.mark.slow
def test_other_runs_agents_stand_still_while_one_measures_quietly_and_no_deadline_passes_over_it(
    world: World, repo: MakeRepo
) -> None:
    made, out = noisy_repo(world, repo)
    # After set-up's five, the candidate's first and the warm-up it waits until the test has looked.
    gated = BENCH.replace("time.sleep(", "if run == 7:\n    open(folder + '/gate').read()\ntime.sleep(")
    made.commit({"bench.py": gated}, "Wait once")
    os.mkfifo(out / "gate")
    set_up(world, made, out, "100.00", measurement={"quiet": True, "max_pairs": 6})
    other = repo({"bench.sh": "cat value.txt\n", "value.txt": "1\n", "README.md": "x\n"}, name="other")
    restless = world.agent("restless")
    restless.script({"role": "executor", "beat": True})
    world.init(other, restless, "--set", f'deadlines={{"executor": {LIMIT_S}}}')
    beats = restless.folder / "seen" / "beats"
    with world.wire() as wire:
        wire.follow()
        world.sictl("start", other.path, "--rounds", "1")
        wire.until("executor_started")
        going = world.start_sictl("start", made.path, "--rounds", "1", "--wait")
        with (out / "gate").open("w"):  # there is a reader: the run is on
            before = beats.read_text()
            told = world.sictl("status", other.path).out
            assert "stands still while another run measures" in told
            time.sleep(LIMIT_S + 1)
            assert beats.read_text() == before
        assert world.finish(going).code == 0
        (restless.folder / "seen" / "enough").touch()
        wire.until("merged")
        wire.until("run_ended")
    at_work = [int(line) for line in beats.read_text().split()]
    measured = spans(out)[6:]
    assert len(measured) >= 5
    assert not [at for at in at_work for began, ended in measured if began < at < ended]
    assert at_work[-1] > measured[-1][1]
    assert world.rounds(other)[0]["force_kills"] == 0
    assert world.rounds(other)[0]["status"] == "merged"


MEETING = """\
value=$(cat value.txt)
pwd >> "$1/seen"
if [ "$value" != 1 ] && [ ! -e "$1/met" ]; then
    touch "$1/value.$value"
    while [ "$(ls "$1" | grep -c '^value')" -lt 2 ]; do sleep 0.05; done
    touch "$1/met"
fi
echo "$value"
"""


@pytest.mark.skipif(not sandbox_works(), reason="runs at the same time need the sandbox")
def test_with_two_slots_two_candidates_are_measured_at_once_at_the_same_path(
    world: World, repo: MakeRepo
) -> None:
    # Each of the two waits until the other has begun: one at a time they would never end.
    made = repo({"bench.sh": MEETING, "value.txt": "1\n", "README.md": "One number.\n"})
    out = world.base / "out"
    out.mkdir()
    agent = world.agent()
    agent.script(*({"role": "planner", "agent": f"planner_{x}", "change": y} for x, y in ("a5", "b7")))
    world.init(
        made,
        agent,
        *("--benchmark", f"sh bench.sh {out}", "--sealed", "bench.sh"),
        *("--set", f'benchmark_paths=["{out}:rw"]', "--set", 'measurement={"slots": 2, "run_timeout": 30}'),
        agents=2,
    )
    world.run(made, "--rounds", "1")
    found = whole(world, made, 1)

    assert [one["benchmark_score"] for one in found["results"]] == [5.0, 7.0]
    assert found["summary"]["status"] == "merged"
    assert len(set((out / "seen").read_text().splitlines())) == 1


def test_what_needs_runs_at_the_same_time_is_refused_without_a_sandbox(world: World, repo: MakeRepo) -> None:
    made, _ = noisy_repo(world, repo)
    for setting in ('{"slots": 2}', '{"pairing": "duet"}'):
        refused = world.sictl(
            *("init", made.path, "--objective", "x", "--benchmark", "echo 1", "--trust"),
            *("--set", 'sandbox="off"', "--set", f"measurement={setting}"),
            code=5,
        )
        assert "sictl config set measurement." in refused.err


@pytest.mark.skipif(not sandbox_works(), reason="two runs at once need the sandbox")
def test_both_runs_of_a_duet_are_made_at_once_and_see_the_same_path(world: World, repo: MakeRepo) -> None:
    made, out = noisy_repo(world, repo)
    made.commit(
        {"bench.py": BENCH + "open(folder + '/seen', 'a').write(os.getcwd() + chr(10))\n"}, "Tell where"
    )
    set_up(world, made, out, 110.0, measurement={"pairing": "duet", "max_pairs": 8})
    world.run(made, "--rounds", "1")
    found = whole(world, made, 1)

    pairs = [run for run in found["runs"] if run["stage"] == "confirm"]
    assert len(pairs) >= 8
    for first, second in zip(pairs[::2], pairs[1::2], strict=True):
        assert first["block"] == second["block"]
        assert {first["arm"], second["arm"]} == {"A", "merged"}
        assert first["tree"] != second["tree"]
    assert found["merge_report"]["measurement"]["pairing"] == "duet"
    assert found["merge_report"]["measurement"]["gain"] == pytest.approx(0.0953, abs=0.03)
    assert len(set((out / "seen").read_text().splitlines())) == 1
    began = [datetime.fromisoformat(run["at"]).timestamp() for run in pairs]
    ended = [start + run["wall_s"] for start, run in zip(began, pairs, strict=True)]
    assert any(began[one + 1] < ended[one] for one in range(0, len(pairs), 2))


def test_nan_and_a_run_without_end_are_no_scores_and_blame_only_their_candidate(
    world: World, repo: MakeRepo
) -> None:
    made, out = noisy_repo(world, repo)
    set_up(world, made, out, "nan", "slow", measurement={"run_timeout": 2})
    world.run(made, "--rounds", "1")
    found = whole(world, made, 1)

    results = {one["executor_id"]: one for one in found["results"]}
    assert results["executor_1"]["failure_analysis"]["category"] == "benchmark_parse_error"
    assert results["executor_2"]["status"] == "timeout"
    assert all(one["benchmark_score"] is None for one in results.values())
    assert found["summary"]["status"] == "no_winner"
    assert not [run for run in found["runs"] if run["arm"] == "A" and run["status"] != "success"]


def test_a_benchmark_is_calibrated_again_at_any_time_but_while_its_run_is_active(
    world: World, repo: MakeRepo
) -> None:
    made, out = noisy_repo(world, repo)
    agent = set_up(world, made, out, 100.0, sd=0.0)
    assert world.row(made)["interval"] is None

    exact = world.sictl("calibrate", made.path, "--json").json["calibration"]
    assert exact["mode"] == "deterministic"
    assert exact["score"] == exact["score_before"] == 100.0
    made.git("checkout", "--quiet", "main")
    text = world.sictl("calibrate", made.path).out
    assert "deterministic, best score 100.0" in text

    world.init(
        made,
        agent,
        "--benchmark",
        f"python3 -IS bench.py {out} 0.02",
        "--set",
        f'benchmark_paths=["{out}:rw"]',
    )
    noisy = world.sictl("calibrate", made.path, "--json").json["calibration"]
    assert noisy["mode"] == "noisy"
    assert len(noisy["samples"]) == 5
    assert any("gains of" in note for note in noisy["notes"])

    agent.script({"role": "researcher", "wait": "research"})
    with world.wire() as wire:
        wire.follow()
        world.sictl("start", made.path, "--rounds", "1")
        wire.until("step_started", step="research")
    refused = world.sictl("calibrate", made.path, "--json", code=5)
    assert refused.json["error"]["code"] == "already_running"
    world.sictl("stop", made.path, "--now")


def long_run(world: World, repo: Repo, rounds: int) -> None:
    """Start a run of many rounds and wait for its end."""
    with world.wire(limit_s=600) as wire:
        wire.follow()
        world.sictl("start", repo.path, "--rounds", str(rounds))
        wire.until("run_ended")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_where_nothing_is_better_nothing_is_merged(world: World, repo: MakeRepo) -> None:
    made, out = noisy_repo(world, repo)
    set_up(world, made, out, "100.00", "1e2", sd=0.02, circuit_breaker_threshold=100)
    long_run(world, made, 20)

    assert len(world.rounds(made)) == 20
    assert [one["status"] for one in world.rounds(made)].count("merged") == 0
    assert abs(world.row(made)["best_score"] - 100.0) < 2.0
    assert all(later[0] >= earlier[1] for earlier, later in pairwise(spans(out)))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_flaky_test_suite_merges_no_tie(world: World, repo: MakeRepo) -> None:
    out = world.base / "out"
    out.mkdir()
    # Every seventh run fails, so that set-up's five pass.
    flaky = (
        "import sys\nwith open(sys.argv[1], 'a+') as file:\n    file.write('x')\n"
        "    file.seek(0)\n    sys.exit(len(file.read()) % 7 == 0)\n"
    )
    made = repo({"bench.py": flaky, "value.txt": "1\n", "README.md": "x\n"})
    world.init(
        made,
        world.agent(),
        *("--benchmark", f"python3 -IS bench.py {out}/runs", "--format", "pass_fail", "--sealed", "bench.py"),
        *("--set", f'benchmark_paths=["{out}:rw"]', "--set", "circuit_breaker_threshold=100"),
        *("--set", 'measurement={"mode": "noisy", "max_pairs": 12}'),
    )
    long_run(world, made, 5)

    assert (out / "runs").stat().st_size > 15
    assert [one["status"] for one in world.rounds(made)].count("merged") == 0
