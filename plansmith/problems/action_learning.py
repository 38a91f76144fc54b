"""Action schemas learnt from demonstrations without a model: preconditions by intersection, effects by difference.

A safe action model: it allows nothing that was not seen to work in every respect, so that its plans are true if the
demonstrations are and no skill needs that something is not so, which is never learnt; and forbids what more of them
would allow. Self-CriTeach has its language model write the domain;
this is the opponent that it must beat, and what a run writes its domain with where no model can. Literals are lifted to
the arguments of the action alone. Not here: pruning (`pruning`), which takes what is of no use.
"""

from __future__ import annotations

from collections.abc import Sequence

from plansmith.pddl.model import ActionSchema, Atom, Conjunction, Domain, Literal, PredicateSchema, TypedName
from plansmith.problems.demonstrations import Attempt, Demonstrations, Skill, lifted_atoms


def learn_domain(demonstrations: Demonstrations) -> Domain:
    """Return the domain of the skills that were seen to work, and of the predicates that they mention."""
    worked: dict[str, list[Attempt]] = {}
    for _, attempt in demonstrations.attempts:
        if attempt.after is not None:
            worked.setdefault(attempt.action.name, []).append(attempt)
    actions = tuple(learn_action(skill, worked[skill.name]) for skill in demonstrations.skills if skill.name in worked)
    predicates = mentioned_predicates(demonstrations.predicates, actions)
    return Domain(demonstrations.name, (":strips",), (), (), predicates, actions)


def learn_action(skill: Skill, attempts: Sequence[Attempt]) -> ActionSchema:
    """Return what was true before every attempt, and what some attempt made true or false."""
    parameters = tuple(f"?{argument}" for argument in skill.arguments)
    before: set[Atom] | None = None
    added, deleted = set[Atom](), set[Atom]()
    for attempt in attempts:
        assert attempt.after is not None
        lifted = lifted_atoms(attempt.state, parameters, attempt.action.arguments)
        before = lifted if before is None else before & lifted
        added |= lifted_atoms(attempt.after - attempt.state, parameters, attempt.action.arguments)
        deleted |= lifted_atoms(attempt.state - attempt.after, parameters, attempt.action.arguments)
    effects = [Literal(atom) for atom in sorted(added)] + [
        Literal(atom, is_positive=False) for atom in sorted(deleted - added)
    ]
    needed = Conjunction(tuple(map(Literal, sorted(before or ()))))
    return ActionSchema(skill.name, tuple(map(TypedName, parameters)), needed, tuple(effects))


def mentioned_predicates(
    predicates: Sequence[PredicateSchema], actions: Sequence[ActionSchema]
) -> tuple[PredicateSchema, ...]:
    """Return those of the predicates that actions mention."""
    used = {
        literal.atom.predicate
        for action in actions
        for literal in (*_parts(action), *action.effects)
        if isinstance(literal, Literal)
    }
    return tuple(schema for schema in predicates if schema.name in used)


def _parts(action: ActionSchema) -> tuple[object, ...]:
    return action.precondition.members if isinstance(action.precondition, Conjunction) else (action.precondition,)
