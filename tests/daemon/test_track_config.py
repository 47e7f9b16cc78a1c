"""The user's files of a track, where several hands write them at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pydantic import JsonValue

from sid_daemon import track_config
from sid_daemon.goal import read_ideas
from sid_daemon.rpc.setting_rows import setting_before, setting_rows
from sid_protocol.errors import SettingsInvalid
from sid_protocol.settings import Settings, parse_file


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "config").mkdir()
    track_config.write_raw(tmp_path, {"max_iterations": 3})
    return tmp_path


def test_every_idea_of_clients_at_once_is_kept_or_taken(root: Path) -> None:
    texts = [f"idea {number}" for number in range(60)]
    with ThreadPoolExecutor(8) as pool:
        told = [pool.submit(track_config.append_idea, root, text) for text in texts]
        taken = [pool.submit(track_config.take_ideas, root, 1) for _ in range(5)]
        for idea in told:
            idea.result()
        for take in taken:
            take.result()

    assert sorted(track_config.take_ideas(root, 1)) == sorted(texts)


def test_taken_ideas_leave_an_empty_file_and_a_file_without_ideas_is_left_alone(root: Path) -> None:
    path = root / "config" / "idea.md"
    path.write_text("# Ideas\n\n<!-- one a paragraph -->\n")
    assert track_config.take_ideas(root, 1) == ()
    assert path.read_text() == "# Ideas\n\n<!-- one a paragraph -->\n"

    path.write_text("a cache\n")
    assert track_config.take_ideas(root, 1) == ("a cache",)
    assert path.read_text() == ""

    path.write_text("a set\n")
    assert track_config.take_ideas(root, 1) == ("a cache", "a set")
    assert path.read_text() == ""


@pytest.mark.parametrize("since", ["", "- later\n", "later\n"])
def test_returned_ideas_stand_as_they_were_written_before_what_came_since(root: Path, since: str) -> None:
    path, text = root / "config" / "idea.md", "# Mine\n\n- a cache\n\nor two\nlines <!-- hm -->"
    path.write_text(text)
    ideas = track_config.take_ideas(root, 1)
    path.write_text(since)
    for _ in range(2):  # once more after a crash
        track_config.return_ideas(root, 1, ideas)
        assert path.read_text().startswith(f"{text}\n")
        assert path.read_text().endswith(since)
        expected = (*ideas, *(["later"] if since else []))
        assert read_ideas(path.read_text()) == expected
    assert track_config.take_ideas(root, 1) == expected, "the round that gave them back began once more"

    path.write_text(since)
    track_config.return_ideas(root, 2, ("known from the journal alone",))
    assert read_ideas(path.read_text()) == ("known from the journal alone", *expected[len(ideas) :])


def test_every_setting_of_clients_at_once_is_kept(root: Path) -> None:
    keys = ("plateau_window", "blocked_limit", "kill_threshold", "budget.calls", "budget.tokens", "grace_s")
    with ThreadPoolExecutor(len(keys)) as pool:
        for value in range(1, 9):
            for one in [pool.submit(track_config.change_setting, root, key, value) for key in keys]:
                one.result()

    raw = track_config.read_raw(root)
    assert raw == {
        "max_iterations": 3,
        "plateau_window": 8,
        "blocked_limit": 8,
        "kill_threshold": 8,
        "budget": {"calls": 8, "tokens": 8},
        "grace_s": 8,
    }


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("number_of_agents", 9),
        ("max_iterations", "x"),
        ("no_such", 1),
        ("detectors", {"no_such": "warn"}),
        ("detectors.no_such", "warn"),
        ("benchmark_format", "regex:("),
        ("topic_slug", "other"),
    ],
)
def test_a_setting_that_is_refused_is_not_written(root: Path, key: str, value: object) -> None:
    with pytest.raises(SettingsInvalid):
        track_config.change_setting(root, key, value)  # type: ignore[arg-type]  # as it comes from a client

    assert track_config.read_raw(root) == {"max_iterations": 3}


@pytest.mark.parametrize(
    ("key", "value", "got"), [("benchmark_format", "xml", "'xml'"), ("score_bounds", [2, 1], "[2, 1]")]
)
def test_a_refused_value_is_quoted_alone(root: Path, key: str, value: object, got: str) -> None:
    with pytest.raises(SettingsInvalid) as caught:
        track_config.change_setting(root, key, value)  # type: ignore[arg-type]  # as it comes from a client

    assert caught.value.message.startswith(f"setting {key}: must be ")
    assert caught.value.message.endswith(f"(got {got})")


@pytest.mark.parametrize(
    ("key", "value", "default"),
    [
        ("plateau_threshold", -1, "0.01"),
        ("measurement.screen_blocks", [1], '"auto"'),
        ("deadlines.planner", 0, "300"),
    ],
)
def test_a_refused_key_is_named_as_the_user_wrote_it(
    root: Path, key: str, value: object, default: str
) -> None:
    with pytest.raises(SettingsInvalid) as caught:
        track_config.change_setting(root, key, value)  # type: ignore[arg-type]  # as it comes from a client

    assert caught.value.key == key
    assert caught.value.hint.startswith(f"the default is {default}")


@pytest.mark.parametrize(
    "key", ["plateau_window.x", "plateau_threshold.x", "models.planner.x", "deadlines.x"]
)
def test_a_key_below_one_that_has_none_is_unknown(key: str) -> None:
    settings = Settings(models={"planner": "m"})

    with pytest.raises(SettingsInvalid, match="unknown key"):
        setting_rows(settings, {}, key)
    assert setting_rows(settings, {}, "models.critic") == []


def test_a_value_that_was_corrupted_by_hand_is_mended(root: Path) -> None:
    track_config.write_raw(root, {"number_of_agents": "x", "max_iterations": 3})
    before, after = track_config.change_setting(root, "number_of_agents", 2)

    assert after == track_config.read_raw(root) == {"number_of_agents": 2, "max_iterations": 3}
    assert setting_before(before, "number_of_agents") == "x"
    assert setting_before(after, "number_of_agents") == 2


def test_families_of_the_harness_allow_more_agents(root: Path) -> None:
    (root / "config" / "harness.md").write_text("## Custom Approach Families\n\n- `layout`: of data\n")
    track_config.change_setting(root, "number_of_agents", 9)

    assert track_config.read_config(root).settings.number_of_agents == 9


def test_a_key_of_another_tool_is_kept_and_a_mistyped_one_refused(root: Path) -> None:
    raw: dict[str, JsonValue] = {"max_iterations": 3, "dashboard": {"port": 1}}
    track_config.write_raw(root, raw)
    track_config.change_setting(root, "plateau_window", 5)

    assert track_config.read_config(root).settings.plateau_window == 5
    assert track_config.read_raw(root) == {**raw, "plateau_window": 5}
    with pytest.raises(SettingsInvalid):
        track_config.change_setting(root, "dashboard", 2)

    track_config.write_raw(root, {"plateau_windw": 3})
    with pytest.raises(SettingsInvalid) as caught:
        track_config.read_config(root)
    assert caught.value.hint == "did you mean plateau_window?"


def test_a_group_has_a_row_before_its_members() -> None:
    raw: dict[str, JsonValue] = {"deadlines": {"executor": 10}}
    rows = {row["key"]: row for row in setting_rows(parse_file(raw), raw, None)}

    promised = [key for key in rows if "." not in key]
    assert promised == list(Settings.model_fields)
    group = rows["deadlines"]
    assert (group["value"]["executor"], group["default"]["executor"]) == (10, 1800)
    assert (group["source"], rows["deadlines.planner"]["source"]) == ("settings.json", "default")
    asked = setting_rows(parse_file(raw), raw, "deadlines")
    assert [row["key"] for row in asked][:2] == ["deadlines", "deadlines.researcher"]


def test_the_users_files_are_kept_as_they_are_until_they_are_taken_away(root: Path) -> None:
    copy = root / "copies/run.db"
    kept = track_config.copy_of(copy)

    def texts() -> dict[str, str]:
        return {path.name: path.read_text() for path in kept.iterdir()}

    track_config.write_text(root, "harness.md", "one rule\n")
    track_config.keep_copy(root, copy)
    first = texts()
    assert first == {path.name: path.read_text() for path in (root / "config").iterdir()}
    track_config.write_text(root, "goal.md", "faster\n")
    (root / "config/harness.md").unlink()
    track_config.keep_copy(root, copy)
    assert texts() == {"settings.json": first["settings.json"], "goal.md": "faster\n"}
    (root / "config").rename(root / "away")
    track_config.keep_copy(root, copy)
    assert texts() == {"settings.json": first["settings.json"], "goal.md": "faster\n"}
