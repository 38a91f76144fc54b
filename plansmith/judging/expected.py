"""How a faithful writer would have gone on where a chain says its first false word."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from plansmith.judging.chains import JudgedChain, JudgedStep
from plansmith.judging.claims import FalseClaim
from plansmith.pddl.goal_orders import GoalOrders, achievers
from plansmith.pddl.ground_actions import GroundAction
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.matching import Index, index_of, matches, unified, variables_of
from plansmith.pddl.model import Atom, Binding, Literal, conjuncts_of
from plansmith.pddl.validation import FeedbackCode
from plansmith.text.chains import Claim, Part, basic_only, check_goals, true_step
from plansmith.text.rendering import Rendering


@dataclass(frozen=True, slots=True)
class Expected:
    """Words that a faithful writer tells in place of what a completion holds from character ``at`` on."""

    at: int
    words: str


def expected_words(task: PlanningTask, judged: JudgedChain, rendering: Rendering) -> Expected | None:
    """Return how the list, or the outcome, that holds the first false word goes on in truth; None where nobody knows.

    That is: after a false goal mark the rest of the check, for a false order all of it, after a false support the rest
    of that list, and for anything else the outcome of the action, which may be that it cannot be applied. Nobody knows
    how a reason that cannot be read would go on, which branches a writer would have told, how somebody came to believe
    in another start, what a support should be that no single action calls for, and what follows an action that does not
    exist. A chain that misses the goal and says so has no false word.

    Raises:
        BadInputError: the rendering has no words for a condition.
    """
    if judged.first_fault is None:
        return None
    step, spans = judged.steps[judged.first_fault], judged.read.spans[judged.first_fault]
    is_last = all(later.judgement.code is FeedbackCode.WITHDRAWN for later in judged.steps[judged.first_fault + 1 :])
    for claims, false_ones, atoms in (
        (spans.claims, step.false_claims, step.s_prev),
        (judged.read.closing, judged.closing if is_last else (), step.s_claimed),
    ):
        false = next((one for one in false_ones if one.span == step.fault_span), None)
        if false is None:
            continue
        if false.claim.part is Part.GOALS:
            return _goals(task, claims, false, atoms, rendering)
        if false.claim.part is Part.ORDER:
            return _order(task, claims, false, atoms, rendering)
        if false.claim.part is Part.SUPPORT:
            return _support(task, claims, false, atoms, rendering)
        if false.claim.part in (Part.START, Part.UNREAD, Part.BRANCH):
            return None
    return _outcome(task, step, spans.outcome.start, rendering)


def _outcome(task: PlanningTask, step: JudgedStep, at: int, rendering: Rendering) -> Expected | None:
    action = task.ground(step.action)
    if not isinstance(action, GroundAction) or step.judgement.code is FeedbackCode.GOAL:
        return None
    true = true_step(task, step.s_prev, action, total_before=step.total_before)
    return Expected(at, rendering.write_outcome(true))


def _goals(
    task: PlanningTask, claims: Sequence[Claim], false: FalseClaim, atoms: Sequence[Atom], rendering: Rendering
) -> Expected | None:
    """Return the goal whose mark is false with the true one, and then the goals that are still to be told."""
    told = {one.condition for one in claims if one.part is Part.GOALS and one.span.start < false.claim.span.start}
    marks = check_goals(task, basic_only(task, atoms), GoalOrders.of(task))
    before = [mark for mark in marks if mark.condition in told]
    rest = [mark for mark in marks if mark.condition not in told]
    rest.sort(key=lambda mark: mark.condition != false.claim.condition)
    if not rest:
        return None
    words = rendering.write_goals([*before, *rest], len(before))
    return Expected(false.claim.span.start, words if false.claim.condition is None else words.lstrip(" -"))


def _order(
    task: PlanningTask, claims: Sequence[Claim], false: FalseClaim, atoms: Sequence[Atom], rendering: Rendering
) -> Expected | None:
    """Return the order of what is open, from its first word on; None where there is none to be told."""
    ends = (one for one in claims if one.part is Part.ORDER and one.condition is one.wanted is None)
    begins = next((one.mark for one in ends if one.span.start >= false.span.start), None)
    marks = check_goals(task, basic_only(task, atoms), GoalOrders.of(task))
    words = rendering.write_goals(marks, len(marks))
    return Expected(begins.start, words) if begins and words else None


def _support(
    task: PlanningTask, claims: Sequence[Claim], false: FalseClaim, atoms: Sequence[Atom], rendering: Rendering
) -> Expected | None:
    """Return what is there of what is wanted, from the false literal on, if that is clear."""
    claim, state = false.claim, task.state_of(basic_only(task, atoms))
    before = [one for one in claims if one.part is Part.SUPPORT and one.span.start < claim.span.start]
    told = [one.condition for one in before if one.wanted == claim.wanted]
    index = index_of(atom for atom in task.atoms_of(state) if _is_well_formed(task, atom))
    for is_replaced in (True, False):
        lists = _true_supports(task, claim, state, index if is_replaced else None)
        found = {support[len(told) :] for support in lists if list(support[: len(told)]) == told}
        if found:
            support = found.pop()
            return Expected(claim.span.start, rendering.write_literals(support)) if support and not found else None
    return None


def _true_supports(task: PlanningTask, claim: Claim, state: int, index: Index | None) -> Iterator[tuple[Literal, ...]]:
    """Yield what holds of the preconditions of the actions that may be meant by a support with a false literal.

    They bring about what is wanted, and the false literal has its place among their preconditions.

    Args:
        task: domain and problem.
        claim: the false literal, and what it supports.
        state: the state before.
        index: the atoms of the state, one of which the literal should have been; None: it was to be left out.
    """
    false, wanted = claim.condition, claim.wanted
    if not isinstance(false, Literal) or not isinstance(wanted, Literal) or not _is_well_formed(task, wanted.atom):
        return
    for schema, given in achievers(task, wanted):
        parts = [part for part in conjuncts_of(schema.precondition) if isinstance(part, Literal) and part.is_positive]
        for part in parts:
            if part.atom.predicate != false.atom.predicate:
                continue
            bindings = matches([part.atom], given, index) if index is not None else _as_told(task, part, false, given)
            for binding in bindings:
                needed = [one.substitute(binding) for one in parts]
                if not any(variables_of(one.atom) for one in needed):
                    yield tuple(one for one in needed if task.holds(one, state))


def _as_told(task: PlanningTask, part: Literal, false: Literal, given: Binding) -> Iterator[Binding]:
    if _is_well_formed(task, false.atom):
        binding = unified(part.atom, false.atom, given)
        if binding is not None:
            yield binding


def _is_well_formed(task: PlanningTask, atom: Atom) -> bool:
    schema = task.domain.predicate(atom.predicate)
    is_atom = schema is not None and len(atom.arguments) == len(schema.parameters)
    return is_atom and all(name in task.objects for name in atom.arguments)
