"""Stopping, pausing, dying and going on: no round is lost, none is done twice, and nothing is left running."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.conftest import MakeRepo
from tests.e2e.contract_files import load, rows_of
from tests.e2e.harness import BIN, HANG_S, SEALED_BENCHMARK, World, clean_repository, watched
from tests.repos import Repo

GATED_BENCHMARK = {
    **SEALED_BENCHMARK,
    # Whoever opens the gate for writing knows that a benchmark waits at it.
    "bench.sh": '[ "$SID_ITERATION" = 2 ] && [ -p "$(cat gate-path)" ] && cat "$(cat gate-path)"\ncat value.txt\n',
}


@contextmanager
def at_gate(gate: Path) -> Iterator[None]:
    """Hold whoever waits at a gate, once somebody does; the gate opens when the block ends."""
    with gate.open("w"):
        yield


def check_every_round_once(repo: Repo, rounds: int) -> None:
    """Check that each round is on record exactly once, in every place that tells of it."""
    root, numbers = repo.path / ".sid/topics/default", list(range(1, rounds + 1))
    subjects = repo.git("log", "--first-parent", "--reverse", "--format=%s", "main..improve/raise_the_number")
    assert [subject.split(":")[0] for subject in subjects.splitlines()] == [f"Iteration {n}" for n in numbers]
    assert [entry["iteration"] for entry in load(root / "tracking/raw_data.json")] == numbers
    _, rows = rows_of((root / "tracking/results.tsv").read_text())
    assert [int(row["iteration"]) for row in rows] == [0, *numbers]
    assert all(load(root / f"state/iteration_history/round_{n}.json")["winner"] for n in numbers)


def kill_at(world: World, gate: Path, *, group: bool) -> None:
    """Kill the daemon while somebody waits at a gate; whoever worked for it must end with it."""
    with at_gate(gate):
        jobs = [process for process in world.processes() if "sid" not in Path(process.exe()).name]
        jobs = [process for process in jobs if not is_control(process)]
        assert jobs, "nothing runs at the gate"
        with watched(job.pid for job in jobs) as watch:
            world.kill(group=group)
            assert watch.alive() == [], "survived its daemon"
    gate.unlink()


def is_control(process: psutil.Process) -> bool:
    return any(word.endswith(("/bin/sid", "/bin/sictl")) for word in process.cmdline()[:2])


STEPS = {
    "research": ({"role": "researcher", "round": 2, "turn": 1, "wait": "gate"},),
    "planning": ({"role": "planner", "round": 2, "turn": 1, "wait": "gate"},),
    "review": ({"role": "critic", "round": 2, "turn": 1, "wait": "gate"},),
    "execution": ({"role": "executor", "round": 2, "turn": 1, "wait": "gate"},),
    "benchmark": (),
    "tournament": (),
}


@pytest.mark.parametrize(
    ("step", "group"),
    [
        pytest.param(step, group, marks=() if (step, group) == ("execution", True) else pytest.mark.slow)
        for step in STEPS
        for group in (False, True)
    ],
)
def test_a_killed_daemon_costs_no_round(world: World, repo: MakeRepo, step: str, group: bool) -> None:
    agent = world.agent()
    agent.script(*STEPS[step])
    gate = agent.folder / "gates/gate"
    if not gate.exists():
        os.mkfifo(gate)
    numbers = repo(
        {**GATED_BENCHMARK, "gate-path": str(gate) if step in ("benchmark", "tournament") else "none"}
    )
    world.daemon()
    world.init(numbers, agent, "--set", f'benchmark_paths=["{agent.folder}/gates"]')
    world.sictl("start", numbers.path, "--rounds", "3")
    if step == "tournament":
        with at_gate(gate):
            pass  # the candidate's own run
    kill_at(world, gate, group=group)

    done = world.run(numbers, "--json")

    # What was asked for, three rounds, still holds: the daemon went on with it by itself.
    assert (done.json["resumed"], done.json["status"]) == (True, "max_iterations")
    with clean_repository(numbers):
        check_every_round_once(numbers, 3)
    assert world.jobs() == []
    left = Path(tempfile.gettempdir()).glob(
        f"sid-{hashlib.sha256(str(world.state).encode()).hexdigest()[:12]}*"
    )
    assert list(left) == [], "temporary files of the dead daemon"
    role = STEPS[step][0]["role"] if STEPS[step] else None
    again = {tuple(name.split(".")[:2]) for name in agent.turns() if not name.endswith(".1")}
    assert again == ({("2", role)} if role else set()), "a turn that had ended was done again"


@pytest.mark.slow
def test_a_terminated_daemon_suspends_and_the_next_one_goes_on_by_itself(world: World, numbers: Repo) -> None:
    agent = world.agent()
    agent.script({"role": "executor", "round": 1, "turn": 1, "wait": "gate"})
    daemon = world.daemon()
    world.init(numbers, agent)
    world.sictl("start", numbers.path, "--rounds", "2")
    with at_gate(agent.folder / "gates/gate"):
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(HANG_S) == 0
        assert world.jobs() == []
        assert numbers.worktrees() == []

    world.daemon()
    with world.wire() as wire:
        assert wire.follow().until("run_ended")["status"] == "max_iterations"
    with clean_repository(numbers):
        check_every_round_once(numbers, 2)
    # That was no crash: it does not count towards the three.
    assert world.row(numbers)["status"] == "max_iterations"


@pytest.mark.parametrize(
    "how",
    [
        "stop --now",
        pytest.param("stop", marks=pytest.mark.slow),
        pytest.param("cancel", marks=pytest.mark.slow),
    ],
)
def test_a_stopped_run_keeps_what_is_finished_and_redoes_the_rest(
    world: World, numbers: Repo, how: str
) -> None:
    agent = world.agent()
    agent.script(
        {
            "role": "executor",
            "agent": "executor_2",
            "round": 1,
            "turn": 1,
            "hang": True,
            "children": ["setsid", "deaf"],
        }
    )
    world.daemon()
    world.init(numbers, agent, agents=2)
    with world.wire() as wire:
        wire.follow()
        world.sictl("start", numbers.path, "--rounds", "1")
        wire.until("benchmark_finished", actor="executor_1")
        stopped = world.sictl(*how.split(), numbers.path, "--json")
        assert stopped.json["status"] == "user_stopped"
        assert wire.until("run_ended")["status"] == "user_stopped"
    assert world.jobs() == []
    assert numbers.worktrees() == []
    root = numbers.path / ".sid/topics/default"
    assert load(root / "state/iteration_state.json")["status"] == "interrupted"
    assert load(root / "state/agent-settings.json")["status"] == "user_stopped"

    assert world.run(numbers, "--rounds", "1", "--json").json["resumed"] is True
    turns = [name for name in agent.turns() if ".executor." in name]
    assert turns == ["1.executor.executor_1.1", "1.executor.executor_2.1", "1.executor.executor_2.2"]
    (round_1,) = [world.sictl("show", numbers.path, "1", "--json").json["round"]]
    assert round_1["history"]["force_kills"] == [], "a stop is no force-kill"
    assert [result["benchmark_score"] for result in round_1["results"]] == [10.0, 9.0]


@pytest.mark.slow
def test_pause_holds_before_the_next_step_and_a_paused_run_can_be_stopped(
    world: World, numbers: Repo
) -> None:
    agent = world.agent()
    agent.script(
        {"role": "researcher", "round": 1, "turn": 1, "wait": "brief"},
        {"role": "researcher", "round": 2, "turn": 1, "wait": "second"},
    )
    world.daemon()
    world.init(numbers, agent)
    assert "has no round yet; start it: sictl start" in world.sictl("show", numbers.path, code=5).err
    with world.wire() as wire:
        wire.follow()
        world.sictl("start", numbers.path, "--rounds", "3")
        with at_gate(agent.folder / "gates/brief"):
            assert world.sictl("show").out.startswith("round 1: in progress")
            assert world.sictl("pause", "--json").json["status"] == "paused"
            assert world.sictl("pause", "--json").json["status"] == "paused"
        wire.until("brief_done")
        row = world.row(numbers)
        assert (row["status"], {actor["state"] for actor in row["actors"]}) == ("paused", {"waiting"})
        assert [name for name in agent.turns() if "planner" in name] == []
        assert world.sictl("resume", "--json").json["status"] == "running"
        wire.until("round_recorded")
        with at_gate(agent.folder / "gates/second"):
            world.sictl("pause")
            world.sictl("stop")
        assert wire.until("run_ended")["status"] == "user_stopped"
    assert world.jobs() == []
    world.run(numbers, "--rounds", "1")
    check_every_round_once(numbers, 2)


@pytest.mark.slow
def test_a_paused_run_stays_paused_in_the_next_daemon(world: World, numbers: Repo) -> None:
    agent = world.agent()
    agent.script({"role": "researcher", "round": 1, "turn": 1, "wait": "gate"})
    daemon = world.daemon()
    world.init(numbers, agent)
    world.sictl("start", numbers.path, "--rounds", "1")
    with at_gate(agent.folder / "gates/gate"):
        world.sictl("pause")
        daemon.send_signal(signal.SIGINT)
        assert daemon.wait(HANG_S) == 0
    world.daemon()
    with world.wire() as wire:
        wire.follow()
        wire.until("run_started", resumed=True)
        assert world.row(numbers)["status"] == "paused"
        world.sictl("resume")
        assert wire.until("run_ended")["status"] == "max_iterations"


@pytest.mark.slow
def test_two_repositories_at_once_but_one_run_a_repository(world: World, repo: MakeRepo) -> None:
    world.daemon()
    agents, repos = [], []
    for name in ("one", "two"):
        agent, made = world.agent(f"agent-{name}"), repo(SEALED_BENCHMARK, name=name)
        agent.script({"role": "planner", "round": 1, "wait": "gate"})
        world.init(made, agent)
        agents.append(agent)
        repos.append(made)
    world.init(repos[0], agents[0], "--topic", "Höher und weiter", "--objective", "another goal entirely")
    with world.wire() as wire:
        wire.follow()
        ids = [
            world.sictl("start", made.path, "--topic", "default", "--rounds", "1", "--json").json["run_id"]
            for made in repos
        ]
        with at_gate(agents[0].folder / "gates/gate"), at_gate(agents[1].folder / "gates/gate"):
            assert {row["status"] for row in world.sictl("status", "--json").json["runs"]} == {
                "running",
                "idle",
            }
            refused = world.sictl("start", repos[0].path, "--topic", "hoher-und-weiter", "--json", code=5)
            assert refused.json["error"]["code"] == "already_running"
            ambiguous = world.sictl("stop", "--json", cwd=world.base, code=2)
            assert all(run_id in ambiguous.json["error"]["hint"] for run_id in ids)
        ended = {wire.until("run_ended")["run_id"] for _ in ids}
    assert ended == set(ids)
    for made in repos:
        check_every_round_once(made, 1)
    agents[0].script()
    world.run(repos[0], "--topic", "hoher-und-weiter", "--rounds", "1")
    assert "improve/another_goal_entirely" in repos[0].branches()
    with clean_repository(repos[0]):
        assert (repos[0].path / ".sid/topics/hoher-und-weiter/state/run.db").exists()


def test_one_daemon_a_state_directory(world: World) -> None:
    world.daemon()
    before = world.daemon_pid()
    world.daemon(code=5)
    assert world.daemon_pid() == before


def test_a_stale_socket_is_replaced_and_a_file_of_the_users_is_not(world: World) -> None:
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(world.socket))
    daemon = world.daemon()
    assert world.socket.stat().st_mode & 0o777 == 0o600
    assert world.state.stat().st_mode & 0o777 == 0o700
    daemon.terminate()
    assert daemon.wait(HANG_S) == 0
    assert not world.socket.exists()
    world.socket.write_text("mine")
    world.daemon(code=5)
    assert world.socket.read_text() == "mine"


def test_a_socket_that_is_deleted_is_made_again(world: World) -> None:
    daemon, folder = world.daemon(), world.socket.parent
    with world.wire() as before:
        before.follow()
        world.socket.unlink()
        assert before.until("socket_made_again")["path"] == str(world.socket)
        assert world.daemon_pid() == daemon.pid
        shutil.rmtree(folder)
        before.until("socket_made_again")
        assert (folder.stat().st_mode & 0o777, world.socket.stat().st_mode & 0o777) == (0o700, 0o600)
        assert before.call("daemon.info")["pid"] == world.daemon_pid()
    daemon.terminate()
    assert daemon.wait(HANG_S) == 0
    assert not world.socket.exists()


@pytest.mark.slow
def test_a_daemon_takes_what_descriptors_it_may_have_and_dumps_no_core(world: World) -> None:
    def started(limits: str) -> subprocess.Popen[str]:
        command = f"{limits} && exec '{BIN}/sid'"
        return world.spawn(["sh", "-c", command], stderr=subprocess.PIPE, text=True, cwd="/")

    refused = started("ulimit -n 20")
    assert "ulimit -n 4096" in refused.communicate(timeout=HANG_S)[1].removesuffix("\n").splitlines()[0]
    assert refused.returncode == 5
    daemon = started("ulimit -Sn 100 && ulimit -Hn 512 && ulimit -Sc $(ulimit -Hc)")
    assert daemon.stderr
    daemon.stderr.readline()
    assert resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE) == (512, 512)
    assert resource.prlimit(daemon.pid, resource.RLIMIT_CORE)[0] == 0
    daemon.terminate()
    daemon.communicate(timeout=HANG_S)
    assert daemon.returncode == 0


@pytest.mark.slow
def test_an_idle_daemon_leaves_but_not_under_a_run(world: World, numbers: Repo) -> None:
    agent = world.agent()
    agent.script({"role": "planner", "round": 1, "wait": "gate"})
    daemon = world.daemon("--idle-exit", "0.05")
    with world.wire() as wire:
        wire.follow()
        world.init(numbers, agent)
        world.sictl("start", numbers.path, "--rounds", "1")
    with at_gate(agent.folder / "gates/gate"):
        assert world.row(numbers)["status"] == "running"
    assert daemon.wait(HANG_S) == 0
    world.daemon()
    assert world.row(numbers)["status"] == "max_iterations"


@pytest.mark.slow
def test_three_crashes_end_a_run_until_the_user_starts_it_again(world: World, numbers: Repo) -> None:
    agent = world.agent()
    agent.script({"role": "planner", "round": 1, "wait": "gate"})
    world.daemon()
    world.init(numbers, agent)
    world.sictl("start", numbers.path, "--rounds", "1")
    for last in (False, False, True):
        kill_at(world, agent.folder / "gates/gate", group=False)
        agent.script({"role": "planner", "round": 1, "wait": "gate"})
        world.daemon()
        if last:
            with world.wire() as wire:
                ended = wire.follow().until("run_ended")
            assert (ended["status"], "3 times within 10 minutes" in ended["reason"]) == ("failed", True)
    agent.script()
    assert world.run(numbers, "--rounds", "1", "--json").json["resumed"] is True
    check_every_round_once(numbers, 1)


@pytest.mark.slow
def test_a_chart_that_is_drawn_ends_with_its_daemon(world: World, numbers: Repo) -> None:
    world.init(numbers, world.agent())
    world.run(numbers, "--rounds", "1")
    with world.wire() as wire:
        run = wire.call("run.list")["runs"][0]["run_id"]
        call = {"jsonrpc": "2.0", "id": 1, "method": "run.plot", "params": {"run": run, "format": "svg"}}
        wire.send(json.dumps(call).encode() + b"\n")
        drawing: list[psutil.Process] = []
        give_up = time.monotonic() + HANG_S
        while not drawing and time.monotonic() < give_up:
            # Not what starts it: one that is held before it is tied to its daemon cannot end with it.
            drawing = [
                one
                for one in world.processes()
                if one.cmdline()[1:4] == ["-P", "-m", "sid_daemon.report.chart"]
            ]
        for one in drawing:
            one.suspend()  # by itself it would end soon
        with watched(one.pid for one in drawing) as watch:
            world.kill()
            assert drawing
            assert watch.alive() == []


def test_a_daemon_that_is_said_to_have_shut_down_is_gone(world: World) -> None:
    world.daemon()
    process = os.pidfd_open(world.daemon_pid())
    world.sictl("daemon", "shutdown")
    gone, _, _ = select.select([process], [], [], 0)
    os.close(process)
    assert gone


def test_a_daemon_whose_terminal_is_closed_leaves(world: World) -> None:
    ours = signal.signal(
        signal.SIGHUP, signal.SIG_DFL
    )  # under nohup the daemon would inherit that it is ignored
    try:
        daemon = world.daemon()
    finally:
        signal.signal(signal.SIGHUP, ours)
    daemon.send_signal(signal.SIGHUP)
    assert daemon.wait(HANG_S) == 0
    assert not Path(world.socket).exists()


@pytest.mark.slow
def test_a_daemon_leaves_while_a_run_is_on_and_its_client_is_told(world: World, numbers: Repo) -> None:
    agent = world.agent()
    agent.script({"role": "planner", "round": 1, "turn": 1, "wait": "gate"})
    daemon = world.daemon()
    world.init(numbers, agent)
    waiting = world.start_sictl("start", numbers.path, "--wait", "--rounds", "1")
    with at_gate(agent.folder / "gates/gate"):
        world.sictl("daemon", "shutdown", "--now")
        assert daemon.wait(HANG_S) == 0
    world.daemon()
    assert world.finish(waiting).code == 0
    check_every_round_once(numbers, 1)


@pytest.mark.slow
def test_a_run_that_cannot_be_resumed_has_failed_and_says_why(world: World, numbers: Repo) -> None:
    agent = world.agent()
    agent.script({"role": "planner", "round": 1, "turn": 1, "wait": "gate"})
    world.daemon()
    world.init(numbers, agent)
    world.sictl("start", numbers.path)
    kill_at(world, agent.folder / "gates/gate", group=False)
    settings = numbers.path / ".sid/topics/default/config/settings.json"
    raw = settings.read_text()
    settings.write_text(raw.replace("sh bench.sh", "sh evil.sh"))

    world.daemon()
    with world.wire() as wire:
        ended = wire.follow().until("run_ended")
    assert (ended["status"], "not trusted" in ended["reason"]) == ("failed", True)
    assert world.row(numbers)["status"] == "failed"
    settings.write_text(raw)
    world.run(numbers, "--rounds", "1")
    check_every_round_once(numbers, 1)


@pytest.mark.slow
def test_the_database_of_a_run_that_rests_is_not_read_at_every_look(world: World, numbers: Repo) -> None:
    database = numbers.path / ".sid/topics/default/state/run.db"
    world.daemon()
    world.init(numbers, world.agent())
    written = database.stat().st_mtime_ns - 10**10
    os.utime(database, ns=(written, written))
    first, whole = world.row(numbers), database.read_bytes()
    # Its size, time and number are the same: who reads it now finds no database.
    with database.open("r+b") as file:
        file.write(bytes(len(whole)))
    os.utime(database, ns=(written, written))
    assert world.row(numbers) == first

    database.write_bytes(whole)
    world.run(numbers, "--rounds", "1")
    assert world.row(numbers)["iteration"] == 1
