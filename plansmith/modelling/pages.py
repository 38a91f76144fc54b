"""A page of one task of NL2Plan, as Markdown: its text, what was made of it, its plans, and every call."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from plansmith.data.rows import ModelledVerdictRow, ModellingCallRow, ModellingTaskRow


def task_page(
    row: ModellingTaskRow,
    calls: Sequence[ModellingCallRow],
    products: Mapping[str, str],
    verdicts: Sequence[ModelledVerdictRow],
) -> str:
    """Return the page; what a model wrote stands in fences that it cannot close."""
    return "\n\n".join(_parts(row, calls, products, verdicts)) + "\n"


def _parts(
    row: ModellingTaskRow,
    calls: Sequence[ModellingCallRow],
    products: Mapping[str, str],
    verdicts: Sequence[ModelledVerdictRow],
) -> Iterator[str]:
    yield f"# {row.task}"
    yield row.text.strip()
    for verdict in verdicts:
        yield f"## Plan ({verdict.arm})"
        yield f"{verdict.status}; {'right' if verdict.is_right else 'not shown to be right'}" + (
            f", confirmed by {verdict.confirmed}" if verdict.confirmed else ""
        )
        if verdict.plan:
            yield fenced("\n".join(verdict.plan))
        if verdict.proposal:
            yield "A proposal that nobody has confirmed:"
            yield fenced(verdict.proposal)
    for name, text in sorted(products.items()):
        yield f"## {name}"
        yield fenced(text)
    yield "## Every call"
    for number, call in enumerate(calls, 1):
        what = " ".join(filter(None, (call.step, call.subject, call.kind)))
        yield f"### {number}. {what}"
        for role, text in json.loads(call.messages):
            yield f"{role}:"
            yield fenced(text)
        yield f"answer ({call.model}, {call.finish_reason}):"
        yield fenced(call.answer)


def fenced(text: str) -> str:
    """Return a text in a fence longer than any row of backticks in it."""
    longest, run = 2, 0
    for character in text:
        run = run + 1 if character == "`" else 0
        longest = max(longest, run)
    fence = "`" * (longest + 1)
    return f"{fence}text\n{text.rstrip()}\n{fence}"
