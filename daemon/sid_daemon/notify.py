"""What the daemon tells systemd: ready, still alive, stopping, and one line of status.

Used by `main`; says nothing where nobody asked for it. The watchdog is a task of the event loop, so
its pings end when the loop hangs, and systemd restarts the daemon. The protocol is that of
sd_notify(3) and sd_watchdog_enabled(3).
"""

from __future__ import annotations

import socket
from collections.abc import MutableMapping

import trio

_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


class Notifier:
    """Sends datagrams to systemd, or, without a socket for them, does nothing.

    Args:
        address: Path of the socket; a leading `@` stands for the abstract namespace.
        watchdog_s: Seconds without a ping after which systemd restarts us, or None.
    """

    def __init__(self, address: str = "", watchdog_s: float | None = None) -> None:
        self.watchdog_s = watchdog_s
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._socket: socket.socket | None = None
        if address:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.settimeout(0)

    @classmethod
    def take(cls, env: MutableMapping[str, str], pid: int) -> Notifier:
        """Make one from the environment, and remove its variables, which are not for children.

        Args:
            env: The environment.
            pid: Our own process id: another's watchdog is not ours.
        """
        values = {name: env.pop(name, "") for name in _VARIABLES}
        usec, watched = values["WATCHDOG_USEC"], values["WATCHDOG_PID"]
        ours = usec.isdecimal() and int(usec) > 0 and watched in ("", str(pid))
        return cls(values["NOTIFY_SOCKET"], int(usec) / 1e6 if ours else None)

    def send(self, *lines: str) -> bool:
        """Send assignments such as `READY=1` in one datagram; never waits.

        Returns:
            Whether it was sent: a service manager that does not listen is no reason to fail.
        """
        if self._socket is None:
            return False
        try:
            self._socket.sendto("\n".join(lines).encode(), self._address)
        except OSError:
            return False
        return True

    def ready(self, status: str) -> bool:
        """Tell that the socket answers."""
        return self.send("READY=1", _status(status))

    def status(self, text: str) -> bool:
        """Tell what the daemon is doing, one line, shown by `systemctl status`."""
        return self.send(_status(text))

    def stopping(self, status: str) -> bool:
        """Tell that the daemon is on its way out."""
        return self.send("STOPPING=1", _status(status))

    async def watchdog(self) -> None:
        """Ping at half the interval for as long as the event loop runs; returns if none is asked for."""
        if self.watchdog_s is None or self._socket is None:
            return
        while True:
            self.send("WATCHDOG=1")
            await trio.sleep(self.watchdog_s / 2)

    def close(self) -> None:
        """Send nothing any more."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _status(text: str) -> str:
    return "STATUS=" + " ".join(text.split())
