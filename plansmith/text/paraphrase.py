"""Prompts rephrased by a model: what asks for it, and what of an answer is believed.

Source: Self-CriTeach, section 5.3 and appendix A.3.2, which have the base model rephrase the setting of a problem in
training prompts and say nothing of checks; the request is in our own words. Domain and problem, with their states,
goals and names, must stand in the answer as they were, up to white space, and no other fact or step may be told.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from plansmith.text.formalisation_reader import read_answer

REQUEST = (
    "Rephrase the text between the marks, so that it asks for the same in other words, and may be told in another "
    "order. Keep the PDDL of domain and problem exactly as it is: every name, every fact, the goal. Add no fact and no "
    "hint. Put the new text between <PROMPT> and </PROMPT>, and write nothing else."
)
_ANSWER = re.compile(r"<PROMPT>((?:(?!<PROMPT>).)*?)</PROMPT>", re.DOTALL)
_NAME = re.compile(r"\(\s*(?::action\s+)?([^\s()]+)")
"""The predicate of a fact, or the action of a step or of a schema."""


class ParaphraseFault(StrEnum):
    """Why a paraphrase is not believed."""

    NO_ANSWER = "no_answer"
    """There is nothing between the marks."""
    CHANGED = "changed"
    """Domain or problem is not as it was."""
    ADDED = "added"
    """A fact or a step is told beside them."""
    SAME = "same"
    """It is the prompt as it was."""


@dataclass(frozen=True, slots=True)
class Paraphrase:
    """A rephrased prompt, or why it is refused."""

    prompt: str
    fault: ParaphraseFault | None = None


def paraphrase_prompt(prompt: str) -> str:
    """Return the prompt that asks to rephrase another."""
    return f"{REQUEST}\n\n<PROMPT>\n{prompt.strip()}\n</PROMPT>\n"


def read_paraphrase(completion: str, prompt: str) -> Paraphrase:
    """Return the last paraphrase of an answer, checked against the prompt that it is of.

    Raises:
        ValueError: the prompt holds no PDDL of a domain and a problem.
    """
    found = _ANSWER.findall(completion)
    text = found[-1].strip() if found else ""
    if not text:
        return Paraphrase("", ParaphraseFault.NO_ANSWER)
    parts = [_pddl(prompt, kind) for kind in ("domain", "problem")]
    rest, names = _without(text, parts), {name for part in parts for name in _names(part)}
    if rest is None:
        return Paraphrase(text, ParaphraseFault.CHANGED)
    if names & _names(rest):
        return Paraphrase(text, ParaphraseFault.ADDED)
    if _words(text) == _words(prompt):
        return Paraphrase(text, ParaphraseFault.SAME)
    return Paraphrase(f"{text}\n")


def _names(text: str) -> set[str]:
    return set(_NAME.findall(text.lower()))


def _pddl(prompt: str, kind: str) -> str:
    """Return a domain or a problem as it stands in a prompt.

    Raises:
        ValueError: there is none.
    """
    found = read_answer(prompt, kind=kind).problem_pddl
    if found is None:
        raise ValueError(f"a prompt without a {kind} cannot be rephrased")
    return _words(found)


def _without(text: str, parts: Iterable[str]) -> str | None:
    """Return the words of a text that are not of these parts; None where it lacks one of them."""
    rest = _words(text)
    for part in parts:
        before, is_there, after = rest.partition(part)
        if not is_there:
            return None
        rest = f"{before} {after}"
    return rest


def _words(text: str) -> str:
    return " ".join(text.split())
