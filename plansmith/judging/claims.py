"""Which words of a chain are false: every claim about a state, held against the state that the chain claims to be in.

Judged are the state that a chain says it starts from (but for what no action changes, which it need not tell), goal
marks, what goals should wait for (as `plansmith.pddl.goal_orders` has it), what a reason says is there or lacking, what
else could have been done or would have failed (`plansmith.text.branches`), precondition checks, and what an action adds
and deletes. Not judged, because no state decides it: which condition a reason names (whether anybody
needs it is an opinion), and what a reason leaves out, which depends on the action that its writer had in mind; nor a
support that is more than a literal, which no faithful writer tells. Not here: actions and next states (`chains`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from plansmith.pddl.goal_orders import GoalOrders
from plansmith.pddl.ground_actions import GroundAction, MalformedStep
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import EQUALITY, Condition, Literal
from plansmith.text.branches import NOWHERE, Passed, why_false
from plansmith.text.chains import Claim, Part, Span


@dataclass(frozen=True, slots=True)
class FalseClaim:
    """A claim that is false, the words at fault (of a wrong mark only the mark), and why."""

    claim: Claim
    span: Span
    reason: str


def false_claims(
    task: PlanningTask,
    claims: Sequence[Claim],
    state: int,
    action: GroundAction | MalformedStep | None = None,
    passed: Passed = NOWHERE,
) -> tuple[FalseClaim, ...]:
    """Return the claims that are false, in the order of the text; of several about the same words the first.

    Args:
        task: domain and problem.
        claims: of one step, or of the closing goal check.
        state: the state that the chain claims to be in.
        action: of the step; what is said of one that does not exist is not judged.
        passed: where the chain claims to have been.
    """
    truth = _Truth(task, state, action if isinstance(action, GroundAction) else None, passed)
    told: set[tuple[Part, Condition | None, Condition | None]] = set()
    found: dict[Span, FalseClaim] = {}
    for claim in claims:
        known = truth.list_of(claim)
        left_out = [condition for condition in known if (claim.part, condition, claim.wanted) not in told]
        name = claim.part, claim.condition, claim.wanted
        is_repeated = claim.part is Part.ORDER and claim.condition is not None and name in told
        reason = f"{claim.condition} is told twice" if is_repeated else truth.against(claim, left_out)
        told.add(name)
        if reason:
            is_known = claim.condition in known or (claim.part is Part.SUPPORT and truth.is_known(claim.condition))
            span = claim.mark if claim.mark and is_known else claim.span
            found.setdefault(span, FalseClaim(claim, span, reason))
    return tuple(sorted(found.values(), key=lambda false: false.span.start))


_INVENTED = {
    Part.START: "does not hold at the start",
    Part.GOALS: "is no goal",
    Part.PRECONDITIONS: "is no precondition",
    Part.ADDED: "is not added",
    Part.DELETED: "is not deleted",
}


@dataclass(frozen=True)
class _Truth:
    """What is true in a state, and of an action there."""

    task: PlanningTask
    state: int
    action: GroundAction | None
    passed: Passed

    @cached_property
    def lists(self) -> Mapping[Part, Mapping[Condition, bool]]:
        """What belongs into each list that can be judged, with whether it holds."""
        task, state, action = self.task, self.state, self.action
        changeable = (atom for atom in task.problem.init if not task.is_static(atom.predicate))
        found: dict[Part, Mapping[Condition, bool]] = {
            Part.START: {Literal(atom): True for atom in changeable},
            Part.GOALS: {goal: task.holds(goal, state) for goal in task.goal},
        }
        if action is None:
            return found
        found[Part.PRECONDITIONS] = {one: task.holds(one, state) for one in action.preconditions}
        if action.is_applicable(state):
            there = action.resolved(state)
            found[Part.ADDED] = {Literal(atom): True for atom in there.add_effects}
            found[Part.DELETED] = {Literal(atom): True for atom in there.delete_effects if state & task.bit(atom)}
        return found

    @cached_property
    def _always(self) -> frozenset[Condition]:
        """The facts that no action changes."""
        return frozenset(map(Literal, self.task.problem.init)) - {*self.lists[Part.START]}

    @cached_property
    def order(self) -> Mapping[Condition, Mapping[Condition, bool]]:
        """What belongs into the order: open goals and those that will have to be undone, with what they wait for."""
        before = GoalOrders.of(self.task).before(self.state)
        return {goal: dict.fromkeys(before.get(goal, ()), True) for goal, is_met in self.lists[Part.GOALS].items()
                if goal in before or not is_met}  # fmt: skip

    def list_of(self, claim: Claim) -> Mapping[Condition, bool]:
        """Return what belongs into the list that a claim is of, with whether it holds, or is ready."""
        if claim.part is not Part.ORDER:
            return self.lists.get(claim.part, {})
        if claim.wanted is not None:
            return self.order.get(claim.wanted, {})
        return {goal: not waited_for for goal, waited_for in self.order.items()}

    def against(self, claim: Claim, left_out: Sequence[Condition]) -> str:
        """Return why a claim is false, nothing if it is not; ``left_out`` is what its list does not tell."""
        if claim.part is Part.UNREAD:
            return f"a reason cannot be read: {claim.fault}"
        if claim.branch is not None:
            return why_false(
                self.task, claim.branch, self.state, self.action.step if self.action else None, self.passed
            )
        if claim.part is Part.SUPPORT:
            is_false = self._is_false(claim.condition)
            said = f"{claim.condition} {'does not hold' if claim.is_true else 'holds'}"
            return said if is_false == claim.is_true else ""
        if claim.part is Part.APPLICABLE:
            return self._against_applicable(claim.is_true)
        known = self.list_of(claim)
        if claim.part is Part.START and claim.condition in self._always:
            return ""
        if claim.part not in (*self.lists, Part.ORDER):
            return ""
        if claim.condition is None:
            return f"leaves out {' '.join(map(str, left_out))}" if left_out else ""
        if known.get(claim.condition) == claim.is_true:
            return ""
        if claim.part is Part.ORDER:
            return self._against_order(claim)
        if claim.condition not in known:
            return f"{claim.condition} {_INVENTED[claim.part]}"
        return f"{claim.condition} {'does not hold' if claim.is_true else 'holds'}"

    def _against_order(self, claim: Claim) -> str:
        if claim.wanted is not None:
            return f"{claim.wanted} does not wait for {claim.condition}"
        waited_for = " ".join(map(str, self.order.get(claim.condition, ()))) if claim.condition else ""
        return f"{claim.condition} {f'should wait for {waited_for}' if waited_for else 'has nothing to wait for'}"

    def _against_applicable(self, is_said_to_be: bool) -> str:
        if self.action is None or self.action.is_applicable(self.state) == is_said_to_be:
            return ""
        return f"{self.action.step} can{'not' if is_said_to_be else ''} be applied"

    def is_known(self, condition: Condition | None) -> bool:
        """Return whether a condition is a literal that names nothing but what the problem has."""
        if not isinstance(condition, Literal):
            return False
        atom, task = condition.atom, self.task
        schema = task.domain.predicate(atom.predicate)
        arity = 2 if atom.predicate == EQUALITY else -1 if schema is None else len(schema.parameters)
        return len(atom.arguments) == arity and all(name in task.objects for name in atom.arguments)

    def _is_false(self, condition: Condition | None) -> bool:
        """Return whether a literal is false; one that names what the problem does not have is."""
        if not isinstance(condition, Literal):
            return False
        return not self.is_known(condition) or not self.task.holds(condition, self.state)
