"""States and ground actions of one problem.

A state is an integer used as a bit set over the ground atoms met so far: bit i stands for `PlanningTask.atoms[i]`; it
holds basic atoms only, derived ones are worked out where a condition asks for them (`derived`). Atoms get their bit
when they are first named, and an action schema is grounded only when a plan names it, so a task costs no more than the
plans judged in it. Ground actions are cached: the rollouts of a group share one task.

Static atoms (no action changes them) and equality are replaced by their value in the initial state inside disjunctions,
quantifiers, conditional effects and rules; a literal that is itself a precondition or goal is always looked up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from itertools import product
from math import prod

from plansmith.pddl.conditions import (
    FALSE,
    TRUE,
    AllOf,
    ExpansionBudget,
    GroundCondition,
    all_of,
    ground_condition,
    mentioned_atoms,
    needed_atoms,
    relevant_bindings,
)
from plansmith.pddl.derived import DerivedRules, InClosure
from plansmith.pddl.ground_actions import GroundAction, GroundEffect, MalformedStep
from plansmith.pddl.matching import Index, index_of
from plansmith.pddl.model import (
    EQUALITY,
    TOTAL_COST,
    ActionSchema,
    Atom,
    Binding,
    Condition,
    ConditionalEffect,
    CostIncrease,
    Domain,
    Effect,
    Literal,
    Number,
    PlanStep,
    Problem,
    TypedName,
    UniversalEffect,
    changed_predicates,
    conjuncts_of,
)
from plansmith.pddl.parser import LONGEST_REMEMBERED, parse_problem, shared_domain
from plansmith.pddl.plain_schemas import Instance, PlainSchema

KNOWN_STEPS_LIMIT = KNOWN_LINES_LIMIT = 100_000
"""Steps, and lines of plan texts, that a task remembers before it forgets them all."""


@lru_cache(maxsize=64)
def _read_texts(domain_pddl: str, problem_pddl: str) -> tuple[Domain, Problem]:
    """Return what both texts say; several texts are written of one problem in turn."""
    domain = shared_domain(domain_pddl)
    domain.notebook.raise_first_error()
    return domain.value, parse_problem(problem_pddl, domain.value)


class PlanningTask:
    """A domain and a problem made ready for states: parsed once, shared by every plan judged in it."""

    def __init__(self, domain: Domain, problem: Problem) -> None:
        self.domain, self.problem = domain, problem
        self.objects = {typed.name: typed for typed in (*domain.constants, *problem.objects)}
        self.atoms: list[Atom] = []
        self._bit_of: dict[Atom, int] = {}
        self._steps: dict[PlanStep, GroundAction | MalformedStep] = {}
        self._lines: dict[str, GroundAction] = {}
        self._objects_of: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._plain: dict[str, PlainSchema | None] = {}
        self._conditions: dict[Condition, GroundCondition] = {}
        self._spent_bytes = 0
        self.rules = DerivedRules(self, domain.derived)
        self.initial_state = self.state_of(problem.init)
        self.goal = conjuncts_of(problem.goal)

    @classmethod
    def from_text(cls, domain_pddl: str, problem_pddl: str) -> PlanningTask:
        """Return the task of two PDDL texts.

        Raises:
            PddlParseError: either text cannot be read.
        """
        is_short = len(domain_pddl) + len(problem_pddl) <= LONGEST_REMEMBERED
        read = _read_texts if is_short else _read_texts.__wrapped__
        return cls(*read(domain_pddl, problem_pddl))

    def bit(self, atom: Atom) -> int:
        """Return the bit of a ground atom, giving it one when it is new."""
        position = self._bit_of.get(atom)
        if position is None:
            position = self._bit_of[atom] = len(self.atoms)
            self.atoms.append(atom)
            if atom.predicate in self.rules:
                self.rules.mention(atom, 1 << position)
        return 1 << position

    def state_of(self, atoms: Iterable[Atom]) -> int:
        """Return the state in which exactly `atoms` are true."""
        state = 0
        for atom in atoms:
            state |= self.bit(atom)
        return state

    def atoms_of(self, state: int) -> tuple[Atom, ...]:
        """Return the true atoms of a state, in the order in which the task met them."""
        found = []
        while state:
            lowest = state & -state
            found.append(self.atoms[lowest.bit_length() - 1])
            state ^= lowest
        return tuple(found)

    def basic_atoms(self, state: int) -> int:
        """Return a state without the derived atoms that it may name."""
        return state & ~self.rules.mask

    def holds(self, condition: Condition, state: int) -> bool:
        """Return whether a condition without free variables is true in a state."""
        if isinstance(condition, Literal) and condition.atom.predicate != EQUALITY:
            bit = self.bit(condition.atom)
            known = self.rules.closure(state) if bit & self.rules.mask else state
            return bool(known & bit) == condition.is_positive
        if condition not in self._conditions:
            self._conditions[condition] = self._conjunction([condition])
        return self._conditions[condition].holds(state)

    def unsatisfied(self, conditions: Iterable[Condition], state: int) -> tuple[Condition, ...]:
        """Return the conditions that are false in a state, in their own order."""
        return tuple(condition for condition in conditions if not self.holds(condition, state))

    def is_goal(self, state: int) -> bool:
        """Return whether the goal holds in a state."""
        return self._goal_condition.holds(state)

    @cached_property
    def _goal_condition(self) -> GroundCondition:
        return self._conjunction(self.goal)

    def ground(self, step: PlanStep) -> GroundAction | MalformedStep:
        """Return the ground action a step names, or why there is none."""
        found = self._steps.get(step)
        if found is None:
            if len(self._steps) > KNOWN_STEPS_LIMIT:
                self._steps.clear()
            found = self._steps[step] = self._ground(step)
        return found

    def ground_lines(self, text: str) -> list[GroundAction] | None:
        """Return the ground actions of a plan text whose every line was seen before, else None."""
        actions = []
        for line in text.split("\n"):
            action = self._lines.get(line)
            if action is not None:
                actions.append(action)
            elif not _is_skipped(line):
                return None
        return actions

    def remember_lines(self, text: str, plan: Iterable[PlanStep]) -> None:
        """Remember the lines of a plan text, read as `plan`, if it has one step a line.

        A step that nobody has executed is not expanded for that.
        """
        lines = [line for line in text.split("\n") if not _is_skipped(line)]
        steps = list(plan)
        if len(lines) != len(steps) or not all(map(_is_one_group, lines)):
            return
        if len(self._lines) > KNOWN_LINES_LIMIT:
            self._lines.clear()
        for line, step in zip(lines, steps, strict=True):
            schema = self.domain.action(step.name)
            is_plain = schema is not None and self._plain_schema(schema) is not None
            action = self.ground(step) if is_plain else self._steps.get(step)
            if isinstance(action, GroundAction):
                self._lines[line] = action

    def instantiate(self, schema: ActionSchema, arguments: tuple[str, ...]) -> GroundAction:
        """Return the ground action of a schema and objects that fit its parameters."""
        step = PlanStep(schema.name, arguments)
        action = self._steps.get(step)
        if not isinstance(action, GroundAction):
            action = self._steps[step] = self._instance(schema, step)
        return action

    @property
    def most_ground_actions(self) -> int:
        """Return how many ground actions there are if none is impossible, without making them."""
        return sum(prod(map(len, self._arguments_of(schema))) for schema in self.domain.actions)

    def ground_actions(self) -> tuple[GroundAction, ...]:
        """Return every ground action whose precondition is not false in every state; exponential in the arity."""
        actions = (
            self.instantiate(schema, arguments)
            for schema in self.domain.actions
            for arguments in product(*self._arguments_of(schema))
        )
        return tuple(action for action in actions if action.is_possible)

    def relaxed_actions(self) -> Iterator[tuple[int, int]]:
        """Yield of each of `ground_actions` the atoms that it needs and those that it may add, without making most."""
        for schema in self.domain.actions:
            plain = self._plain_schema(schema)
            for arguments in product(*self._arguments_of(schema)):
                if plain is None:
                    action = self.instantiate(schema, arguments)
                    pair = action.relaxed if action.is_possible else None
                else:
                    pair = plain.relaxed(arguments)
                if pair is not None:
                    yield pair

    def _arguments_of(self, schema: ActionSchema) -> list[tuple[str, ...]]:
        """Return for each parameter the objects of its types that are of the kinds that the precondition asks for.

        A kind is a static predicate of one parameter; untyped domains say so what is a truck and what is a place.
        """
        kinds = defaultdict[str, list[str]](list)
        for part in conjuncts_of(schema.precondition):
            if isinstance(part, Literal) and part.is_positive and len(part.atom.arguments) == 1:
                kinds[part.atom.arguments[0]].append(part.atom.predicate)

        def fits(name: str, parameter: TypedName) -> bool:
            return all(self.fixed_value(Atom(kind, (name,))) is not False for kind in kinds[parameter.name])

        return [
            tuple(name for name in self.objects_of(parameter.types) if fits(name, parameter))
            for parameter in schema.parameters
        ]

    def objects_of(self, types: tuple[str, ...]) -> tuple[str, ...]:
        """Return the objects of any of the types, in their order."""
        found = self._objects_of.get(types)
        if found is None:
            parameter = TypedName("", types)
            found = self._objects_of[types] = tuple(name for name in self.objects if self.fits(name, parameter))
        return found

    def fits(self, name: str, parameter: TypedName) -> bool:
        """Return whether an object is of one of the parameter's types; one declared ``either`` has several types."""
        typed = self.objects.get(name)
        return typed is not None and any(not self._above[own].isdisjoint(parameter.types) for own in typed.types)

    def fixed_value(self, atom: Atom) -> bool | None:
        """Return the value of an atom that has the same one in every state (equality, static atoms), else None."""
        if atom.predicate == EQUALITY:
            return atom.arguments[0] == atom.arguments[1]
        if not self.is_static(atom.predicate):
            return None
        position = self._bit_of.get(atom)
        return position is not None and bool(self.initial_state >> position & 1)

    def is_static(self, predicate: str) -> bool:
        """Return whether no action and no rule changes the predicate's atoms."""
        return predicate not in self._changeable

    @cached_property
    def static_atoms(self) -> Index:
        """The true atoms of static predicates."""
        return index_of(atom for atom in self.problem.init if self.is_static(atom.predicate))

    def with_derived(self, condition: GroundCondition) -> GroundCondition:
        """Return the condition, looking at the derived atoms of the state if it mentions any."""
        if not self.rules.mask or not mentioned_atoms(condition) & self.rules.mask:
            return condition
        return InClosure(self.rules, condition)

    @cached_property
    def function_values(self) -> Mapping[Atom, Number]:
        """The value of each ground function in the initial state."""
        return {known.term: known.value for known in self.problem.function_values}

    def metric_value(self, n_steps: int, increase: Number) -> Number:
        """Return the value of the problem's metric after a plan: VAL's "Final value", the number of steps by default.

        Args:
            n_steps: the steps executed.
            increase: the sum of their costs.
        """
        if self.problem.metric != TOTAL_COST:
            return n_steps
        return self.cost_at_start + increase

    @cached_property
    def cost_at_start(self) -> Number:
        """The total cost before the first step; zero where the problem gives none, as in VAL."""
        return self.function_values.get(Atom(TOTAL_COST), 0)

    @cached_property
    def _changeable(self) -> frozenset[str]:
        return changed_predicates(self.domain)

    @cached_property
    def _above(self) -> Mapping[str, frozenset[str]]:
        return self.domain.ancestors()

    def malformed(self, step: PlanStep) -> MalformedStep | None:
        """Return why a step names no ground action, None where it does; nothing is expanded."""
        found = self._steps.get(step)
        if found is not None:
            return found if isinstance(found, MalformedStep) else None
        schema = self.domain.action(step.name)
        if schema is None:
            known = ", ".join(action.name for action in self.domain.actions)
            return MalformedStep(step, f"no action is called '{step.name}'; the domain has {known}")
        if len(step.arguments) != len(schema.parameters):
            return MalformedStep(
                step, f"'{step.name}' takes {len(schema.parameters)} arguments, got {len(step.arguments)}"
            )
        for name, parameter in zip(step.arguments, schema.parameters, strict=True):
            if not self.fits(name, parameter):
                return MalformedStep(step, f"'{name}' {self._misfit(name, parameter)}")
        return None

    def _ground(self, step: PlanStep) -> GroundAction | MalformedStep:
        malformed = self.malformed(step)
        if malformed is not None:
            return malformed
        schema = self.domain.action(step.name)
        assert schema is not None, "the step names it"
        return self._instance(schema, step)

    def _misfit(self, name: str, parameter: TypedName) -> str:
        """Return why an object cannot stand where `parameter` is declared."""
        if name not in self.objects:
            return "is no object of the problem"
        return f"is of type {' or '.join(self.objects[name].types)}, expected {' or '.join(parameter.types)}"

    def _instance(self, schema: ActionSchema, step: PlanStep) -> GroundAction:
        preconditions: tuple[Condition, ...]
        conditional: tuple[GroundEffect, ...] = ()
        spent_before = self._spent_bytes
        if (plain := self._plain_schema(schema)) is not None:
            instances = plain.preconditions(step.arguments)
            preconditions = tuple([literal for literal, _ in instances])
            condition, effect = self._literals(instances), plain.effect(step.arguments)
        else:
            binding = {parameter.name: name for parameter, name in zip(schema.parameters, step.arguments, strict=True)}
            preconditions = tuple([condition.substitute(binding) for condition in conjuncts_of(schema.precondition)])
            condition = self._conjunction(preconditions)
            grounder = _EffectGrounder(self)
            effect, conditional = grounder.ground(schema.effects, binding)
            self._spent_bytes += grounder.budget.spent_bytes
        basic = condition if isinstance(condition, AllOf) else AllOf(parts=(condition,))
        return GroundAction(
            step=step,
            preconditions=preconditions,
            required=basic.required,
            forbidden=basic.forbidden,
            others=basic.parts,
            effect=effect,
            conditional=conditional,
            added=effect.added,
            deleted=effect.deleted,
            has_cost=bool(effect.increases) or any(part.increases for part in conditional),
            expanded_bytes=self._spent_bytes - spent_before,
        )

    def _plain_schema(self, schema: ActionSchema) -> PlainSchema | None:
        """Return a schema of literals alone, ready for its objects; None for others."""
        if schema.name not in self._plain:
            self._plain[schema.name] = PlainSchema(schema, self.bit) if PlainSchema.is_plain(schema) else None
        return self._plain[schema.name]

    def _literals(self, instances: Iterable[Instance]) -> GroundCondition:
        required = forbidden = 0
        for literal, bit in instances:
            if literal.is_positive:
                required |= bit
            else:
                forbidden |= bit
        return self.with_derived(all_of([AllOf(required, forbidden)]))

    def _conjunction(self, conjuncts: Iterable[Condition]) -> GroundCondition:
        """Return the ground conjunction of conditions without free variables; its own literals are looked up."""
        required, forbidden, others = 0, 0, list[GroundCondition]()
        for condition in conjuncts:
            if not isinstance(condition, Literal) or condition.atom.predicate == EQUALITY:
                budget = ExpansionBudget()
                others.append(ground_condition(self, condition, {}, budget))
                self._spent_bytes += budget.spent_bytes
            elif condition.is_positive:
                required |= self.bit(condition.atom)
            else:
                forbidden |= self.bit(condition.atom)
        return self.with_derived(all_of([AllOf(required, forbidden), *others]))


class _EffectGrounder:
    """Sorts the effects of one ground action into those that always take place and those with a condition.

    Effects of one level count in the order literals, ``forall``, ``when``: VAL keeps them in lists of their own.
    """

    def __init__(self, task: PlanningTask) -> None:
        self.task = task
        self.budget = ExpansionBudget()
        self.found: dict[GroundCondition, list[Literal | Number | Atom]] = {TRUE: []}

    def ground(self, effects: tuple[Effect, ...], binding: Binding) -> tuple[GroundEffect, tuple[GroundEffect, ...]]:
        """Return the unconditional effect, then the conditional ones."""
        self._collect(effects, binding, TRUE)
        always, *conditional = (self._joined(condition, parts) for condition, parts in self.found.items())
        return always, tuple(conditional)

    def _collect(self, effects: tuple[Effect, ...], binding: Binding, condition: GroundCondition) -> None:
        for effect in sorted(effects, key=_rank):
            match effect:
                case Literal():
                    self.budget.spend(len(self.task.atoms) // 8, effect)
                    self.found.setdefault(condition, []).append(effect.substitute(binding))
                case CostIncrease():
                    self.found.setdefault(condition, []).append(self._amount(effect, binding))
                case UniversalEffect():
                    needed = _needed_by_all(effect.effects)
                    for inner in relevant_bindings(self.task, effect, binding, self.budget, needed):
                        self._collect(effect.effects, inner, condition)
                case ConditionalEffect():
                    own = ground_condition(self.task, effect.condition, binding, self.budget)
                    both = all_of([condition, own])
                    if both != FALSE:
                        self._collect(effect.effects, binding, both)

    def _amount(self, effect: CostIncrease, binding: Binding) -> Number | Atom:
        if not isinstance(effect.amount, Atom):
            return effect.amount
        term = effect.amount.substitute(binding)
        return self.task.function_values.get(term, term)

    def _joined(self, condition: GroundCondition, parts: list[Literal | Number | Atom]) -> GroundEffect:
        literals = dict.fromkeys(part for part in parts if isinstance(part, Literal))
        adds = tuple([literal.atom for literal in literals if literal.is_positive])
        deletes = tuple([literal.atom for literal in literals if not literal.is_positive])
        increases = tuple([part for part in parts if not isinstance(part, Literal)])
        added, deleted = self.task.state_of(adds), self.task.state_of(deletes)
        return GroundEffect(self.task.with_derived(condition), adds, deletes, increases, added, deleted)


def _needed_by_all(effects: tuple[Effect, ...]) -> Iterable[Atom]:
    """Return atoms without which none of the effects takes place."""
    only = effects[0] if len(effects) == 1 else None
    return needed_atoms(only.condition, is_positive=True) if isinstance(only, ConditionalEffect) else ()


def _rank(effect: Effect) -> int:
    return (Literal, UniversalEffect, ConditionalEffect, CostIncrease).index(type(effect))


def _is_skipped(line: str) -> bool:
    """Return whether a line is blank or a comment; a carriage return within it would end the comment."""
    return not line or line.isspace() or (line[0] == ";" and "\r" not in line[:-1])


def _is_one_group(line: str) -> bool:
    """Return whether a line is ``(...)`` with no other bracket or comment in it."""
    line = line.strip()
    return line.startswith("(") and line.endswith(")") and line.count("(") == line.count(")") == 1 and ";" not in line
