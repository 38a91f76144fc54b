"""Ray actor that solves problems with Fast Downward; which problems, and where it is placed, the pipeline decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from plansmith.data.rows import PlanRow
from plansmith.data.tables import columns_of_rows
from plansmith.errors import PlansmithError
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.parser import parse_step
from plansmith.planners import FastDownward, PlannerResult, PlannerSettings
from plansmith.planners.tie_breaking import first_plan_of_length


class PlannerActor:
    """Solves problems; holds no state worth saving, so a restart loses nothing.

    A plain class: give it to `actors.mapping.map_rows`, to Ray Data's ``map_batches`` or to ``ray.remote``. The
    planner's processes end with the Ray worker, however that ends.
    """

    def __init__(self, settings: PlannerSettings | None = None, *, tie_break_states: int = 0) -> None:
        """Start the planner.

        Args:
            settings: of Fast Downward.
            tie_break_states: how far to search for the first plan as short as an optimal one, see
                `plansmith.planners.tie_breaking`; 0 keeps the planner's plan.
        """
        self._planner = FastDownward(settings)
        self._tie_break_states = tie_break_states

    def solve(self, domain_pddl: str, problem_pddl: str) -> PlannerResult:
        """Return the outcome of one problem."""
        return self._planner.solve(domain_pddl, problem_pddl)

    def __call__(self, batch: Mapping[str, Sequence[str]]) -> dict[str, list[Any]]:
        """Return the columns of `PlanRow` for a batch with ``problem_id``, ``domain_pddl`` and ``problem_pddl``.

        Raises:
            PlansmithError: bad input, with the problem's id in front of where it is.
        """
        ids, domains, problems = (batch[name] for name in ("problem_id", "domain_pddl", "problem_pddl"))
        rows = [self._plan_row(*(str(text) for text in entry)) for entry in zip(ids, domains, problems, strict=True)]
        return columns_of_rows(rows, PlanRow) | {"plan": [list(row.plan) for row in rows]}

    def _plan_row(self, problem_id: str, domain_pddl: str, problem_pddl: str) -> PlanRow:
        try:
            result = self._planner.solve(domain_pddl, problem_pddl)
        except PlansmithError as error:
            error.where = f"problem {problem_id}, {error.where}" if error.where else f"problem {problem_id}"
            raise
        return PlanRow(
            problem_id=problem_id,
            planner=f"fast-downward {self._planner.settings.search}",
            status=result.status.value,
            plan=self._chosen_plan(domain_pddl, problem_pddl, result),
            cost=result.cost,
            wall_time_s=result.wall_time_s,
            is_optimal=result.is_optimal,
        )

    def _chosen_plan(self, domain_pddl: str, problem_pddl: str, result: PlannerResult) -> tuple[str, ...]:
        plan = result.plan or ()
        if not self._tie_break_states or not result.is_optimal or result.cost != len(plan):
            return plan
        task = PlanningTask.from_text(domain_pddl, problem_pddl)
        steps = [parse_step(step) for step in plan]
        return tuple(map(str, first_plan_of_length(task, steps, max_states=self._tie_break_states)))

    def close(self) -> None:
        """End the planner's processes."""
        self._planner.close()
