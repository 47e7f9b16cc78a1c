"""Every row of the table of exit codes, with the error document of `--json` and one line to stderr."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.harness import SEALED_BENCHMARK, Agent, Done, World, module_world
from tests.repos import Repo


def problem(done: Done, code: str) -> dict[str, str]:
    """Check what holds for every failure and return the error document."""
    lines = done.err.splitlines()
    assert len([line for line in lines if line.startswith("sictl: ")]) == 1, done.err
    assert done.json.keys() == {"error"}
    error: dict[str, str] = done.json["error"]
    assert error.keys() == {"code", "message", "hint"}
    assert error["code"] == code
    assert error["message"]
    return error


@pytest.mark.parametrize(
    "words",
    [
        ("status",),
        ("stop",),
        ("cancel",),
        ("pause",),
        ("resume",),
        ("attach",),
        ("logs",),
        ("daemon", "status"),
        ("daemon", "shutdown"),
    ],
)
def test_3_no_daemon(world: World, words: tuple[str, ...]) -> None:
    problem(world.sictl(*words, "--json", code=3), "no_daemon")
    assert not world.state.exists(), f"{words} started a daemon"


@pytest.mark.parametrize("words", [("history",), ("start", "/"), ("config", "list")])
def test_3_no_daemon_where_none_may_be_started(world: World, words: tuple[str, ...]) -> None:
    problem(world.sictl(*words, "--no-spawn", "--json", code=3), "no_daemon")
    problem(world.sictl(*words, "--json", code=3, env={"SID_NO_SPAWN": "1"}), "no_daemon")


@pytest.fixture(scope="module")
def set_up(session_dir: Path) -> Iterator[tuple[World, Repo]]:
    with module_world(session_dir) as world:
        repo = Repo(world.base / "repo")
        repo.path.mkdir()
        repo.git("init", "--quiet", "--initial-branch=main")
        repo.commit(SEALED_BENCHMARK, "Start")
        world.daemon()
        world.init(repo, world.agent())
        yield world, repo


VERBS = (
    "status",
    "stop",
    "pause",
    "resume",
    "history",
    "show",
    "diff",
    "plot",
    "apply --yes",
    "export",
    "attach",
    "config list",
)


@pytest.mark.parametrize("verb", VERBS)
def test_4_no_such_run(set_up: tuple[World, Repo], verb: str) -> None:
    world, _ = set_up
    problem(world.sictl(*verb.split(), "zzzzzzzz", "--json", code=4), "no_such_run")


def test_4_no_such_run_by_any_way_of_naming_it(set_up: tuple[World, Repo]) -> None:
    world, repo = set_up
    run_id = world.row(repo)["run_id"]
    for name in (str(world.base / "home"), run_id[:3], f"{run_id}x"):
        problem(world.sictl("history", name, "--json", code=4), "no_such_run")
    problem(world.sictl("history", repo.path, "--topic", "other", "--json", code=4), "no_such_run")
    problem(world.sictl("history", "--json", cwd=world.base / "home", code=4), "no_such_run")
    for words in ((run_id[:4],), (repo.path / ".git",), ("--run", run_id), ("--run", str(repo.path))):
        assert world.sictl("history", *words, "--json").json["run_id"] == run_id
    assert world.sictl("--json", "--run", run_id, "history").json["rounds"] == []


@pytest.mark.parametrize("verb", ["stop", "cancel", "pause", "resume", "stop --now"])
def test_5_not_running(set_up: tuple[World, Repo], verb: str) -> None:
    world, repo = set_up
    problem(world.sictl(*verb.split(), repo.path, "--json", code=5), "not_running")


@pytest.mark.parametrize(
    ("words", "code", "name"),
    [
        ("florp", 2, "usage"),
        ("histroy", 2, "usage"),
        ("start --rounds zero", 2, "usage"),
        ("start --rounds 0", 2, "usage"),
        ("show 1 2 3", 2, "usage"),
        ("attach --level loud", 2, "usage"),
        ("config get", 2, "usage"),
        ("config set plateau_window banana", 2, "settings_invalid"),
        ("config set no_such_key 1", 2, "settings_invalid"),
        ("config get deadlines.executer", 2, "settings_invalid"),
        ("show 99", 5, "refused"),
        ("plot -o chart.gif", 2, "usage"),
        ("plot -o /no/such/folder/chart.png", 1, "failed"),
    ],
)  # fmt: skip
def test_usage_settings_and_failures(set_up: tuple[World, Repo], words: str, code: int, name: str) -> None:
    world, repo = set_up
    problem(world.sictl(*words.split(), "--json", cwd=repo.path, code=code), name)
    said = world.sictl(*words.split(), cwd=repo.path, code=code)
    assert said.out == ""


@pytest.mark.parametrize(
    "words", ["status", "history", "config list", "config get plateau_window", "diff", "export", "daemon status", "--version", "--help", "start --help", "help", "help start", "completion bash"]
)  # fmt: skip
def test_0_one_document_and_nothing_else(set_up: tuple[World, Repo], words: str) -> None:
    world, repo = set_up
    done = world.sictl(*words.split(), "--json", cwd=repo.path)
    assert isinstance(done.json, dict)
    assert done.err == ""


# How runs end


def ended(
    world: World, numbers: Repo, agent: Agent, code: int, *flags: str, rounds: str | None = None
) -> Done:
    world.init(numbers, agent, *flags)
    more = () if rounds is None else ("--rounds", rounds)
    done = world.run(numbers, *more, "--json", code=code)
    assert done.json["status"] == world.row(numbers)["status"]
    return done


@pytest.mark.slow
def test_0_target_reached_and_start_again(world: World, numbers: Repo) -> None:
    done = ended(world, numbers, world.agent(), 0, "--target", "15")
    assert (done.json["status"], done.json["summary"]["iterations"]) == ("target_reached", 2)

    again = world.run(numbers, "--json")
    assert (again.json["status"], len(world.rounds(numbers))) == ("target_reached", 2)
    # One that names rounds is asked for more than the limit gives.
    more = world.run(numbers, "--rounds", "1", "--json")
    assert more.json["status"] in ("max_iterations", "target_reached")
    world.sictl("config", "set", numbers.path, "target_value", "35")
    assert world.run(numbers, "--json").json["status"] == "target_reached"
    assert world.row(numbers)["best_score"] >= 35


def test_10_circuit_breaker_and_a_start_goes_on_with_it_at_0(world: World, numbers: Repo) -> None:
    agent = world.agent()
    agent.script({"role": "planner", "value": 0})
    done = ended(world, numbers, agent, 10, "--set", "circuit_breaker_threshold=2")
    assert done.json["status"] == "circuit_breaker"
    assert len(world.rounds(numbers)) == 2

    agent.script()
    goes_on = world.run(numbers, "--rounds", "1", "--json")
    assert goes_on.json["status"] == "max_iterations"
    assert [row["status"] for row in world.rounds(numbers)][2:] == ["merged"]


@pytest.mark.slow
def test_12_budget_ends_again_until_the_cap_is_raised(world: World, numbers: Repo) -> None:
    done = ended(world, numbers, world.agent(), 12, "--set", "budget.calls=5")
    assert done.json["status"] == "budget"
    rounds = len(world.rounds(numbers))

    assert world.run(numbers, "--json", code=12).json["status"] == "budget"
    assert len(world.rounds(numbers)) == rounds
    world.sictl("config", "set", numbers.path, "budget.calls", "1000")
    assert world.run(numbers, "--rounds", "1", "--json").json["status"] == "max_iterations"
    assert len(world.rounds(numbers)) == rounds + 1


@pytest.mark.slow
def test_0_plateau_and_a_start_goes_on_with_it_at_0(world: World, numbers: Repo) -> None:
    agent = world.agent()
    agent.script(*({"role": "planner", "round": n, "value": 1 + n / 1000} for n in range(1, 5)))
    done = ended(world, numbers, agent, 0, "--set", "plateau_window=2")
    assert (done.json["status"], len(world.rounds(numbers))) == ("plateau", 2)

    assert world.run(numbers, "--json").json["status"] == "plateau"
    assert len(world.rounds(numbers)) == 4


@pytest.mark.slow
def test_0_max_iterations_ends_again_at_once(world: World, numbers: Repo) -> None:
    done = ended(world, numbers, world.agent(), 0, "--rounds", "1")
    assert done.json["status"] == "max_iterations"
    assert world.run(numbers, "--json").json["status"] == "max_iterations"
    assert len(world.rounds(numbers)) == 1
    world.run(numbers, "--rounds", "1")
    world.sictl("config", "set", numbers.path, "max_iterations", "3")
    world.run(numbers)
    assert len(world.rounds(numbers)) == 3


def test_11_stopped_5_already_running_and_130_with_the_run_going_on(world: World, numbers: Repo) -> None:
    agent = world.agent()
    agent.script(
        {"role": "researcher", "round": 1, "wait": "brief"}, {"role": "planner", "round": 1, "wait": "plan"}
    )
    world.daemon()
    world.init(numbers, agent)
    waiting = world.start_sictl("start", numbers.path, "--wait")
    with world.wire() as wire:
        wire.follow()
        wire.until("step_started", step="research")
        following = world.start_sictl("attach", numbers.path)
        for words in (
            ("start", numbers.path),
            ("start", numbers.path, "--wait"),
            ("init", numbers.path, "--trust"),
        ):
            problem(world.sictl(*words, "--json", code=5), "already_running")
        problem(world.sictl("resume", numbers.path, "--json", code=5), "not_running")
        # Both have printed something, so that they are past their start.
        for process in (waiting, following):
            assert process.stdout is not None
            assert process.stdout.readline()
            process.send_signal(signal.SIGINT)
            done = world.finish(process)
            assert done.code == 130
            assert "sictl stop" in done.err.splitlines()[-1]
        again = world.start_sictl("start", numbers.path, "--wait")
        assert world.finish(again).code == 5
        agent.open_gate("brief")
        wire.until("step_started", step="planning")
        assert world.row(numbers)["status"] == "running"
        stopped = world.sictl("stop", numbers.path, "--now", "--json")
        assert stopped.json["status"] == "user_stopped"
        world.sictl("stop", numbers.path, code=5)

    waiting = world.start_sictl("start", numbers.path, "--wait", "--json")
    with world.wire() as wire:
        wire.follow(since=0)
        wire.until("run_started", resumed=True)
        wire.until("round_resumed")
        world.sictl("stop", "--now")
    assert world.finish(waiting).code == 11


def test_1_failed_says_why(world: World, numbers: Repo) -> None:
    world.init(numbers, world.agent())
    (numbers.path / "worktrees").write_text("mine")
    done = world.run(numbers, "--json", code=1)
    assert (done.json["status"], "in the way" in done.json["text"]) == ("failed", True)
