"""Any program can be an agent: real processes, in a real sandbox, judged by what they answer and see."""

from __future__ import annotations

import json
import os
import shlex
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from sid_actors.backends.base import Answer, Turn
from sid_actors.backends.command.adapter import CommandBackend
from sid_actors.backends.command.turnstile import Turnstile
from sid_actors.backends.command.visible import check_agent_command
from sid_actors.backends.parse import parse_plan
from sid_actors.watching.activity import ActivityLog
from sid_actors.watching.signs import Seen
from sid_actors.workbench.sandbox.bwrap import Sandbox
from sid_protocol.errors import BackendError, SettingsInvalid
from sid_protocol.records import agent_schema
from sid_protocol.settings import Settings
from tests.actors.fakes import PLAN, FakeTrack
from tests.conftest import Spawn

ANSWER = json.dumps(
    PLAN.model_dump(include={"hypothesis", "approach_family", "target_files"})
    | {"steps": [{"step": 1, "file": "app.py", "change": "cache f"}]}
)


class Stage:
    """A repository's folder, a worktree in it, a HOME beside it, and agents as shell scripts."""

    def __init__(self, folder: Path) -> None:
        self.repo, self.home = folder / "repo", folder / "home"
        self.worktree = self.repo / "worktrees" / "round_1_executor_1"
        self.worktree.mkdir(parents=True)
        (self.worktree / "app.py").write_text("x = 1\n")
        (self.worktree / ".git").write_text("gitdir: elsewhere\n")
        self.agents = folder / "agents"
        self.agents.mkdir()
        self.lines: list[str] = []
        self.spoke = trio.Event()
        self.hurry = trio.Event()
        self.turnstile = Turnstile(2)

    def script(self, body: str, name: str = "agent.sh") -> str:
        path = self.agents / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return shlex.quote(str(path))

    def hear(self, turn: Turn, line: str) -> None:
        self.lines.append(line)
        self.spoke.set()

    async def play(
        self,
        command: str,
        role: Any = "planner",
        *,
        enclosed: bool = True,
        activity: ActivityLog | None = None,
        **values: Any,
    ) -> Answer:
        settings = Settings(agent_backend="command", agent_command=command, **{"grace_s": 0.2, **values})
        turn = Turn(
            role=role,
            agent_id=f"{role}_1",
            iteration=3,
            prompt="Größer!\n",
            schema=agent_schema(role),
            cwd=str(self.worktree),
            sealed=(str(self.worktree / "app.py"),) if role == "executor" else (),
            deadline_s=60,
            track=FakeTrack(repo=str(self.repo), settings=settings),
            plan=PLAN,
        )
        backend = CommandBackend(
            repo=str(self.repo),
            enclose=Sandbox if enclosed else None,
            on_stderr=self.hear,
            hurry=self.hurry,
            turnstile=self.turnstile,
        )
        return await backend.answer(turn, activity or ActivityLog())


def turn_folders() -> set[str]:
    return {entry.name for entry in Path(tempfile.gettempdir()).glob("sid-turn-*")}


@pytest.fixture
def stage(short_dir: Path, real_process: Spawn, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.setattr(
        tempfile, "tempdir", str(short_dir)
    )  # other tests of this machine have theirs in /tmp
    return Stage(short_dir)


async def test_the_prompt_comes_on_standard_input_and_the_answer_on_standard_output(stage: Stage) -> None:
    assert (await stage.play(stage.script("cat"))).text == "Größer!\n"


async def test_a_flood_of_errors_does_not_wash_the_log_away(stage: Stage) -> None:
    """Head and tail are told, the middle is counted: a log that one agent can fill is no log of the others."""
    await stage.play(stage.script("echo begun >&2; yes 'a line' | head -n 200000 >&2; echo over >&2; echo x"))
    assert (stage.lines[0], stage.lines[-1]) == ("begun", "over")
    assert 64_000 < len(stage.lines) < 100_000
    told = len(stage.lines) - 2
    assert stage.lines[-2] == f"[{200_002 - told} lines are not in the log; this is the last one:]"


@pytest.mark.parametrize("enclosed", [True, False])
async def test_the_environment_is_scrubbed_and_says_what_is_asked(
    stage: Stage, enclosed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SECRET_TOKEN", "WANTED", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, "value")
    text = (
        await stage.play(stage.script("env; cat $SID_OUTPUT_SCHEMA"), agent_env=["WANTED"], enclosed=enclosed)
    ).text
    env = dict(line.split("=", 1) for line in text.split("\n{")[0].splitlines())

    own = {"SID_ROLE", "SID_RUN_ID", "SID_ITERATION", "SID_AGENT_ID", "SID_DEADLINE_S", "SID_OUTPUT_SCHEMA"}
    set_by_shells = {"PWD", "OLDPWD", "SHLVL", "_", "SID_JOB"}
    assert set(env) - set_by_shells - own <= {"PATH", "HOME", "LANG", "TERM", "USER", "WANTED"}
    assert own <= set(env)
    assert (env["SID_ROLE"], env["SID_ITERATION"], env["SID_DEADLINE_S"]) == ("planner", "3", "60")
    assert env["HOME"] == os.environ["HOME"]
    assert json.loads("{" + text.split("\n{", 1)[1]) == agent_schema("planner")


async def test_an_executor_writes_in_its_worktree_alone(stage: Stage) -> None:
    outside = [stage.repo / "worktrees" / "other", stage.repo / "x", stage.agents / "x", stage.home / "x"]
    tries = [
        "echo new > new.py",
        "echo cheat > app.py",
        "rm -f .git",
        'test "$SID_WORKTREE" = "$PWD" && test -z "$SID_OUTPUT_SCHEMA"',
    ]
    body = "\n".join(f"if {one} 2>/dev/null; then echo yes; else echo no; fi" for one in tries)
    body += "\ncat $SID_PLAN_FILE\n" + "\n".join(f"touch {path}" for path in outside)
    text = (await stage.play(stage.script(body + "\ntrue"), "executor")).text

    assert text.split("{")[0].split() == ["yes", "no", "no", "yes"]
    assert json.loads("{" + text.split("{", 1)[1])["hypothesis"] == PLAN.hypothesis
    assert (stage.worktree / "new.py").exists()
    assert not [path for path in outside if path.exists()]


async def test_other_roles_write_nowhere_that_lasts(stage: Stage) -> None:
    text = (await stage.play(stage.script("touch new.py 2>/dev/null || echo refused; ls"))).text
    assert text.split() == ["refused", "app.py"]


async def test_what_an_agent_sees(stage: Stage) -> None:
    (stage.agents / "helper.txt").write_text("helper")
    (stage.repo / "named.json").write_text("named")
    (stage.repo / "unnamed.json").write_text("unnamed")
    (stage.home / "secret").write_text("secret")
    (stage.home / "shared").mkdir()
    (stage.home / "shared" / "token").write_text("token")
    paths = [
        stage.agents / "helper.txt",
        stage.repo / "named.json",
        stage.home / "shared" / "token",
        stage.repo / "unnamed.json",
        stage.home / "secret",
        Path(os.environ["XDG_RUNTIME_DIR"]),
    ]
    body = (
        "\n".join(f"test -e {path} && echo yes || echo no" for path in paths)
        + "\necho $2 ok > $HOME/shared/token; echo $2"
    )
    command = f"{stage.script(body)} --config ./named.json"
    text = (await stage.play(command, agent_paths=["~/shared:rw"])).text

    assert text.split() == ["yes", "yes", "yes", "no", "no", "no", str(stage.repo / "named.json")]
    assert (stage.home / "shared" / "token").read_text() == f"{stage.repo}/named.json ok\n"


async def test_a_script_in_the_repository_does_not_show_other_candidates(stage: Stage) -> None:
    (stage.repo / "lib.sh").write_text("echo lib")
    (stage.repo / ".sid").mkdir()
    (stage.repo / "worktrees" / "other").mkdir()
    (stage.repo / "agent.sh").write_text(
        '. "$(dirname "$0")/lib.sh"; ls -A "$(dirname "$0")" "$(dirname "$0")/worktrees"'
    )
    text = (await stage.play("sh agent.sh")).text

    assert "lib" in text.split()
    assert ".sid" not in text.split()
    assert "other" not in text.split()


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("exit 1", "exit status 1"),
        ("echo working; echo 'no quota left' >&2; exit 3", "exit status 3: no quota left"),
        ("kill -9 $$", "signal 9"),
        ("true", "printed no answer"),
        ("echo 'please log in' >&2", "printed no answer; it said: please log in"),
        ("""echo '{"type":"result","is_error":true,"result":"Prompt is too long"}'""", "Prompt is too long"),
    ],
)
async def test_a_failure_is_told_with_the_programs_own_words(stage: Stage, body: str, told: str) -> None:
    with pytest.raises(BackendError) as caught:
        await stage.play(stage.script(body))
    assert told in str(caught.value)


async def test_an_executor_need_not_say_anything(stage: Stage) -> None:
    assert (await stage.play(stage.script("true"), "executor")).text == ""


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("echo I would rather not", "no JSON document"),
        (f"echo '{ANSWER}' | head -c 60", "no JSON document"),
        ("head -c 10000000 /dev/zero | tr '\\0' x", "longer than"),
        (f"echo Here:; echo '```json'; echo '{ANSWER}'; echo '```'; echo Bye.", None),
        (f"echo '{ANSWER}'", None),
    ],
)
async def test_what_is_printed_is_a_plan_or_a_clear_refusal(
    stage: Stage, body: str, told: str | None
) -> None:
    text = (await stage.play(stage.script(body))).text
    if told is None:
        assert parse_plan(text).hypothesis == PLAN.hypothesis
    else:
        with pytest.raises(BackendError, match=told):
            parse_plan(text)


async def test_a_stream_is_activity_and_its_last_result_the_answer(stage: Stage) -> None:
    events = [
        {
            "type": "assistant",
            "message": {"content": [{"type": "tool_use", "id": "1", "name": "Read", "input": {}}]},
        },
        {
            "type": "result",
            "result": ANSWER,
            "total_cost_usd": 0.5,
            "usage": {"input_tokens": 7, "output_tokens": 3},
        },
    ]
    (stage.agents / "events").write_text("\n".join(map(json.dumps, events)))
    activity = ActivityLog()
    answer = await stage.play(
        stage.script(f"cat {stage.agents}/events; echo thinking >&2"), activity=activity
    )

    assert parse_plan(answer.text).approach_family == "optimization"
    assert (answer.cost.usd, answer.cost.input_tokens) == (0.5, 7)
    assert activity.tools[0].startswith("Read#")
    assert "thinking" in activity.outputs
    assert stage.lines == ["thinking"]


async def test_who_is_nearest_to_a_result_begins_first(stage: Stage) -> None:
    ended: list[str] = []

    async def play(role: str) -> None:
        with pytest.raises(
            SettingsInvalid
        ):  # in the turn's first step, so the order of ends is that of beginnings
            await stage.play("/no/such/program", role)
        ended.append(role)

    roles = ("researcher", "planner", "architect", "critic", "executor")
    stage.turnstile = Turnstile(1)
    async with trio.open_nursery() as nursery:
        with await stage.turnstile.enter(0):
            for role in roles:
                nursery.start_soon(play, role)
            await trio.testing.wait_all_tasks_blocked()
    assert ended == [*reversed(roles)]


async def test_a_turn_that_runs_is_in_nobodys_way(stage: Stage) -> None:
    stage.turnstile = Turnstile(1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stage.play, stage.script("echo up >&2; exec sleep 600"))
        await stage.spoke.wait()
        assert (await stage.play(stage.script("echo me too", "other.sh"))).text == "me too\n"
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("enclosed", [True, False])
async def test_an_agent_stands_back(stage: Stage, enclosed: bool) -> None:
    text = (await stage.play(stage.script("nice; cat /proc/self/autogroup"), enclosed=enclosed)).text
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    assert text.split()[0] == str(min(usual + 10, 19))
    if os.getuid() == 0 and "autogroup" in text:  # of others the kernel does not always take it
        assert text.split()[-2:] == ["nice", "10"]


async def test_a_cancelled_turn_leaves_nothing_running_and_nothing_written(stage: Stage) -> None:
    activity = ActivityLog()
    body = "trap '' TERM; (setsid sleep 300 &); echo up >&2; sleep 300"
    before = turn_folders()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(stage.play, stage.script(body), "executor", activity=activity))
        with trio.fail_after(20):
            await stage.spoke.wait()
        seen = activity.evidence(60)
        nursery.cancel_scope.cancel()

    assert any("sleep 300" in state or "agent.sh" in state for state in seen.process_states)
    assert activity.processes is not None
    assert activity.processes() == Seen()
    assert turn_folders() == before


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("enclosed", [True, False])
async def test_a_stop_in_a_hurry_cuts_the_grace_short(stage: Stage, when: str, enclosed: bool) -> None:
    body = "trap 'echo asked >&2' TERM; echo up >&2; while :; do sleep 0.05; done"
    with trio.fail_after(30):  # the grace alone is a minute
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(stage.play, stage.script(body), enclosed=enclosed, grace_s=60))
            await stage.spoke.wait()
            stage.spoke = trio.Event()
            if when == "before":
                stage.hurry.set()
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                if when == "after":
                    await stage.spoke.wait()
                stage.hurry.set()


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("", "is empty"),
        ("   ", "is empty"),
        ("claude 'unclosed", "cannot be split"),
        ("no-such-program-here -p", "no-such-program-here is not on PATH"),
        ("./missing.sh", "./missing.sh does not exist"),
        ("./plain.txt", "./plain.txt is not executable"),
    ],
)
def test_a_command_that_cannot_start_is_refused_before_anything_runs(
    short_dir: Path, command: str, told: str
) -> None:
    (short_dir / "plain.txt").write_text("text")
    settings = Settings(agent_backend="command", agent_command=command)
    with pytest.raises(SettingsInvalid, match=told) as caught:
        check_agent_command(settings, str(short_dir))
    assert caught.value.key == "agent_command"
    assert caught.value.hint
    check_agent_command(Settings(agent_backend="local", agent_command=command), str(short_dir))


@pytest.mark.parametrize("entry", ["~:rw", "/:rw", ".:rw"])
def test_a_path_that_would_let_an_agent_write_everywhere_is_refused(short_dir: Path, entry: str) -> None:
    settings = Settings(agent_backend="command", agent_command="cat", agent_paths=[entry])
    with pytest.raises(SettingsInvalid, match="write everywhere"):
        check_agent_command(settings, str(short_dir))
