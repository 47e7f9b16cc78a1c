"""What a silent turn waits in, in words for people: from the states of its processes and their sockets. Pure.

`activity.what_they_wait_in` asks it for `status`. It classifies nothing: why a straggler was killed is the core's, from the
same readings as they are. Wait channels are names of kernel functions, which differ from version to version, so an
unknown one is shown as it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_COMMAND_LIMIT = 80
_CHANNELS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"tty_read"), "waits for a terminal"),
    (re.compile(r"wait_woken"), "waits for a terminal or a socket"),
    (re.compile(r"pipe_read|pipe_wait"), "waits for a pipe"),
    (re.compile(r"pipe_write"), "waits until its output is read"),
    (re.compile(r"nanosleep|nsleep"), "sleeps"),
    (re.compile(r"^(?:do_wait|kernel_wait)"), "waits for a child"),
    (re.compile(r"futex"), "waits for a lock or a thread"),
    (re.compile(r"poll|select"), "waits for events"),
    (re.compile(r"unix_stream|skb_wait|sk_wait|inet_csk"), "waits for a socket"),
    (re.compile(r"sigsuspend|sigtimedwait|pause"), "waits for a signal"),
    (re.compile(r"lock_inode|flock"), "waits for a file's lock"),
)
_ON_SOCKETS = ("waits for events", "waits for a socket", "waits for a terminal or a socket")
_PARENT = re.compile(r"^(?:do_wait|kernel_wait)")


def words(states: Sequence[str], sockets: Sequence[str]) -> str:
    """Return what a turn's processes wait in.

    Args:
        states: Of each process `pid state channel command`, oldest first.
        sockets: Of each open internet socket `STATE address:port`.

    Returns:
        One line, such as `sleeps: sleep 600`; empty where there is no process.
    """
    known = [state.split(" ", 3) for state in states if state.count(" ") >= 2]
    if not known:
        return ""
    # Whoever waits for a child says nothing: the youngest that does not is where it hangs.
    telling = [one for one in known if not _PARENT.search(one[2])]
    _, state, channel, *command = (telling or known)[-1]
    what = _what(state, channel)
    if what in _ON_SOCKETS and (remote := _remote(sockets)):
        what = remote
    return f"{what}: {command[0][:_COMMAND_LIMIT]}" if command and command[0] else what


def _what(state: str, channel: str) -> str:
    if state in ("T", "t"):
        return "is stopped"
    if state == "R":
        return "computes"
    if state == "D":
        return f"waits in the kernel, most often for a disk ({channel})"
    known = next((told for pattern, told in _CHANNELS if pattern.search(channel)), None)
    return known or (f"waits in {channel}" if channel != "-" else "waits")


def _remote(sockets: Sequence[str]) -> str:
    """Say whom the youngest socket in use is with."""
    for socket in reversed(sockets):
        state, _, remote = socket.partition(" ")
        if state == "SYN_SENT":
            return f"connects to {remote}"
        if state == "ESTABLISHED":
            return f"waits for {remote}"
    return ""
