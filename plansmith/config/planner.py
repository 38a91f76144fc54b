"""Settings of a planner: search and limits; the same for every planner."""

from __future__ import annotations

import re
from typing import Self

from pydantic import Field, field_validator, model_validator

from plansmith.config.basics import StrictModel

SEARCH_ALIASES = {
    "optimal": "astar(lmcut())",
    "first": "let(hff,eval_modify_costs(ff(),cost_type=one),lazy_greedy([hff],preferred=[hff],cost_type=one))",
    "lama-first": (
        "let(hlm,eval_modify_costs(landmark_sum(lm_reasonable_orders_hps(lm_rhw()),pref=false),cost_type=one),"
        "let(hff,eval_modify_costs(ff(),cost_type=one),"
        "lazy_greedy([hff,hlm],preferred=[hff,hlm],cost_type=one,reopen_closed=false)))"
    ),
    "good": (
        "let(hff,ff(),let(hlm,landmark_sum(lm_reasonable_orders_hps(lm_rhw()),pref=false),iterated(["
        "lazy_greedy([hff,hlm],preferred=[hff,hlm]),"
        + ",".join(f"lazy_wastar([hff,hlm],preferred=[hff,hlm],w={weight})" for weight in (5, 3, 2, 1))
        + "])))"
    ),
}
"""Short names for searches: a cheapest plan; any plan, soon; the first iteration of LAMA, with landmarks; ever better
plans until the last search ends (LAMA)."""

OPTIMAL_SEARCH = re.compile(r"astar\((lmcut|blind|ipdb)\(\)\)")
"""Searches known here to return cheapest plans only; any other is taken as not optimal."""


class PlannerConfig(StrictModel):
    """One planner configuration."""

    name: str = "fast-downward"
    """fast-downward, or up:ENGINE for an engine of unified-planning."""
    search: str = "optimal"
    """first, lama-first, good, optimal, or any search string of Fast Downward, such as ``astar(lmcut())``; other
    planners have their own and take no notice."""
    time_limit_s: float = Field(30.0, gt=0, le=1e6)
    """CPU seconds for translation plus search."""
    kill_after_s: float = Field(40.0, gt=0, le=2e6)
    """Wall-clock seconds after which the whole process group is killed; must exceed ``time_limit_s``."""
    memory_limit_mib: int = Field(2048, ge=64, le=2**30)
    """Address space of each process of the planner."""
    tie_break_states: int = Field(0, ge=0)
    """Where a plan is optimal, search so many states for the plan of its length that reaches its goals latest, so that
    equal situations are solved equally; 0 keeps the planner's plan."""

    n_plans: int = Field(1, ge=1)
    """Different plans wanted of each problem, of Fast Downward; the first is found as the settings above say, the
    others by whichever searches find any, each within the same limits."""

    @field_validator("search")
    @classmethod
    def _is_known(cls, search: str) -> str:
        if "(" not in search and search not in SEARCH_ALIASES:
            raise ValueError(f"unknown search '{search}', expected {', '.join(SEARCH_ALIASES)}, or NAME(...)")
        return search

    @model_validator(mode="after")
    def _limits_fit(self) -> Self:
        if self.kill_after_s <= self.time_limit_s:
            raise ValueError(f"kill_after_s={self.kill_after_s} must exceed time_limit_s={self.time_limit_s}")
        if self.n_plans > 1 and self.name != "fast-downward":
            raise ValueError(f"n_plans={self.n_plans} needs name=fast-downward, got name={self.name}")
        return self

    @property
    def search_string(self) -> str:
        """Return the search as Fast Downward reads it."""
        return "".join(SEARCH_ALIASES.get(self.search, self.search).split())

    @property
    def is_optimal(self) -> bool:
        """Return whether a plan of this search is known to be a cheapest one."""
        return OPTIMAL_SEARCH.fullmatch(self.search_string) is not None
