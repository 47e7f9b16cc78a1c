"""What the daemon does without: modules that only its libraries would use, and code that only its start used."""

from __future__ import annotations

import subprocess
import sys

from sid_daemon.lean import _unchanged

WHOLE_DAEMON = """
import sys
from sid_daemon.lean import import_pydantic, import_pygit2, import_structlog, let_code_go
import_structlog()
import_pydantic()
import_pygit2()
import sid_daemon.app, sid_daemon.assembly
"""


def run(code: str) -> str:
    """Run code in a process of its own; returns what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", WHOLE_DAEMON + code], check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout


def test_a_daemon_loads_nothing_that_it_never_uses_and_whoever_wants_it_later_gets_it() -> None:
    told = run(
        "print(*sorted({'asyncio', 'rich', 'zipfile', 'importlib.metadata', 'anthropic', 'libcst'} & {*sys.modules}))\n"
        "import asyncio, importlib.metadata\n"
        "async def one(): return importlib.metadata.version('pydantic')[0]\n"
        "print(asyncio.run(one()))\n"
        "import pygit2, ssl\n"
        "print(pygit2.settings.ssl_cert_file, ssl.get_default_verify_paths.__module__)\n"
    )

    assert told.splitlines() == ["", "2", "None ssl"]


def test_code_that_was_let_go_runs_when_it_is_wanted_again() -> None:
    told = run(
        "def held(): return int(open('/proc/self/statm').read().split()[1])\n"
        "before = held(); let_code_go(); print(held() < 0.95 * before)\n"
        "import hashlib, sqlite3, pygit2, pydantic\n"
        "print(sqlite3.connect(':memory:').execute('SELECT 1').fetchone()[0], hashlib.sha256().hexdigest()[:4],\n"
        "      pygit2.hash(b''), pydantic.TypeAdapter(list[int]).validate_json('[1]'))\n"
    )

    assert told.splitlines() == ["True", "1 e3b0 e69de29bb2d1d6434b8b29ae775ad8c2e48c5391 [1]"]


def test_only_what_a_file_holds_unchanged_is_let_go() -> None:
    maps = """\
10-20 r-xp 00000000 fe:00 1                     /usr/lib/a lib.so
Rss:                   4 kB
Anonymous:             0 kB
20-30 r--p 00001000 fe:00 1                     /usr/lib/a lib.so
Anonymous:             8 kB
30-40 rw-p 00002000 fe:00 1                     /usr/lib/a lib.so
Anonymous:             0 kB
40-50 rw-p 00000000 00:00 0
Anonymous:             0 kB
50-60 r-xp 00000000 00:00 0                     [vdso]
Anonymous:             0 kB
VmFlags: rd ex mr
60-70 r--p 00000000 fe:00 2                     /usr/lib/b.so (deleted)
Anonymous:             0 kB
"""

    assert list(_unchanged(maps)) == [(0x10, 0x20), (0x60, 0x70)]
