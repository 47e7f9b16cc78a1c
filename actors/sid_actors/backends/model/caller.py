"""One call of a model, whole or not at all: reserved, paced, streamed, retried where that helps, settled.

The model back end makes one `Caller` a turn. This is the only layer that retries a call: a rate limit for as
long as the turn has time, a lost connection once. Whatever happens, the reservation is settled, the connection
closed, and what the call did is activity.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import trio

from sid_actors.backends.base import Turn
from sid_actors.backends.model.models import LEAST_OUTPUT_TOKENS
from sid_actors.backends.model.pace import Pace
from sid_actors.backends.model.prefixes import Prefixes
from sid_actors.backends.model.purse import Purse, Reservation
from sid_actors.backends.model.reply import BrokenStreamError, ForeignAnswerError, Reply
from sid_actors.backends.model.sse import EventReader
from sid_actors.backends.model.trouble import Trouble, trouble_of
from sid_actors.watching.activity import ActivityLog
from sid_protocol.errors import BackendError
from sid_protocol.prices import Price, Usage
from sid_protocol.purse import Amount, Ask
from sid_protocol.records import Cost

RATE_TRIES = 8
"""So many refusals for load in a row end a call, whatever time is left."""
LOST_TRIES = 2
"""A lost connection is tried once more."""
OVERHEAD_TOKENS = 800
"""What a service adds to a prompt of its own, at most: instructions for tools."""

Tell = Callable[..., None]
"""Takes log records: `tell(level, event, **fields)`."""


class ContextFullError(BackendError):
    """The messages do not fit the model's window."""


class ForcedToolError(BackendError):
    """The model does not take a forced tool."""


@dataclass(slots=True, kw_only=True)
class Caller:
    """Calls one model for one turn.

    Attributes:
        client: The SDK's client.
        errors: The classes that a failed call raises, `BrokenStreamError` among them.
        model: The model's id.
        price: Its price; None where it is not known.
        turn: Whose turn it is.
        activity: Where signs of life are noted.
        purse: The run's money.
        pace: The service's pace.
        prefixes: What the service's cache may hold.
        tell: Takes log records.
        hide: Takes secrets out of words of the service.
        last_input: Tokens of the last prompt, as the service counted them.
    """

    client: Any
    errors: tuple[type[Exception], ...]
    model: str
    price: Price | None
    turn: Turn
    activity: ActivityLog
    purse: Purse
    pace: Pace
    prefixes: Prefixes
    tell: Tell
    hide: Callable[[str], str]
    last_input: int = 0
    _cost: Cost = field(default_factory=lambda: Cost(calls=0))
    _begun: trio.Event | None = None

    def __post_init__(self) -> None:
        # A turn that the budget refuses has called nobody.
        self.activity.cost = self._cost

    async def call(self, request: dict[str, Any], output: int) -> Reply:
        """Make one call and return its whole reply.

        Args:
            request: System prompt, messages, tools and tool choice.
            output: Tokens that it may write, at most.

        Raises:
            BackendError: the service failed or refused; also as `ContextFullError`, `ForcedToolError`.
            BudgetSpent: a limit would be passed.
        """
        refusals = losses = 0
        while True:
            trouble = await self._try(request, output)
            if isinstance(trouble, Reply):
                self.pace.succeeded()
                return trouble
            self.activity.error = trouble.what
            self.tell("warning", "model_call_failed", model=self.model, why=self.activity.error)
            match trouble.kind:
                case "rate":
                    refusals += 1
                    pause_s = self.pace.refused(trouble.retry_after_s)
                    if refusals >= RATE_TRIES or pause_s >= self._left_s():
                        why = f"{self.activity.error}; the next try is in {pause_s:.0f} s"
                        raise BackendError(why, hint="lower max_parallel_executors, or wait")
                case "lost" if (losses := losses + 1) < LOST_TRIES:
                    continue
                case "context":
                    raise ContextFullError(self.activity.error)
                case "forced":
                    raise ForcedToolError(self.activity.error)
                case _:
                    raise BackendError(self.activity.error, hint=trouble.hint)

    def _left_s(self) -> float:
        return self.activity.started + self.turn.deadline_s - self.activity.clock.now()

    def ask(self, request: dict[str, Any], output: int) -> Ask:
        """Return what a call may cost at most.

        A token is at least two bytes of a prompt nearly always; where the service has counted a prompt of this
        turn already, the next is that and what was added.
        """
        size = len(json.dumps(request, ensure_ascii=False).encode("utf-8", "replace"))
        tokens = max(size // 2 + OVERHEAD_TOKENS, self.last_input)
        usd = self.price.at_most(tokens) if self.price else 0.0
        unit = self.price.per_output(tokens) if self.price else 0.0
        return Ask(
            fixed=Amount(usd=usd, tokens=tokens, calls=1),
            per_output_usd=unit,
            most=output,
            least=min(output, LEAST_OUTPUT_TOKENS),
        )

    async def _try(self, request: dict[str, Any], output: int) -> Reply | Trouble:
        """Try once; returns the reply, or the trouble."""
        # Who is past its deadline, and has not been ended yet, is in nobody's way: that is no refusal for load.
        if (pause_s := self.pace.wait_s()) and pause_s >= self._left_s():
            return Trouble(
                "rate", f"the model service is paused for {pause_s:.0f} s after a rate limit", pause_s
            )
        doing = self.activity.doing
        await self.pace.turn(self._on_wait)
        async with self._led():
            return await self._paid(request, output, doing)

    async def _paid(self, request: dict[str, Any], output: int, doing: str) -> Reply | Trouble:
        budget = self.turn.track.settings.budget
        reserved = await self.purse.reserve(
            self.ask(request, output), budget, self.turn.iteration, self.activity
        )
        reply = Reply()
        with self.purse.settling(reserved, budget):
            try:
                self.activity.doing = f"waiting for {self.model}" if doing == "starting" else doing
                self.activity.request_since = self.activity.clock.now()
                self.activity.request = f"connects to the service of {self.model}"
                await self._stream(request, reserved, reply)
                reply.finish()
            except self.errors as error:
                return trouble_of(error, self.hide)
            finally:
                self.activity.request_since, self.activity.request = None, ""
                reserved.actual = self._account(reply, reserved)
        self.activity.stop_reason, self.activity.error = reply.stop_reason, None
        return reply

    @asynccontextmanager
    async def _led(self) -> AsyncIterator[None]:
        """Let another call with the same beginning warm the service's cache first, or be the one that does."""
        if self.turn.shared:
            shared = self.turn.prompt[: self.turn.shared]
            self._begun = await self.prefixes.lead(self.turn.role, self.model, shared)
        try:
            yield
        finally:
            if self._begun is not None:
                self._begun.set()

    def _on_wait(self, seconds: float) -> None:
        self.activity.doing = f"waiting {seconds:.1f} s for the rate limit"

    async def _stream(self, request: dict[str, Any], reserved: Reservation, reply: Reply) -> None:
        """Send a request and fold the events of its answer.

        The SDK's own events are left alone: a fault in the middle of them leaves its readers open. Here a fault
        closes the connection first, and reading on then ends them all.
        """
        stream = await self.client.messages.create(
            model=self.model, max_tokens=reserved.output, stream=True, **request
        )
        events = EventReader()
        fault: Exception | None = None
        async with stream:
            try:
                async for chunk in stream.response.aiter_bytes():
                    if fault is not None:
                        continue
                    try:
                        for event in events.feed(chunk):
                            self._seen(reply, event, reserved)
                    except BrokenStreamError as error:
                        fault = error
                        await stream.response.aclose()
            except self.errors as error:
                fault = fault or error
            kind = stream.response.headers.get("content-type", "")
        if fault is None and not reply.begun:
            raise ForeignAnswerError(
                f"the answer is no stream of the Messages API, but {kind[:100] or 'nothing'}"
            )
        # What comes after a whole reply is of no matter.
        if fault is not None and not reply.ended:
            raise fault

    def _seen(self, reply: Reply, event: dict[str, Any], reserved: Reservation) -> None:
        """Fold one event, and note it as a sign of life."""
        piece = reply.feed(event)
        if event.get("type") == "message_start":
            self.activity.pay(
                self._cost + self._cost_of(reply.used(reserved.amount.tokens - reserved.output, 0))
            )
        if self._begun is not None:
            self._begun.set()
        self.activity.request_since = self.activity.clock.now()
        self.activity.request = f"waits for more of the answer of {self.model}"
        self.activity.touch("writing" if piece else None)
        if event.get("type") == "content_block_stop" and reply.content:
            block = reply.content[-1]
            if block.get("type") == "text":
                self.activity.output(str(block.get("text", ""))[-400:])

    def _account(self, reply: Reply, reserved: Reservation) -> Amount:
        """Add what a call took to the turn's cost."""
        used = reply.used(reserved.amount.tokens - reserved.output, reserved.output)
        if not reply.begun:
            self._add(Cost(calls=1))
            return Amount(calls=1)
        cost = self._cost_of(used)
        self.last_input = used.read
        self._add(cost)
        self.tell(
            "debug",
            "model_called",
            model=self.model,
            input_tokens=used.read,
            cached_tokens=used.cache_read,
            output_tokens=used.output,
            usd=cost.usd,
            stop_reason=reply.stop_reason,
        )
        return Amount(usd=cost.usd or 0.0, tokens=used.read + used.output, calls=1)

    def _cost_of(self, used: Usage) -> Cost:
        return Cost(
            input_tokens=used.read,
            output_tokens=used.output,
            cached_tokens=used.cache_read,
            usd=self.price.usd(used) if self.price else None,
            calls=1,
        )

    def _add(self, more: Cost) -> None:
        self._cost = self._cost + more
        self.activity.pay(self._cost)
