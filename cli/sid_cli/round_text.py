"""Rounds as text: the history as a table, and one round whole.

Pure; used by `history` and `show`. Hypotheses, reviews and outputs were written by agents and programs and are
escaped throughout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sid_cli.cost_text import roles_table, round_cost, round_tokens
from sid_cli.measure_text import of_measurement, round_gain, runs_table
from sid_cli.status_text import Look
from sid_cli.text import clean, duration, number, shorten, table

Row = Mapping[str, Any]
_OUTPUT_LINES = 12
_NARROW = 100
_TOKENS = (">IN", ">CACHED", ">OUT")
_NOT_IN_NARROW = (">DELTA", ">REJ", ">KILLED", *_TOKENS)
"""What a narrow terminal has no room for beside the hypothesis; `show` and `--json` have it."""


def history_table(rounds: Sequence[Row], look: Look) -> str:
    """Return a line a round: how it ended, the score, the gain, how many tried, and the winner's hypothesis.

    Below 100 columns, without what `show` tells as well.
    """
    body = [
        (
            str(entry["iteration"]),
            clean(entry["status"]).replace("_", " "),
            number(entry["score"] if entry["score"] is not None else entry["baseline_score"]),
            _signed(entry["delta"]),
            round_gain(entry),
            str(entry["candidates"]),
            str(entry["rejected"]),
            str(entry["force_kills"]),
            duration(entry["duration_s"]),
            round_cost(entry),
            *round_tokens(entry),
            clean(entry["family"] or "-"),
            shorten(clean(entry["hypothesis"] or entry["reason"] or "-"), 200),
        )
        for entry in rounds
    ]
    headers = (
        ">ROUND",
        "RESULT",
        ">BEST",
        ">DELTA",
        ">GAIN",
        ">RAN",
        ">REJ",
        ">KILLED",
        ">TIME",
        ">COST",
        *_TOKENS,
        "FAMILY",
        "HYPOTHESIS",
    )
    left_out: tuple[str, ...] = _NOT_IN_NARROW if look.width is not None and look.width < _NARROW else ()
    if not any(round_cost(entry) for entry in rounds):
        left_out = (*left_out, ">COST", *_TOKENS)
    kept = [index for index, header in enumerate(headers) if header not in left_out]
    rows = [[line[index] for index in kept] for line in body]
    return table([headers[index] for index in kept], rows, width=look.width, flexible=len(kept) - 1)


def _signed(value: float | None) -> str:
    if value is None:
        return "-"
    return f"+{number(value)}" if value > 0 else number(value)


def round_whole(found: Row, look: Look) -> str:
    """Return one round with its brief, plans and reviews, candidates, kills, verdict and evidence."""
    history, report = found.get("history") or {}, found.get("merge_report")
    blocks = [
        _head(found["summary"], look),
        _brief(found.get("brief"), look),
        *(_plan(plan, look) for plan in found["plans"]),
        *(_result(result, found, look) for result in found["results"]),
        *(_kill(kill, look) for kill in history.get("force_kills", ())),
        *(_failure(failure) for failure in history.get("agent_failures", ())),
        _verdict(report, look) if report else "",
        *(_evidence(item, look) for item in history.get("evidence", ())),
        roles_table(found["summary"].get("roles", ()), width=look.width),
        _runs(found.get("runs", ()), look),
        "\n".join(f"note: {clean(note)}" for note in found.get("notes", ())),
    ]
    return "\n\n".join(block for block in blocks if block)


def _runs(runs: Sequence[Row], look: Look) -> str:
    """Return what the verdict rests on, run by run."""
    if not runs:
        return ""
    return f"{look.paint('benchmark runs', 'bold')}\n{runs_table(runs, width=look.width)}"


def _head(summary: Row, look: Look) -> str:
    score = number(summary["score"] if summary["score"] is not None else summary["baseline_score"])
    line = f"round {summary['iteration']}: {clean(summary['status']).replace('_', ' ')}"
    facts = [f"best {score}"]
    if summary["delta"] is not None:
        facts.append(f"{_signed(summary['delta'])} (gain {round_gain(summary)})")
    facts.append(f"took {duration(summary['duration_s'])}")
    if cost := round_cost(summary):
        facts.append(f"cost {cost}")
    if summary.get("started_at"):
        facts.append(f"began {clean(summary['started_at'])}")
    return f"{look.paint(line, 'bold')}   {'   '.join(facts)}"


def _brief(brief: Row | None, look: Look) -> str:
    if brief is None:
        return ""
    lines = [look.paint("research", "bold"), f"  {clean(brief['repo_analysis_summary'])}"]
    for idea in brief["ideas"]:
        impact = f" ({clean(idea['estimated_impact'])})" if idea.get("estimated_impact") else ""
        lines.append(
            f"  - [{clean(idea['approach_family'])}, {clean(idea['confidence'])}] {clean(idea['title'])}{impact}"
        )
    return "\n".join(lines)


def _plan(plan: Row, look: Look) -> str:
    approved = plan["critic_approved"]
    mark = (
        look.paint(f"{look.marks.yes} approved", "green")
        if approved
        else look.paint(f"{look.marks.no} rejected", "red")
    )
    lines = [
        f"{look.paint(clean(plan['plan_id']), 'bold')}  {clean(plan['approach_family'])}  {mark}",
        f"  hypothesis: {clean(plan['hypothesis'])}",
        f"  files: {', '.join(clean(path) for path in plan['target_files'])}",
    ]
    lines += [
        f"  step {step['step']}: {clean(step['file'])}: {clean(step['change'])}" for step in plan["steps"]
    ]
    if architect := plan.get("architect_review"):
        lines.append(f"  architect: {clean(architect['verdict'])}{_told(architect.get('feedback'))}")
        lines += [f"    concern: {clean(concern)}" for concern in architect.get("structural_concerns", ())]
    if critic := plan.get("critic_review"):
        checks = " ".join(
            f"{name}={critic[key]}"
            for name, key in (
                ("H001", "h001_hypothesis_count"),
                ("H002", "h002_family_streak"),
                ("H003", "h003_intra_round_diversity"),
                ("schema", "schema_valid"),
                ("history", "history_aware"),
            )
        )
        lines.append(
            f"  critic: {clean(critic['verdict'])} ({clean(checks)}){_told(critic.get('rejection_reason'))}"
        )
    return "\n".join(lines)


def _told(text: str | None) -> str:
    return f": {clean(text)}" if text else ""


def _result(result: Row, found: Row, look: Look) -> str:
    who, status = clean(result["executor_id"]), clean(result["status"])
    won = (found.get("merge_report") or {}).get("winner") or {}
    is_winner = won.get("executor_id") == result["executor_id"]
    word = look.paint(f"{look.marks.yes} winner", "green") if is_winner else status
    shown = of_measurement(result.get("measurement"))
    facts = [f"score {number(result['benchmark_score'])}", *([shown] if shown else []), word]
    facts.append(clean(result["plan_id"]))
    if result.get("diff_stat"):
        facts.append(clean(result["diff_stat"]))
    lines = [f"{look.paint(who, 'bold')}  {'   '.join(facts)}"]
    if result.get("sub_scores"):
        subs = "  ".join(f"{clean(name)}={number(value)}" for name, value in result["sub_scores"].items())
        lines.append(f"  sub-scores: {subs}")
    if said := " ".join(result.get("summary", "").split()):
        lines.append(f"  said: {clean(said[:200])}")
    if analysis := result.get("failure_analysis"):
        told = dict.fromkeys(clean(analysis[key]) for key in ("what", "why"))
        lines.append(f"  {clean(analysis['category'])}: {'; '.join(told)}")
        lines.append(f"  lesson: {clean(analysis['lesson'])}")
    lines += [f"  {look.paint('finding', 'yellow')}: {clean(line)}" for line in result.get("findings", ())]
    lines += _where(result, found, is_winner=is_winner)
    return "\n".join(lines)


def _where(result: Row, found: Row, *, is_winner: bool) -> list[str]:
    commit = result.get("commit")
    if not commit:
        return []
    if is_winner and found["summary"].get("commit"):
        merge = clean(found["summary"]["commit"])
        return [f"  commit: {clean(commit)}, merged as {merge}; taken back by: git revert -m 1 {merge}"]
    tag = found.get("tags", {}).get(result["executor_id"])
    return [f"  commit: {clean(commit)}{f', kept as {clean(tag)}' if tag else ''}"]


def _kill(kill: Row, look: Look) -> str:
    head = look.paint(f"killed {clean(kill['agent_id'])}: {clean(kill['reason'])}", "yellow")
    facts = [
        f"{duration(kill['elapsed_s'])} of {duration(kill['deadline_s'])}",
        f"{kill['processes_killed']} processes",
    ]
    if kill.get("last_tool"):
        facts.append(f"last tool {clean(kill['last_tool'])} x{kill['repeats']}")
    if kill.get("waiting_in"):
        facts.append(f"waiting in {clean(kill['waiting_in'])}")
    snippet = f"\n  last output: {clean(kill['snippet'])}" if kill.get("snippet") else ""
    return f"{head}  {'   '.join(facts)}{snippet}"


def _failure(failure: Row) -> str:
    return f"{clean(failure['agent_id'])} failed (attempt {failure['attempt']}): {clean(failure['why'])}"


def _verdict(report: Row, look: Look) -> str:
    lines = [
        f"{look.paint('verdict', 'bold')}: {clean(report['status']).replace('_', ' ')}{_told(report.get('reason'))}"
    ]
    if winner := report.get("winner"):
        lines.append(
            f"  {clean(winner['executor_id'])}: {number(winner['score_before'])} to {number(winner['score_after'])},"
            f" {clean(winner['hypothesis'])}"
        )
    if shown := of_measurement(report.get("measurement")):
        lines.append(f"  {shown}")
    lines += [f"  archived: {clean(tag)}" for tag in report.get("archived", ())]
    return "\n".join(lines)


def _evidence(item: Row, look: Look) -> str:
    output = [clean(line) for line in item["output"].splitlines()]
    shown = output[:_OUTPUT_LINES]
    if len(output) > len(shown):
        shown.append(f"({len(output) - len(shown)} more lines with --json)")
    lines = [f"{look.paint('claim', 'bold')}: {clean(item['claim'])}", f"  $ {clean(item['command'])}"]
    return "\n".join([*lines, *(f"  | {line}" for line in shown), f"  verdict: {clean(item['verdict'])}"])
