"""`sid`: the daemon's executable.

Parses its few options, takes the state directory's lock and the socket, and runs the event loop. Exit codes:
0 left as asked, 1 failed, 2 wrong settings or usage, 5 refused (another daemon is there).
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import pwd
import sys
from pathlib import Path

from sid_protocol import __version__
from sid_protocol.errors import SidError, exit_code_of
from sid_protocol.locations import home_of


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sid",
        description="The self-improving daemon: improves git repositories in measured rounds. "
        "It runs in the foreground; 'sictl' controls it.",
        epilog="Places: SID_SOCKET, SID_STATE_DIR, SID_CONFIG; see 'sictl help'.",
    )
    parser.add_argument("--version", action="version", version=f"sid {__version__}")
    parser.add_argument(
        "--idle-exit",
        type=float,
        metavar="SECONDS",
        help="exit after this long without a run or a client (default: never)",
    )
    parser.add_argument("--ready-fd", type=int, metavar="FD", help=argparse.SUPPRESS)
    parser.add_argument(
        "--demo-repo",
        metavar="DIR",
        help="write the demo repository to DIR, print the parameters for its set-up, and exit",
    )
    parser.add_argument(
        "--doctor", action="store_true", help="check this machine, print the result as JSON, and exit"
    )
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run the daemon; returns its exit code.

    Args:
        argv: Arguments without the program's name; by default those of the process.
    """
    options = _parser().parse_args(argv)
    try:
        os.environ["HOME"] = home_of(os.environ, _home_of_account)  # for all that is started, too
        if options.demo_repo:
            from sid_daemon.demo import PARAMS, write_demo_repo

            write_demo_repo(Path(options.demo_repo))
            sys.stdout.write(json.dumps(PARAMS) + "\n")
            return 0
        if options.doctor:
            from sid_daemon.doctor import examine

            sys.stdout.write(json.dumps(examine()) + "\n")
            return 0
        gc.disable()  # until all is loaded, which stays: looking through it again and again is an eighth of the start
        from sid_daemon.lean import import_structlog

        import_structlog()
        from sid_daemon.app import run_daemon

        run_daemon(idle_exit_s=options.idle_exit, ready_fd=options.ready_fd)
    except SidError as error:
        _tell(options.ready_fd, str(error))
        sys.stderr.write(f"sid: {error}\n")
        return exit_code_of(error.rpc_code)
    except KeyboardInterrupt:
        return 130
    finally:
        gc.enable()
    return 0


def _home_of_account() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return ""


def _tell(ready_fd: int | None, line: str) -> None:
    """Tell whoever started us why we do not come up."""
    if ready_fd is not None:
        try:
            os.write(ready_fd, f"{line}\n".encode())
        except OSError:
            return


if __name__ == "__main__":
    sys.exit(main())
