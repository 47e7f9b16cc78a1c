"""The one error hierarchy: what happened, where, and what to do.

Every error that reaches a user is a `SidError`. Its `code` is the `error.code` of `--json`, its
`rpc_code` travels over JSON-RPC, its `exit_code` is the exit status of `sictl`. Free of pydantic,
because the everyday verbs of the command line import it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar

# JSON-RPC 2.0, section 5.1, and the codes of our own interface.
PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
FAILED = -32000
NO_SUCH_RUN = -32001
REFUSED = -32002
ALREADY_RUNNING = -32003
NOT_RUNNING = -32004
SETTINGS_INVALID = -32005
SHUTTING_DOWN = -32006

_EXIT_CODES = {
    INVALID_PARAMS: 2,
    SETTINGS_INVALID: 2,
    NO_SUCH_RUN: 4,
    REFUSED: 5,
    ALREADY_RUNNING: 5,
    NOT_RUNNING: 5,
}
_CODES = {
    INVALID_PARAMS: "usage",
    SETTINGS_INVALID: "settings_invalid",
    NO_SUCH_RUN: "no_such_run",
    REFUSED: "refused",
    ALREADY_RUNNING: "already_running",
    NOT_RUNNING: "not_running",
}


def exit_code_of(rpc_code: int) -> int:
    """Return the exit status of `sictl` for a JSON-RPC error code."""
    return _EXIT_CODES.get(rpc_code, 1)


def code_of(rpc_code: int) -> str:
    """Return the `error.code` of `--json` for a JSON-RPC error code."""
    return _CODES.get(rpc_code, "failed")


class SidError(Exception):
    """An error with a message of one line, a hint that says what to do, and its codes.

    Args:
        message: What happened and where; one line, no trailing full stop needed.
        hint: What the user can do next, or empty.
        data: Facts for machines (JSON values), sent as the `data` of a JSON-RPC error.
    """

    rpc_code: ClassVar[int] = FAILED

    def __init__(self, message: str, *, hint: str = "", data: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.data = data or {}

    def __str__(self) -> str:
        """Return message and hint in one line."""
        return f"{self.message}; {self.hint}" if self.hint else self.message


class OperatorError(SidError):
    """The user's to fix: arguments, settings, an unknown run, trust."""

    rpc_code = INVALID_PARAMS


class UsageError(OperatorError):
    """Arguments that do not fit the method or verb."""


class SettingsInvalid(OperatorError):
    """A setting is unknown, of the wrong type, or out of range.

    Args:
        key: The dotted key at fault.
        why: What is wrong with it.
        hint: What to do.
    """

    rpc_code = SETTINGS_INVALID

    def __init__(self, key: str, why: str, *, hint: str = "") -> None:
        super().__init__(f"setting {key}: {why}", hint=hint, data={"key": key, "why": why})
        self.key = key
        self.why = why


class NoSuchRun(OperatorError):
    """No run is known by that id, prefix or path."""

    rpc_code = NO_SUCH_RUN


class Refused(OperatorError):
    """Trust, the set-up gate or a safety rule says no."""

    rpc_code = REFUSED


class WrongMoment(SidError):
    """The request is right, the state is not."""

    rpc_code = REFUSED


class AlreadyRunning(WrongMoment):
    """The run, or another run of the same repository, is active."""

    rpc_code = ALREADY_RUNNING


class NotRunning(WrongMoment):
    """The run is not active."""

    rpc_code = NOT_RUNNING


class ShuttingDown(WrongMoment):
    """The daemon is leaving and takes no new work."""

    rpc_code = SHUTTING_DOWN


class WorldError(SidError):
    """Git, a model, a benchmark or the disk failed; `retryable` says whether again may help."""

    retryable: bool = False


class BackendError(WorldError):
    """An agent back end failed: it crashed, answered junk, or did not answer."""

    retryable = True


class WorktreeFull(BackendError):
    """An agent wrote more into its worktree than it may; its turn was ended."""

    retryable = False


class BudgetSpent(BackendError):
    """A model was not called, since a limit of the budget would be passed.

    Args:
        key: The limit under `budget`, such as `usd`.
        why: What is spent, in a few words.
    """

    retryable = False

    def __init__(self, key: str, why: str) -> None:
        super().__init__(why, hint=f"raise it with 'sictl config set budget.{key} AMOUNT'")
        self.key = key


class GitError(WorldError):
    """A git operation failed."""


class BenchmarkError(WorldError):
    """The benchmark could not be run at all (not: it ran and failed)."""


class StoreError(SidError):
    """The journal, a view or the daemon's state could not be read or written."""


class RecordingBroken(StoreError):
    """A recording is not as it was written."""


class NotRecorded(SidError):
    """A replay asks something that its recording does not answer."""


class ReplayDiverged(SidError):
    """What a replay makes again is not what was recorded."""


class WireError(SidError):
    """A message on the socket breaks the protocol."""

    rpc_code = INVALID_REQUEST


class NoDaemon(SidError):
    """No daemon answers on the socket; `sictl` leaves with 3."""
