"""Whatever an agent prints, it is read as a record or refused in one clear line."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sid_actors.backends import parse
from sid_protocol.errors import BackendError

PLAN = {
    "hypothesis": "Caching f halves the work, since it is called twice.",
    "approach_family": "optimization",
    "target_files": ["app.py"],
    "steps": [{"step": 1, "file": "app.py", "change": "cache f"}],
}
IDEA = {"title": "Cache", "approach_family": "optimization", "confidence": "high"}
REVIEW = {
    "h001_hypothesis_count": "pass",
    "h002_family_streak": "pass",
    "h003_intra_round_diversity": "pass",
    "schema_valid": "pass",
    "history_aware": "pass",
    "verdict": "approved",
}


def fenced(document: object, fence: str = "```") -> str:
    return f"{fence}json\n{json.dumps(document, indent=1)}\n{fence}"


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(PLAN),
        "\ufeff  " + json.dumps(PLAN, indent=2) + "\n\n",
        "Here is my plan.\n\n" + fenced(PLAN) + "\n\nGood luck!",
        fenced({"draft": 1}) + "\nOn reflection:\n" + fenced(PLAN),
        "An unclosed block\n```\nfoo\n" + fenced(PLAN),
        fenced(PLAN) + "\n```python\nprint('{}')\n```\n",
        "  1. indented\n   " + fenced(PLAN).replace("\n", "\n   "),
        fenced(PLAN, "~~~~"),
        "cut off after it\n```json\n" + json.dumps(PLAN),
        fenced(PLAN).replace("\n", "\r\n"),
        fenced(PLAN | {"note": "a\u2028b"}),
    ],
)
def test_a_plan_is_found_whole_or_in_its_last_fence(text: str) -> None:
    assert parse.parse_plan(text).hypothesis == PLAN["hypothesis"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no answer"),
        (" \n\t", "no answer"),
        ("I could not do it.", "no JSON document"),
        (json.dumps(PLAN)[:60], "no JSON document"),
        ("```json\n" + json.dumps(PLAN)[:60] + "\n```", "last fenced json block is no JSON"),
        ("[1, 2]", "must be a JSON object, not list"),
        ("x" * (parse.ANSWER_LIMIT_BYTES + 1), "longer than"),
        ("ü" * (parse.ANSWER_LIMIT_BYTES // 2 + 1), "longer than"),
        ('{"a": ' * 100 + "1" + "}" * 100, "nested deeper"),
        ('{"a": ' * 100_000 + "1" + "}" * 100_000, "nested deeper"),
        (json.dumps(PLAN | {"x": float("nan")}), "NaN, which is no finite number"),
        (json.dumps(PLAN)[:-1] + ', "x": 1e999}', "1e999, which is no finite number"),
        (json.dumps(PLAN | {"x": "\ud800"}), "no Unicode"),
        (
            json.dumps({k: v for k, v in PLAN.items() if k != "hypothesis"}),
            "answer's hypothesis: field required",
        ),
        (json.dumps(PLAN | {"target_files": [""]}), "answer's target_files.0: "),
        (json.dumps(PLAN | {"hypothesis": "a\0b"}), "answer's hypothesis: must not hold a NUL"),
        (json.dumps(PLAN | {"hypothesis": "x" * 5000}), "answer's hypothesis: "),
        (
            json.dumps(PLAN | {"steps": [{"step": "one", "file": "a", "change": "b"}]}),
            "answer's steps.0.step: ",
        ),
    ],
)
def test_what_is_wrong_is_named(text: str, told: str) -> None:
    with pytest.raises(BackendError) as caught:
        parse.parse_plan(text)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_an_agent_does_not_approve_its_own_plan() -> None:
    plan = parse.parse_plan(
        json.dumps(PLAN | {"critic_approved": True, "plan_id": "x", "round": 9, "recipe": {}})
    )

    assert not parse.NOT_AN_AGENTS_TO_SAY & set(plan.model_dump())
    assert plan.model_dump()["recipe"] == {}


def test_a_plan_may_name_no_hypothesis_and_no_files_for_the_rules_judge_that() -> None:
    plan = parse.parse_plan(json.dumps(PLAN | {"hypothesis": " \n", "target_files": []}))
    assert (plan.hypothesis, plan.target_files) == ("", [])


def test_a_brief_needs_three_ideas_of_two_families() -> None:
    brief: dict[str, Any] = {"repo_analysis_summary": "small", "ideas": [IDEA, IDEA, IDEA]}
    with pytest.raises(BackendError, match="two approach families"):
        parse.parse_brief(json.dumps(brief))
    with pytest.raises(BackendError, match="answer's ideas: "):
        parse.parse_brief(json.dumps(brief | {"ideas": [IDEA]}))

    brief["ideas"][2] = IDEA | {"approach_family": "data"}
    assert len(parse.parse_brief(json.dumps(brief)).ideas) == 3
    assert len(parse.parse_brief(json.dumps(brief), families=(IDEA["approach_family"], "data")).ideas) == 3
    with pytest.raises(BackendError, match=r"ideas\.2\.approach_family: unknown family 'data'"):
        parse.parse_brief(json.dumps(brief), families=(IDEA["approach_family"],))


def test_reviews_are_read() -> None:
    assert parse.parse_judgement(json.dumps(REVIEW)).verdict == "approved"
    assert parse.parse_advice('{"verdict": "reject", "feedback": "too wide"}').feedback == "too wide"
    with pytest.raises(BackendError, match="answer's verdict: "):
        parse.parse_advice('{"verdict": "maybe"}')


def test_a_critic_need_not_say_what_the_rules_decide() -> None:
    short = parse.parse_judgement('{"verdict": "rejected", "rejection_reason": "vague"}')
    assert (short.verdict, short.h001_hypothesis_count, short.history_aware) == ("rejected", "pass", "pass")

    counted = parse.parse_judgement(
        json.dumps(REVIEW | {"h001_hypothesis_count": 2, "history_aware": True, "schema_valid": False})
    )
    points = (counted.h001_hypothesis_count, counted.history_aware, counted.schema_valid)
    assert points == ("fail", "pass", "fail")


def test_text_whose_form_is_open_may_be_a_number_or_a_list() -> None:
    plan = parse.parse_plan(
        json.dumps(
            PLAN
            | {
                "expected_outcome": {"metric": "primary", "estimated_impact": 0.05, "rationale": None},
                "history_reference": {"builds_on": ["round_1", "round_2"], "avoids": []},
                "steps": [{"step": 0, "file": "app.py", "change": "cache f"}],
            }
        )
    )
    assert (plan.expected_outcome.estimated_impact, plan.expected_outcome.rationale) == ("0.05", "")
    assert (plan.history_reference.builds_on, plan.history_reference.avoids) == ("round_1, round_2", "")

    ideas = [IDEA | {"estimated_impact": 3}, IDEA | {"source": ["a.py"], "approach_family": "data"}, IDEA]
    brief = parse.parse_brief(json.dumps({"repo_analysis_summary": "small", "ideas": ideas}))
    assert (brief.ideas[0].estimated_impact, brief.ideas[1].source) == ("3", "a.py")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.sampled_from([*PLAN, *REVIEW, "ideas"]) | st.text(), inner)
    ),
)
TEXTS = (
    st.text(st.characters())
    | JSON.map(json.dumps)
    | st.lists(
        st.sampled_from(["```json\n", "```\n", "~~~\n", "{", "}", '"a":', "1", "[", "]", ",", "\n", "NaN"])
    ).map("".join)
    | st.dictionaries(st.sampled_from(list(PLAN)), JSON).map(lambda changed: json.dumps(PLAN | changed))
)


@given(
    TEXTS, st.sampled_from([parse.parse_plan, parse.parse_brief, parse.parse_advice, parse.parse_judgement])
)
@example("1" * 5000, parse.parse_plan)
@example(json.dumps(PLAN | {"steps": [{"step": 10**4000, "file": "a", "change": "b"}]}), parse.parse_plan)
def test_no_text_raises_anything_else(text: str, reader: Any) -> None:
    try:
        record = reader(text)
    except BackendError as error:
        assert "\n" not in error.message  # noqa: PT017 - refusing is the other right outcome
    else:
        record.model_dump_json()
