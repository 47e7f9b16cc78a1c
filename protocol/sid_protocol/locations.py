"""Where things are: socket, state, settings of the daemon, and the root of a track.

The table "Names and places" of the interfaces page as pure functions, and how a command names a place. Environment, home and the
question whether a folder exists are arguments, so nothing here looks at the machine. Free of
pydantic: the everyday verbs of the command line import it.
"""

from __future__ import annotations

from sid_protocol.errors import UsageError
from sid_protocol.ids import topic_slug

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SOCKET_PATH_LIMIT_BYTES = 107
"""Longest path of a Unix socket: `sun_path` holds 108 bytes with its NUL."""

TOPIC_FOLDERS = (".sid/topics", ".omc/self-improve/topics")
"""Where a repository's tracks lie, each in a folder named by its topic; a new one belongs into the first."""
_FLAT = ".omc/self-improve"
_FLAT_MARKS = ("config", "state")
_PLAIN = "@%+=:,./-_"


def home_of(env: Mapping[str, str], account: Callable[[], str]) -> str:
    """Return the user's home directory: `HOME` where it is an absolute path, else what the account says.

    Args:
        env: The environment.
        account: Returns the home directory of the user database, or something that is no absolute path.

    Raises:
        UsageError: neither says.
    """
    own = env.get("HOME", "")
    known = own if own.startswith("/") else account()
    if not known.startswith("/"):
        raise UsageError("no home directory is known", hint="set HOME to a folder that is yours")
    return known


def socket_path(env: Mapping[str, str], home: str) -> str:
    """Return where the daemon listens.

    Args:
        env: The environment: `SID_SOCKET`, then `XDG_RUNTIME_DIR` decide.
        home: The user's home directory.

    Raises:
        UsageError: the path is relative or too long for a Unix socket.
    """
    own = _own(env, "SID_SOCKET")
    if own:
        return checked_socket_path(own)
    runtime = _xdg(env, "XDG_RUNTIME_DIR")
    return checked_socket_path(f"{runtime}/sid/sid.sock" if runtime else f"{home}/.local/state/sid/sid.sock")


def checked_socket_path(path: str) -> str:
    """Return the path of a Unix socket if the kernel takes it.

    Raises:
        UsageError: it is longer than 107 bytes.
    """
    length = len(path.encode("utf-8", "surrogateescape"))
    if length > SOCKET_PATH_LIMIT_BYTES:
        raise UsageError(
            f"the socket's path is {length} bytes long, at most {SOCKET_PATH_LIMIT_BYTES} are possible: {path}",
            hint="set SID_SOCKET to a shorter path",
        )
    return path


def state_dir(env: Mapping[str, str], home: str) -> str:
    """Return the folder of the daemon's state: `SID_STATE_DIR`, else `XDG_STATE_HOME`/sid.

    Raises:
        UsageError: `SID_STATE_DIR` is relative.
    """
    base = _xdg(env, "XDG_STATE_HOME") or f"{home}/.local/state"
    return _own(env, "SID_STATE_DIR") or f"{base}/sid"


def config_path(env: Mapping[str, str], home: str) -> str:
    """Return the daemon's settings file: `SID_CONFIG`, else `XDG_CONFIG_HOME`/sid/sid.toml.

    Raises:
        UsageError: `SID_CONFIG` is relative.
    """
    base = _xdg(env, "XDG_CONFIG_HOME") or f"{home}/.config"
    return _own(env, "SID_CONFIG") or f"{base}/sid/sid.toml"


def track_root(repo: str, topic: str | None, root: str | None, is_dir: Callable[[str], bool]) -> str:
    """Return the root of one track in a target repository.

    Args:
        repo: Absolute path of the repository.
        topic: The topic asked for, or None.
        root: The root asked for (absolute), or None; wins over everything.
        is_dir: Whether a path is an existing folder.

    Returns:
        The existing root that the table prefers, else where a new one belongs. A flat
        `.omc/self-improve/` is one that holds `config/` or `state/` itself, or no topics.
    """
    if root:
        return root
    slug = topic_slug(topic or "")
    own, other = (f"{repo}/{folder}/{slug}" for folder in TOPIC_FOLDERS)
    for candidate in (own, other):
        if is_dir(candidate):
            return candidate
    flat = f"{repo}/{_FLAT}"
    if not topic and is_dir(flat):
        only_topics = is_dir(f"{flat}/topics") and not any(is_dir(f"{flat}/{mark}") for mark in _FLAT_MARKS)
        return own if only_topics else flat
    return own


def topic_of(root: str) -> str | None:
    """Return the topic whose usual root this is, or None where a root was chosen freely, or is a flat one.

    >>> topic_of("/src/primes/.sid/topics/speed"), topic_of("/src/primes/.omc/self-improve")
    ('speed', None)
    """
    folder, _, slug = root.rpartition("/")
    return slug if folder.endswith(tuple(f"/{usual}" for usual in TOPIC_FOLDERS)) else None


def track_command(verb: str, repo: str, root: str, *more: str) -> str:
    """Return the command that does something with one track, as one types it in any folder.

    Args:
        verb: Of `sictl`, one that takes REPO and `--topic` or `--root`.
        repo: Absolute path of the repository.
        root: The track's root, absolute.
        more: Flags after that, as they are to be shown.
    """
    topic = topic_of(root)
    if root not in [f"{repo}/{folder}/{topic}" for folder in TOPIC_FOLDERS]:
        topic = None  # another repository's topic: `--topic` would lead to a track of this one
    if root == f"{repo}/{_FLAT}" or topic == "default":
        which = []
    else:
        which = ["--root", root] if topic is None else ["--topic", topic]
    return " ".join(["sictl", verb, *map(shell_word, (repo, *which)), *more])


def shell_word(text: str) -> str:
    r"""Return text as a shell takes it for one word, on one line whatever characters it has.

    >>> shell_word("a/b.py"), shell_word("it's"), shell_word("a\nb")
    ('a/b.py', "'it'\"'\"'s'", "$'a\\x0ab'")
    """
    if text and all(char.isascii() and (char.isalnum() or char in _PLAIN) for char in text):
        return text
    if text.isprintable():
        quoted = text.replace("'", "'\"'\"'")
        return f"'{quoted}'"
    return f"$'{''.join(map(_in_ansi_quotes, text))}'"


def _in_ansi_quotes(char: str) -> str:
    if char.isprintable():
        return f"\\{char}" if char in "'\\" else char
    return "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogateescape"))


def _own(env: Mapping[str, str], name: str) -> str:
    value = env.get(name, "")
    if value and not value.startswith("/"):
        raise UsageError(
            f"{name} must be an absolute path, not {value!r}",
            hint="daemon and client stand in different folders",
        )
    return value


def _xdg(env: Mapping[str, str], name: str) -> str:
    # The XDG base directory rules: a relative value is invalid and is to be ignored.
    value = env.get(name, "")
    return value.rstrip("/") if value.startswith("/") else ""
