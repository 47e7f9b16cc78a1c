"""Fixtures of the tests of `sictl`: a fake daemon, the command in this process, the command as installed."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sid_cli.main import run
from tests.cli.fake_daemon import FakeDaemon


@dataclass(frozen=True, slots=True)
class Done:
    """What one call of `sictl` did."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Stdout as the one JSON document that it must be."""
        return json.loads(self.out)


Sictl = Callable[..., Done]


@pytest.fixture
def daemon() -> Iterator[FakeDaemon]:
    """A fake daemon on this test's socket."""
    fake = FakeDaemon(Path(os.environ["SID_SOCKET"]))
    fake.start()
    yield fake
    fake.stop()


@pytest.fixture
def sictl(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Sictl:
    """Run a command line in this process; it never starts a daemon."""
    monkeypatch.setenv("SID_NO_SPAWN", "1")

    def call(*args: str) -> Done:
        capsys.readouterr()
        code = run(args)
        captured = capsys.readouterr()
        return Done(code, captured.out, captured.err)

    return call


@pytest.fixture
def installed(short_dir: Path) -> Path:
    """A folder with `sictl` and a `sid` that is the fake daemon, as an installation has them."""
    folder = short_dir / "bin"
    folder.mkdir()
    root = Path(__file__).parent.parent.parent
    programs = {
        "sictl": "from sid_cli.entry import main\nmain()\n",
        "sid": f"import sys\nsys.path.insert(0, {str(root)!r})\nfrom tests.cli.fake_daemon import main\nmain()\n",
    }
    for name, text in programs.items():
        path = folder / name
        path.write_text(f"#!{sys.executable}\n{text}")
        path.chmod(0o755)
    return folder
