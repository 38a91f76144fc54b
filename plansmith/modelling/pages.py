"""A page of one task of NL2Plan, as Markdown: its text, then of each arm its plan, what it has made, and every call."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from plansmith.data.rows import ModelledVerdictRow, ModellingCallRow, ModellingStepRow, ModellingTaskRow
from plansmith.modelling.products import NL2PLAN

PAGES = "pages"
"""The folder in which they lie, beside the verdicts."""


@dataclass(frozen=True, slots=True)
class ArmOfTask:
    """What one arm came to with a task.

    Attributes:
        verdict: on its plan.
        message: of the planner, or why the PDDL cannot be read.
        steps: what is to be said of the answers that were accepted.
        products: what they have left, by file.
        calls: every question with its answer.
    """

    verdict: ModelledVerdictRow
    message: str = ""
    steps: Sequence[ModellingStepRow] = ()
    products: Mapping[str, str] = field(default_factory=dict)
    calls: Sequence[ModellingCallRow] = ()


def task_page(row: ModellingTaskRow, arms: Sequence[ArmOfTask]) -> str:
    """Return the page, the steps of NL2Plan first; what a model wrote stands in fences that it cannot close."""
    parts = [f"# {row.task}", row.text.strip()]
    for arm in sorted(arms, key=lambda own: own.verdict.arm != NL2PLAN):
        parts += [*([] if arm.verdict.arm == NL2PLAN else [f"# {row.task}, {arm.verdict.arm}"]), *_parts(arm)]
    return "\n\n".join(parts) + "\n"


def _parts(arm: ArmOfTask) -> Iterator[str]:
    """Yield what there is to say of an arm; headings below which nothing would stand are left out."""
    verdict = arm.verdict
    yield f"## Plan ({verdict.arm})"
    yield f"{verdict.status}; {'right' if verdict.is_right else 'not shown to be right'}" + (
        f", confirmed by {verdict.confirmed}" if verdict.confirmed else ""
    )
    if verdict.plan:
        yield fenced("\n".join(verdict.plan))
    elif arm.message:
        yield fenced(arm.message)
    if verdict.proposal:
        yield "A proposal that nobody has confirmed:"
        yield fenced(verdict.proposal)
    if faults := [line for step in arm.steps if (line := _faults_of(step))]:
        yield f"## Faults ({verdict.arm})"
        yield "\n".join(faults)
    for name, text in sorted(arm.products.items()):
        yield f"## {name} ({verdict.arm})"
        yield fenced(text)
    if arm.calls:
        yield f"## Every call ({verdict.arm})"
    for number, call in enumerate(arm.calls, 1):
        what = " ".join(filter(None, (call.step, call.subject, call.kind)))
        yield f"### {number}. {what}"
        for role, text in json.loads(call.messages):
            yield f"{role}:"
            yield fenced(text)
        yield f"answer ({call.model}, {call.finish_reason}):"
        yield fenced(call.answer)


def _faults_of(step: ModellingStepRow) -> str:
    """Return how often an answer was sent back and with which faults it was accepted, empty where neither was."""
    sent = f"error messages: {step.n_messages}" if step.n_messages else ""
    flaws = f"accepted with {', '.join(step.faults)}" if step.faults else ""
    said = "; ".join(filter(None, (sent, flaws)))
    return f"- {' '.join(filter(None, (step.step, step.subject)))}: {said}" if said else ""


def fenced(text: str) -> str:
    """Return a text in a fence longer than any row of backticks in it."""
    longest, run = 2, 0
    for character in text:
        run = run + 1 if character == "`" else 0
        longest = max(longest, run)
    fence = "`" * (longest + 1)
    return f"{fence}text\n{text.rstrip()}\n{fence}"
