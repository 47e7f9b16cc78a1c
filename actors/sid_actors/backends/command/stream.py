"""An agent's standard output while it comes: lines of JSON are read as activity, the rest as its answer.

The command back end feeds every chunk; at the end it asks for the text and the cost. Programs print such
streams in shapes of their own and rename fields between versions, so nothing is required of a line: what is
recognised is noted, what is absent stays unknown, and whatever else there is, is skipped. It never raises,
and keeps a bounded part of a stream of any length.
"""

from __future__ import annotations

import codecs
import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sid_actors.backends.parse import ANSWER_LIMIT_BYTES
from sid_actors.watching.activity import ActivityLog
from sid_protocol.records import Cost

LINE_LIMIT = 2 << 20
"""Longest line that is looked at, in characters: twice the longest answer, since JSON escapes; more holds the loop up."""
_MOST_NODES = 1000
"""Objects of one event that are looked at: those of programs have some dozens."""

_DEPTH = 12
_END_KEPT = 1000
_TOOL_TYPES = frozenset(
    {
        "tool",
        "tool_use",
        "tool_call",
        "function_call",
        "custom_tool_call",
        "server_tool_use",
        "mcp_tool_call",
        "command_execution",
        "file_change",
        "web_search",
        "exec_command_begin",
        "patch_apply_begin",
    }
)
_RESULT_TYPES = frozenset({"tool_result", "function_call_output", "tool_call_output", "exec_command_end"})
_TEXT_TYPES = frozenset({"text", "output_text", "agent_message", "assistant_message", "message"})
_EDITORS = re.compile(r"edit|write|patch|file_change|str_replace|create_file", re.IGNORECASE)
_DENIED = re.compile(
    r"requires? (?:your )?(?:approval|permission)|permission (?:was |has been )?(?:denied|required|to use)"
    r"|haven't granted|not (?:been )?(?:granted|approved)|approval (?:required|denied)|user (?:rejected|declined)",
    re.IGNORECASE,
)
_ASKS_APPROVAL = re.compile(
    r"(?:permission|approval)_(?:request|asked|required)|approval_request", re.IGNORECASE
)
_DONE = re.compile(
    r"\b(?:done|completed?|finished|implemented|applied|all set|made the changes?)\b", re.IGNORECASE
)


@dataclass(slots=True)
class StreamReader:
    """Reads one agent's standard output.

    Attributes:
        activity: Where tool calls, texts, errors and the running cost are noted.
        is_stream: Whether any line was an event, so that the answer is the last result and not all output.
        failure: What the stream's own result says went wrong, or None.
    """

    activity: ActivityLog
    is_stream: bool = False
    failure: str | None = None
    _decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace")
    )
    _pieces: list[str] = field(default_factory=list)
    _length: int = 0
    _last: str = ""
    _plain: list[str] = field(default_factory=list)
    _plain_size: int = 0
    _result: str | None = None
    _said: str = ""
    _said_in_pieces: bool = False
    _tools: dict[str, str] = field(default_factory=dict)
    _summed: dict[str, float] = field(default_factory=dict)
    _last_message: str = ""

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes, however they are cut."""
        text = self._decoder.decode(chunk)
        self._keep(text)
        first, *rest = text.split("\n")
        self._grow(first)
        for piece in rest:
            self._complete()
            self._grow(piece)
        is_event = self._pieces[0].startswith("{") if self._pieces else False
        self.activity.unfinished = "" if is_event else self._last
        if chunk and not rest:
            self.activity.touch()

    def close(self) -> None:
        """Take the last line, which need not end in a newline."""
        self.feed(self._decoder.decode(b"", final=True).encode())
        if self._length:
            self._complete()

    @property
    def text(self) -> str:
        """The answer: the last result of a stream, else all that was printed (a little more than the limit)."""
        said = self._result if self._result is not None else self._said
        return said if self.is_stream and said else "".join(self._plain)

    @property
    def cost(self) -> Cost:
        """What the stream says that the turn took; what it does not say is None."""
        return self.activity.cost

    def _keep(self, text: str) -> None:
        if self._plain_size <= ANSWER_LIMIT_BYTES:
            self._plain.append(text[: ANSWER_LIMIT_BYTES + 1])
            self._plain_size += len(text)

    def _grow(self, piece: str) -> None:
        """Take more of the line that has not ended; in pieces, since joining at each one takes time that squares."""
        if not piece:
            return
        self._length += len(piece)
        self._last = (self._last + piece[-_END_KEPT:])[-_END_KEPT:]
        self._pieces.append(piece)
        if self._length > LINE_LIMIT:
            del self._pieces[1:]

    def _complete(self) -> None:
        """Read the line that has ended, unless it is too long to be looked at."""
        if self._length <= LINE_LIMIT:
            self._line("".join(self._pieces))
        self._pieces, self._length, self._last = [], 0, ""

    def _line(self, line: str) -> None:
        event = _event(line)
        if event is None:
            self.activity.output(line)
            return
        self.is_stream = True
        self.activity.touch()
        for node in itertools.islice(_nodes(event), _MOST_NODES):
            self._node(node, from_user=event.get("type") == "user")
        self._usage(event)
        self._end(event)

    def _node(self, node: dict[str, Any], *, from_user: bool) -> None:
        kind = _text(node, "type", "kind")
        if _is_tool(node):
            self._tool(kind, node)
        elif kind in _RESULT_TYPES:
            self._tool_result(node)
        elif kind in _TEXT_TYPES:
            if not from_user and node.get("role", "assistant") in ("assistant", "model"):
                self._say(_text(node, "text", "content", "message"), in_pieces=bool(node.get("delta")))
        elif _ASKS_APPROVAL.search(kind):
            self.activity.permission_asked = _text(node, "tool_name", "name", "command", "message") or kind
        if "error" in kind:
            self.activity.error = _text(node, "message", "error", "text") or kind
        elif isinstance(node.get("error"), dict | str):
            error = node["error"]
            self.activity.error = error if isinstance(error, str) else _text(error, "message", "type")
        if stop := _text(node, "stop_reason", "finish_reason", "stopReason", "finishReason"):
            self.activity.stop_reason = stop

    def _tool(self, kind: str, node: dict[str, Any]) -> None:
        name = _text(node, "name", "tool_name", "tool", "function_name") or kind
        state = node.get("state")
        inner = state if isinstance(state, dict) else {}
        call = _text(node, "id", "tool_id", "call_id", "callID", "tool_use_id")
        if not call or call not in self._tools:
            keys = ("input", "parameters", "arguments", "args", "command", "changes", "query")
            found = [source[key] for source in (node, inner) for key in keys if key in source]
            self.activity.tool(name, found[0] if found else None)
            self._said_in_pieces = False
            if call:
                self._tools[call] = name
                if len(self._tools) > 1000:
                    del self._tools[next(iter(self._tools))]
        status = _text(node, "status") or _text(inner, "status")
        if status in ("completed", "success") and _EDITORS.search(name):
            self.activity.edit()

    def _tool_result(self, node: dict[str, Any]) -> None:
        name = self._tools.get(_text(node, "tool_use_id", "tool_id", "call_id", "id"), "")
        text = _flat(node.get("content", node.get("output", "")))
        failed = node.get("is_error") is True or _text(node, "status") in ("error", "failed")
        self.activity.output(text[-400:])
        if failed and _DENIED.search(text):
            self.activity.permission_asked = name or text[:200]
        elif not failed:
            if name == self.activity.permission_asked:
                self.activity.permission_asked = None
            if _EDITORS.search(name):
                self.activity.edit()

    def _say(self, text: str, *, in_pieces: bool = False) -> None:
        if not text:
            return
        joined = self._said + text if in_pieces and self._said_in_pieces else text
        self._said, self._said_in_pieces = joined[: ANSWER_LIMIT_BYTES + 1], in_pieces
        self.activity.output(text.strip()[-400:])
        self.activity.asked_question = self._said.rstrip().endswith("?")
        self.activity.claimed_done = bool(_DONE.search(self._said[-2000:]))

    def _end(self, event: dict[str, Any]) -> None:
        """Read the event that ends a stream: its text, its verdict, what was denied."""
        denials = event.get("permission_denials")
        if isinstance(denials, list) and denials:
            last = denials[-1]
            self.activity.permission_asked = (
                _text(last, "tool_name", "name") if isinstance(last, dict) else ""
            ) or "a tool"
        kind = _text(event, "type")
        if kind not in ("result", "turn.failed"):
            return
        subtype = _text(event, "subtype", "status")
        if event.get("is_error") is True or subtype.startswith("error") or kind == "turn.failed":
            said = _text(event, "result", "message") or self.activity.error or subtype or kind
            self.failure = self.activity.error = said[:400]
            return
        self.failure = None
        if result := _text(event, "result", "response", "text"):
            self._result = None
            self._say(result)
            self._result = result[: ANSWER_LIMIT_BYTES + 1]

    def _usage(self, event: dict[str, Any]) -> None:
        """Keep the running cost: partial figures add up, the final result's replace them."""
        message = event.get("message")
        part = event.get("part")
        holders = [holder for holder in (event, message, part) if isinstance(holder, dict)]
        found: dict[str, float] = {}
        for holder in holders:
            for key in ("usage", "tokens", "stats", "token_usage"):
                if isinstance(holder.get(key), dict):
                    found |= _tokens(holder[key])
            usd = _number(holder, "total_cost_usd", "cost_usd", "cost", "usd")
            found |= {} if usd is None else {"usd": usd}
        if not found:
            return
        name = _text(message, "id") if isinstance(message, dict) else ""
        if _text(event, "type") == "result":
            self._summed |= found
        elif not name or name != self._last_message:  # one message may be printed in several events
            self._last_message = name
            for key, value in found.items():
                self._summed[key] = self._summed.get(key, 0) + value
        self.activity.cost = Cost(
            input_tokens=_whole(self._summed.get("input")),
            output_tokens=_whole(self._summed.get("output")),
            usd=self._summed.get("usd"),
        )


def _event(line: str) -> dict[str, Any] | None:
    """Return the line as an event: a JSON object with a `type` (or an inner `msg` that has one)."""
    if not line.lstrip().startswith("{"):
        return None
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    inner = value.get("msg")
    holder = inner if isinstance(inner, dict) else value
    return value if isinstance(holder.get("type"), str) else None


def _nodes(event: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the objects of an event from the outside in, but not what a tool was given or gave."""
    level: list[Any] = [event]
    for _ in range(_DEPTH):
        inner: list[Any] = []
        for value in level:
            if isinstance(value, list):
                inner.extend(value)
            elif isinstance(value, dict):
                yield value
                if not _is_tool(value) and _text(value, "type", "kind") not in _RESULT_TYPES:
                    keys = ("message", "content", "item", "part", "msg", "delta", "data", "event", "payload")
                    inner.extend(value[key] for key in keys if isinstance(value.get(key), dict | list))
        level = inner


def _is_tool(node: dict[str, Any]) -> bool:
    """Whether the object is a tool call, and not an event around one."""
    return _text(node, "type", "kind") in _TOOL_TYPES and not isinstance(node.get("part"), dict)


def _text(node: dict[str, Any], *keys: str) -> str:
    """Return the first of the keys that holds a non-empty string."""
    for key in keys:
        value = node.get(key)
        if isinstance(value, str) and value:
            return value
    return ""


def _flat(value: Any) -> str:
    """Return the text of a tool's result, which is a string or a list of text blocks."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(_text(item, "text", "content") for item in value if isinstance(item, dict))
    return _text(value, "text", "output", "content", "stdout") if isinstance(value, dict) else ""


def _number(node: dict[str, Any], *keys: str) -> float | None:
    for key in keys:
        value = node.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e15:
            return value
    return None


def _tokens(usage: dict[str, Any]) -> dict[str, float]:
    """Return the tokens in and out; what was read from or written to a cache went in, too."""
    parts = [
        _number(usage, "input_tokens", "prompt_tokens", "input", "inputTokens"),
        _number(usage, "cache_creation_input_tokens"),
        _number(usage, "cache_read_input_tokens"),
    ]
    known = [part for part in parts if part is not None]
    output = _number(usage, "output_tokens", "completion_tokens", "output", "outputTokens")
    found = {"input": sum(known)} if known else {}
    return found if output is None else {**found, "output": output}


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
