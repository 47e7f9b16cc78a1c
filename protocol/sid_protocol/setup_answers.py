"""What the agents of set-up answer: a goal that becomes clear by questions, and a benchmark that was not there.

Their JSON Schemas are what the agents are handed. Nothing here is believed before the user has seen and trusted it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from sid_protocol.records import Line, Record, Text

BENCHMARK_LIMIT = 60_000
"""Characters of a benchmark: the user reads all of it before it is trusted."""
FILE = "{file}"
"""Stands for the benchmark's path in its command."""
Score = Annotated[int, Field(ge=0, le=100)]


class GoalClarity(Record):
    """How clear each dimension of a goal is, 0 to 100."""

    objective: Score
    metric: Score
    target: Score
    scope: Score


class Clarification(Record):
    """What the goal clarifier answers: what it understood so far, and the one question that helps most."""

    scores: GoalClarity
    question: Text = Field(
        default="", description="About the weakest dimension; empty once each is at least 80."
    )
    objective: Line = Field(description="What is to get better, one sentence.")
    direction: Literal["higher", "lower", ""] = Field(default="", description="Which values are better.")
    target: float | None = Field(default=None, description="The value that would be enough, if there is one.")
    scope: list[Line] = Field(
        default_factory=list, max_length=50, description="Globs of files that may change."
    )


class BuiltBenchmark(Record):
    """What the benchmark builder answers: one file, and how it is run."""

    file: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,60}$")] = Field(
        description="The file's name, without a folder."
    )
    text: Annotated[str, StringConstraints(min_length=1, max_length=BENCHMARK_LIMIT)]
    run: Line = Field(description=f"The command, run in a checkout's top; {FILE} stands for the file's path.")
    format: Annotated[str, StringConstraints(pattern=r"^(json|number|pass_fail|regex:.+)$")]
    direction: Literal["higher", "lower"]
    why: Text = Field(default="", description="What it measures, and why that is the goal.")

    @model_validator(mode="after")
    def _names_its_file(self) -> BuiltBenchmark:
        if FILE not in self.run:
            raise ValueError(f"run must hold {FILE}")
        return self
