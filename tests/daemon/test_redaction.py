"""No secret gets into a log, and what does is plain JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sid_daemon.redaction import HIDDEN, TEXT_LIMIT, Redactor, secrets_of
from sid_protocol.events import AgentFailed, PlanDrafted, RoundPrepared
from sid_protocol.settings import Settings
from tests.core.play import created, plan

SECRET = "s3cr3t-value/with+odd=chars"


@pytest.mark.parametrize(
    "text",
    [
        "ANTHROPIC_API_KEY=sk-ant-api03-abcdefghijklmnop",
        "found sk-ant-api03-abcdefghijklmnop_qrs in the environment",
        "https://abcdefghijklmnop@host.invalid/x.git",
        "https://user:abcdefghijklmnop@host.invalid/x.git",
        "ssh://git:abcdefghijklmnop@host.invalid/x.git",
        "GET https://host.invalid/x?a=1&token=abcdefghijklmnop&b=2",
        "https://host.invalid/?access_token=abcdefghijklmnop",
        "Authorization: Bearer abcdefghijklmnop",
        'x-api-key: "abcdefghijklmnop"',
        "ghp_abcdefghijklmnopqrstuvwxyz0123",
        "github_pat_11ABCDEFG0abcdefghijklmnop",
        "glpat-abcdefghijklmnopqrst",
        "AKIAABCDEFGHIJKLMNOP",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abcdefghijklmnop",
        "export GITHUB_TOKEN=abcdefghijklmnop",
        "password = abcdefghijklmnop",
        "-----BEGIN RSA PRIVATE KEY-----\nabcdefghijklmnop\n-----END RSA PRIVATE KEY-----",
    ],
)
def test_the_usual_shapes_are_hidden(text: str) -> None:
    hidden = Redactor().text(text)
    assert HIDDEN in hidden
    for part in ("abcdefghijklmnop", "ABCDEFGHIJKLMNOP", "eyJhbGci"):
        assert part not in hidden


@pytest.mark.parametrize(
    "text",
    [
        "input_tokens=123456 output_tokens=77",
        "git@host.invalid:ada/x.git",
        "https://host.invalid/ada/x?page=2",
        "commit 0123456789abcdef0123456789abcdef01234567",
        "unexpected token: identifier",
        "bearer of news",
        "sorted by key=len",
        "round_3_executor_2 /home/ada/repo-with-a-long-name/file.py:12",
    ],
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert Redactor().text(text) == text


def test_what_the_environment_calls_secret_is_hidden_anywhere() -> None:
    env = {
        "MY_API_KEY": SECRET,
        "DB_PASSWORD": "short",
        "KEYBOARD": "de-latin1-nodeadkeys",
        "HOME": "/home/ada",
    }
    redactor = Redactor(secrets_of(env))

    assert sorted(secrets_of(env)) == sorted([SECRET, "short"])
    record = {"a": [f"x{SECRET}y", {"b": SECRET}], SECRET: 1, "tail": "a short line", "n": (1, 2)}
    assert redactor.clean(record) == {
        "a": [f"x{HIDDEN}y", {"b": HIDDEN}],
        HIDDEN: 1,
        "tail": "a short line",
        "n": [1, 2],
    }


def test_a_longer_secret_is_hidden_whole() -> None:
    redactor = Redactor(["abcdefgh"])
    redactor.learn("abcdefgh-and-more")
    assert redactor.text("abcdefgh-and-more!") == f"{HIDDEN}!"


def test_a_field_that_says_it_is_secret_is_hidden_whatever_it_holds() -> None:
    cleaned = Redactor().clean(
        {"api_key": "x", "headers": {"Authorization": ["y"]}, "max_tokens": 5, "token_count": 2}
    )
    assert cleaned == {
        "api_key": HIDDEN,
        "headers": {"Authorization": HIDDEN},
        "max_tokens": 5,
        "token_count": 2,
    }


def test_long_text_is_cut_and_no_secret_survives_at_the_cut() -> None:
    text = "x" * (TEXT_LIMIT - 5) + SECRET + "y" * 100_000
    cut = Redactor([SECRET]).clean(text)

    assert len(cut) < TEXT_LIMIT + 50
    assert "s3cr" not in cut
    assert str(len(text)) in cut


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.just(10**400)
    | st.just(Path("/x")),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner) | st.frozensets(st.text())
    ),
    max_leaves=12,
)


@given(values)
def test_anything_becomes_json(value: object) -> None:
    json.dumps(Redactor([SECRET]).clean(value), allow_nan=False)


def test_what_holds_itself_ends() -> None:
    loop: list[object] = []
    loop.append(loop)
    json.dumps(Redactor().clean(loop))


def test_an_event_loses_its_secrets_and_no_work() -> None:
    redactor = Redactor([SECRET])
    said = f"see https://user:{SECRET}@host.invalid/x?token=abcdefgh and sk-ant-api03-abcdefghijklmnop"
    leaking = AgentFailed(why=said, duration_s=2.5)
    hidden = redactor.event(leaking)
    assert hidden.why == f"see https://{HIDDEN}@host.invalid/x?token={HIDDEN} and {HIDDEN}"
    assert (hidden.duration_s, hidden.kind) == (2.5, leaking.kind)

    drafted = PlanDrafted(plan=plan("data"))
    work = drafted.plan.model_copy(
        update={"hypothesis": "Set MAX_TOKEN = 4096 and password: basic improvements"}
    )
    kept = drafted.model_copy(update={"plan": work})
    assert redactor.event(kept) is kept
    told = kept.model_copy(update={"plan": work.model_copy(update={"hypothesis": f"use {SECRET}"})})
    assert redactor.event(told).plan.hypothesis == f"use {HIDDEN}"


@pytest.mark.parametrize(
    ("secret", "around"),
    [
        (SECRET, "it is {}"),
        ('quo"ted\\pass phrase', "it is {}"),
        ("first line\nsecond line", "it is {}"),
        ("gh" + "p_" + "a1b2" * 6, "printed:\n{}\n"),
        ("sk-" + "a1b2" * 6, "printed:\t{}"),
    ],
)
def test_a_secret_of_an_event_may_stand_anywhere_and_hold_any_sign(secret: str, around: str) -> None:
    redactor = Redactor([secret] if around == "it is {}" else ())
    assert redactor.event(AgentFailed(why=around.format(secret))).why == around.format(HIDDEN)


def test_what_a_run_goes_by_stays_as_it_was_set() -> None:
    settings = Settings(
        base_url="https://user:gateway-pass@host.invalid", agent_command=f"agent --as {SECRET}"
    )
    prepared = RoundPrepared(settings=settings, goal=f"Do as {SECRET} says.", head="a" * 40)
    kept = Redactor([SECRET]).event(prepared)
    assert (kept.settings, kept.goal) == (settings, f"Do as {HIDDEN} says.")

    made = created(settings, repo="/home/me/password-store", baseline_raw="password 10")
    said = Redactor(["password"]).event(made)
    assert (said.repo, said.baseline_raw) == (made.repo, f"{HIDDEN} 10")
