"""Whether two problems of one domain mean the same, told with a map of their objects or with what differs.

*Identical* are problems that say the same of the same names, in any order. *Equivalent* are two that a one-to-one map
of their objects, types kept and constants fixed, makes identical; or whose initial states alone such a map makes
equal, while under it both goals hold in the same states that can be reached, as a planner proves. Goals that cannot
be reached hold in the same states: none.

An object without facts counts: a quantifier, or an action that asks nothing of it, may take it. So do the values of
functions, and costs that do not begin at 0. No problem, however symmetric or large, is searched beyond a budget; what
is not decided by then is *undecided*.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from plansmith.errors import BadInputError
from plansmith.pddl.differences import Difference, goal_differences, problem_differences
from plansmith.pddl.goal_agreement import MappedStates, ObjectMap, goal_agreement
from plansmith.pddl.goal_proofs import AskPlanner
from plansmith.pddl.model import Condition, Domain, Problem, conjuncts_of
from plansmith.pddl.normal_form import normal_condition, normal_problem
from plansmith.pddl.pairing import OutOfBudget, Pairing, Side
from plansmith.pddl.structure import goal_fact, kinds_of, state_facts


class Outcome(StrEnum):
    """What a comparison came to."""

    IDENTICAL = "identical"
    EQUIVALENT = "equivalent"
    DIFFERENT = "different"
    """Proven: no map makes the initial states equal and the goals agree."""
    UNDECIDED = "undecided"

    @property
    def is_same(self) -> bool:
        """Return whether the problems are known to mean the same."""
        return self in (Outcome.IDENTICAL, Outcome.EQUIVALENT)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The outcome with what is known beside it.

    `object_map` holds the object of the second problem for each of the first, constants left out; for problems that
    are not the same it is there where it makes the initial states equal. `differences` are then those of the goals
    under it, else those of the texts. `is_proven` is True where goals in other words agree because a planner proved
    it.
    """

    outcome: Outcome
    reason: str
    object_map: ObjectMap | None = None
    differences: tuple[Difference, ...] = ()
    is_proven: bool = False

    @property
    def is_same(self) -> bool:
        """Return whether the problems are known to mean the same."""
        return self.outcome.is_same


def compare_problems(domain: Domain, first: Problem, second: Problem, *, ask: AskPlanner | None = None) -> Comparison:
    """Return whether two problems of a domain mean the same.

    Args:
        domain: the domain of both.
        first: a problem as the parser gives it.
        second: another one.
        ask: a planner; without one, goals in other words under equal initial states stay undecided.

    Raises:
        BadInputError: a problem names another domain, or the quantifiers of a goal have too many instances.
    """
    for which, problem in (("first", first), ("second", second)):
        if problem.domain_name != domain.name:
            raise BadInputError(
                "a problem of another domain", where=f"the {which} problem, {problem.name}", got=problem.domain_name,
                expected=domain.name, cure="correct its :domain, or compare problems of one domain",
            )  # fmt: skip
    return _Compared(domain, normal_problem(first), normal_problem(second)).comparison(ask)


class _Compared:
    """Two problems in normal form."""

    def __init__(self, domain: Domain, first: Problem, second: Problem) -> None:
        self.domain, self.problems = domain, (first, second)
        self.goals = (conjuncts_of(first.goal), conjuncts_of(second.goal))
        self.states = (_state_of(domain, first), _state_of(domain, second))
        self.own_names = {typed.name: typed.name for typed in first.objects}

    def comparison(self, ask: AskPlanner | None) -> Comparison:
        """Return the outcome, cheap questions first."""
        has_equal_states = self.states[0] == self.states[1]
        if has_equal_states and set(self.goals[0]) == set(self.goals[1]):
            return Comparison(Outcome.IDENTICAL, "the same names, facts and goals", self.own_names)
        pairing = Pairing(*self.states)
        if not pairing.is_possible:
            return self._other_states()
        if (whole := self._whole_map()) is not None:
            return Comparison(Outcome.EQUIVALENT, "the same under other names", self._of_objects(whole))
        try:
            found = self.own_names if has_equal_states else next(pairing.maps(), None)
        except OutOfBudget:
            reason = "too many ways to map the objects: no map of the initial states was found, nor that there is none"
            return Comparison(Outcome.UNDECIDED, reason, differences=problem_differences(*self.problems))
        if found is None:
            return self._other_states()
        return self._with_mapped_states(pairing, self._of_objects(found), ask)

    def _whole_map(self) -> ObjectMap | None:
        """Return a map that makes the problems identical, their goals too; None if there is none or none was found."""
        first, second = (
            state.with_facts(map(goal_fact, goal)) for state, goal in zip(self.states, self.goals, strict=True)
        )
        try:
            return next(Pairing(first, second).maps(), None)
        except OutOfBudget:
            return None

    def _of_objects(self, found: ObjectMap) -> ObjectMap:
        return {name: found[name] for name in self.own_names}

    def _other_states(self) -> Comparison:
        reason = "objects, initial states or costs differ under every map of the objects"
        return Comparison(Outcome.DIFFERENT, reason, differences=problem_differences(*self.problems))

    def _with_mapped_states(self, pairing: Pairing, found: ObjectMap, ask: AskPlanner | None) -> Comparison:
        if ask is None:
            reason = "equal initial states, goals in other words, and no planner to ask"
            return Comparison(Outcome.UNDECIDED, reason, found, self._differences_in_words(found))
        agreement = goal_agreement(MappedStates(self.domain, self.problems, self.states, pairing, found), ask)
        outcomes = {True: Outcome.EQUIVALENT, False: Outcome.DIFFERENT, None: Outcome.UNDECIDED}
        return Comparison(
            outcomes[agreement.is_same],
            agreement.reason,
            self._of_objects(agreement.object_map),
            agreement.differences,
            is_proven=agreement.is_same is True,
        )

    def _differences_in_words(self, found: ObjectMap) -> tuple[Difference, ...]:
        first, second = self.goals
        images: dict[Condition, Condition] = {part: normal_condition(part.substitute(found)) for part in first}
        lost = [part for part, image in images.items() if image not in second]
        return goal_differences(lost, [part for part in second if part not in images.values()])


def _state_of(domain: Domain, problem: Problem) -> Side:
    return Side(kinds_of(domain, problem), frozenset(state_facts(problem)))
