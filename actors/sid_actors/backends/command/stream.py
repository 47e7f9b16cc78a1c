"""An agent's standard output while it comes: lines of JSON are read as activity, the rest as its answer.

The command back end feeds every chunk; at the end it asks for the text and the cost. Programs print such
streams in shapes of their own and rename fields between versions, so nothing is required of a line: what is
recognised is noted, what is absent stays unknown, and whatever else there is, is skipped. It never raises,
and keeps a bounded part of a stream of any length.
"""

from __future__ import annotations

import codecs
import itertools
import re
from dataclasses import dataclass, field
from typing import Any

from sid_actors.backends.command.shapes import (
    RESULT_TYPES,
    event_of,
    flat_text,
    is_tool,
    nodes,
    number_of,
    text_of,
    tokens_of,
)
from sid_actors.backends.parse import ANSWER_LIMIT_BYTES
from sid_actors.watching.activity import ActivityLog
from sid_protocol.records import Cost

LINE_LIMIT = 2 << 20
"""Longest line that is looked at, in characters: twice the longest answer, since JSON escapes; more holds the loop up."""
_MOST_NODES = 1000
"""Objects of one event that are looked at: those of programs have some dozens."""

_END_KEPT = 1000
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
        event = event_of(line)
        if event is None:
            self.activity.output(line)
            return
        self.is_stream = True
        self.activity.touch()
        for node in itertools.islice(nodes(event), _MOST_NODES):
            self._node(node, from_user=event.get("type") == "user")
        self._usage(event)
        self._end(event)

    def _node(self, node: dict[str, Any], *, from_user: bool) -> None:
        kind = text_of(node, "type", "kind")
        if is_tool(node):
            self._tool(kind, node)
        elif kind in RESULT_TYPES:
            self._tool_result(node)
        elif kind in _TEXT_TYPES:
            if not from_user and node.get("role", "assistant") in ("assistant", "model"):
                self._say(text_of(node, "text", "content", "message"), in_pieces=bool(node.get("delta")))
        elif _ASKS_APPROVAL.search(kind):
            self.activity.permission_asked = text_of(node, "tool_name", "name", "command", "message") or kind
        if "error" in kind:
            self.activity.error = text_of(node, "message", "error", "text") or kind
        elif isinstance(node.get("error"), dict | str):
            error = node["error"]
            self.activity.error = error if isinstance(error, str) else text_of(error, "message", "type")
        if stop := text_of(node, "stop_reason", "finish_reason", "stopReason", "finishReason"):
            self.activity.stop_reason = stop

    def _tool(self, kind: str, node: dict[str, Any]) -> None:
        name = text_of(node, "name", "tool_name", "tool", "function_name") or kind
        state = node.get("state")
        inner = state if isinstance(state, dict) else {}
        call = text_of(node, "id", "tool_id", "call_id", "callID", "tool_use_id")
        if not call or call not in self._tools:
            keys = ("input", "parameters", "arguments", "args", "command", "changes", "query")
            found = [source[key] for source in (node, inner) for key in keys if key in source]
            self.activity.tool(name, found[0] if found else None)
            self._said_in_pieces = False
            if call:
                self._tools[call] = name
                if len(self._tools) > 1000:
                    del self._tools[next(iter(self._tools))]
        status = text_of(node, "status") or text_of(inner, "status")
        if status in ("completed", "success") and _EDITORS.search(name):
            self.activity.edit()

    def _tool_result(self, node: dict[str, Any]) -> None:
        name = self._tools.get(text_of(node, "tool_use_id", "tool_id", "call_id", "id"), "")
        text = flat_text(node.get("content", node.get("output", "")))
        failed = node.get("is_error") is True or text_of(node, "status") in ("error", "failed")
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
                text_of(last, "tool_name", "name") if isinstance(last, dict) else ""
            ) or "a tool"
        kind = text_of(event, "type")
        if kind not in ("result", "turn.failed"):
            return
        subtype = text_of(event, "subtype", "status")
        if event.get("is_error") is True or subtype.startswith("error") or kind == "turn.failed":
            said = text_of(event, "result", "message") or self.activity.error or subtype or kind
            self.failure = self.activity.error = said[:400]
            return
        self.failure = None
        if result := text_of(event, "result", "response", "text"):
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
                    found |= tokens_of(holder[key])
            usd = number_of(holder, "total_cost_usd", "cost_usd", "cost", "usd")
            found |= {} if usd is None else {"usd": usd}
        if not found:
            return
        name = text_of(message, "id") if isinstance(message, dict) else ""
        if text_of(event, "type") == "result":
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


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
