"""Names and places: the table, row by row."""

from __future__ import annotations

import os
import subprocess

import pytest

from sid_protocol import locations
from sid_protocol.errors import UsageError

HOME = "/home/ada"


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"SID_SOCKET": "/s/own.sock", "XDG_RUNTIME_DIR": "/run/user/7"}, "/s/own.sock"),
        ({"XDG_RUNTIME_DIR": "/run/user/7"}, "/run/user/7/sid/sid.sock"),
        ({"XDG_RUNTIME_DIR": "/run/user/7/"}, "/run/user/7/sid/sid.sock"),
        ({"SID_SOCKET": "", "XDG_RUNTIME_DIR": ""}, "/home/ada/.local/state/sid/sid.sock"),
        ({"XDG_RUNTIME_DIR": "relative"}, "/home/ada/.local/state/sid/sid.sock"),
        ({}, "/home/ada/.local/state/sid/sid.sock"),
    ],
)
def test_socket(env: dict[str, str], expected: str) -> None:
    assert locations.socket_path(env, HOME) == expected


@pytest.mark.parametrize(
    ("env", "state", "config"),
    [
        (
            {
                "SID_STATE_DIR": "/v/s",
                "SID_CONFIG": "/v/c.toml",
                "XDG_STATE_HOME": "/x",
                "XDG_CONFIG_HOME": "/y",
            },
            "/v/s",
            "/v/c.toml",
        ),
        ({"XDG_STATE_HOME": "/x", "XDG_CONFIG_HOME": "/y"}, "/x/sid", "/y/sid/sid.toml"),
        ({}, "/home/ada/.local/state/sid", "/home/ada/.config/sid/sid.toml"),
    ],
)
def test_state_and_settings(env: dict[str, str], state: str, config: str) -> None:
    assert locations.state_dir(env, HOME) == state
    assert locations.config_path(env, HOME) == config


def test_a_relative_place_is_refused_since_daemon_and_client_would_differ() -> None:
    for function, name in (
        (locations.socket_path, "SID_SOCKET"),
        (locations.state_dir, "SID_STATE_DIR"),
        (locations.config_path, "SID_CONFIG"),
    ):
        with pytest.raises(UsageError, match=f"{name} must be an absolute path"):
            function({name: "here"}, HOME)


@pytest.mark.parametrize(
    ("name", "fits"), [("x" * 106, True), ("x" * 107, False), ("ü" * 53, True), ("ü" * 54, False)]
)
def test_a_socket_too_long_for_the_kernel_is_refused_in_words(name: str, fits: bool) -> None:
    if fits:
        assert locations.socket_path({"SID_SOCKET": f"/{name}"}, HOME) == f"/{name}"
        return
    with pytest.raises(UsageError) as caught:
        locations.socket_path({"SID_SOCKET": f"/{name}"}, HOME)
    assert "at most 107" in str(caught.value)
    assert "SID_SOCKET" in caught.value.hint


@pytest.mark.parametrize("unset", [{}, {"HOME": ""}, {"HOME": "relative"}])
def test_without_a_usable_home_the_account_says_where_it_is(unset: dict[str, str]) -> None:
    assert locations.home_of({"HOME": HOME}, lambda: "/other") == HOME
    assert locations.home_of(unset, lambda: "/other") == "/other"
    with pytest.raises(UsageError, match="no home directory"):
        locations.home_of(unset, lambda: "")


OMC = "/r/.omc/self-improve"


@pytest.mark.parametrize(
    ("topic", "root", "present", "expected"),
    [
        ("speed", "/elsewhere", {"/r/.sid/topics/speed"}, "/elsewhere"),
        ("speed", None, {"/r/.sid/topics/speed", f"{OMC}/topics/speed"}, "/r/.sid/topics/speed"),
        ("speed", None, {f"{OMC}/topics/speed", OMC, f"{OMC}/config"}, f"{OMC}/topics/speed"),
        ("speed", None, {OMC, f"{OMC}/config"}, "/r/.sid/topics/speed"),
        (None, None, {OMC, f"{OMC}/config"}, OMC),
        ("", None, {OMC, f"{OMC}/state"}, OMC),
        (None, None, {OMC}, OMC),
        (None, None, {OMC, f"{OMC}/topics", f"{OMC}/topics/speed"}, "/r/.sid/topics/default"),
        (None, None, {OMC, f"{OMC}/config", "/r/.sid/topics/default"}, "/r/.sid/topics/default"),
        ("Größer & Schneller", None, set(), "/r/.sid/topics/grosser-schneller"),
        (None, None, set(), "/r/.sid/topics/default"),
    ],
)
def test_root_of_a_track(topic: str | None, root: str | None, present: set[str], expected: str) -> None:
    assert locations.track_root("/r", topic, root, present.__contains__) == expected


@pytest.mark.parametrize(
    ("root", "flags"),
    [
        ("/a b/.sid/topics/default", ""),
        ("/a b/.sid/topics/speed", " --topic speed"),
        ("/a b/.omc/self-improve/topics/speed", " --topic speed"),
        ("/a b/.omc/self-improve", ""),
        ("/x y/track", " --root '/x y/track'"),
        ("/another/.sid/topics/speed", " --root /another/.sid/topics/speed"),
        ("/another/.sid/topics/default", " --root /another/.sid/topics/default"),
        ("/a b/.sid/topics/speed/deeper", " --root '/a b/.sid/topics/speed/deeper'"),
    ],
)
def test_a_command_names_the_track_that_it_is_about(root: str, flags: str) -> None:
    assert locations.track_command("init", "/a b", root, "--trust") == f"sictl init '/a b'{flags} --trust"


@pytest.mark.parametrize(
    "word",
    [
        "plain/a-b_c.py",
        "",
        "it's",
        'say "x"',
        "$HOME `x`",
        "a\nb\t'\\x41",
        "größe",
        "\udcff\x1b[31m",
        "a\u200bb",
    ],
)
def test_a_word_is_what_a_shell_makes_of_it_and_stays_on_its_line(word: str) -> None:
    quoted = locations.shell_word(word)
    assert quoted.isprintable()
    said = subprocess.run(["bash", "-c", f"printf %s {quoted}"], capture_output=True, check=True).stdout
    assert os.fsdecode(said) == word
