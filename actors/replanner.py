"""Worker that finds how attempts go on better: from where they are still good, and before their first needless step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf

from actors.planner import PlannerActor
from plansmith.config.planner import PlannerConfig
from plansmith.data.held_out import HeldOut
from plansmith.data.rows import AttemptRow, ContinuationRow, PlanRow, ProblemRow, ReplannedRow
from plansmith.judging.detours import steps_before_detour
from plansmith.pddl.canonical import canonical_form
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.parser import parse_step
from plansmith.pddl.printer import print_problem
from plansmith.pddl.validation import validate_plan


class Replanner:
    """Plans on from states that attempts reach. A plain class, see `actors.planner.PlannerActor`.

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
        places = ({} if row.is_valid else {row.n_sound: None}) | dict.fromkeys(_before_detour(row, ahead))
        continuations = (ahead.continuation(kept) for kept in places)
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
        if self.attempt.is_valid and kept == self.attempt.n_sound:
            return 0.0
        cost = self.plan(kept).cost
        return inf if cost is None else cost

    def continuation(self, kept: int) -> ContinuationRow | None:
        """Return the attempt as it goes on from there; None without a plan, or with one that must not be learnt."""
        found = self.plan(kept)
        if found.status != "solved" or found.held_out_after is not None:
            return None
        return ContinuationRow(self.attempt.rollout_id, self.attempt.problem.problem_id, kept, found.plan)

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


def _before_detour(row: AttemptRow, ahead: _Ahead) -> list[int]:
    """Return after how many steps the first needless one comes; nothing without one, or where no optimum is proved.

    A chain with a step that it withdraws is not asked: which of its steps are the plan's is another count.
    """
    if row.optimum is None or len(row.plan) != row.n_sound:
        return []
    kept = steps_before_detour(ahead.task, ahead.steps, row.optimum, ahead.cost)
    return [] if kept is None or not all(plan.is_optimal for plan in ahead.plans.values()) else [kept]
