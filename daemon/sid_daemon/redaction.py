"""Takes secrets out of what is logged, and makes plain JSON of it.

Used by `logs` for every record before it goes anywhere, by the recorder of runs, and by the conductor for every event before it
is journalled. Knows the values of secret environment variables and what it is told (`learn`), and the usual shapes of keys and
tokens, also in URLs. It errs on the side of hiding. The rule comes from the interfaces page: secrets never appear in any log.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from sid_protocol.events import Event  # not loaded while the daemon starts, which needs this module

E = TypeVar("E", bound="Event")

HIDDEN = "***"
TEXT_LIMIT = 8192
"""Longest text of a record that is kept, in characters."""

_SHORTEST_SECRET = 8
"""A shorter value would blank out ordinary words."""

_DEEPEST = 8
_INTEGER_BITS = 1024  # Python writes no longer number than 4300 digits
_SECRET_VARIABLE = re.compile(r"(^|_)(KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|APIKEY)(_|$)")
_SECRET_FIELD = re.compile(
    r"(?i)(^|[_-])(api[_-]?key|secret([_-]?key)?|password|passwd|authorization|private[_-]?key"
    r"|(access|auth|refresh|bearer)[_-]?token)$"
)
_QUERY = (
    r"(?i)([?&;](?:access_?token|auth|(?:api_?)?key|(?:private_)?token|secret|password|sig|signature)=)"
    r"[^&#;\s\"']+"
)
_ASSIGNED = r"""(["']?\s*[:=]\s*["']?)[^\s"',;]{4,}"""

# (what a text in lower case must hold, the shape, its replacement). Looking for a word is far cheaper than a
# shape, and most texts hold none. Repetitions are bounded where a hostile text could make them costly.
_SHAPES = tuple(
    (words, re.compile(pattern), replacement)
    for words, pattern, replacement in (
        (("http",), r"(?i)(https?://)[^/\s@\"']{1,1024}@", rf"\1{HIDDEN}@"),
        (
            ("://",),
            r"(?i)\b([a-z][a-z0-9+.-]{0,30}://[^/\s:@\"']{1,256}):[^/\s@\"']{1,1024}@",
            rf"\1:{HIDDEN}@",
        ),
        (
            ("token=", "auth=", "key=", "secret=", "password=", "sig=", "signature="),
            _QUERY,
            rf"\1{HIDDEN}",
        ),
        (("sk-",), r"\bsk-[A-Za-z0-9_-]{16,}", HIDDEN),
        (
            ("gh", "hf_", "npm_", "github_pat_"),
            r"\b(?:gh[pousr]|github_pat|hf|npm)_[A-Za-z0-9_]{20,}",
            HIDDEN,
        ),
        (("glpat-", "xox"), r"\b(?:glpat-|xox[abeprs]-)[A-Za-z0-9-]{10,}", HIDDEN),
        (("akia", "asia", "aiza"), r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bAIza[0-9A-Za-z_-]{30,}", HIDDEN),
        (("eyj",), r"\beyJ[A-Za-z0-9_-]{8,1024}\.[A-Za-z0-9_-]{8,2048}\.[A-Za-z0-9_-]{4,}", HIDDEN),
        (("bearer", "basic"), r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}", rf"\1 {HIDDEN}"),
        (
            ("api", "passw", "secret"),
            r"(?i)\b(x-api-key|api[_-]?key|passw(?:or)?d|secret[_-]?key)" + _ASSIGNED,
            rf"\1\2{HIDDEN}",
        ),
        (
            ("key", "secret", "token", "password"),
            r"\b([A-Z0-9_]{0,64}(?:API_?KEY|SECRET|TOKEN|PASSWORD))" + _ASSIGNED,
            rf"\1\2{HIDDEN}",
        ),
        (
            ("private key",),
            r"-----BEGIN [A-Z ]{0,32}PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]{0,32}PRIVATE KEY-----|$)",
            HIDDEN,
        ),
    )
)


_SURE = tuple(one for one in _SHAPES if one[2] == HIDDEN or one[0][0] in ("http", "://", "token="))
"""Keys of a usual shape, and what stands in URLs: no plan and no diff is spoilt by taking these out."""
_ACTED_UPON = ("settings", "repo", "root")
"""Fields of events that a run goes by: settings stand in a file beside the journal anyway."""
_WORDS = sorted({word for words, _, _ in _SHAPES for word in words}, key=len)
_SHORTEST_TEXT = 8
_SHORT = 40
"""Texts up to this length are remembered: records have the same few names and ids again and again."""

_SHORT_KEPT = 1024


def secrets_of(env: Mapping[str, str]) -> list[str]:
    """Return the values of the environment variables whose names say that they are secret."""
    return [value for name, value in env.items() if _SECRET_VARIABLE.search(name.upper())]


class Redactor:
    """Hides what is known or looks to be secret.

    Args:
        secrets: Values to hide wherever they appear.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._known: frozenset[str] = frozenset()
        self._pattern: re.Pattern[str] | None = None
        self._short = functools.lru_cache(_SHORT_KEPT)(self.text)
        self.learn(*secrets)

    def learn(self, *secrets: str) -> None:
        """Hide these values from now on; one shorter than 8 characters is not taken."""
        if self._known.issuperset(secrets) and secrets:
            return
        self._short.cache_clear()
        self._known |= {secret for secret in secrets if len(secret) >= _SHORTEST_SECRET}
        if self._known:
            # The longest first: one secret may be the beginning of another.
            ordered = sorted(self._known, key=len, reverse=True)
            self._pattern = re.compile("|".join(map(re.escape, ordered)))

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        if self._pattern is not None:
            text = self._pattern.sub(HIDDEN, text)
        return _hidden(text, _SHAPES)

    def event(self, event: E) -> E:
        """Return an event without known secrets, keys of a usual shape, and tokens in URLs.

        What is assigned to a name such as `TOKEN` stays: in a plan it is seldom a secret, and is work to be done. So does what the
        user has set and is acted upon.
        """
        told = event.model_dump(mode="json")
        # Each text for itself: in JSON a line break is written with a letter, and a key after it is no word of its own.
        hidden = self._all_surely(told)
        hidden |= {name: told[name] for name in _ACTED_UPON if name in told}
        return event if hidden == told else type(event).model_validate_json(json.dumps(hidden))

    def _surely(self, text: str) -> str:
        return _hidden(text if self._pattern is None else self._pattern.sub(HIDDEN, text), _SURE)

    def _all_surely(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._surely(value)
        if isinstance(value, dict):
            return {key: self._all_surely(inner) for key, inner in value.items()}
        return [self._all_surely(inner) for inner in value] if isinstance(value, list) else value

    def holds_secret(self, text: str) -> bool:
        """Say whether a text holds a known secret or a key of a usual shape.

        What is assigned to a name such as `TOKEN` does not count: in a program that is seldom a secret.
        """
        if self._pattern is not None and self._pattern.search(text):
            return True
        return any(shape.search(text) for _, shape, replacement in _SHAPES if replacement == HIDDEN)

    def clean(self, value: Any, depth: int = 0) -> Any:
        """Return a value as plain JSON: without secrets, long texts cut, nothing non-finite.

        Args:
            value: Anything; what is no JSON is written as Python writes it.
            depth: How deep it lies; what lies too deep is written as text.
        """
        if isinstance(value, str):
            if len(value) <= _SHORT:
                return self._short(value)
            # The end of a cut secret would be hidden by no rule, so hide first.
            return _cut(self.text(value[: 2 * TEXT_LIMIT]), len(value))
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int):
            return value if value.bit_length() <= _INTEGER_BITS else hex(value)[:TEXT_LIMIT]
        if isinstance(value, float):
            return value if math.isfinite(value) else str(value)
        if depth < _DEEPEST and isinstance(value, Mapping):
            return {
                self.clean(str(key)): HIDDEN
                if inner and _is_secret_field(str(key))
                else self.clean(inner, depth + 1)
                for key, inner in value.items()
            }
        if depth < _DEEPEST and isinstance(value, (list, tuple, set, frozenset)):
            return [self.clean(inner, depth + 1) for inner in value]
        return self.clean(str(value), depth)


def _hidden(text: str, shapes: tuple[tuple[tuple[str, ...], re.Pattern[str], str], ...]) -> str:
    if len(text) < _SHORTEST_TEXT:
        return text
    lower = text.lower()
    present = {word for word in _WORDS if word in lower}
    if present:
        for words, shape, replacement in shapes:
            if not present.isdisjoint(words):
                text = shape.sub(replacement, text)
    return text


@functools.lru_cache(maxsize=_SHORT_KEPT)
def _is_secret_field(name: str) -> bool:
    return _SECRET_FIELD.search(name) is not None


def _cut(text: str, length: int) -> str:
    if length <= TEXT_LIMIT and len(text) <= TEXT_LIMIT:
        return text
    return f"{text[:TEXT_LIMIT]}… ({length} characters)"
