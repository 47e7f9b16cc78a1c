"""What went wrong with a call of a model, sorted by what is to be done about it.

Pure; looks at an error's attributes, so that it needs no SDK. Errors in the middle of a stream come as the HTTP
library's own, an `error` event comes with status 200 and says what it is in its body.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Literal

from sid_actors.backends.model.reply import BrokenStreamError, ForeignAnswerError

Kind = Literal["rate", "lost", "context", "forced", "refused"]
"""Rate: slow down. Lost: try once more. Context: send less. Forced: do not force a tool. Refused: give up."""

_RATE_TYPES = frozenset({"rate_limit_error", "overloaded_error"})
_LOST_TYPES = frozenset({"api_error", "timeout_error", "gateway_timeout_error"})
_LOST_STATUS = frozenset({408, 409, 500, 502, 503, 504})
_CONTEXT = re.compile(
    r"prompt is too long|context (?:window|length|limit)|too many (?:input )?tokens|request_too_large",
    re.IGNORECASE,
)
_LONGEST_RETRY_AFTER_S = 86_400.0
_KEY_HINT = "check the key: ANTHROPIC_API_KEY, or the file that api_key_file names"


@dataclass(frozen=True, slots=True)
class Trouble:
    """What to do about an error, and the words for it."""

    kind: Kind
    what: str
    retry_after_s: float | None = None
    hint: str = ""


def trouble_of(error: BaseException, hide: Callable[[str], str] = str) -> Trouble:
    """Sort an error of the SDK, of its HTTP library, or of our own reading of the stream.

    Args:
        error: The error.
        hide: Takes secrets out of its words; asked before they are cut, since a part of one would not be known.
    """
    status = getattr(error, "status_code", None)
    kind, said = map(hide, _body(getattr(error, "body", None)))
    told = hide(str(error))
    if not isinstance(error, BrokenStreamError):
        told = f"{type(error).__name__}: {told}" if told else type(error).__name__
    what = _words(told, status, kind, said)
    if status in (429, 529) or kind in _RATE_TYPES:
        return Trouble("rate", what, _retry_after(getattr(error, "response", None)))
    if status == 413 or (status == 400 and _CONTEXT.search(said)):
        return Trouble("context", what)
    if status == 400 and "tool_choice" in said:
        return Trouble("forced", what)
    if status in (401, 403):
        return Trouble("refused", what, hint=_KEY_HINT)
    if status == 404:
        return Trouble("refused", what, hint="check 'models' and base_url in the settings")
    if isinstance(error, ForeignAnswerError):
        return Trouble("lost", what, hint="check base_url in the settings")
    if status is None or status in _LOST_STATUS or kind in _LOST_TYPES or status >= 500:
        return Trouble("lost", what)
    return Trouble("refused", what)


def _words(told: str, status: int | None, kind: str, said: str) -> str:
    if status is None and said:
        return (
            f"the model service ended the stream ({kind.replace('_', ' ')}): {' '.join(said.split())[:300]}"
        )
    if status is None:
        return f"connection lost: {' '.join(told.split())[:300]}"
    name = {429: "rate limit", 529: "overloaded"}.get(status) or kind.replace("_", " ") or "error"
    return f"the model service answered {status} ({name}): {' '.join(said.split())[:300] or 'no words'}"


def _body(body: Any) -> tuple[str, str]:
    """Return the error's type and message, from a body of either of its two shapes."""
    if not isinstance(body, dict):
        return "", body if isinstance(body, str) else ""
    inner = body.get("error")
    holder = inner if isinstance(inner, dict) else body
    kind, said = holder.get("type"), holder.get("message")
    return kind if isinstance(kind, str) else "", said if isinstance(said, str) else ""


def _retry_after(response: Any) -> float | None:
    """Return the seconds that the service asked to wait, or None where it named none that can be read."""
    headers = getattr(response, "headers", None)
    if headers is None:
        return None
    for name, scale in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            return min(_LONGEST_RETRY_AFTER_S, max(0.0, float(value) / scale))
        except ValueError:
            return _until(value, headers.get("date"))
    return None


def _until(value: str, now: str | None) -> float | None:
    """Return the seconds from the server's own time to the date that it named."""
    try:
        gap = (parsedate_to_datetime(value) - parsedate_to_datetime(now or "")).total_seconds()
    except (TypeError, ValueError):
        return None
    return min(_LONGEST_RETRY_AFTER_S, max(0.0, gap))
