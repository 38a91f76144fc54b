"""Prompts that ask for a PDDL domain of demonstrations, or to mend one, and what they are answered with.

Self-CriTeach tells what its prompts say (sections 3.1 and A.1.2); these are in our own words. What they hold is what
was seen and said of a domain, never a reference schema. Not here: how faults are found
(`plansmith.judging.domain_checks`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from plansmith.pddl.model import Atom
from plansmith.pddl.printer import print_schema
from plansmith.problems.demonstrations import Attempt, Demonstrations
from plansmith.text.formalisation_reader import read_answer

REQUEST = (
    "Write the PDDL domain of this robot. Give every skill one action of the same name, whose parameters are the "
    "skill's arguments in their order, with a precondition that says when it works and effects that say what it "
    "changes. Use only predicates that are listed; many facts are of no importance. Write no types, and no "
    "requirements beyond :strips and :equality."
)
CONTRACT = "Answer with exactly one (define (domain ...) ...) and nothing else."
REPAIR_REQUEST = (
    "Mend the domain, so that none of this is true of it any more. Change as little as possible, and keep whatever is "
    "not concerned."
)


def domain_prompt(demonstrations: Demonstrations, *, most_attempts: int) -> str:
    """Return the prompt that asks for a domain.

    Args:
        demonstrations: U.
        most_attempts: shown of each skill, of those that succeeded and of those that were refused each.
    """
    parts = [_setting(demonstrations), "What was tried:", *_shown(demonstrations, most_attempts), "", REQUEST, CONTRACT]
    return "\n".join(parts) + "\n"


def repair_prompt(demonstrations: Demonstrations, domain_pddl: str, faults: Sequence[str]) -> str:
    """Return the prompt that hands a domain back with what is wrong with it."""
    listed = [f"{number}. {fault}" for number, fault in enumerate(faults, 1)]
    parts = [_setting(demonstrations), "The domain as it is:", domain_pddl.strip(), "", "What is wrong with it:"]
    return "\n".join([*parts, *listed, "", REPAIR_REQUEST, CONTRACT]) + "\n"


def read_domain(completion: str) -> str | None:
    """Return the domain in an answer as it stands there; None where there is none."""
    return read_answer(completion, kind="domain").problem_pddl


def _setting(demonstrations: Demonstrations) -> str:
    skills = " ".join(map(str, demonstrations.skills))
    predicates = " ".join(print_schema(schema.name, schema.parameters) for schema in demonstrations.predicates)
    return (
        f"Task: {demonstrations.task}\nName of the domain: {demonstrations.name}\n"
        f"Skills: {skills}\nPredicates that can be seen: {predicates}\n"
    )


def _shown(demonstrations: Demonstrations, most: int) -> Iterator[str]:
    """Yield so many attempts of each skill and outcome, with the facts about their objects."""
    counts: dict[tuple[str, bool], int] = {}
    for _, attempt in demonstrations.attempts:
        kind = (attempt.action.name, attempt.after is not None)
        counts[kind] = counts.get(kind, 0) + 1
        if counts[kind] <= most:
            yield _line(attempt)


def _line(attempt: Attempt) -> str:
    about = _facts(attempt.about(attempt.state))
    if attempt.after is None:
        return f"- {attempt.action} was refused. Before: {about}"
    added, gone = _facts(attempt.after - attempt.state), _facts(attempt.state - attempt.after)
    return f"- {attempt.action} worked. Before: {about}. New: {added}. No longer: {gone}"


def _facts(atoms: Iterable[Atom]) -> str:
    return " ".join(map(str, sorted(atoms))) or "nothing"
