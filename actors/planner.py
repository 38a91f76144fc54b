"""Ray actors that plan: problems, those of a part file, what is left of attempts. Which ones, the pipeline decides."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path

from plansmith.config.planner import PlannerConfig
from plansmith.data.held_out import MEASURING, HeldOut
from plansmith.data.parts import Stopwatch, write_part
from plansmith.data.rows import (
    AlternativePlan,
    AttemptRow,
    ContinuationRow,
    PartJobRow,
    PartTimeRow,
    PlanRow,
    ProblemRow,
    ReplannedRow,
)
from plansmith.data.tables import read_table
from plansmith.errors import PlannerCrashError, PlansmithError
from plansmith.judging.detours import steps_before_detour
from plansmith.pddl.canonical import canonical_form
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.parser import parse_step
from plansmith.pddl.printer import print_problem
from plansmith.pddl.validation import validate_plan
from plansmith.planners import FastDownward, PlannerResult, PlannerStatus, diverse_plans, make_planner
from plansmith.planners.tie_breaking import plan_with_late_goals

logger = logging.getLogger(__name__)

REFUSED = "refused"
"""Status of a plan that is not valid for our validator: one of planner and validator is wrong."""


class PlannerActor:
    """Solves problems; holds no state worth saving, so a restart loses nothing.

    A plain class: give it to `actors.mapping.map_rows` or to ``ray.remote``. The planner's processes end with the Ray
    worker, however that ends.

    Args:
        config: of the planner, which is started.
        held_out: what plans to learn from must not pass; which do is noted in their rows.
    """

    def __init__(self, config: PlannerConfig, held_out: HeldOut = HeldOut()) -> None:  # noqa: B008 - frozen
        self._planner, self._held_out = make_planner(config), held_out
        self._tie_break_states, self._n_plans = config.tie_break_states, config.n_plans

    def __call__(self, problems: Sequence[ProblemRow]) -> list[PlanRow]:
        """Return what became of each problem.

        A planner that crashes over one problem leaves a row that says so, and a line in the log; the others go on.

        Raises:
            PlansmithError: bad input, with the problem's id in front of where it is; or a plan that is not valid for
                our validator, which is no outcome of a problem.
        """
        rows = self.solve(problems)
        for problem, row in zip(problems, rows, strict=True):
            if _is_refused(problem, row):
                raise PlansmithError(
                    "the planner's plan is not valid for our validator",
                    where=row.problem_id,
                    got=" ".join(row.plan),
                    cure="report this: one of the two is wrong",
                )
        return [self._noted(problem, row) for problem, row in zip(problems, rows, strict=True)]

    def _noted(self, problem: ProblemRow, row: PlanRow) -> PlanRow:
        """Return the row with what its plan passes, and without the alternatives that pass any such problem."""
        if problem.split in MEASURING or not row.plan:
            return row
        task = PlanningTask.from_text(problem.domain_pddl, problem.problem_pddl)
        alternatives = tuple(item for item in row.alternatives if self._held_out_after(task, item.plan) is None)
        return replace(row, alternatives=alternatives, held_out_after=self._held_out_after(task, row.plan))

    def _held_out_after(self, task: PlanningTask, plan: Sequence[str]) -> int | None:
        states = validate_plan(task, [parse_step(step) for step in plan]).states[:-1]
        return self._held_out.first_met(task, map(task.atoms_of, states))

    def solve(self, problems: Sequence[ProblemRow]) -> list[PlanRow]:
        """Return what the planner says of each problem; nobody has looked at the plans. Raises for bad input."""
        return [self._plan_row(row.problem_id, row.domain_pddl, row.problem_pddl) for row in problems]

    def _plan_row(self, problem_id: str, domain_pddl: str, problem_pddl: str) -> PlanRow:
        try:
            result = self._planner.solve(domain_pddl, problem_pddl)
        except PlannerCrashError as error:
            result = PlannerResult(PlannerStatus.CRASHED, None, None, 0.0, message=str(error))
        except PlansmithError as error:
            error.where = f"problem {problem_id}, {error.where}" if error.where else f"problem {problem_id}"
            raise
        if result.status is PlannerStatus.CRASHED:
            logger.warning("problem %s: the planner crashed: %s", problem_id, result.message)
        plan = self._chosen_plan(domain_pddl, problem_pddl, result)
        return PlanRow(
            problem_id=problem_id,
            planner=self._planner.name,
            status=result.status.value,
            plan=plan,
            cost=result.cost,
            wall_time_s=result.wall_time_s,
            is_optimal=result.is_optimal,
            alternatives=self._alternatives(domain_pddl, problem_pddl, plan),
        )

    def _alternatives(self, domain_pddl: str, problem_pddl: str, plan: tuple[str, ...]) -> tuple[AlternativePlan, ...]:
        """Return further plans, none where only one is wanted; the seed of their searches is the same everywhere."""
        if not plan or self._n_plans == 1 or not isinstance(self._planner, FastDownward):
            return ()
        found = diverse_plans(self._planner, domain_pddl, problem_pddl, k=self._n_plans)
        others = [item for item in found if sorted(item.plan or ()) != sorted(plan)]
        return tuple(AlternativePlan(item.plan or (), item.cost) for item in others[: self._n_plans - 1])

    def _chosen_plan(self, domain_pddl: str, problem_pddl: str, result: PlannerResult) -> tuple[str, ...]:
        plan = result.plan or ()
        if not self._tie_break_states or not result.is_optimal or result.cost != len(plan):
            return plan
        task = PlanningTask.from_text(domain_pddl, problem_pddl)
        steps = [parse_step(step) for step in plan]
        found = plan_with_late_goals(task, steps, max_states=self._tie_break_states)
        # as many steps need not cost as much: the planner's may each cost 1, and others more
        return tuple(map(str, found)) if validate_plan(task, found).cost == result.cost else plan

    def close(self) -> None:
        """End the planner's processes."""
        self._planner.close()


class PartPlanner:
    """Solves the rows of a part and writes their plans, each judged by our validator before it is kept."""

    def __init__(self, config: PlannerConfig) -> None:
        self._planner = PlannerActor(config)

    def __call__(self, jobs: Sequence[PartJobRow]) -> list[PartTimeRow]:
        """Return where the time of each job went."""
        return [row for job in jobs for row in self._solve(job)]

    def _solve(self, job: PartJobRow) -> list[PartTimeRow]:
        clock = Stopwatch()
        problems = read_table(Path(job.problems), ProblemRow)
        chosen = [problems[number] for number in job.rows]
        with clock.measuring("planning"):
            plans = self._planner.solve(chosen)
        with clock.measuring("validating"):
            plans = [_kept(problem, plan) for problem, plan in zip(chosen, plans, strict=True)]
        with clock.measuring("writing files"):
            write_part(Path(job.plans[0]), plans, PlanRow)
        return clock.rows(job.job_id)


def _is_refused(problem: ProblemRow, row: PlanRow) -> bool:
    """Return whether a row has a plan that is not valid for our validator."""
    if row.status != PlannerStatus.SOLVED:
        return False
    task = PlanningTask.from_text(problem.domain_pddl, problem.problem_pddl)
    return not validate_plan(task, [parse_step(step) for step in row.plan]).is_valid


def _kept(problem: ProblemRow, row: PlanRow) -> PlanRow:
    """Return the row as a dataset keeps it: a refused plan is none."""
    if _is_refused(problem, row):
        return replace(row, status=REFUSED, plan=(), cost=None, is_optimal=False)
    return row


class Replanner:
    """Plans on from states that attempts reach. A plain class, as `PlannerActor` is.

    Args:
        config: of the planner, which is started.
        held_out: a continuation that passes one of these is left out.
    """

    def __init__(self, config: PlannerConfig, held_out: HeldOut) -> None:
        self._planner = PlannerActor(config, held_out)

    def __call__(self, rows: Sequence[AttemptRow]) -> list[ReplannedRow]:
        """Return how each attempt goes on better, with the plans that were made to find it."""
        return [self._replanned(row) for row in rows]

    def _replanned(self, row: AttemptRow) -> ReplannedRow:
        ahead = _Ahead(row, self._planner)
        needed = _needed_steps(row, ahead)
        places = [] if row.is_whole else [row.n_sound]
        if needed is not None and needed < row.n_sound:
            places.append(needed)
        continuations = [ahead.continuation(kept, needed or 0) for kept in places]
        return ReplannedRow(
            row.rollout_id,
            tuple(ahead.plans[kept] for kept in sorted(ahead.plans)),
            tuple(continuation for continuation in continuations if continuation is not None),
        )


@dataclass
class _Ahead:
    """What is left of a problem after some sound steps of an attempt, planned when it is asked for."""

    attempt: AttemptRow
    planner: PlannerActor
    plans: dict[int, PlanRow] = field(default_factory=dict)

    def __post_init__(self) -> None:
        problem = self.attempt.problem
        self.task = PlanningTask.from_text(problem.domain_pddl, problem.problem_pddl)
        self.steps = [parse_step(step) for step in self.attempt.plan]

    def plan(self, kept: int) -> PlanRow:
        """Return the planner's answer from the state after so many steps of the chain."""
        if kept not in self.plans:
            (self.plans[kept],) = self.planner([self._problem(kept)])
        return self.plans[kept]

    def cost(self, kept: int) -> float:
        """Return what a plan from there costs; infinity where there is none."""
        if self.attempt.is_whole and kept == self.attempt.n_sound:
            return 0.0
        cost = self.plan(kept).cost
        return inf if cost is None else cost

    def continuation(self, kept: int, needed: int) -> ContinuationRow | None:
        """Return the attempt as it goes on from there; None without a plan, or with one that must not be learnt."""
        found = self.plan(kept)
        if found.status != "solved" or found.held_out_after is not None:
            return None
        return ContinuationRow(self.attempt.rollout_id, self.attempt.problem.problem_id, kept, needed, found.plan)

    def _problem(self, kept: int) -> ProblemRow:
        """Return what is left as a problem under a name of its own."""
        given, n_taken = self.attempt.problem, len(self.steps) if kept == self.attempt.n_sound else kept
        state = validate_plan(self.task, self.steps[:n_taken]).states[-1]
        ahead = replace(self.task.problem, init=self.task.atoms_of(state))
        return replace(
            given,
            problem_id=f"{self.attempt.rollout_id}-after-{kept:03d}",
            canonical_form=canonical_form(self.task.domain, ahead),
            problem_pddl=print_problem(ahead),
            source="rollout",
        )


def _needed_steps(row: AttemptRow, ahead: _Ahead) -> int | None:
    """Return with how many sound steps an optimal plan can begin; None where no optimum is proved.

    A chain with a step that it withdraws is not asked: which of its steps are the plan's is another count.
    """
    if row.optimum is None or len(row.plan) != row.n_sound:
        return None
    kept = steps_before_detour(ahead.task, ahead.steps, row.optimum, ahead.cost)
    if not all(plan.is_optimal for plan in ahead.plans.values()):
        return None
    return row.n_sound if kept is None else kept
