"""Why each action of a plan is there: the causal links from it to the goal.

A step serves the goal through literals it achieves and later steps need (causal links as in partial-order planning,
McAllester and Rosenblitt 1991). Chains of thought say the path from the goal down to the action, so that the choice of
the action is a chain of one-hop lookups instead of a leap. The papers' chains name no reason; this is our addition.

What needs what is read off the text where conditions are basic literals. Any other condition (a disjunction, a
quantifier, a derived atom, the condition of an effect) needs a literal if, in the state where it counts, it would be
false with that one atom changed. So a disjunction with two true parts needs neither: no reason rather than a wrong one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from plansmith.pddl.ground_actions import GroundAction
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import (
    Atom,
    Condition,
    ConditionalEffect,
    Domain,
    Effect,
    Literal,
    UniversalEffect,
    literals_in,
)


@dataclass(frozen=True, slots=True)
class Purpose:
    """One path from an action to the goal.

    Paths compare by whether all their conditions are open, by whether they name a condition twice (a block must be
    clear to be moved so that it is clear again: true, and no reason), then by how early their goal is achieved: the
    same goal stays in view until it is reached. Then by length.

    Attributes:
        conditions: the first is a conjunct of the goal, the last the effect of the action that serves it.
        servants: for each condition the step of which it is an effect; None for one that is told because an effect
            bears on it (a disjunction, a derived atom).
        achieved_at: the step after which the goal holds for good.
        is_idle: some of the conditions holds before the action. The link is there (the block on which another is to
            stand is clear, is moved for the sake of a third, and is clear again), but it is no reason for who looks at
            the state: a policy taught so takes down blocks that are in nobody's way.
        support: for each condition, of the preconditions of its servant the atoms that hold before the action; what
            is missing is needed.
    """

    conditions: tuple[Condition, ...]
    servants: tuple[int | None, ...]
    achieved_at: int
    is_idle: bool
    support: tuple[tuple[Literal, ...], ...] = ()

    @property
    def rank(self) -> tuple[bool, bool, int, int, tuple[tuple[object, ...], ...]]:
        """Return what purposes are sorted by, the best first; one rank, one purpose."""
        length = len(self.conditions)
        is_circular = len(set(self.conditions)) < length
        return self.is_idle, is_circular, self.achieved_at, length, tuple(map(_sort_key, self.conditions))


def purposes(
    task: PlanningTask, actions: Sequence[GroundAction], *, start: int | None = None
) -> tuple[Purpose | None, ...]:
    """Return each action's purpose; None for an action that serves nothing (a plan with needless steps).

    An action on several paths gets the best. To the actions before it, the best path to each goal goes on.

    Args:
        task: domain and goal.
        actions: of the plan; one that cannot be applied changes nothing.
        start: the state before the first, by default the initial one.
    """
    uses = _Uses(task, _walked(actions, task.initial_state if start is None else start))
    kept: list[tuple[Purpose, ...]] = [()] * len(actions)
    for index in reversed(range(len(actions))):
        best_to: dict[Condition, Purpose] = {}
        for effect in effects_of(uses.steps[index].resolved):
            for path in uses.paths(effect, index, kept):
                goal = path.conditions[0]
                if goal not in best_to or path.rank < best_to[goal].rank:
                    best_to[goal] = path
        kept[index] = tuple(sorted(best_to.values(), key=lambda path: path.rank))
        if kept[index] and actions[index].conditional:
            uses.note_conditional(index, kept[index][0])
    return tuple(uses.supported(index, paths[0]) if paths else None for index, paths in enumerate(kept))


def effects_of(action: GroundAction) -> tuple[Literal, ...]:
    """Return the add effects, then the delete effects, as literals."""
    return (*(Literal(atom) for atom in action.add_effects),
            *(Literal(atom, is_positive=False) for atom in action.delete_effects))  # fmt: skip


def is_basic_literal(task: PlanningTask, condition: Condition) -> bool:
    """Return whether a condition is a literal that an effect can make true by itself."""
    return isinstance(condition, Literal) and condition.atom.predicate not in task.rules


@dataclass(frozen=True, slots=True)
class _Step:
    """An action with the state before it, and as it is there: with the conditional effects that take place."""

    action: GroundAction
    resolved: GroundAction
    before: int


def _walked(actions: Iterable[GroundAction], state: int) -> list[_Step]:
    steps = []
    for action in actions:
        steps.append(_Step(action, action.resolved(state), state))
        state = action.apply(state) if action.is_applicable(state) else state
    return steps


@dataclass(frozen=True, slots=True)
class _Need:
    """A step that depends on a literal, or the goal, one after the last step.

    ``path`` is the condition through which it does, if it is told; ``achieved_at`` the step that reached a goal.
    """

    step: int
    path: tuple[Condition, ...] = ()
    achieved_at: int = 0


@dataclass
class _Uses:
    """Where a plan needs what: steps whose preconditions are a literal or depend on it, effects that touch an atom."""

    task: PlanningTask
    steps: Sequence[_Step]
    needed_by: dict[Condition, list[int]] = field(default_factory=lambda: defaultdict(list))
    depending: dict[Literal, list[_Need]] = field(default_factory=lambda: defaultdict(list))
    touched_by: dict[Atom, list[int]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        self.goal = frozenset(condition for condition in self.task.goal if is_basic_literal(self.task, condition))
        self.behind = _Behind(self.task.domain)
        for index, step in enumerate(self.steps):
            for condition in dict.fromkeys(step.action.preconditions):
                self._note_precondition(index, condition)
            for effect in effects_of(step.resolved):
                self.touched_by[effect.atom].append(index)
        for condition in self.task.goal:
            if condition not in self.goal:
                self._note_goal(condition)

    def paths(self, effect: Literal, index: int, kept: Sequence[Sequence[Purpose]]) -> Iterator[Purpose]:
        """Yield the purposes that a step's effect serves until a later step touches its atom."""
        touches, needs = self.touched_by.get(effect.atom, ()), self.needed_by.get(effect, ())
        next_touch = bisect_right(touches, index)
        last = touches[next_touch] if next_touch < len(touches) else None
        yield from self._dependent_paths(effect, index, last, kept)
        for later in needs[bisect_right(needs, index) :]:
            if last is not None and later > last:
                return
            for purpose in kept[later]:
                yield self._path(index, effect, through=purpose)
        if last is None and effect in self.goal:
            yield self._path(index, effect, achieved_at=index)

    def supported(self, index: int, purpose: Purpose) -> Purpose:
        """Return the purpose of a step as it is told: with support, and without needs that are met at present."""
        before, last = self.steps[index].before, len(purpose.conditions) - 1
        told = [position for position, condition in enumerate(purpose.conditions)
                if position in (0, last) or not self.task.holds(condition, before)]  # fmt: skip
        servants = tuple(purpose.servants[position] for position in told)
        support = tuple(self._support(index, servant) for servant in servants)
        return replace(
            purpose, conditions=tuple(purpose.conditions[i] for i in told), servants=servants, support=support
        )

    def _support(self, index: int, servant: int | None) -> tuple[Literal, ...]:
        """Return the atoms among a later step's preconditions that hold before step `index`."""
        if servant is None:
            return ()
        atoms = [condition for condition in dict.fromkeys(self.steps[servant].action.preconditions)
                 if isinstance(condition, Literal) and condition.is_positive]  # fmt: skip
        return tuple(literal for literal in atoms if self.task.holds(literal, self.steps[index].before))

    def note_conditional(self, index: int, purpose: Purpose) -> None:
        """Take note of what the effect through which a step has its purpose depends on, if it is a conditional one."""
        step, effect = self.steps[index], purpose.conditions[-1]
        assert isinstance(effect, Literal)
        schema = self.task.domain.action(step.action.step.name)
        assert schema is not None
        for atom in self._touched_before(index, _conditions_of(schema.effects)):
            bit, wanted = self.task.bit(atom), self.task.bit(effect.atom)
            added, deleted = step.action.changes(step.before ^ bit)
            if not (added if effect.is_positive else deleted) & wanted:
                self.depending[Literal(atom, bool(step.before & bit))].append(_Need(index))

    def _dependent_paths(
        self, effect: Literal, index: int, last: int | None, kept: Sequence[Sequence[Purpose]]
    ) -> Iterator[Purpose]:
        for need in self.depending.get(effect, ()):
            if need.step <= index or (last is not None and need.step > last):
                continue
            if need.step == len(self.steps):
                yield self._path(index, effect, told=need.path, achieved_at=max(need.achieved_at, index))
                continue
            for purpose in kept[need.step]:
                yield self._path(index, effect, told=need.path, through=purpose)

    def _path(
        self,
        index: int,
        effect: Literal,
        *,
        told: tuple[Condition, ...] = (),
        through: Purpose | None = None,
        achieved_at: int = 0,
    ) -> Purpose:
        """Return the path of a step's effect: along the purpose of a later step, then the conditions it is told by."""
        conditions, servants = (*told, effect), (*(None for _ in told), index)
        if through is not None:
            conditions, servants = (*through.conditions, *conditions), (*through.servants, *servants)
            achieved_at = through.achieved_at
        before = self.steps[index].before
        is_idle = any(self.task.holds(condition, before) for condition in conditions)
        return Purpose(conditions, servants, achieved_at, is_idle)

    def _note_precondition(self, index: int, condition: Condition) -> None:
        if is_basic_literal(self.task, condition):
            self.needed_by[condition].append(index)
            return
        for literal in self._dependencies(condition, index, self.steps[index].before):
            self.depending[literal].append(_Need(index, (condition,)))

    def _note_goal(self, condition: Condition) -> None:
        states = [step.before for step in self.steps[1:]]
        if self.steps:
            action, before = self.steps[-1].action, self.steps[-1].before
            states.append(action.apply(before) if action.is_applicable(before) else before)
        achieved_at = len(states)
        while achieved_at and self.task.holds(condition, states[achieved_at - 1]):
            achieved_at -= 1
        if achieved_at < len(states):
            for literal in self._dependencies(condition, len(self.steps), states[-1]):
                self.depending[literal].append(_Need(len(self.steps), (condition,), achieved_at))

    def _dependencies(self, condition: Condition, index: int, state: int) -> Iterator[Literal]:
        """Yield the literals that the steps before `index` achieved and without which the condition were false."""
        if not self.task.holds(condition, state):
            return
        for atom in self._touched_before(index, [condition]):
            bit = self.task.bit(atom)
            if not self.task.holds(condition, state ^ bit):
                yield Literal(atom, bool(state & bit))

    def _touched_before(self, index: int, conditions: Iterable[Condition]) -> list[Atom]:
        """Return the atoms touched by steps before `index` that may bear on the conditions."""
        predicates = self.behind.predicates(conditions)
        return [atom for atom, touches in self.touched_by.items()
                if atom.predicate in predicates and touches[0] < index]  # fmt: skip


class _Behind:
    """Which basic predicates a condition depends on, through rules if need be."""

    def __init__(self, domain: Domain) -> None:
        self._rules: dict[str, list[Condition]] = defaultdict(list)
        for rule in domain.derived:
            self._rules[rule.predicate].append(rule.condition)

    def predicates(self, conditions: Iterable[Condition]) -> Collection[str]:
        """Return the predicates, derived ones among them."""
        found, waiting = set[str](), list(conditions)
        while waiting:
            for literal in literals_in(waiting.pop()):
                if literal.atom.predicate not in found:
                    found.add(literal.atom.predicate)
                    waiting += self._rules.get(literal.atom.predicate, ())
        return found


def _conditions_of(effects: Iterable[Effect]) -> Iterator[Condition]:
    """Yield the conditions of all conditional effects."""
    for effect in effects:
        if isinstance(effect, ConditionalEffect):
            yield effect.condition
        if isinstance(effect, ConditionalEffect | UniversalEffect):
            yield from _conditions_of(effect.effects)


def _sort_key(condition: Condition) -> tuple[object, ...]:
    if isinstance(condition, Literal):
        return (0, condition.atom, condition.is_positive)
    return (1, str(condition), True)
