"""Prompts that ask for the PDDL of a problem in words, or for its plan, and what they are answered with.

NL-PDDL-Bench tells what its prompts say (arXiv 2606.29700, sec. 3.4 and app. C.2) and does not print them: these are in
our own words. They ask for exactly one ``(define (problem ...) ...)`` and nothing else; what comes is read loosely, by
`formalisation_reader`, and plans by `loose_plans`. Not here: what feedback says, and object names
(`plansmith.problems.renaming`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from plansmith.config.domains import Phrases
from plansmith.config.formalisation import FormalisationConfig, FormalRendering
from plansmith.pddl.model import Domain, PlanStep, Problem, literals_of, typed_text
from plansmith.pddl.printer import print_domain, print_problem, print_schema
from plansmith.text.baselines import PLAN_FORM
from plansmith.text.natural_language_reader import read_problem_text
from plansmith.text.statements import numbered_answer, numbered_text

PDDL = "pddl"
"""What stands in a compact prompt before the answer."""

CONTRACT = (
    "Answer with exactly one PDDL problem, which begins with (define (problem, and with nothing else: no explanation, "
    "no comment, no code fence."
)
REQUEST = (
    "Write the planning problem that the text describes as a PDDL problem of the domain. Declare every object of the "
    "text with a type of the domain, and give each predicate as many arguments as the domain does, of its types. "
    "Leave out nothing that the text says, and add nothing. "
)
PLAN_REQUEST = (
    "Find a plan for the task that the text describes: a sequence of actions of the domain that leads from the "
    f"situation of the text to what it wants. Answer with the plan alone, {PLAN_FORM}, and with nothing else: no "
    "explanation, no comment, no code fence."
)
REPAIR_REQUEST = (
    "Mend the PDDL problem. Change as little as possible: keep whatever the feedback does not concern, and keep to "
    "what the text says. "
)


def formalisation_prompt(domain: Domain, text: str, config: FormalisationConfig) -> str:
    """Return the prompt that asks for the PDDL of a problem in words."""
    return _prompt(domain, text, config, request=f"{REQUEST}{CONTRACT}", mark=PDDL)


def plan_prompt(domain: Domain, text: str, config: FormalisationConfig) -> str:
    """Return the prompt that asks for the plan of a problem in words, in the words that ask for its PDDL otherwise.

    The paper's table 2 has models that plan directly and does not print what they were asked.
    """
    return _prompt(domain, text, config, request=PLAN_REQUEST, mark="plan")


def _prompt(domain: Domain, text: str, config: FormalisationConfig, *, request: str, mark: str) -> str:
    said = _domain_text(domain, config.detail)
    if config.rendering == "compact":
        return f"domain: {said}\n{numbered_text(text, mark)}"
    return f"{request}\n\nDomain: {said}\n\nText:\n{text.strip()}\n"


def repair_prompt(prompt: str, answer: str, feedback: str, config: FormalisationConfig) -> str:
    """Return the prompt that hands an answer back with what is wrong with it, to be changed as little as possible.

    Args:
        prompt: of the answer, by `formalisation_prompt`.
        answer: the problem found in it, or the answer as it came where none was found.
        feedback: what validator or planner say of it.
        config: of the prompt.
    """
    if config.rendering == "compact":
        without_comments = re.sub(";.*", "", answer.strip())  # the lines stay, which feedback may name
        return f"{prompt}{without_comments}\nfeedback:\n{feedback.strip()}\nmended pddl:\n"
    parts = (prompt, f"Your last answer:\n{answer.strip()}\n", f"Feedback:\n{feedback.strip()}\n")
    return "\n".join([*parts, f"{REPAIR_REQUEST}{CONTRACT}\n"])


def domain_summary(domain: Domain) -> str:
    """Return what problems of a domain are made of, with arities and types, a line for each kind of names.

    Types, constants, basic and derived predicates, functions, and the actions without what they need and change.
    """
    derived = {rule.predicate for rule in domain.derived}
    schemas = [(schema.name in derived, print_schema(schema.name, schema.parameters)) for schema in domain.predicates]
    kinds = {
        "Types": typed_text(domain.types),
        "Constants": typed_text(domain.constants),
        "Predicates": " ".join(text for is_derived, text in schemas if not is_derived),
        "Derived predicates": " ".join(text for is_derived, text in schemas if is_derived),
        "Functions": " ".join(print_schema(schema.name, schema.parameters) for schema in domain.functions),
        "Actions": " ".join(print_schema(action.name, action.parameters) for action in domain.actions),
    }
    return "\n".join([domain.name, *(f"{kind}: {names}" for kind, names in kinds.items() if names)])


def formal_answer(
    domain: Domain, phrases: Phrases, problem: Problem, text: str, *, rendering: FormalRendering = "full"
) -> str:
    """Return the PDDL that a text is to be answered with: facts in its order, and a name that is always the same.

    So the answer is a function of the text; `problem`, which the text was written of, has facts in an order that a
    layout by predicate does not keep.

    Raises:
        BadInputError: the text cannot be read; see `read_problem_text`.
        RuntimeError: it reads as another problem than the one it was written of.
    """
    read = read_problem_text(domain, phrases, text)
    if _contents(read) != _contents(problem):
        raise RuntimeError(f"a text reads as another problem than it was written of:\n{text}\n{print_problem(problem)}")
    return rendered(print_problem(read), read, text, rendering)


def rendered(pddl: str, problem: Problem, text: str, rendering: FormalRendering) -> str:
    """Return PDDL as an answer to a text has it: the compact rendering repeats in comments what it writes.

    Args:
        pddl: `problem` printed, or with a mistake.
        problem: in the order of the text.
        text: that says it.
        rendering: of the answer.
    """
    return numbered_answer(pddl, problem, text, PDDL) if rendering == "compact" else pddl


def plan_answer(plan: Iterable[PlanStep]) -> str:
    """Return what a prompt of `plan_prompt` is answered with: ``(fly p a b)``, one action a line."""
    return "".join(f"{step}\n" for step in plan)


def _domain_text(domain: Domain, detail: str) -> str:
    if detail == "pddl":
        return f"{domain.name}\n{print_domain(domain).rstrip()}"
    return domain_summary(domain) if detail == "summary" else domain.name


def _contents(problem: Problem) -> tuple[object, ...]:
    """Return all of a problem but its names and the order of its parts."""
    parts = (problem.objects, problem.init, literals_of(problem.goal), problem.function_values)
    return (*map(frozenset, parts), problem.metric)
