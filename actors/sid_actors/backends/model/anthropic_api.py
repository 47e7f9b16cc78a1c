"""The `anthropic` back end: agents played by a model behind the Messages API.

Role actors ask it when `agent_backend` is `anthropic`. Any server that speaks the API will do (`base_url`). The SDK
is imported when the first turn needs it, in a thread, since that takes a second; it never retries, as `Caller`
knows budget and deadline and it does not. A cancelled turn closes its connections at once.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import trio

from sid_actors.backends.base import Answer, Turn
from sid_actors.backends.enclose import Enclose
from sid_actors.backends.model.caller import Caller
from sid_actors.backends.model.confined import Confined
from sid_actors.backends.model.dialogue import Dialogue
from sid_actors.backends.model.keys import read_key
from sid_actors.backends.model.models import model_of
from sid_actors.backends.model.pace import Pace
from sid_actors.backends.model.prefixes import Prefixes
from sid_actors.backends.model.purse import Purse
from sid_actors.backends.model.reply import BrokenStreamError
from sid_actors.backends.model.toolbox import Toolbox
from sid_actors.jobs.overload import room_in
from sid_actors.watching.activity import ActivityLog
from sid_protocol.prices import Price, price_of

CONNECT_S = 15.0
SILENCE_S = 120.0
"""So long a stream may be silent; services send a sign of life every few seconds."""
HIDDEN = "***"


@dataclass(slots=True)
class Service:
    """What all runs of a daemon share: the pace of calls by service, and the user's prices.

    Attributes:
        prices: The user's own, by model.
        learn: Told each key, so that no log ever shows it.
    """

    prices: Mapping[str, Price] = field(default_factory=dict)
    learn: Callable[[str], None] = lambda _: None
    unforced: set[str] = field(default_factory=set)
    prefixes: Prefixes = field(default_factory=Prefixes)
    _paces: dict[str | None, Pace] = field(default_factory=dict)

    def pace(self, base_url: str | None) -> Pace:
        """Return the pace of one service."""
        return self._paces.setdefault(base_url, Pace())


@dataclass(frozen=True, slots=True, kw_only=True)
class AnthropicBackend:
    """Answers prompts with a model.

    Attributes:
        repo: Absolute path of the repository's top.
        enclose: Makes the sandbox of commands; None where the sandbox is off or does not work.
        purse: The run's money.
        service: What all runs share.
        environ: Where the key, PATH and HOME come from.
        path: PATH of commands; by default that of `environ`.
        readable: What commands may read besides: the interpreters of PATH.
        git_dir: The repository's git directory, which an executor's commands may read.
        tell: Takes log records: `tell(turn, level, event, **fields)`.
        silence_s: So long a stream may be silent.
    """

    repo: str
    enclose: Enclose | None
    purse: Purse
    service: Service
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    path: str | None = None
    readable: tuple[str, ...] = ()
    git_dir: str | None = None
    tell: Callable[..., None] = lambda *_, **__: None
    silence_s: float = SILENCE_S

    async def answer(self, turn: Turn, activity: ActivityLog) -> Answer:
        """Carry out one turn.

        Raises:
            BackendError: the service failed or refused, or there was no valid answer.
            BudgetSpent: a limit of the budget would be passed.
            SettingsInvalid: there is no key.
        """
        settings = turn.track.settings
        key = await trio.to_thread.run_sync(read_key, settings, self.repo, self.environ)
        self.service.learn(key)
        model = model_of(turn.role, settings.models)

        async def sending(request: Any) -> None:  # noqa: ASYNC124 - httpx2 awaits it
            request.extensions = {**request.extensions, "trace": traced}

        async def traced(event: str, _info: Any) -> None:  # noqa: ASYNC124 - httpcore2 awaits it
            if event.endswith("send_request_body.complete"):
                activity.request = f"waits for the first word of {model}"

        client, errors = await trio.to_thread.run_sync(self._client, key, settings.base_url, sending)

        def tell(level: str, event: str, **fields: Any) -> None:
            self.tell(turn, level, event, **fields)

        price = price_of(model, self.service.prices)
        if price is None and (settings.budget.usd, settings.budget.usd_per_round) != (None, None):
            tell("warning", "price_unknown", model=model, why="its tokens count, its dollars do not")
        async with client:
            caller = Caller(
                client=client,
                errors=errors,
                model=model,
                price=price,
                turn=turn,
                activity=activity,
                purse=self.purse,
                pace=self.service.pace(settings.base_url),
                prefixes=self.service.prefixes,
                tell=tell,
                hide=lambda words: words.replace(key, HIDDEN),
            )
            dialogue = Dialogue(
                caller=caller, tools=self._tools(turn, activity), unforced=self.service.unforced
            )
            return await (dialogue.execute() if turn.role == "executor" else dialogue.read())

    def _tools(self, turn: Turn, activity: ActivityLog) -> Toolbox:
        return Toolbox(
            turn=turn,
            activity=activity,
            files=Confined(turn.cwd, turn.sealed, writable=turn.role == "executor"),
            enclose=self.enclose,
            environ=self.environ,
            path=self.path or self.environ.get("PATH", os.defpath),
            readable=self.readable,
            git_dir=self.git_dir,
            room=room_in(turn.cwd, turn.track.settings.limits) if turn.role == "executor" else None,
        )

    def _client(
        self, key: str, base_url: str | None, sending: Callable[[Any], Awaitable[None]]
    ) -> tuple[Any, tuple[type[Exception], ...]]:
        """Return a client and what it raises; blocks for the import and for reading certificates."""
        sdk, http = importlib.import_module("anthropic"), importlib.import_module("httpx2")
        timeout = http.Timeout(self.silence_s, connect=min(CONNECT_S, self.silence_s))
        client = sdk.AsyncAnthropic(
            api_key=key,
            base_url=base_url,
            max_retries=0,
            timeout=timeout,
            http_client=sdk.DefaultAsyncHttpxClient(timeout=timeout, event_hooks={"request": [sending]}),
        )
        # Broken JSON in a stream comes as ValueError.
        return client, (
            sdk.AnthropicError,
            http.HTTPError,
            http.StreamError,
            http.InvalidURL,
            ValueError,
            BrokenStreamError,
        )
