"""Settings of NL2Plan's dialogue: which checks are made, how often an answer is sent back, and who criticises."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from plansmith.config.basics import StrictModel

Checks = Literal["paper", "ours"]
FeedbackSource = Literal["model", "person", "none"]

AnswerForm = Literal["markdown", "json"]
Prompts = Literal["worked", "bare"]


class ModellingConfig(StrictModel):
    """How a text is taken through the steps of NL2Plan."""

    prompts: Prompts = "worked"
    """How a step is asked for. worked: told at length, with an example, as in the paper. bare: by the name of the step
    and what it is about, with the text's sentences numbered, for a model that has been trained on the steps, and on
    feedback if it is asked for that."""

    checks: Checks = "ours"
    """Whose validation: the paper's (appendix E, where `forall` in effects and `not` in the initial state are errors),
    or ours, which allows both."""
    answers: AnswerForm = "markdown"
    """What a model writes: headings with lists and code, as in the paper, or JSON, whose schema its server enforces;
    feedback is always prose."""
    max_error_messages: int = Field(8, ge=0)
    """Error messages about one answer of steps 1 to 3, or about one action in one pass of step 4, at most; then it is
    accepted with its flaws."""
    max_validations: int = Field(8, ge=1)
    """Validations of the problem, those after feedback included; then it is accepted with its flaws."""
    feedback: FeedbackSource = "model"
    """Who criticises each step's answer, once: the model itself, a person, or nobody."""
    passes: int = Field(2, ge=1)
    """How often step 4 goes through all actions; from the second pass on with all predicates of the pass before."""
    planner_feedback: int = Field(0, ge=0)
    """How often a model without a plan goes back to steps 4 and 5 with what stands in its way; the paper never does."""

    grows: bool = False
    """Step 5 may use words that the domain lacks: steps 1 to 4 then add them, and the problems of that domain are
    written again (not in the paper)."""

    @model_validator(mode="after")
    def _bare_is_plain(self) -> Self:
        if self.prompts == "bare" and self.answers == "json":
            raise ValueError("prompts=bare tells of no JSON: set answers=markdown")
        return self
