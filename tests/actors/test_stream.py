"""An agent's stream of events is read as activity, its last result as the answer, in whatever shape it comes."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sid_actors.backends.command.stream import LINE_LIMIT, StreamReader
from sid_actors.backends.parse import ANSWER_LIMIT_BYTES
from sid_actors.standstill import AgentClock
from sid_actors.watching.activity import ActivityLog
from sid_protocol.records import Cost

CLAUDE: list[dict[str, Any]] = [
    {"type": "system", "subtype": "init", "tools": ["Bash", "Edit"]},
    {
        "type": "assistant",
        "message": {
            "id": "m1",
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Let me look."},
                {"type": "tool_use", "id": "t1", "name": "Edit", "input": {"file_path": "a.py"}},
            ],
            "usage": {"input_tokens": 5, "output_tokens": 7},
        },
    },
    {
        "type": "user",
        "message": {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "edited"},
                {"type": "text", "text": "a reminder?"},
            ],
        },
    },
    {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "result": "All done.",
        "total_cost_usd": 0.25,
        "usage": {"input_tokens": 10, "cache_read_input_tokens": 90, "output_tokens": 20},
        "permission_denials": [],
    },
]
CODEX = [
    {"type": "thread.started", "thread_id": "x"},
    {"type": "item.started", "item": {"id": "i0", "type": "command_execution", "command": "ls"}},
    {
        "type": "item.completed",
        "item": {"id": "i0", "type": "command_execution", "command": "ls", "status": "completed"},
    },
    {
        "type": "item.completed",
        "item": {"id": "i1", "type": "file_change", "changes": [{"path": "a.py"}], "status": "completed"},
    },
    {
        "type": "item.completed",
        "item": {"id": "i2", "type": "agent_message", "text": "Which file do you mean?"},
    },
    {"type": "turn.completed", "usage": {"input_tokens": 30, "cached_input_tokens": 20, "output_tokens": 4}},
]
GEMINI = [
    {"type": "init", "model": "g"},
    {"type": "message", "role": "user", "content": "the prompt"},
    {"type": "tool_use", "tool_name": "read_file", "tool_id": "r1", "parameters": {"path": "a"}},
    {"type": "tool_result", "tool_id": "r1", "status": "success", "output": "text"},
    {"type": "message", "role": "assistant", "content": "The ans", "delta": True},
    {"type": "message", "role": "assistant", "content": "wer.", "delta": True},
    {
        "type": "result",
        "status": "success",
        "stats": {"input_tokens": 3, "output_tokens": 2, "tool_calls": 1},
    },
]
OPENCODE = [
    {
        "type": "tool_use",
        "part": {
            "type": "tool",
            "tool": "bash",
            "callID": "c1",
            "state": {"status": "completed", "input": {"x": 1}},
        },
    },
    {"type": "text", "part": {"type": "text", "text": "The answer."}},
    {
        "type": "step_finish",
        "part": {"type": "step-finish", "cost": 0.5, "tokens": {"input": 8, "output": 1}},
    },
    {
        "type": "step_finish",
        "part": {"type": "step-finish", "cost": 0.25, "tokens": {"input": 2, "output": 1}},
    },
]


class NoTime(AgentClock):
    """A clock outside of any event loop."""

    def now(self) -> float:
        return 0.0


class Log(ActivityLog):
    """An activity log where no clock runs."""

    def touch(self, doing: str | None = None) -> None:
        self.last_seen = 0.0


def read(events: list[Any] | bytes, size: int = 1 << 16) -> StreamReader:
    text = events if isinstance(events, bytes) else "".join(json.dumps(e) + "\n" for e in events).encode()
    reader = StreamReader(Log(clock=NoTime()))
    for start in range(0, len(text), size):
        reader.feed(text[start : start + size])
    reader.close()
    return reader


def test_claude_events() -> None:
    reader = read(CLAUDE)

    assert reader.text == "All done."
    assert reader.cost == Cost(input_tokens=100, output_tokens=20, usd=0.25)
    assert [tool.split("#")[0] for tool in reader.activity.tools] == ["Edit"]
    assert (reader.activity.edits, reader.activity.claimed_done, reader.failure) == (1, True, None)


def test_what_is_known_of_the_cost_before_the_end_is_kept() -> None:
    twice = [*CLAUDE[:2], CLAUDE[1]]  # one message may be printed in several events
    assert read(twice).activity.cost == Cost(input_tokens=5, output_tokens=7)


def test_codex_events() -> None:
    reader = read(CODEX)

    assert reader.text == "Which file do you mean?"
    assert reader.activity.asked_question
    assert reader.cost == Cost(input_tokens=30, output_tokens=4)
    assert [tool.split("#")[0] for tool in reader.activity.tools] == ["command_execution", "file_change"]
    assert reader.activity.edits == 1


def test_gemini_events() -> None:
    reader = read(GEMINI)

    assert reader.text == "The answer."
    assert reader.cost == Cost(input_tokens=3, output_tokens=2)
    assert len(reader.activity.tools) == 1


def test_opencode_events() -> None:
    reader = read(OPENCODE)

    assert reader.text == "The answer."
    assert reader.cost == Cost(input_tokens=10, output_tokens=2, usd=0.75)
    assert [tool.split("#")[0] for tool in reader.activity.tools] == ["bash"]


def test_what_opencode_tells_of_its_cache_and_of_its_thoughts_was_paid_for_too() -> None:
    tokens = {"input": 8, "output": 1, "reasoning": 4, "cache": {"read": 70, "write": 20}}
    finish = {"type": "step_finish", "part": {"type": "step-finish", "cost": 0.5, "tokens": tokens}}
    assert read([finish]).cost == Cost(input_tokens=98, output_tokens=5, usd=0.5)


def test_the_same_call_twice_is_a_repeat_and_another_is_not() -> None:
    calls = [
        {"type": "tool_use", "id": str(n), "name": "Bash", "input": {"command": command}}
        for n, command in enumerate(["ls", "make", "make", "make"])
    ]
    tools = read([{"type": "assistant", "message": {"content": calls}}]).activity.tools
    assert tools[1] == tools[2] == tools[3] != tools[0]


def test_a_refused_tool_is_a_permission_asked_until_it_is_granted() -> None:
    def result(number: int, text: str, *, failed: bool) -> dict[str, Any]:
        block = {"type": "tool_result", "tool_use_id": f"t{number}", "content": text, "is_error": failed}
        return {"type": "user", "message": {"content": [block]}}

    def call(number: int) -> dict[str, Any]:
        return {"type": "tool_use", "id": f"t{number}", "name": "Bash", "input": {}}

    refused = [
        call(1),
        result(1, "Claude requested permissions, but you haven't granted it yet.", failed=True),
    ]
    assert read(refused).activity.permission_asked == "Bash"
    assert read([*refused, call(2), result(2, "ok", failed=False)]).activity.permission_asked is None
    assert (
        read([{"type": "result", "permission_denials": [{"tool_name": "Write"}]}]).activity.permission_asked
        == "Write"
    )


def test_a_failed_result_is_a_failure_with_its_words() -> None:
    reader = read(
        [{"type": "result", "subtype": "success", "is_error": True, "result": "Prompt is too long"}]
    )
    assert reader.failure == reader.activity.error == "Prompt is too long"
    assert read([{"type": "result", "subtype": "error_max_turns"}]).failure == "error_max_turns"
    assert read([{"type": "turn.failed", "error": {"message": "no quota"}}]).failure == "no quota"


def test_plain_output_is_the_answer_as_it_is() -> None:
    text = '{\n "hypothesis": "x",\n "steps": []\n}\n'
    reader = read(text.encode(), size=3)
    assert (reader.text, reader.is_stream, reader.cost) == (text, False, Cost())
    assert (
        read(b'{"type": "plan", "hypothesis": "one line"}').text
        == '{"type": "plan", "hypothesis": "one line"}'
    )


def test_memory_is_bounded_whatever_is_printed() -> None:
    reader = StreamReader(Log(clock=NoTime()))
    for _ in range(24):
        reader.feed(b"x" * (1 << 20))
        assert sum(map(len, reader._pieces)) <= LINE_LIMIT
        assert reader.activity.unfinished == "x" * 1000
    reader.feed(b"\n" + json.dumps(CLAUDE[-1]).encode())
    reader.close()

    assert reader.text == "All done."
    assert sum(map(len, reader._plain)) <= 2 * ANSWER_LIMIT_BYTES + 2


def test_every_cut_of_the_bytes_gives_the_same() -> None:
    last: dict[str, Any] = {**CLAUDE[-1], "result": "größer → done"}
    events = [*CLAUDE[:-1], last]
    for size in (1, 2, 7, 64):
        reader = read(events, size)
        assert reader.text == "größer → done"
        assert reader.cost == Cost(input_tokens=100, output_tokens=20, usd=0.25)


KEYS = st.sampled_from(
    [
        "type",
        "kind",
        "message",
        "content",
        "item",
        "part",
        "msg",
        "usage",
        "tokens",
        "stats",
        "result",
        "error",
        "is_error",
        "subtype",
        "delta",
        "role",
        "text",
        "name",
        "input",
        "id",
        "state",
        "permission_denials",
        "cost",
        "input_tokens",
        "output_tokens",
        "total_cost_usd",
        "stop_reason",
        "status",
    ]
)
WORDS = st.sampled_from(
    ["tool_use", "tool_result", "text", "result", "turn.failed", "error", "assistant", "user", "m1"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=20,
)


@settings(max_examples=50)
@given(st.lists(st.dictionaries(KEYS, VALUES, max_size=8).map(json.dumps) | st.text(max_size=20), max_size=8))
def test_no_stream_upsets_it(lines: list[str]) -> None:
    reader = StreamReader(Log(clock=NoTime()))
    reader.feed("\n".join(lines).encode("utf-8", "surrogatepass"))
    reader.close()
    assert isinstance(reader.text, str)
    assert reader.cost.model_dump_json()
