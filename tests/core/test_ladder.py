"""The escalation ladder: a step a round once nothing wins any more, and the user is told at its end."""

from __future__ import annotations

import json
from typing import Any

from sid_daemon.core.longterm.ladder import STUCK_AFTER, Rung, rung_line, rung_of
from sid_daemon.log.event_records import log_records
from sid_daemon.report.text import status_notes, summary_text
from sid_daemon.rpc.rows import run_row
from sid_protocol.settings import Settings
from tests.core.play import Play, played

LONG = Settings(number_of_agents=1, benchmark_command="b", max_iterations=13, circuit_breaker_threshold=99)
ORDER = ["reread_files", "reread_goal", "reread_record", "combine", "opposite", "radical", "report"]


def rungs(play: Play) -> list[str | None]:
    return [
        json.loads(play.files[f"state/iteration_history/round_{number}.json"])["ladder"]
        for number in range(1, play.now.completed + 1)
    ]


def test_it_begins_after_five_rounds_and_takes_a_step_a_round() -> None:
    assert rungs(played(LONG)) == [None] * STUCK_AFTER + ORDER + ["report"]


def test_after_the_report_the_last_ways_are_taken_in_turn() -> None:
    told = [rung.told for dry in range(8, 18) if (rung := rung_of(dry))]

    assert told[:3] == told[3:6] == told[6:9]
    assert len(set(told[:3])) == 3


def test_a_winner_ends_it_and_a_new_start_does_not() -> None:
    won = played(LONG, score=lambda arm, number: 11.0 if (number >= 7 and arm != "A") or number > 7 else 10.0)
    assert rungs(won)[4:8] == [None, "reread_files", "reread_goal", None]

    broken = played(LONG.model_copy(update={"circuit_breaker_threshold": 3}))
    for _ in range(2):
        broken.start()
        broken.run()
    assert broken.status == "circuit_breaker"
    assert rungs(broken) == [None] * STUCK_AFTER + ORDER[:4]


def test_the_user_sees_the_step_and_is_asked_to_look_at_its_end() -> None:
    play = played(LONG.model_copy(update={"max_iterations": 6}))
    row = run_row(play.now)
    told = "stuck for 6 rounds: step 2 of 7 of the ladder, reread goal"

    assert row.ladder is not None
    assert (row.ladder.step, row.ladder.of, row.ladder.name, row.ladder.rounds) == (2, 7, "reread_goal", 6)
    assert told in row.notes
    assert told in summary_text(play.now)
    top = rung_of(11)
    assert top is not None
    assert rung_line(top).startswith("stuck: 11 rounds in a row without a winner, and every step")
    assert run_row(played(LONG.model_copy(update={"max_iterations": 4})).now).ladder is None


def test_each_step_is_logged_once_and_the_report_as_a_warning() -> None:
    play = played(LONG)
    records: list[tuple[str, str, dict[str, Any]]] = [
        record for before, event, after in play.steps for record in log_records(before, event, after)
    ]
    steps = [
        (level, fields["iteration"], fields["name"])
        for level, name, fields in records
        if name == "ladder_step"
    ]

    assert [(number, name) for _, number, name in steps] == list(
        enumerate([*ORDER, "report"], STUCK_AFTER + 1)
    )
    assert {level for level, _, name in steps if name == "report"} == {"warning"}
    assert {level for level, _, name in steps if name != "report"} == {"info"}


def test_a_rung_is_a_value() -> None:
    rung = rung_of(STUCK_AFTER)

    assert isinstance(rung, Rung)
    assert rung == rung_of(STUCK_AFTER)
    assert not status_notes(played(LONG.model_copy(update={"max_iterations": 1})).now)
