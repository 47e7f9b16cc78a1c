"""Dispatches calls by the method table: which method, its parameters checked, its result as the table has it.

Made by `assembly` of one handler a method, called by `server` for each call. Decides nothing about a run.
"""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import trio
from pydantic import BaseModel

from sid_daemon.rpc.connection import Call
from sid_protocol.errors import METHOD_NOT_FOUND, SidError
from sid_protocol.rpc import METHODS, check_params, openrpc_document

Handler = Callable[[Any, Call], Awaitable[BaseModel | Mapping[str, Any]]]
"""A method: its checked parameters and the call → its result model, or the fields of one."""


class _UnknownMethod(SidError):
    rpc_code = METHOD_NOT_FOUND


class Dispatcher:
    """All methods of one daemon.

    Args:
        handlers: Method → what carries it out. `rpc.discover` is answered here.
        version: The daemon's, for `rpc.discover`.

    Raises:
        ValueError: a handler's method is not in the table.
    """

    def __init__(self, handlers: Mapping[str, Handler], version: str = "") -> None:
        if unknown := sorted(set(handlers) - set(METHODS)):
            raise ValueError(f"not in the method table: {', '.join(unknown)}")
        self._handlers = {**handlers, "rpc.discover": self._discover}
        self._version = version

    async def carry_out(self, name: str, params: Any, call: Call) -> Any:
        """Carry a call out and return its result as a JSON value.

        Args:
            name: The method.
            params: What the call gave.
            call: The call itself.

        Raises:
            SidError: there is no such method, its parameters are wrong, or it says no.
        """
        method, handler = METHODS.get(name), self._handlers.get(name)
        if method is None or handler is None:
            near = difflib.get_close_matches(name, METHODS, n=1)
            hint = f"did you mean {near[0]}?" if near else "rpc.discover lists all methods"
            raise _UnknownMethod(f"Method not found: {name[:80]}", hint=hint)
        result = await handler(check_params(method, params), call)
        if not isinstance(result, method.result):
            result = method.result.model_validate(result)
        return result.model_dump(mode="json")

    async def _discover(self, _params: Any, _call: Call) -> Mapping[str, Any]:
        # Its schemas take long enough to build that other clients would notice.
        return await trio.to_thread.run_sync(openrpc_document, self._version)
