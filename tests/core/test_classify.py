"""Why a straggler was stuck: one row of evidence a reason, and which of two reasons comes first."""

from __future__ import annotations

from typing import Any

import pytest

from sid_daemon.core.classify import RULES, classify
from sid_protocol.events import Activity


def seen(**more: Any) -> Activity:
    return Activity(**{"elapsed_s": 1800.0, "idle_s": 300.0, "deadline_s": 300.0, "edits": 1, **more})


READ = "Read#1"


@pytest.mark.parametrize(
    ("activity", "reason"),
    [
        (seen(), "unknown"),
        (seen(stop_reason="max_tokens"), "context_limit"),
        (seen(stop_reason="model_context_window_exceeded"), "context_limit"),
        (seen(error="400: prompt is too long: 210000 tokens"), "context_limit"),
        (seen(outputs=("Auto-compacting", "Auto-compacting")), "context_limit"),
        (seen(permission_asked="Bash"), "stuck_on_permission"),
        (seen(process_states=("12 S n_tty_read claude",)), "stuck_on_permission"),
        (seen(snippet="Do you want to proceed? (y/n)"), "stuck_on_permission"),
        (seen(outputs=("[sudo] password:",)), "stuck_on_permission"),
        (seen(edits=0, tools=(READ,) * 3), "tool_loop"),
        (seen(edits=0, tools=("Read#1", "Bash#2") * 3), "tool_loop"),
        (seen(edits=0, tools=("a", "b", "c", "d") * 3), "tool_loop"),
        (seen(edits=0, tools=("x", "y", READ, READ, READ)), "tool_loop"),
        (seen(edits=0, outputs=("ImportError: no module x",) * 3), "tool_loop"),
        (seen(edits=1, tools=(READ,) * 9), "unknown"),
        (seen(edits=0, tools=("a", "b", "c", "d", "e") * 3), "unknown"),
        (seen(edits=0, tools=("a", "b", "a", "b", "a")), "unknown"),
        (seen(open_request_s=200.0), "network_timeout"),
        (seen(open_request_s=100.0), "unknown"),
        (seen(sockets=("ESTABLISHED 10.0.0.1:443",)), "network_timeout"),
        (seen(sockets=("LISTEN 0.0.0.0:80",)), "unknown"),
        (seen(error="529 overloaded_error"), "network_timeout"),
        (seen(snippet="connection reset by peer"), "network_timeout"),
        (seen(asked_question=True), "ambiguous_task"),
        (seen(edits=0, stop_reason="end_turn"), "ambiguous_task"),
        (seen(edits=0, stop_reason="end_turn", claimed_done=True), "unknown"),
        (seen(snippet="Which file should I change?"), "ambiguous_task"),
        # What the model said itself comes first, then consent, then the loop, then the network.
        (seen(stop_reason="max_tokens", permission_asked="Bash"), "context_limit"),
        (seen(permission_asked="Bash", edits=0, tools=(READ,) * 3), "stuck_on_permission"),
        (seen(edits=0, tools=(READ,) * 3, open_request_s=300.0), "tool_loop"),
        (seen(open_request_s=300.0, asked_question=True), "network_timeout"),
    ],
)
def test_evidence_decides_the_reason(activity: Activity, reason: str) -> None:
    assert classify(activity) == reason


def test_every_reason_tells_a_user_what_to_do() -> None:
    assert all(rule.when and rule.todo for rule in RULES)
    assert len({rule.reason for rule in RULES}) == len(RULES) == 5
