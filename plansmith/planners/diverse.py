"""Several different plans for one problem, from several searches of Fast Downward.

Two plans are different when their actions are: an order that could be another one makes no new plan. Not here: plans
ranked by quality, as top-k planners give them; these are simply not the same.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator

from plansmith.config.planner import PlannerConfig
from plansmith.errors import PlannerCrashError
from plansmith.pddl.grounding import PlanningTask
from plansmith.planners.fast_downward import FastDownward
from plansmith.planners.judging import judged_result
from plansmith.planners.result import PlannerResult, PlannerStatus

SEARCHES = (
    "optimal",
    "first",
    "lazy_greedy([ff()])",
    "eager_greedy([cea()])",
    "eager_greedy([cg()])",
    "eager_greedy([add()])",
    "lazy_wastar([ff()],w=3)",
    "eager_greedy([goalcount()])",
)
"""Tried first, in this order; those that miss a feature of the problem, or their time, are passed over."""

RANDOM_SEARCHES = (
    "lazy_greedy([ff()],randomize_successors=true,random_seed={seed})",
    "eager(alt([single(ff()),type_based([ff(),g()],random_seed={seed})]))",
    "lazy(alt([epsilon_greedy(ff(),epsilon=0.3,random_seed={seed})]),randomize_successors=true,random_seed={seed})",
    "lazy_greedy([goalcount()],randomize_successors=true,random_seed={seed})",
    "lazy(alt([single(cea()),type_based([cea(),g()],random_seed={seed})]),randomize_successors=true,random_seed={seed})",
    "lazy(type_based([g()],random_seed={seed}),randomize_successors=true,random_seed={seed})",
)
"""Tried in turn with ever new seeds, for as long as plans are missing; one that finds no plan is not tried again."""

RANDOM_ROUNDS_PER_PLAN = 2

MAX_KNOWN_AGAIN = 12
"""So many searches in a row that give a plan already known end the randomised ones: there may be no other plan."""

Search = Callable[[PlannerConfig], PlannerResult]
"""One search of an opened problem."""

logger = logging.getLogger(__name__)


def diverse_plans(
    planner: FastDownward, domain_pddl: str, problem_pddl: str, *, k: int, seed: int = 0
) -> list[PlannerResult]:
    """Return up to `k` solved results with different valid plans, the first searches' first.

    Equal seeds give equal plans, unless a search ends at its time limit in one run and before it in another. A problem
    that is proven unsolvable, or that no search of `SEARCHES` solves, gives none.

    Args:
        planner: a warm one; its limits hold for each search, its own search is not used.
        domain_pddl: the domain.
        problem_pddl: the problem.
        k: plans wanted; fewer come back when all searches have been tried.
        seed: of the randomised searches.

    Raises:
        PddlParseError: the domain or the problem cannot be read.
    """
    task = PlanningTask.from_text(domain_pddl, problem_pddl)
    found: dict[tuple[str, ...], PlannerResult] = {}
    useless: set[str] = set()
    n_known_again = 0
    with planner.opened(domain_pddl, problem_pddl) as opened:
        for pattern, search in searches_for(k, seed):
            if len(found) >= k or (pattern in RANDOM_SEARCHES and (not found or n_known_again >= MAX_KNOWN_AGAIN)):
                break
            if pattern in useless:
                continue
            result = judged_result(task, _search_result(opened, planner.settings, search))
            if result.status is PlannerStatus.UNSOLVABLE:
                break
            if result.plan is None:
                logger.debug("search %s: %s %s", search, result.status, result.message)
                useless.add(pattern)
                continue
            plan = tuple(sorted(result.plan))
            n_known_again = n_known_again + 1 if plan in found else 0
            found.setdefault(plan, result)
    return list(found.values())[:k]


def searches_for(k: int, seed: int) -> Iterator[tuple[str, str]]:
    """Yield the searches to be tried for `k` plans, in order, each after the pattern that it was made from."""
    yield from ((search, search) for search in SEARCHES)
    rng = random.Random(seed)
    for _ in range(k * RANDOM_ROUNDS_PER_PLAN):
        yield from ((pattern, pattern.format(seed=rng.randrange(2**31))) for pattern in RANDOM_SEARCHES)


def _search_result(opened: Search, limits: PlannerConfig, search: str) -> PlannerResult:
    """Return the outcome of one search; one that ends in no known way is a crash of its own, the others go on."""
    try:
        return opened(limits.model_copy(update={"search": search}))
    except PlannerCrashError as error:
        return PlannerResult(PlannerStatus.CRASHED, None, None, 0.0, message=str(error))
