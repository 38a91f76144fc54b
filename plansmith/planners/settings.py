"""What a planner is told before it starts: search and limits; the same for every planner."""

from __future__ import annotations

import re
from dataclasses import dataclass

from plansmith.errors import ConfigError

SEARCH_ALIASES = {
    "optimal": "astar(lmcut())",
    "first": "let(hff,eval_modify_costs(ff(),cost_type=one),lazy_greedy([hff],preferred=[hff],cost_type=one))",
    "good": (
        "let(hff,ff(),let(hlm,landmark_sum(lm_reasonable_orders_hps(lm_rhw()),pref=false),iterated(["
        "lazy_greedy([hff,hlm],preferred=[hff,hlm]),"
        + ",".join(f"lazy_wastar([hff,hlm],preferred=[hff,hlm],w={weight})" for weight in (5, 3, 2, 1))
        + "])))"
    ),
}
"""Short names for searches: a cheapest plan; any plan, soon; ever better plans until the last search ends (LAMA)."""

OPTIMAL_SEARCH = re.compile(r"astar\((lmcut|blind|ipdb)\(\)\)")
"""Searches known here to return cheapest plans only; any other is taken as not optimal."""

MIN_MEMORY_MIB = 64


@dataclass(frozen=True, slots=True)
class PlannerSettings:
    """One configuration of a planner.

    Attributes:
        search: a name of `SEARCH_ALIASES` or a Fast Downward search, such as ``astar(lmcut())``; other planners have
            their own and take no notice.
        time_limit_s: CPU seconds for translation plus search.
        kill_after_s: wall-clock seconds after which the whole process group is killed; must exceed ``time_limit_s``.
        memory_limit_mib: address space of each process of the planner.
    """

    search: str = "optimal"
    time_limit_s: float = 30.0
    kill_after_s: float = 40.0
    memory_limit_mib: int = 2048

    def __post_init__(self) -> None:
        if "(" not in self.search and self.search not in SEARCH_ALIASES:
            known = ", ".join(SEARCH_ALIASES)
            raise ConfigError("unknown search", where="search", got=self.search, expected=f"{known}, or NAME(...)")
        if not 0 < self.time_limit_s < self.kill_after_s:
            got = f"time_limit_s={self.time_limit_s}, kill_after_s={self.kill_after_s}"
            raise ConfigError("limits do not fit", got=got, expected="0 < time_limit_s < kill_after_s")
        if self.memory_limit_mib < MIN_MEMORY_MIB:
            expected = f"at least {MIN_MEMORY_MIB}"
            raise ConfigError("too small", where="memory_limit_mib", got=f"{self.memory_limit_mib}", expected=expected)

    @property
    def search_string(self) -> str:
        """Return the search as Fast Downward reads it."""
        return "".join(SEARCH_ALIASES.get(self.search, self.search).split())

    @property
    def is_optimal(self) -> bool:
        """Return whether a plan of this search is known to be a cheapest one."""
        return OPTIMAL_SEARCH.fullmatch(self.search_string) is not None
