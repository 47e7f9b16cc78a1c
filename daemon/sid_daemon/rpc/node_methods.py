"""The RPC method of nodes: one run of a node, whatever the daemon's own runs are doing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from sid_daemon.nodes.running import run_node
from sid_daemon.setup.site import Machine
from sid_protocol.errors import Refused
from sid_protocol.params import NodeParams
from sid_protocol.status import NodeResult


class NodeMethods:
    """What clients ask of nodes.

    Args:
        machine: What this machine can do.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def handlers(self) -> Mapping[str, Callable[[Any, Any], Awaitable[Any]]]:
        """Return method → what carries it out."""
        return {"node.run": self.run}

    async def run(self, params: NodeParams, _call: object) -> NodeResult:
        """`node.run`: answers when the run has ended; it is aborted when the client hangs up."""
        await self._machine.known()
        fault = self._machine.sandbox_fault
        if params.sandbox and fault is not None:
            raise Refused(
                f"a node's model and judge need a sandbox: {fault}", hint="or accept the risk: --no-sandbox"
            )
        return await run_node(params, contained=params.sandbox)
