"""`sid.toml`: defaults, and one clear line for what is wrong with it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sid_daemon.daemon_settings import DaemonSettings, read_daemon_settings
from sid_protocol.errors import SettingsInvalid


def test_no_file_means_all_defaults(tmp_path: Path) -> None:
    assert read_daemon_settings(tmp_path / "sid.toml") == DaemonSettings()


def test_a_key_that_is_set_holds(tmp_path: Path) -> None:
    (tmp_path / "sid.toml").write_text('log_level = "debug"\nlog_files = 3\n')
    read = read_daemon_settings(tmp_path / "sid.toml")
    assert (read.log_level, read.log_files, read.log_file_mb) == ("debug", 3, 64)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("log_levl = 'info'", "did you mean log_level?"),
        ("log_level = 'loud'", "log_level"),
        ("log_files = '3'", "log_files"),
        ("log_files = 0", "log_files"),
        ("log_files =", "is not valid TOML"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "sid.toml").write_text(text)
    with pytest.raises(SettingsInvalid) as caught:
        read_daemon_settings(tmp_path / "sid.toml")
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_no_file_or_endless_is_told_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "huge").touch()
    os.truncate(tmp_path / "huge", 1 << 40)
    for name, why in (("pipe", "is not a file"), ("huge", "is longer than"), ("", "is not a file")):
        with pytest.raises(SettingsInvalid, match=why):
            read_daemon_settings(tmp_path / name)
    assert read_daemon_settings(Path("/dev/null")) == DaemonSettings()
