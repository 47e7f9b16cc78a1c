"""A node's folder and the folders of its runs, on disk: what stands in which file. Blocking; called in worker threads.

Knows the files of the contract and nothing of models, judges or rules.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sid_daemon.clock import now_iso
from sid_daemon.core.node import HARD_CAP, violations_of
from sid_daemon.store.files import write_whole
from sid_protocol.errors import Refused, StoreError

MODELS = ("model", "model.sh")
"""A node's own model, where none is named: a program in its folder."""


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The folder of one run: `seed.md`, `state.md`, `events.jsonl`, `outcome.json`."""

    path: Path
    node: str

    @property
    def run_id(self) -> str:
        """The run's id: the folder's name."""
        return self.path.name

    @property
    def state(self) -> str:
        """What the model has answered so far."""
        return self._read("state.md")

    @property
    def seed(self) -> str:
        """The run's input."""
        return self._read("seed.md")

    def events_from(self, offset: int) -> str:
        """Return the events from a byte on."""
        return (self.path / "events.jsonl").read_bytes()[offset:].decode("utf-8", "replace")

    def note(self, number: int, kind: str, **fields: Any) -> int:
        """Append an event of the daemon's; returns where the events end then."""
        event = {"ts": now_iso(), "run_id": self.run_id, "node": self.node, "round": number, "type": kind}
        with (self.path / "events.jsonl").open("a", encoding="utf-8") as file:
            # Judges look for `"type":"…"` with text tools.
            file.write(json.dumps({**event, **fields}, ensure_ascii=False, separators=(",", ":")) + "\n")
            return file.tell()

    def answer(self, number: int, output: str) -> int:
        """Keep what the model answered; returns where the events end then."""
        with (self.path / "state.md").open("a", encoding="utf-8") as file:
            file.write(f"\n--- round {number} ---\n{output}\n")
        return self.note(number, "agent_output", output=output)

    def end_round(self, number: int, done: bool, score: float) -> None:  # noqa: FBT001 - passed by run_sync
        """Note how a round ended."""
        self.note(number, "ralph_iter_end", done=done, reason=f"judge_score={score:g}")

    def end(self, outcome: dict[str, Any]) -> None:
        """Write the run's outcome, whole."""
        text = json.dumps(outcome, ensure_ascii=False, indent=2) + "\n"
        write_whole(self.path / "outcome.json", text.encode())

    def _read(self, name: str) -> str:
        return (self.path / name).read_text(encoding="utf-8", errors="replace")


@dataclass(frozen=True, slots=True)
class NodeFolder:
    """A node: `PROMPT.md`, `judge.sh`, `BANS.md`, `hard-cap.txt`, and its `runs/`."""

    path: Path

    @property
    def name(self) -> str:
        """The node's name: the folder's."""
        return self.path.name

    @property
    def bans(self) -> str:
        """The lessons as they stand in `BANS.md`; empty where there is none."""
        file = self.path / "BANS.md"
        return file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""

    @property
    def prompt(self) -> str:
        """The fixed part of the prompt."""
        return (self.path / "PROMPT.md").read_text(encoding="utf-8", errors="replace")

    @property
    def own_model(self) -> str | None:
        """The node's own model, or None."""
        return next((f"./{name}" for name in MODELS if (self.path / name).is_file()), None)

    def check(self) -> None:
        """Refuse a folder that is no node.

        Raises:
            Refused: a file of the contract is missing.
        """
        for name in ("PROMPT.md", "judge.sh"):
            if not (self.path / name).is_file():
                raise Refused(
                    f"{self.path} is not a node: {name} is missing",
                    hint="a node has PROMPT.md, judge.sh and, if wanted, BANS.md and hard-cap.txt",
                )

    def hard_cap(self) -> int:
        """Return the most turns of one run.

        Raises:
            Refused: `hard-cap.txt` holds no whole number above 0.
        """
        file = self.path / "hard-cap.txt"
        if not file.exists():
            return HARD_CAP
        text = file.read_text(encoding="utf-8", errors="replace").strip()
        if not text.isascii() or not text.isdigit() or not 0 < int(text) <= 1_000_000:
            raise Refused(f"{file} holds {text[:40]!r}", hint="write a whole number above 0 into it")
        return int(text)

    def new_run(self, seed: Path) -> RunFolder:
        """Make the folder of a new run, with its seed; never one that is there already.

        Raises:
            Refused: the seed is no file.
            StoreError: the node's folder cannot be written.
        """
        if not seed.is_file():
            raise Refused(f"{seed} is not a file", hint="name the file with the run's input")
        begun = f"{now_iso()[:19].replace('-', '').replace(':', '')}Z"
        number = 0
        try:
            (self.path / "runs").mkdir(exist_ok=True)
            while True:
                number += 1
                path = self.path / "runs" / f"{self.name}-{begun}-{number}"
                if not path.exists():
                    path.mkdir()
                    break
            (path / "seed.md").write_bytes(seed.read_bytes())
            (path / "state.md").touch()
            (path / "events.jsonl").touch()
        except OSError as error:
            raise StoreError(
                f"{self.path}: {error.strerror}", hint="check the folder's permissions"
            ) from error
        return RunFolder(path, self.name)

    def runs(self) -> list[tuple[str, frozenset[str]]]:
        """Return id and violations of every run, the newest first."""
        found = [path for path in (self.path / "runs").iterdir() if (path / "events.jsonl").is_file()]
        found.sort(key=lambda path: _age(path.name), reverse=True)
        return [
            (path.name, violations_of((path / "events.jsonl").read_text(encoding="utf-8", errors="replace")))
            for path in found
        ]

    def add_bans(self, lines: list[str]) -> None:
        """Append lessons to `BANS.md`; what stands there stays as it is."""
        present = self.bans
        gap = "" if not present or present.endswith("\n") else "\n"
        added = "".join(f"{line}\n" for line in lines)
        write_whole(self.path / "BANS.md", f"{present}{gap}{added}".encode())


def _age(name: str) -> tuple[str, int]:
    head, _, number = name.rpartition("-")
    return head.rpartition("-")[2], int(number) if number.isdigit() else 0
