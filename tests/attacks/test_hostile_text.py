"""Text that is made to hold up or to crash whoever reads it: answers, sources and settings that a candidate writes.

Each of these took minutes to hours, with the interpreter's lock held, or raised what nobody caught; a test that hangs fails.
"""

from __future__ import annotations

import pytest

from sid_actors.backends.parse import extract_object
from sid_actors.workbench.checks.detectors import Case, FileChange, detect
from sid_actors.workbench.checks.pysyntax import same_but_seeds
from sid_actors.workbench.checks.steering import steered
from sid_actors.workbench.scores.scoring import parse_number
from sid_protocol.errors import BackendError

LONG = 200_000
SEALED = tuple(f"tests/part_{number}.py" for number in range(700))


def found(path: str, text: str, form: str = "number", sealed: tuple[str, ...] = ()) -> list[str]:
    case = Case(metric="primary", form=form, sealed=sealed)
    return [finding.detector for finding in detect([FileChange(path, None, text)], case)]


@pytest.mark.parametrize("blanks", [" ", "\t", " \t"])
def test_an_answer_with_endless_blanks_after_a_fence_is_no_answer(blanks: str) -> None:
    with pytest.raises(BackendError, match="no fenced json block"):
        extract_object(f"text\n```{blanks * LONG}!")


def test_blanks_around_a_fence_do_not_matter() -> None:
    assert extract_object('text\n  ``` json \t\n{"a": 1}\n ```  \r\nmore') == {"a": 1}


def test_a_printed_run_of_digits_is_looked_at_once() -> None:
    assert found("app.py", f"print('{'1' * LONG}x')\n") == []
    assert found("app.py", "print('12.50 ')\n") == ["prints_score"]
    assert (parse_number("1." + "1" * 100 + "x"), parse_number("1."), parse_number("1.5e3")) == (
        None,
        1,
        1500,
    )


HEX = f"0x{'f' * 20_000}"  # longer than Python writes a number in digits


@pytest.mark.parametrize(
    ("form", "text", "detectors"),
    [
        ("number", f"print({HEX})\n", ["prints_score"]),
        ("json", f"print({HEX}, 'primary')\n", ["prints_score"]),
        ("number", f"def f():\n    check(abs_tol={'9' * 400})\n", []),
    ],
)
def test_a_number_beyond_all_numbers_is_read_like_any(form: str, text: str, detectors: list[str]) -> None:
    assert found("app.py", text, form) == detectors


def test_a_number_that_cannot_be_written_is_no_seed() -> None:
    assert not same_but_seeds("app.py", f"A = {HEX}\nseed = 1\n", f"A = {HEX}\nseed = 2\n")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("setup.cfg", f"[tool:pytest]\na{' ' * LONG}b\n"),
        ("pyproject.toml", f"a{'.a' * (LONG // 2)} = 1\n"),
        ("pyproject.toml", f"a = {'9' * 5000}\n"),
        ("pyproject.toml", f"a = {'[' * LONG}\n"),
        ("tox.ini", "no section\n"),
    ],
)
def test_settings_that_cannot_be_read_are_changed_settings(path: str, text: str) -> None:
    assert steered([FileChange(path, "", text)], frozenset()) == [path]
    assert steered([FileChange(path, text, text)], frozenset()) == []


def test_many_sealed_files_do_not_make_many_lines_dear() -> None:
    text = "\n".join(f"const a{number} = {number};" for number in range(3000))
    assert found("app.js", text, sealed=SEALED) == []
    assert found("app.js", f"{text}\nread('tests/part_7.py')\n", sealed=SEALED) == ["reads_sealed"]


@pytest.mark.parametrize(
    ("path", "sealed", "is_hidden"),
    [
        ("check/__init__.py", ("check.py",), True),
        ("check.so", ("check.py",), True),
        ("check.cpython-313-x86_64-linux-gnu.so", ("check.py",), True),
        ("judge/__init__.abi3.so", ("judge/__init__.py", "judge/check.py"), True),
        ("judge.py", ("judge/check.py",), True),
        ("judge/__init__.py", ("judge/check.py",), True),
        ("judge.py", ("judge/__init__.py", "judge/check.py"), False),
        ("check/part.py", ("check.py",), False),
        ("lib/check.py", ("check.py",), False),
        ("bench/data.js", ("bench/data.json",), True),
        ("bench/check", ("bench/check.js",), True),
        ("bench.js", ("bench/index.js",), True),
        ("bench/other.js", ("bench/data.json",), False),
    ],
)
def test_what_is_found_before_a_sealed_module_is_rejected(
    path: str, sealed: tuple[str, ...], is_hidden: bool
) -> None:
    assert found(path, "x = 1\n", sealed=sealed) == (["shadows_module"] if is_hidden else [])


@pytest.mark.parametrize(
    "unread",
    [
        f"x = {'-' * 100_000}1\n",  # deeper than a parser goes
        "def f[T: int = 1](x: T) -> T ?: ...\n",  # as a later Python may have it
    ],
)
def test_what_does_not_parse_is_told_and_read_by_lines(unread: str) -> None:
    assert found("app.py", unread) == ["not_parsed"]
    text = f"{unread}import os\nprint(999)\nos._exit(0)\nif 'SID_RUN_ID' in os.environ: read('bench.py')\n"
    assert set(found("app.py", text, sealed=("bench.py",))) == {
        *("not_parsed", "exit_trick", "detects_benchmark", "reads_sealed")
    }
