"""Agents played by a model: the real SDK against a server on the loopback, every way in which a call can end."""

from __future__ import annotations

import json
import os
import socket
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from sid_actors.backends.base import Answer, Turn
from sid_actors.backends.model.anthropic_api import AnthropicBackend, Service
from sid_actors.backends.model.purse import Purse
from sid_actors.backends.parse import parse_plan
from sid_actors.watching.activity import ActivityLog, what_they_wait_in
from sid_actors.workbench.sandbox.bwrap import Sandbox
from sid_protocol.errors import BackendError, BudgetSpent, SettingsInvalid
from sid_protocol.prices import Price
from sid_protocol.records import Cost, agent_schema
from sid_protocol.settings import Budget, Settings
from tests.actors.fakes import PLAN, FakeTrack
from tests.actors.model_server import Failure, ModelServer, Say, model_server, say, text, tool
from tests.conftest import Spawn

KEY = "sk-test-0123456789abcdef"
GOOD = PLAN.model_dump(include={"hypothesis", "approach_family", "target_files"}) | {
    "steps": [{"step": 1, "file": "app.py", "change": "cache f"}]
}
LEADS_OUT = ("out", "up", "up/private.txt")
PRICES = {"priced": Price(input=1000.0, output=1000.0, cache_read=1000.0, cache_write=1000.0)}


class Stage:
    """A worktree, a key, and one back end whose turns are played one by one or at the same time."""

    def __init__(self, folder: Path) -> None:
        self.repo = folder / "repo"
        self.worktree = self.repo / "worktrees" / "one"
        self.worktree.mkdir(parents=True)
        (self.worktree / "app.py").write_text("def f(x):\n    return x + 1\n")
        (self.worktree / "bench.py").write_text("print(1)\n")
        (self.worktree / ".git").write_text("gitdir: elsewhere\n")
        self.records: list[tuple[str, str, dict[str, Any]]] = []
        self.purse = Purse()
        self.enclose: Any = Sandbox
        self.learned: list[str] = []
        self.service = Service(prices=PRICES, learn=self.learned.append)
        self.environ = {"ANTHROPIC_API_KEY": KEY, "PATH": "/usr/bin:/bin", "HOME": str(folder)}

    def hear(self, turn: Turn, level: str, event: str, **fields: Any) -> None:
        self.records.append((level, event, fields))

    async def play(
        self,
        server: ModelServer,
        role: Any = "planner",
        *,
        model: str = "ok",
        deadline_s: float = 60,
        silence_s: float = 30,
        activity: ActivityLog | None = None,
        agent: str = "",
        prompt: tuple[str, str] = ("", "Do it."),
        **values: Any,
    ) -> Answer:
        settings = Settings(
            agent_backend="anthropic", base_url=server.url, models={"default": model}, **values
        )
        turn = Turn(
            role=role,
            agent_id=agent or f"{role}_1",
            iteration=1,
            prompt="".join(prompt),
            shared=len(prompt[0]),
            schema=agent_schema(role),
            cwd=str(self.worktree),
            sealed=(str(self.worktree / "bench.py"),) if role == "executor" else (),
            deadline_s=deadline_s,
            track=FakeTrack(repo=str(self.repo), settings=settings),
            plan=PLAN,
        )
        backend = AnthropicBackend(
            repo=str(self.repo),
            enclose=self.enclose,
            purse=self.purse,
            service=self.service,
            environ=self.environ,
            tell=self.hear,
            silence_s=silence_s,
        )
        return await backend.answer(turn, activity or ActivityLog())


@pytest.fixture
def stage(short_dir: Path, real_process: Spawn) -> Stage:
    return Stage(short_dir)


def good(body: dict[str, Any]) -> Say:
    return say(tool("answer", **GOOD))


def script(*replies: Say | Failure) -> Any:
    """Return each reply once, the last one from then on."""
    rest = list(replies)
    return lambda body: rest.pop(0) if len(rest) > 1 else rest[0]


def results_in(body: dict[str, Any]) -> list[dict[str, Any]]:
    return [block for block in body["messages"][-1]["content"] if block["type"] == "tool_result"]


# Roles that read


async def test_a_planner_answers_by_a_tool_whose_schema_is_its_roles(stage: Stage) -> None:
    async with model_server(good) as server:
        answer = await stage.play(server)
    assert parse_plan(answer.text).hypothesis == GOOD["hypothesis"]
    asked = server.bodies[0]
    assert asked["tools"][0]["name"] == "answer"
    assert asked["tools"][0]["input_schema"] == agent_schema("planner")
    assert asked["system"][0]["cache_control"] == {"type": "ephemeral"}
    assert asked["messages"][-1]["content"][-1]["cache_control"] == {"type": "ephemeral"}
    assert (answer.cost.calls, answer.cost.output_tokens, answer.cost.cached_tokens) == (1, 50, 10)


async def test_a_reader_looks_at_the_code_before_it_answers(stage: Stage) -> None:
    look = say(text("Let me see."), tool("view", path="app.py"), tool("search", pattern="return"))
    async with model_server(script(look, good({}))) as server:
        await stage.play(server)
    shown, found = results_in(server.bodies[1])
    assert shown["content"].startswith("1\tdef f(x):")
    assert "app.py:2:" in found["content"]


async def test_a_reader_has_no_tool_that_changes_anything(stage: Stage) -> None:
    change = say(tool("edit", command="create", path="x.py", new_text="x"), tool("run", command="touch y.py"))
    async with model_server(script(change, good({}))) as server:
        await stage.play(server)
    assert all(result["is_error"] for result in results_in(server.bodies[1]))
    assert not (stage.worktree / "x.py").exists()
    assert not (stage.worktree / "y.py").exists()


async def test_a_bad_answer_is_repaired_once_with_the_error_quoted(stage: Stage) -> None:
    bad = say(tool("answer", **{**GOOD, "hypothesis": ["two", "of them"]}))
    async with model_server(script(bad, good({}))) as server:
        await stage.play(server)
    (quoted,) = results_in(server.bodies[1])
    assert "hypothesis" in quoted["content"]
    assert quoted["is_error"]
    assert server.bodies[1]["tool_choice"] == {"type": "tool", "name": "answer"}


async def test_a_second_bad_answer_fails_the_turn(stage: Stage) -> None:
    bad = say(tool("answer", **{**GOOD, "hypothesis": ["two", "of them"]}))
    async with model_server(script(bad)) as server:
        with pytest.raises(BackendError, match=r"not after a repair either.*hypothesis"):
            await stage.play(server)
    assert len(server.bodies) == 2


async def test_an_answer_in_words_is_taken_where_it_is_valid(stage: Stage) -> None:
    async with model_server(script(say(text(f"```json\n{json.dumps(GOOD)}\n```")))) as server:
        assert parse_plan((await stage.play(server)).text)


async def test_a_model_that_takes_no_forced_tool_is_asked_without(stage: Stage) -> None:
    def reply(body: dict[str, Any]) -> Say | Failure:
        if body["tool_choice"]["type"] != "auto":
            return Failure(400, "invalid_request_error", "tool_choice forces tool use: not with thinking")
        return good(body)

    async with model_server(reply) as server:
        await stage.play(server)
        await stage.play(server)
    assert len(server.bodies) == 3  # found out once


# The executor


async def test_an_executor_views_edits_runs_and_says_that_it_is_done(stage: Stage) -> None:
    replies = (
        say(tool("view", path="app.py", first_line=2)),
        say(
            tool("edit", 1, command="str_replace", path="app.py", old_text="x + 1", new_text="x + 2"),
            tool("edit", 2, command="create", path="new/part.py", new_text="y = 1\n"),
            tool("run", command="cat bench.py; echo oops >&2; exit 3"),
        ),
        say(tool("edit", 3, command="insert", path="app.py", line=0, new_text="# top")),
        say(tool("done", summary="Changed f.")),
    )
    activity = None
    async with model_server(script(*replies)) as server:
        activity = ActivityLog()
        answer = await stage.play(server, "executor", activity=activity)
    assert answer.text == "Changed f."
    assert (stage.worktree / "app.py").read_text() == "# top\ndef f(x):\n    return x + 2\n"
    assert (stage.worktree / "new/part.py").read_text() == "y = 1\n"
    ran = results_in(server.bodies[2])[2]["content"]
    assert "exit status 3" in ran
    assert "print(1)" in ran
    assert "oops" in ran
    assert (activity.edits, activity.claimed_done) == (3, True)
    assert answer.cost.calls == 4


@pytest.mark.parametrize(
    "call",
    [
        tool("edit", command="str_replace", path="bench.py", old_text="1", new_text="99"),
        tool("edit", command="create", path="../outside.py", new_text="x"),
        tool("edit", command="create", path="/proc/outside.py", new_text="x"),
        tool("edit", command="create", path="link/outside.py", new_text="x"),
        tool("edit", command="create", path=".git/hooks/post-commit", new_text="x"),
        tool("edit", command="str_replace", path="app.py", old_text="not there", new_text="x"),
        tool("view", path="link/secret.txt"),
        tool("view", path="secret.txt"),
        tool("view", path="missing.py"),
        tool("search", pattern="(", path="app.py"),
        tool("view", path=7),
        tool("nothing"),
    ],
    ids=lambda call: f"{call['name']}-{call['input'].get('path', '')}",
)
async def test_what_leads_out_of_the_worktree_or_is_sealed_is_refused(
    stage: Stage, call: dict[str, Any]
) -> None:
    outside = stage.repo / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text("secret words\n")
    (stage.worktree / "link").symlink_to(outside)
    (stage.worktree / "secret.txt").symlink_to(outside / "secret.txt")
    replies = (
        say(call),
        say(tool("edit", command="insert", path="app.py", line=0, new_text="#")),
        say(tool("done", summary="Done.")),
    )
    async with model_server(script(*replies)) as server:
        await stage.play(server, "executor")
    (refused,) = results_in(server.bodies[1])
    assert refused["is_error"]
    assert "secret words" not in refused["content"]
    assert (stage.worktree / "bench.py").read_text() == "print(1)\n"
    assert [path.name for path in outside.iterdir()] == ["secret.txt"]


async def test_a_command_neither_sees_the_key_nor_writes_a_sealed_file(stage: Stage) -> None:
    replies = (
        say(tool("run", command="env; echo x >> bench.py; echo y >> app.py")),
        say(tool("done", summary="Done.")),
    )
    async with model_server(script(*replies)) as server:
        await stage.play(server, "executor")
    assert KEY not in json.dumps(server.bodies)
    assert (stage.worktree / "bench.py").read_text() == "print(1)\n"
    assert (stage.worktree / "app.py").read_text().endswith("y\n")


async def test_a_file_that_is_no_utf_8_can_be_looked_at_and_changed(stage: Stage) -> None:
    (stage.worktree / "app.py").write_bytes("# caf\u00e9\nx = 1\n".encode("latin-1"))
    edit = tool("edit", command="str_replace", path="app.py", old_text="x = 1", new_text="x = 2")
    replies = script(say(tool("view", path="app.py")), say(edit), say(tool("done", summary="Ok.")))
    async with model_server(replies) as server:
        await stage.play(server, "executor")
    assert results_in(server.bodies[1])[0]["content"].startswith("1\t# caf\ufffd\n")
    assert (stage.worktree / "app.py").read_bytes() == b"# caf\xe9\nx = 2\n"


@pytest.mark.parametrize("enclose", [Sandbox, None])
async def test_a_search_follows_no_link_and_reads_no_pipe(stage: Stage, enclose: Any) -> None:
    (stage.repo / "private.txt").write_text("private word\n")
    (stage.worktree / "out").symlink_to("../../private.txt")
    (stage.worktree / "up").symlink_to("../..")
    os.mkfifo(stage.worktree / "pipe")
    stage.enclose = enclose
    calls = [tool("search", n, pattern="word", path=path) for n, path in enumerate(LEADS_OUT)]
    pipe = tool("search", 9, pattern="word", path="pipe")
    async with model_server(script(say(*calls, pipe), say(tool("answer", **GOOD)))) as server:
        await stage.play(server)
    *out, read = results_in(server.bodies[1])
    assert all(one["is_error"] for one in out)
    assert "private word" not in repr(out)
    assert read["content"] == "no line matches"


async def test_a_long_result_is_cut_with_head_and_tail_kept(stage: Stage) -> None:
    replies = (say(tool("run", command="seq 1 20000")), say(tool("done", summary="Done.")))
    async with model_server(script(*replies)) as server:
        await stage.play(server, "executor")
    (ran,) = results_in(server.bodies[1])
    assert len(ran["content"]) < 25_000
    assert "\n1\n2\n" in ran["content"]
    assert "19999\n20000" in ran["content"]
    assert "left out" in ran["content"]


async def test_old_results_are_left_out_before_the_window_is_full(stage: Stage) -> None:
    (stage.worktree / "long.txt").write_text("word " * 3000)
    looks = [say(tool("view", number, path="long.txt")) for number in range(4)]
    async with model_server(script(*looks, say(tool("done", summary="Done.")))) as server:
        server.usage_input = lambda body: 150_000 if len(body["messages"]) > 5 else 1000
        await stage.play(server, "executor")
    last = json.dumps(server.bodies[-1])
    assert "left out to save room" in last
    assert len(last) < len(json.dumps(server.bodies[-2]))


async def test_a_prompt_that_is_too_long_is_sent_again_with_less(stage: Stage) -> None:
    (stage.worktree / "long.txt").write_text("word " * 3000)
    full = Failure(400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum")
    replies = (say(tool("view", path="long.txt")), full, say(tool("done", summary="Done.")))
    async with model_server(script(*replies)) as server:
        assert (await stage.play(server, "executor")).text == "Done."
    assert "left out to save room" in json.dumps(server.bodies[2])


async def test_thinking_goes_back_as_it_came(stage: Stage) -> None:
    thought = {"type": "thinking", "thinking": "Hm, so.", "signature": "signed"}
    async with model_server(script(say(thought, tool("view", path=".")), good({}))) as server:
        await stage.play(server)
    assert server.bodies[1]["messages"][1]["content"][0] == thought


async def test_a_reply_that_was_cut_off_is_gone_on_with(stage: Stage) -> None:
    torn = {**tool("edit"), "raw": '{"command": "create", "pa'}
    replies = (
        say(torn, stop="max_tokens"),
        say(text("And"), stop="max_tokens"),
        say(tool("done", summary="ok")),
    )
    async with model_server(script(*replies)) as server:
        assert (await stage.play(server, "executor")).text == "ok"
    assert "no JSON object (the reply was cut off)" in results_in(server.bodies[1])[0]["content"]


@pytest.mark.parametrize("role", ["planner", "executor"])
async def test_a_turn_that_the_service_paused_goes_on(stage: Stage, role: str) -> None:
    paused = say(text("Still at it."), stop="pause_turn")
    end = tool("answer", **GOOD) if role == "planner" else tool("done", summary="Ok.")
    edit = tool("edit", command="create", path="new.py", new_text="x = 1\n")
    begun = [say(edit)] if role == "executor" else []
    async with model_server(script(*begun, *[paused] * 3, say(end))) as server:
        answer = await stage.play(server, role)
    assert len(server.bodies) == len(begun) + 4
    assert answer.text == "Ok." or parse_plan(answer.text)


async def test_replies_that_are_cut_off_for_ever_end_the_turn(stage: Stage) -> None:
    activity = ActivityLog()
    async with model_server(script(say(text("And"), stop="max_tokens"))) as server:
        with pytest.raises(BackendError, match="max_tokens"):
            await stage.play(server, "executor", activity=activity)
    assert activity.stop_reason == "max_tokens"


@pytest.mark.parametrize("role", ["planner", "executor"])
async def test_a_refusal_is_told_as_one(stage: Stage, role: str) -> None:
    async with model_server(script(say(text("I will not."), stop="refusal"))) as server:
        with pytest.raises(BackendError, match="refused: I will not"):
            await stage.play(server, role)
    assert len(server.bodies) == 1


async def test_a_full_window_is_told_as_one(stage: Stage) -> None:
    activity = ActivityLog()
    async with model_server(script(say(text("x"), stop="model_context_window_exceeded"))) as server:
        with pytest.raises(BackendError, match="context window is full"):
            await stage.play(server, "executor", activity=activity)
    assert activity.stop_reason == "model_context_window_exceeded"


# Failures of the service


@pytest.mark.parametrize(
    "model", ["fail-429-2-after-0.05", "fail-529-1-after-0.05", "fail-500-1", "drop-once"]
)
async def test_a_passing_failure_is_sat_out(stage: Stage, model: str) -> None:
    async with model_server(good) as server:
        answer = await stage.play(server, model=model)
    assert parse_plan(answer.text)
    failures = server.failed[model] - 1
    assert [event for _, event, _ in stage.records].count("model_call_failed") == failures
    assert answer.cost.calls == failures + 1


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("drop", "connection lost"),
        ("cut", "middle of the reply"),
        ("malformed", "connection lost"),
        ("stall", "connection lost: ReadTimeout"),
        ("fail-500-9", "answered 500"),
        ("fail-401-9", "answered 401"),
    ],
)
async def test_a_lasting_failure_is_told(stage: Stage, model: str, told: str) -> None:
    activity = ActivityLog()
    silence_s = 0.3 if model == "stall" else 30.0  # a busy machine is silent, too
    async with model_server(good) as server:
        with pytest.raises(BackendError, match=told) as caught:
            await stage.play(server, model=model, silence_s=silence_s, activity=activity)
    assert len(server.bodies) == (1 if "401" in model else 2)
    assert activity.error
    if "401" in model:
        assert "ANTHROPIC_API_KEY" in caught.value.hint


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("full", "connects to the service of ok"),
        ("gate", "waits for the first word of ok"),
        ("stall", "waits for more of the answer of stall"),
    ],
)
async def test_an_open_request_says_what_it_waits_for(stage: Stage, how: str, told: str) -> None:
    activity = ActivityLog()
    async with model_server(good) as server:
        with ExitStack() as stack:
            if how == "full":  # a queue that nobody takes from: the next connection gets no answer
                listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
                server.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
                stack.enter_context(socket.create_connection(listener.getsockname()))
            server.gate = trio.Event() if how == "gate" else None
            async with trio.open_nursery() as nursery:
                nursery.start_soon(
                    partial(stage.play, server, model=told.rpartition(" ")[2], activity=activity)
                )
                seen = ""
                with trio.fail_after(30):
                    while seen != told:
                        await trio.sleep(0.01)
                        seen = (await what_they_wait_in({"it": activity})).get("it", "")
                nursery.cancel_scope.cancel()
    assert activity.request == ""


async def test_an_overload_in_the_middle_of_a_stream_is_one(stage: Stage) -> None:
    async with model_server(good) as server:
        with pytest.raises(BackendError, match="overloaded"):
            await stage.play(server, model="errmid", deadline_s=1.5)
    assert len(server.bodies) >= 1


async def test_a_rate_limit_beyond_the_deadline_fails_at_once_and_says_so(stage: Stage) -> None:
    async with model_server(good) as server:
        with pytest.raises(BackendError, match=r"rate limit.*next try is in 120 s"):
            await stage.play(server, model="fail-429-9-after-120")
        # Everybody else is told the same without asking.
        with pytest.raises(BackendError, match="paused for 1"):
            await stage.play(server)
    assert len(server.bodies) == 1


async def test_a_turn_past_its_deadline_is_no_rate_limit(stage: Stage) -> None:
    """Whoever ends it may come late, where processors are short."""
    async with model_server(good) as server:
        assert parse_plan((await stage.play(server, deadline_s=-1)).text)
    assert "model_call_failed" not in {event for _, event, _ in stage.records}


async def test_what_a_broken_stream_cost_is_counted(stage: Stage) -> None:
    activity = ActivityLog()
    async with model_server(good) as server:
        with pytest.raises(BackendError):
            await stage.play(server, model="drop", activity=activity)
    assert activity.cost.calls == 2
    assert (activity.cost.input_tokens or 0) > 0
    assert stage.purse.ledger.reserved.calls == 0


async def test_a_cancelled_turn_closes_its_connection(stage: Stage) -> None:
    async with model_server(good) as server:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stage.play, server, "planner")
            server.gate = trio.Event()
            await server.arrived.wait()
            nursery.cancel_scope.cancel()
        server.gate.set()
        with trio.fail_after(5):
            await server.all_closed.wait()
    assert stage.purse.ledger.reserved.calls == 0


async def test_an_answer_of_something_else_says_what_to_check(stage: Stage) -> None:
    page = b"<html>Welcome</html>"
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: %d\r\n\r\n" % len(page)

    async def answer(stream: trio.SocketStream) -> None:
        await stream.receive_some(1 << 20)
        await stream.send_all(head + page)

    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, answer, 0, host="127.0.0.1"))
        url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}"
        with pytest.raises(BackendError, match="no stream of the Messages API, but text/html") as caught:
            await stage.play(ModelServer(url=url))
        nursery.cancel_scope.cancel()
    assert "base_url" in caught.value.hint


# The key


async def test_the_key_goes_to_the_service_and_nowhere_else(stage: Stage) -> None:
    async with model_server(good) as server:
        await stage.play(server)
    assert KEY in server.headers[0].get("authorization", "") + server.headers[0].get("x-api-key", "")
    assert KEY not in repr(stage.records)
    assert stage.learned == [KEY]


async def test_a_service_that_repeats_the_key_does_not_put_it_on_record(stage: Stage) -> None:
    async with model_server(script(Failure(400, "invalid_request_error", f"bad key {KEY}"))) as server:
        with pytest.raises(BackendError) as caught:
            await stage.play(server)
    assert KEY not in str(caught.value) + repr(stage.records)
    assert "bad key ***" in str(caught.value)


@pytest.mark.parametrize("before", [250, 285, 299])
async def test_no_part_of_the_key_is_left_where_words_are_cut(stage: Stage, before: int) -> None:
    words = "x" * before + KEY
    for reply in Failure(400, "invalid_request_error", words), say(text(words), stop="refusal"):
        async with model_server(script(reply)) as server:
            with pytest.raises(BackendError) as caught:
                await stage.play(server)
        assert KEY[:6] not in str(caught.value)


@pytest.mark.parametrize("source", ["file", "credential"])
async def test_the_key_may_come_from_a_file_or_from_systemd(stage: Stage, source: str) -> None:
    del stage.environ["ANTHROPIC_API_KEY"]
    (stage.repo / "anthropic_api_key").write_text(f"{KEY}\n")
    stage.environ |= {"CREDENTIALS_DIRECTORY": str(stage.repo)} if source == "credential" else {}
    values: dict[str, Any] = {"api_key_file": "anthropic_api_key"} if source == "file" else {}
    async with model_server(good) as server:
        await stage.play(server, **values)
    assert stage.learned == [KEY]


async def test_without_a_key_nothing_is_sent(stage: Stage) -> None:
    del stage.environ["ANTHROPIC_API_KEY"]
    async with model_server(good) as server:
        with pytest.raises(SettingsInvalid, match="ANTHROPIC_API_KEY"):
            await stage.play(server)
    assert server.bodies == []


@pytest.mark.parametrize("kind", ["pipe", "folder"])
async def test_a_key_file_that_is_no_file_holds_nobody_up(stage: Stage, kind: str) -> None:
    path = stage.repo / "key"
    os.mkfifo(path) if kind == "pipe" else path.mkdir()
    async with model_server(good) as server:
        with pytest.raises(SettingsInvalid, match="no regular file"):
            await stage.play(server, api_key_file=str(path))


# The budget


async def test_a_call_that_would_pass_the_budget_is_not_made(stage: Stage) -> None:
    activity = ActivityLog()
    async with model_server(good) as server:
        with pytest.raises(BudgetSpent, match=r"budget\.tokens"):
            await stage.play(server, budget=Budget(tokens=500), activity=activity)
    assert server.bodies == []
    assert activity.cost == Cost(calls=0)  # a turn that called nobody counts no call


async def test_a_small_rest_of_the_budget_makes_replies_shorter(stage: Stage) -> None:
    async with model_server(good) as server:
        await stage.play(server, budget=Budget(tokens=9000))
    assert 1000 <= server.bodies[0]["max_tokens"] < 9000


@pytest.mark.parametrize("budget", [Budget(tokens=60_000), Budget(usd=60.0), Budget(calls=9)], ids=str)
async def test_the_cap_holds_with_32_turns_at_the_same_time(stage: Stage, budget: Budget) -> None:
    ended: list[str] = []

    def reply(body: dict[str, Any]) -> Say:
        return say(tool("answer", **GOOD), output=4000)

    async def one(server: ModelServer) -> None:
        try:
            await stage.play(server, model="priced", budget=budget, deadline_s=120)
            ended.append("answered")
        except BudgetSpent as error:
            ended.append(error.key)

    async with model_server(reply) as server, trio.open_nursery() as nursery:
        for _ in range(32):
            nursery.start_soon(one, server)
    spent = stage.purse.ledger.spent
    assert len(ended) == 32
    assert 0 < ended.count("answered") < 32
    assert spent.tokens == server.spent_tokens
    assert spent.tokens <= (budget.tokens or 1e9)
    assert spent.usd <= (budget.usd or 1e9)
    assert spent.calls == len(server.bodies) <= (budget.calls or 1e9)
    assert stage.purse.ledger.reserved.tokens == 0


async def test_the_user_is_told_at_half_and_at_four_fifths(stage: Stage) -> None:
    told: list[tuple[str, float]] = []
    stage.purse.warn = lambda key, share, *_: told.append((key, share))
    async with model_server(good) as server:
        for _ in range(9):
            await stage.play(server, budget=Budget(calls=10))
    assert told == [("calls", 0.5), ("calls", 0.8)]


async def test_a_model_of_unknown_price_counts_tokens_and_says_so(stage: Stage) -> None:
    async with model_server(good) as server:
        answer = await stage.play(server, budget=Budget(usd=1.0))
    assert answer.cost.usd is None
    assert (answer.cost.input_tokens or 0) > 0
    assert "price_unknown" in [event for _, event, _ in stage.records]


# Many at the same time


async def test_32_executors_end_each_in_its_own_way(stage: Stage) -> None:
    models = [
        "ok",
        "slow",
        "fail-429-3-after-0.02",
        "fail-529-2-after-0.02",
        "drop",
        "cut",
        "stall",
        "drop-once",
    ]
    ended: dict[str, int] = {}

    async def one(server: ModelServer, model: str) -> None:
        try:
            await stage.play(server, model=model, silence_s=2)
            ended[model] = ended.get(model, 0) + 1
        except BackendError:
            ended[model] = ended.get(model, 0) - 1

    async with model_server(good) as server:
        async with trio.open_nursery() as nursery:
            for number in range(32):
                nursery.start_soon(one, server, models[number % len(models)])
        with trio.fail_after(10):
            while server.open:
                await server.all_closed.wait()
                server.all_closed = trio.Event()
    assert {model: ended[model] for model in ("ok", "slow")} == {"ok": 4, "slow": 4}
    assert (ended["fail-429-3-after-0.02"], ended["fail-529-2-after-0.02"]) == (4, 4)
    assert (ended["drop"], ended["cut"], ended["stall"]) == (-4, -4, -4)
    assert stage.purse.ledger.reserved.calls == 0
