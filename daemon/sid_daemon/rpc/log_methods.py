"""The RPC methods of the log: subscribe and unsubscribe, of the run that a user means."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from sid_daemon.log.subscribers import Filter, Subscribers
from sid_daemon.rpc.connection import Call
from sid_daemon.runs.host import Host
from sid_protocol.params import SubscribeParams, UnsubscribeParams
from sid_protocol.status import Empty, SubscriptionResult


class LogMethods:
    """Following the log.

    Args:
        host: The daemon's runs.
        subscribers: Everybody who follows.
    """

    def __init__(self, host: Host, subscribers: Subscribers) -> None:
        self._host = host
        self._subscribers = subscribers

    def handlers(self) -> Mapping[str, Callable[[Any, Any], Awaitable[Any]]]:
        """Return method → what carries it out."""
        return {"log.subscribe": self.subscribe, "log.unsubscribe": self.unsubscribe}

    async def subscribe(self, params: SubscribeParams, call: Call) -> SubscriptionResult:
        """`log.subscribe`."""
        run_id = None
        if params.run is not None:
            run_id = (await self._host.find(params.run, params.topic)).run_id
        wanted = Filter(run_id=run_id, level=params.level or "debug", actor=params.actor)
        return await self._subscribers.subscribe(call, wanted, params.since, follow=params.follow)

    async def unsubscribe(self, params: UnsubscribeParams, call: Call) -> Empty:
        """`log.unsubscribe`."""
        self._subscribers.unsubscribe(call.connection, params.subscription)
        return Empty()
