"""Problems with an honest split: which set a problem belongs to is a property of its canonical form.

The form decides by a hash, so no order of drawing, number of workers or later enlargement can move a form from training
to test. Every set holds one problem per form. Not here: problems that are met on the way through another
(`plansmith.data.held_out`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from plansmith.data.rows import LeakRow, ProblemRow, Split
from plansmith.pddl.canonical import canonical_form
from plansmith.pddl.model import Domain, Problem
from plansmith.pddl.printer import print_domain, print_problem

LEAKS = "leaks"
"""Table of `LeakRow`, beside the problems."""


@dataclass(frozen=True, slots=True)
class SplitShares:
    """Share of all forms held out for testing, of the others that belong to D2, and of these for the probe set."""

    test: float
    phase2: float
    seed: int
    probe: float = 0.0


@dataclass(frozen=True, slots=True)
class DrawnProblem:
    """A problem with its canonical form."""

    problem: Problem
    form: str


def split_of_form(form: str, shares: SplitShares) -> Split:
    """Return the split that a canonical form belongs to; depends on the form and the seed alone."""
    digest = hashlib.sha256(f"{shares.seed} {form}".encode()).digest()
    of_test, of_phase2, of_probe = (int.from_bytes(digest[i : i + 8], "big") / 2**64 for i in (0, 8, 16))
    if of_test < shares.test:
        return Split.TEST
    if of_phase2 >= shares.phase2:
        return Split.PHASE1
    return Split.PROBE if of_probe < shares.probe else Split.PHASE2


def draw_problems(domain: Domain, problems: Iterable[Problem]) -> list[DrawnProblem]:
    """Return each problem with its form, those of the same text once."""
    seen: dict[str, Problem] = {print_problem(problem): problem for problem in problems}
    return [DrawnProblem(problem, canonical_form(domain, problem)) for problem in seen.values()]


def choose_problems(drawn: Iterable[DrawnProblem], shares: SplitShares, n_wanted: dict[Split, int]) -> dict[
    Split, list[DrawnProblem]]:  # fmt: skip
    """Return the chosen problems by split, at most as many as wanted; a shortfall is the caller's to report."""
    by_form: dict[Split, dict[str, DrawnProblem]] = {split: {} for split in Split}
    for item in drawn:
        by_form[split_of_form(item.form, shares)].setdefault(item.form, item)
    return {split: list(forms.values())[: n_wanted.get(split, 0)] for split, forms in by_form.items()}


def leak_of_texts(domain: Domain, drawn: Sequence[DrawnProblem], shares: SplitShares, *, level: str) -> LeakRow:
    """Return what would have leaked had the text of a problem, not its form, decided its split, at the same shares."""
    domain_text = print_domain(domain)
    split_of = [split_of_form(problem_id_of(domain_text, print_problem(item.problem)), shares) for item in drawn]
    is_test = [split is Split.TEST for split in split_of]
    learnt = {item.form for item, held_out in zip(drawn, is_test, strict=True) if not held_out}
    n_leaked = sum(held_out and item.form in learnt for item, held_out in zip(drawn, is_test, strict=True))
    forms = {item.form for item in drawn}
    return LeakRow(level, domain.name, len(drawn), len(forms), sum(is_test), n_leaked)


def problem_id_of(domain_pddl: str, problem_pddl: str) -> str:
    """Return the id of a problem, a hash of its texts."""
    return hashlib.sha256(f"{domain_pddl}\n{problem_pddl}".encode()).hexdigest()[:16]


def problem_row(domain: Domain, item: DrawnProblem, *, level: str, split: Split, source: str) -> ProblemRow:
    """Return the row of a chosen problem."""
    domain_text, problem_text = print_domain(domain), print_problem(item.problem)
    return ProblemRow(
        problem_id=problem_id_of(domain_text, problem_text),
        canonical_form=item.form,
        domain=domain.name,
        level=level,
        split=split,
        n_objects=len(item.problem.objects),
        domain_pddl=domain_text,
        problem_pddl=problem_text,
        source=source,
    )
