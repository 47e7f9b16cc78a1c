"""What a verb works with: the global options, the console, the connection, and the run that was meant.

Made by `main` for one call of `sictl` and handed to the verb by click. Starts a daemon only for the verbs that ask
for it, and never against `--no-spawn` or SID_NO_SPAWN=1.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sid_cli import places, runs
from sid_cli.client import REPLY_S, Client
from sid_cli.console import Console
from sid_cli.spawn import start_daemon
from sid_cli.unreachable import no_daemon
from sid_protocol.errors import NoDaemon, SidError, UsageError


class Session:
    """One call of `sictl`.

    Attributes:
        as_json: `--json`.
        socket: `--socket`, or None.
        run: `--run`, or None.
        color: `--color`: auto, always or never.
        no_spawn: `--no-spawn`.
        exit_code: What `sictl` leaves with when the verb returns.
        interrupt_note: What Ctrl-C says: how things stand then.
        streams: Whether stdout is a stream of documents, which Ctrl-C only ends.
    """

    def __init__(self) -> None:
        self.as_json = False
        self.socket: str | None = None
        self.run: str | None = None
        self.color = "auto"
        self.no_spawn = False
        self.exit_code = 0
        self.interrupt_note = ""
        self.streams = False

    @property
    def console(self) -> Console:
        """The streams, as the options say."""
        return Console(as_json=self.as_json, color=self.color)

    @property
    def socket_path(self) -> str:
        """The daemon's socket."""
        return places.own_socket(self.socket)

    @contextlib.contextmanager
    def daemon(self, *, spawn: bool) -> Iterator[Client]:
        """Connect to the daemon.

        Args:
            spawn: Whether one is started where none answers.

        Raises:
            NoDaemon: none answers and none was to be started.
            SidError: one was started and did not come up.
        """
        with self._connect(spawn=spawn) as client:
            yield client

    def _connect(self, *, spawn: bool) -> Client:
        path = self.socket_path
        try:
            return Client(path)
        except NoDaemon:
            if not spawn or self.no_spawn or os.environ.get("SID_NO_SPAWN") == "1":
                raise
        environ = {**os.environ, "SID_SOCKET": path}
        try:
            start_daemon(Path(places.own_state_dir()), environ=environ)
        except SidError:
            # Another sictl may have been quicker, in which case ours stepped back.
            with contextlib.suppress(NoDaemon):
                return Client(path)
            raise
        try:
            return Client(path)
        except NoDaemon:
            raise no_daemon(path) from None

    def meant(self, name: str, typed: str | None) -> str | None:
        """Return which run or repository was named, by a verb's argument or by `--run`; None where neither was.

        Args:
            name: The argument, as the help shows it.
            typed: What was typed for it, or None.

        Raises:
            UsageError: the two disagree.
        """
        if typed is not None and self.run is not None and typed != self.run:
            raise UsageError(f"{name} is {typed!r} and --run is {self.run!r}", hint="give only one of them")
        return self.run if typed is None else typed

    def row(self, client: Client, text: str | None, topic: str | None = None) -> Mapping[str, Any]:
        """Return the run that was meant, as the daemon lists it.

        Args:
            client: The daemon.
            text: RUN as typed, or None.
            topic: `--topic`, or None.

        Raises:
            NoSuchRun: no run fits.
            UsageError: several do, or RUN and `--run` disagree.
        """
        meant = self.meant("RUN", text)
        path = places.existing(meant) if meant is not None else None
        rows = client.call("run.list")["runs"]
        return runs.choose(rows, text=meant, path=path, cwd=places.here(), topic=topic)

    def call_run(
        self,
        client: Client,
        method: str,
        text: str | None,
        topic: str | None = None,
        *,
        timeout_s: float | None = REPLY_S,
        **params: Any,
    ) -> Any:
        """Call a method on the run that was meant and return its result."""
        run_id = self.row(client, text, topic)["run_id"]
        return client.call(method, {"run": run_id, **params}, timeout_s=timeout_s)
