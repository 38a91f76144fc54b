"""What a problem is worth that was written for a text: can it be read, has it a plan, does it mean what the text says.

Source: NL-PDDL-Bench, sections 3.4, C.2 and C.3. Its loop sees the feedback alone; what needs the reference (meaning,
agreement, the plan's worth) only measures. Unlike the paper's, a problem with a plan is not taken for a right one:
`Judgement.is_flattered`. Facts and objects are sorted before a planner sees them, in both problems alike, since plans
depend on their order.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from plansmith.config.formalisation import Checks
from plansmith.errors import BadInputError, PddlParseError
from plansmith.judging.agreement import atom_similarity, plans_agree
from plansmith.pddl.diagnosis import diagnose
from plansmith.pddl.equivalence import Comparison, Outcome, compare_problems
from plansmith.pddl.goal_proofs import AskPlanner
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import (
    ConditionalEffect,
    Conjunction,
    CostIncrease,
    Domain,
    Effect,
    PlanStep,
    Problem,
    UniversalEffect,
    conjuncts_of,
)
from plansmith.pddl.parser import parse_problem, parse_step
from plansmith.pddl.printer import print_domain, print_problem
from plansmith.pddl.validation import validate_plan
from plansmith.planners import PlannerResult, PlannerStatus
from plansmith.problems.renaming import rename_plan
from plansmith.text.coverage import coverage_faults
from plansmith.text.formalisation_reader import read_answer

TOLD_FAULTS = 5
"""Errors that feedback tells, the first ones: the others often follow from them."""
WORSE_FROM = 1.2
"""A plan that is longer by more than this factor is worse."""

Solve = Callable[[str, str], PlannerResult]
"""What a planner says of a domain and a problem in PDDL."""


class Readability(StrEnum):
    """How far an answer can be read."""

    NO_PROBLEM = "no_problem"
    UNPARSEABLE = "unparseable"
    PARSED = "parsed"


@dataclass(frozen=True, slots=True)
class Reference:
    """The problem that a text was written of, with the plan that the planner finds for it once it is sorted."""

    problem: Problem
    plan: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Judgement:
    """What an answer is worth.

    ``codes`` are those of the errors found, each once. ``feedback`` tells what is to be mended, empty where there is a
    plan and no name to speak of. What compares with the reference is None without one; ``has_task_success``: the plan
    solves the reference too, with its objects renamed as ``comparison`` maps them.
    """

    readability: Readability
    problem_pddl: str
    keeps_contract: bool
    codes: tuple[str, ...] = ()
    feedback: str = ""
    status: PlannerStatus | None = None
    plan: tuple[str, ...] = ()
    atom_similarity: float | None = None
    is_consistent: bool | None = None
    comparison: Comparison | None = None
    has_task_success: bool | None = None

    @property
    def is_solved(self) -> bool:
        """Return whether there is a plan for what was written."""
        return self.status is PlannerStatus.SOLVED

    @property
    def is_flattered(self) -> bool:
        """Return whether there is a plan, and the problem is known to mean another thing or not known to mean this."""
        return self.is_solved and self.comparison is not None and not self.comparison.is_same


class FormalisationJudge:
    """Judges answers to texts about problems of one domain.

    Args:
        domain: theirs.
        solve: a planner, for their plans.
        ask: the same or another one, for what goals imply; None leaves goals in other words undecided.
        checks: what feedback tells.
    """

    def __init__(
        self, domain: Domain, solve: Solve, ask: AskPlanner | None = None, *, checks: Checks = "planner"
    ) -> None:
        self._checks: Checks = checks
        self._domain, self._domain_pddl, self._solve, self._ask = domain, print_domain(domain), solve, ask

    def judge(self, completion: str, reference: Reference | None = None, *, text: str | None = None) -> Judgement:
        """Return what an answer is worth; whatever it holds, it is never bad input.

        Args:
            completion: the answer.
            reference: to compare with; None measures without.
            text: what was to be said in PDDL; None leaves names unchecked.
        """
        answer = read_answer(completion)
        if answer.problem_pddl is None:
            feedback = "There is no PDDL problem in the answer: one begins with (define (problem"
            return _unread(Judgement(Readability.NO_PROBLEM, "", False, feedback=feedback), reference)
        written, keeps_contract = answer.problem_pddl, answer.keeps_contract
        errors = [found for found in diagnose(self._domain_pddl, written) if found.is_error]
        if errors:
            codes, feedback = tuple(dict.fromkeys(str(found.code) for found in errors)), _listed(map(str, errors))
            return _unread(Judgement(Readability.UNPARSEABLE, written, keeps_contract, codes, feedback), reference)
        problem = replace(parse_problem(written, self._domain), domain_name=self._domain.name)
        result = solve_sorted(self._domain, problem, self._solve)
        said = [] if result.plan is not None else [self._unsolved(problem, result)]
        if self._checks == "coverage" and text is not None:
            said += itertools.islice(coverage_faults(problem, self._domain, text), TOLD_FAULTS)
        judgement = Judgement(
            Readability.PARSED, written, keeps_contract, (), "\n".join(said), result.status, result.plan or ()
        )
        return judgement if reference is None else self._compared(judgement, problem, reference)

    def _unsolved(self, problem: Problem, result: PlannerResult) -> str:
        """Return why there is no plan, as far as one knows; without runtimes, which differ from run to run."""
        said = f"The planner says: {result.status.value.replace('_', ' ')}."
        warnings = diagnose(self._domain_pddl, print_problem(problem), has_reachability=True)
        return "\n".join([said, _listed(f"{found.message}\n  to mend it: {found.repair}" for found in warnings)])

    def _compared(self, judgement: Judgement, problem: Problem, reference: Reference) -> Judgement:
        try:
            comparison = compare_problems(self._domain, problem, reference.problem, ask=self._ask)
        except BadInputError as error:  # a condition of more instances than can be looked at
            comparison = Comparison(Outcome.UNDECIDED, str(error))
        plan = [parse_step(step) for step in judgement.plan]
        return replace(
            judgement,
            atom_similarity=atom_similarity(problem, reference.problem),
            is_consistent=judgement.is_solved and plans_agree(judgement.plan, reference.plan),
            comparison=comparison,
            has_task_success=judgement.is_solved and self._solves(plan, comparison.object_map or {}, reference),
        )

    def _solves(self, plan: Sequence[PlanStep], names: Mapping[str, str], reference: Reference) -> bool:
        return validate_plan(PlanningTask(self._domain, reference.problem), rename_plan(plan, names)).is_valid


def _unread(judgement: Judgement, reference: Reference | None) -> Judgement:
    """Return what an answer without a problem that can be read is worth beside a reference."""
    if reference is None:
        return judgement
    return replace(judgement, atom_similarity=0.0, is_consistent=False, has_task_success=False)


def _listed(faults: Iterable[str]) -> str:
    return "\n".join(itertools.islice(faults, TOLD_FAULTS))


def solve_sorted(domain: Domain, problem: Problem, solve: Solve) -> PlannerResult:
    """Return what a planner says of a problem whose objects, facts and goals are sorted, costs left out.

    Unit costs are the paper's convention (C.1). A problem that the planner refuses is one that it does not support.
    """
    try:
        return solve(print_domain(_without_costs(domain)), print_problem(sorted_problem(problem)))
    except PddlParseError as error:
        return PlannerResult(PlannerStatus.UNSUPPORTED, None, None, 0.0, message=str(error))


def _without_costs(domain: Domain) -> Domain:
    """Return a domain whose actions cost nothing of their own: a text need not give every value that they do."""
    actions = (replace(action, effects=tuple(_free(action.effects))) for action in domain.actions)
    return replace(domain, actions=tuple(actions))


def _free(effects: Iterable[Effect]) -> Iterator[Effect]:
    for effect in effects:
        if isinstance(effect, ConditionalEffect | UniversalEffect):
            if inner := tuple(_free(effect.effects)):
                yield replace(effect, effects=inner)
        elif not isinstance(effect, CostIncrease):
            yield effect


def sorted_problem(problem: Problem) -> Problem:
    """Return a problem with its objects, facts and goals sorted, without costs."""
    return replace(
        problem,
        objects=tuple(sorted(problem.objects, key=str)),
        init=tuple(sorted(problem.init)),
        goal=Conjunction(tuple(sorted(conjuncts_of(problem.goal), key=str))),
        metric=None,
        function_values=(),
    )


class Fault(StrEnum):
    """What is wrong with a problem that was written, the gravest first."""

    UNPARSEABLE = "unparseable"
    UNSOLVABLE = "unsolvable"
    """Proven: there is no plan."""
    WORSE = "worse"
    """Its plan is longer by more than a fifth, and by more than one step; the bound is ours, the paper gives none."""
    UNFAITHFUL = "unfaithful"
    """It has a plan about as long, and means another thing. The paper's pairs leave these out."""


def fault_of(judgement: Judgement, reference: Reference) -> Fault | None:
    """Return what is proved wrong with an answer; None where nothing is, because it is right or because nobody knows.

    Nobody knows where the planner reached a limit, or the meaning is undecided.
    """
    if judgement.readability is not Readability.PARSED:
        return Fault.UNPARSEABLE
    if judgement.status is PlannerStatus.UNSOLVABLE:
        return Fault.UNSOLVABLE
    if judgement.comparison is None or judgement.comparison.outcome is not Outcome.DIFFERENT or not judgement.is_solved:
        return None
    n_steps, n_reference = len(judgement.plan), len(reference.plan)
    return Fault.WORSE if n_steps > max(WORSE_FROM * n_reference, n_reference + 1) else Fault.UNFAITHFUL
