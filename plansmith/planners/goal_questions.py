"""Fast Downward as the planner that `plansmith.pddl.goal_proofs` asks whether goals can be reached."""

from __future__ import annotations

from plansmith.errors import PddlParseError, PlannerCrashError
from plansmith.pddl.goal_proofs import AskPlanner, NoPlan
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import (
    ActionSchema,
    Condition,
    ConditionalEffect,
    Domain,
    Effect,
    Literal,
    PlanStep,
    Problem,
    UniversalEffect,
    conjuncts_of,
)
from plansmith.pddl.parser import parse_step
from plansmith.pddl.printer import print_domain, print_problem
from plansmith.planners.fast_downward import FastDownward
from plansmith.planners.judging import judged_result
from plansmith.planners.result import PlannerStatus

FINDING = (
    "let(hff,ff(),let(hlm,landmark_sum(lm_reasonable_orders_hps(lm_rhw()),pref=false),"
    "lazy_greedy([hff,hlm],preferred=[hff,hlm])))"
)
"""The first search of LAMA: it soon finds a plan, or that there is none."""

PROVING = "astar(blind())"
"""A search that takes no state for a dead end. It has the last word where effects have conditions, and where Fast
Downward makes axioms, of rules and of conditions that are no conjunctions of literals: the heuristics of the other
promise nothing about dead ends then."""


def goal_questions(planner: FastDownward, domain: Domain) -> AskPlanner:
    """Return how the planner answers about problems of a domain, within its limits for each."""
    domain_pddl = print_domain(domain)
    is_plain_domain = not domain.derived and all(map(_is_plain_action, domain.actions))

    def ask(problem: Problem) -> tuple[PlanStep, ...] | NoPlan:
        task, problem_pddl = PlanningTask(domain, problem), print_problem(problem)
        searches = [FINDING] if is_plain_domain and _is_plain(problem.goal) else [FINDING, PROVING]
        for search in searches:
            settings = planner.settings.model_copy(update={"search": search})
            try:
                result = judged_result(task, planner.solve_with(settings, domain_pddl, problem_pddl))
            except (PddlParseError, PlannerCrashError):  # not what was asked, but the planner, failed
                return NoPlan.UNKNOWN
            if result.plan is not None:
                return tuple(map(parse_step, result.plan))
            if result.status not in (PlannerStatus.UNSOLVABLE, PlannerStatus.GAVE_UP):
                return NoPlan.UNKNOWN
        return NoPlan.PROVEN if result.status is PlannerStatus.UNSOLVABLE else NoPlan.UNKNOWN

    return ask


def _is_plain(condition: Condition) -> bool:
    return all(isinstance(part, Literal) for part in conjuncts_of(condition))


def _is_plain_action(schema: ActionSchema) -> bool:
    return _is_plain(schema.precondition) and not any(map(_has_condition, schema.effects))


def _has_condition(effect: Effect) -> bool:
    if isinstance(effect, UniversalEffect):
        return any(map(_has_condition, effect.effects))
    return isinstance(effect, ConditionalEffect)
