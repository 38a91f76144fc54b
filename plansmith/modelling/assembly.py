"""A domain and a problem in PDDL from what the steps have made, and from which line of an answer each line comes.

Fragments stand on lines of their own, as they were written, comments included. Not here: whether the result has a
meaning (`checks` before, `plansmith.pddl.diagnosis` after).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from plansmith.modelling.products import DomainSketch, Predicate, ProblemSketch, Schema, TypeTree
from plansmith.modelling.reading import Fragment
from plansmith.pddl.diagnosis import used_features
from plansmith.pddl.diagnostics import Place
from plansmith.pddl.model import OBJECT
from plansmith.pddl.parser import read_domain

PAPER_REQUIREMENTS = (
    ":strips", ":typing", ":equality", ":negative-preconditions", ":disjunctive-preconditions",
    ":universal-preconditions", ":conditional-effects",
)  # fmt: skip
"""What the paper's domains require, whatever they use (figures A14 and A15)."""
DOMAIN_NAME = "modelled"
PROBLEM_NAME = "task"

_LINES = re.compile(r"\b(lines?) (\d+(?:, \d+)*)")
_WRAPPED = re.compile(r"^\s*\(\s*(:init|:goal|and)(?![^\s()])", re.IGNORECASE)


@dataclass
class Assembly:
    """A text put together of parts, which knows where each line of it comes from."""

    lines: list[str] = field(default_factory=list)
    origins: list[tuple[str, int]] = field(default_factory=list)

    def add(self, text: str, part: str = "", line: int = 0) -> None:
        """Append lines.

        Args:
            text: of them.
            part: what they are.
            line: of the answer, of the first of them; 0 where they are of no answer.
        """
        for offset, own in enumerate(text.split("\n")):
            self.lines.append(own)
            self.origins.append((part, line + offset if line else 0))

    def add_fragment(self, fragment: Fragment, part: str) -> None:
        """Append a fragment of an answer."""
        self.add(fragment.text, part, fragment.line)

    def origin(self, place: Place) -> tuple[str, int]:
        """Return the part that a place of the text is in, and the line of the answer, 0 where it is of no answer."""
        return self.origins[min(place.line, len(self.origins)) - 1]

    def in_answer(self, message: str) -> str:
        """Return a message about the text with the lines of the answer; lines that are of no answer are left out."""

        def told(found: re.Match[str]) -> str:
            lines = [self.origins[min(int(own), len(self.origins)) - 1][1] for own in re.findall(r"\d+", found[2])]
            shown = ", ".join(str(line) for line in lines if line)
            return f"{found[1]} {shown}" if shown else "this answer"

        return _LINES.sub(told, message)

    @property
    def text(self) -> str:
        """Return the whole text."""
        return "\n".join(self.lines) + "\n"


def unwrapped(fragment: Fragment, *, keywords: Iterable[str] = (":init", "and")) -> Fragment:
    """Return a list of atoms without the one list around them that models like to write; no place moves."""
    found = _WRAPPED.match(fragment.text)
    end = fragment.text.rfind(")")
    if not found or found[1].lower() not in keywords or end < found.end():
        return fragment
    text = fragment.text
    blank = re.sub(r"[^\n]", " ", text[: found.end()])
    return Fragment(f"{blank}{text[found.end() : end]} {text[end + 1 :]}", fragment.line)


def type_lines(tree: TypeTree) -> list[str]:
    """Return the declarations of a tree, one a line."""
    return [f"    {node.name} - {node.parent}{_comment(node.comment)}" for node in tree.in_order()]


def _comment(text: str) -> str:
    return f" ; {' '.join(text.split())}" if text.strip() else ""


def predicate_lines(predicates: Iterable[Predicate]) -> list[str]:
    """Return the declarations of predicates, one a line."""
    return [f"    {predicate.declaration}{_comment(predicate.comment)}" for predicate in predicates]


def schema_text(schema: Schema) -> str:
    """Return an action as it stands in a domain."""
    parameters = "\n".join(f"      {own.pddl}{_comment(own.comment)}" for own in schema.parameters)
    return (
        f"  (:action {schema.name}\n    :parameters (\n{parameters}\n    )\n"
        f"    :precondition\n{_indented(schema.precondition or '(and)')}\n"
        f"    :effect\n{_indented(schema.effect or '(and)')}\n  )"
    )


def _indented(text: str) -> str:
    return "\n".join(f"      {line.rstrip()}" for line in text.split("\n") if line.strip())


def domain_pddl(sketch: DomainSketch, *, name: str = DOMAIN_NAME, requirements: Iterable[str] | None = None) -> str:
    """Return the domain of what steps 1 to 4 have made.

    Args:
        sketch: it.
        name: of the domain.
        requirements: None computes them, with which we differ from the paper, whose list is always the same.
    """
    flags = PAPER_REQUIREMENTS if requirements is None else tuple(requirements)
    text = _domain_text(sketch, name, flags)
    return text if requirements is not None else _domain_text(sketch, name, needed_requirements(text))


def needed_requirements(domain_text: str) -> tuple[str, ...]:
    """Return `:strips`, `:typing` and what else a domain uses, as far as it can be read."""
    used = {flag for flag, _ in used_features(read_domain(domain_text).value)}
    return (":strips", ":typing", *sorted(used - {":strips", ":typing"}))


def _domain_text(sketch: DomainSketch, name: str, flags: Iterable[str]) -> str:
    lines = [f"(define (domain {name})", f"  (:requirements {' '.join(flags)})"]
    lines += [
        "  (:types",
        *type_lines(sketch.tree),
        "  )",
        "  (:predicates",
        *predicate_lines(sketch.predicates),
        "  )",
    ]
    return "\n".join([*lines, *map(schema_text, sketch.schemas), ")"]) + "\n"


def problem_pddl(problem: ProblemSketch, *, name: str = PROBLEM_NAME, domain_name: str = DOMAIN_NAME) -> str:
    """Return the problem of step 5."""
    init = unwrapped(Fragment(problem.init, 1)).text
    goal = unwrapped(Fragment(problem.goal, 1), keywords=(":goal",)).text.strip()  # one that is lacking is no goal
    objects = "\n".join(f"    {own.pddl if own.type else f'{own.name} - {OBJECT}'}{_comment(own.comment)}"
                        for own in problem.objects)  # fmt: skip
    return (
        f"(define (problem {name})\n  (:domain {domain_name})\n  (:objects\n{objects}\n  )\n"
        f"  (:init\n{_indented(init)}\n  )\n  (:goal\n{_indented(goal)}\n  )\n)\n"
    )
