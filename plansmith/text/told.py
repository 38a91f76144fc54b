"""Compact texts that tell the domain, for policies that are to plan in domains they never saw.

The compact rendering only names a domain, which its policy has learnt. Here the prompt holds all of it: types, action
schemas, objects with their types, what no action changes. ::

    types: car site with: ?c car ?s site action: load since: at ?c ?s add: in? ?c load delete: at ?c ?s
    each: ?o car when: near ?o add: dirty? ?o load objects: c1 car s1 site always: road s1 s2 goal: in? c1
    now: at c1 s1 plan:

An add effect is marked as what is wanted is, and ends in its action. ``each:`` is an effect for every object of a type,
``when:`` one under a condition; both may stand together. Preconditions that no action changes stand first.

Chains are those of the compact rendering but that each object stands behind its parameter, ``do: load ?c c1 ?s s1 ...
add: in ?c c1``, and that an aim and a need are told as the effect of the action that shall serve them, then this
action's preconditions, each with whether it holds: ``aim: in? ?c c1 load since: at ?c c1 ?s s1 met:``. A step tells
what it deletes, too, and a state is the one before with what is new at its end. What stands under ``always:`` is in no
state. So each word is a look-up of one hop, if every action's variables have names of their own
(`plansmith.text.anonymisation` sees to it): a policy of 3 million parameters never learnt to name an action that it had
to leap to (docs/log.md). Not here: symbols instead of names (`plansmith.text.anonymisation`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain as joined

from plansmith.errors import BadInputError
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.matching import is_variable, unified
from plansmith.pddl.model import (
    OBJECT,
    ActionSchema,
    Atom,
    Condition,
    ConditionalEffect,
    Conjunction,
    CostIncrease,
    Domain,
    Effect,
    Literal,
    PlanStep,
    TypedName,
    UniversalEffect,
    changed_predicates,
    conjuncts_of,
    literals_of_effects,
)
from plansmith.text.chains import Backtrack, Chain, ChainStep, ReadChain, chain_of_plan, in_order, whole_state
from plansmith.text.compact import write_chain, write_literals, write_wanted
from plansmith.text.compact_reader import read_chain

TOLD_MARKERS = ["types:", "of:", "with:", "action:", "delete:", "each:", "when:", "objects:", "always:"]
"""The markers that the compact rendering has not, for a vocabulary."""

CURE = "leave the domain out, or ask with PDDL (prompts: pddl)"


def told_prompt(task: PlanningTask) -> str:
    """Return the prompt that tells domain and problem and asks for a plan.

    Raises:
        BadInputError: a condition that needs brackets, or a derived predicate.
    """
    objects = (*task.domain.constants, *task.problem.objects)
    always = [atom for atom in in_order(task.problem.init) if task.is_static(atom.predicate)]
    parts = [
        domain_words(task.domain),
        "objects:", *(f"{typed.name} {' '.join(typed.types)}" for typed in objects),
        "always:", write_literals(always),
        "goal:", write_wanted(task.goal),
        "now:", write_literals(_changeable(task)),
        "plan:",
    ]  # fmt: skip
    return " ".join(filter(None, parts))


def domain_words(domain: Domain) -> str:
    """Return types and action schemas.

    Raises:
        BadInputError: a condition that needs brackets, or a derived predicate.
    """
    _check(domain)
    declared = ["types:", *map(_type_words, domain.types)] if domain.types else []
    return " ".join([*declared, *map(_action_words, _static_first(domain).actions)])


def told_chain(task: PlanningTask, plan: Sequence[PlanStep]) -> str:
    """Return the true chain of a plan as a policy is to write it.

    Raises:
        BadInputError: a condition that needs brackets.
    """
    told = PlanningTask(_static_first(task.domain), task.problem)
    return write_chain(as_told(told, chain_of_plan(told, plan)), is_told=True)


def as_told(task: PlanningTask, chain: Chain) -> Chain:
    """Return a chain with objects behind their parameters, what each aim and need lacks, and states that stay in place.

    A state is the one before without what is deleted, then what is added: nothing has to be sorted.
    """
    steps, state = [], _changeable(task)
    for step in chain.steps:
        steps.append(_told_step(task, step, state))
        state = state if steps[-1].next_state is None else steps[-1].next_state
    plan = None if chain.final_plan is None else tuple(_with_parameters(step, task.domain) for step in chain.final_plan)
    return replace(chain, steps=tuple(steps), final_plan=plan)


def read_told_chain(completion: str, domain: Domain) -> ReadChain:
    """Return the claims of a completion that is written as `told_chain` writes."""
    return read_chain(completion, domain, is_told=True)


@dataclass(frozen=True, slots=True)
class ToldChains:
    """Asks with a prompt that tells the domain, for a chain of thought; a `Prompting`."""

    name: str = "chain_told"

    def plan_prompt(self, task: PlanningTask) -> str:
        """Return the prompt that asks for a plan."""
        return told_prompt(task)

    def read(self, completion: str, domain: Domain) -> ReadChain:
        """Return the claims of a completion."""
        return read_told_chain(completion, domain)


def _told_step(task: PlanningTask, step: ChainStep, state: Sequence[Atom]) -> ChainStep:
    held = task.state_of(whole_state(task, state))
    reasons = []
    servants = step.servants or (None,) * len(step.purpose)
    for (wanted, there), servant in zip(step.reasons, servants, strict=True):
        serving = None if servant is None else _Servant.of(servant, task.domain)
        reasons.append((wanted, there) if serving is None else (serving.told(wanted), serving.marked(task, held)))
    after = step.next_state
    if after is not None:
        kept = [atom for atom in state if atom in after]
        after = tuple(dict.fromkeys((*kept, *(atom for atom in step.added if atom in after), *after)))
    acting = _Servant.of(step.action, task.domain)
    return replace(
        step,
        action=_with_parameters(step.action, task.domain),
        added=step.added if acting is None else acting.changing(step.added, is_positive=True),
        deleted=step.deleted if acting is None else acting.changing(step.deleted, is_positive=False),
        purpose=tuple(wanted for wanted, _ in reasons),
        support=tuple(support for _, support in reasons),
        next_state=after,
        alternatives=tuple(
            replace(told, action=_with_parameters(told.action, task.domain)) for told in step.alternatives
        ),
        backtracks=tuple(_told_backtrack(told, task.domain) for told in step.backtracks),
    )


@dataclass(frozen=True, slots=True)
class _Servant:
    """An action, as of a step or one that shall serve an aim: its literals over variables, its parameters' objects."""

    name: str
    objects: dict[str, str]
    preconditions: tuple[Literal, ...]
    effects: tuple[Literal, ...]

    @classmethod
    def of(cls, step: PlanStep, domain: Domain) -> _Servant | None:
        """Return an action with its arguments; None where the domain has none of its name."""
        if (action := domain.action(step.name)) is None:
            return None
        conditions = [one for one in conjuncts_of(action.precondition) if isinstance(one, Literal)]
        objects = dict(zip((typed.name for typed in action.parameters), step.arguments, strict=True))
        return cls(action.name, objects, tuple(dict.fromkeys(conditions)), tuple(literals_of_effects(action.effects)))

    def told(self, wanted: Condition) -> Condition:
        """Return what is wanted as an effect of the action, with objects of no precondition, and the action's name."""
        if not isinstance(wanted, Literal):
            return wanted
        if (terms := self._effect(wanted)) is None:
            return wanted
        named = {*terms, *(name for one in self.preconditions for name in one.atom.arguments)}
        others = joined.from_iterable(pair for pair in self.objects.items() if pair[0] not in named)
        return Literal(Atom(wanted.atom.predicate, (*terms, *others, self.name)), wanted.is_positive)

    def marked(self, task: PlanningTask, state: int) -> tuple[Condition, ...]:
        """Return the preconditions, each object behind its variable, with whether they hold as last word."""
        return tuple(
            self._with_objects(one, "met:" if task.holds(one.substitute(self.objects), state) else "unmet:")
            for one in self.preconditions
        )

    def changing(self, atoms: Iterable[Atom], *, is_positive: bool) -> tuple[Atom, ...]:
        """Return what the action adds or deletes, each object behind its variable."""
        found = ((atom, self._effect(Literal(atom, is_positive))) for atom in atoms)
        return tuple(atom if terms is None else Atom(atom.predicate, terms) for atom, terms in found)

    def _effect(self, wanted: Literal) -> tuple[str, ...] | None:
        """Return a literal's objects, each behind the variable of the effect that it is; None for no effect."""
        return next((terms for one in self.effects if (terms := self._terms(one, wanted)) is not None), None)

    def _with_objects(self, one: Literal, mark: str) -> Literal:
        told = (([name, self.objects[name]] if name in self.objects else [name]) for name in one.atom.arguments)
        return Literal(Atom(one.atom.predicate, (*joined.from_iterable(told), mark)), one.is_positive)

    def _terms(self, effect: Literal, wanted: Literal) -> tuple[str, ...] | None:
        """Return a wanted literal's objects, each behind the effect's variable; None for another effect."""
        if (effect.atom.predicate, effect.is_positive) != (wanted.atom.predicate, wanted.is_positive):
            return None
        if unified(effect.atom, wanted.atom, self.objects) is None:
            return None
        pairs = zip(effect.atom.arguments, wanted.atom.arguments, strict=True)
        return tuple(joined.from_iterable((term, name) if is_variable(term) else (name,) for term, name in pairs))


def _changeable(task: PlanningTask) -> tuple[Atom, ...]:
    """Return the atoms of the initial state that some action changes, in the order in which a prompt tells them."""
    return tuple(atom for atom in in_order(task.problem.init) if not task.is_static(atom.predicate))


def _static_first(domain: Domain) -> Domain:
    """Return a domain with the preconditions that no action changes first: these find the objects of parameters."""
    changed = changed_predicates(domain)

    def is_changed(condition: Condition) -> bool:
        return not isinstance(condition, Literal) or condition.atom.predicate in changed

    actions = (
        replace(action, precondition=Conjunction(tuple(sorted(conjuncts_of(action.precondition), key=is_changed))))
        for action in domain.actions
    )
    return replace(domain, actions=tuple(actions))


def _told_backtrack(told: Backtrack, domain: Domain) -> Backtrack:
    back_to = None if told.back_to is None else _with_parameters(told.back_to, domain)
    branch = tuple(_with_parameters(step, domain) for step in told.branch)
    return replace(told, branch=branch, culprit=_with_parameters(told.culprit, domain), back_to=back_to)


def _with_parameters(step: PlanStep, domain: Domain) -> PlanStep:
    action = domain.action(step.name)
    if action is None or len(action.parameters) != len(step.arguments):
        return step
    named = zip((typed.name for typed in action.parameters), step.arguments, strict=True)
    return PlanStep(step.name, tuple(joined.from_iterable(named)))


def _type_words(typed: TypedName) -> str:
    above = [name for name in typed.types if name != OBJECT]
    return " ".join([typed.name, "of:", *above] if above else [typed.name])


def _action_words(action: ActionSchema) -> str:
    parts = [f"with: {_typed(action.parameters)}"] if action.parameters else []
    parts += [f"action: {action.name}"]
    if conditions := conjuncts_of(action.precondition):
        parts += ["since:", write_literals(conditions)]
    parts += _effect_words(action.name, action.effects)
    return " ".join(filter(None, parts))


def _effect_words(action: str, effects: Iterable[Effect]) -> Iterator[str]:
    """Yield plain effects, then those for each object and under conditions."""
    plain, further = [], []
    for effect in effects:
        if isinstance(effect, Literal):
            plain.append(effect)
        elif not isinstance(effect, CostIncrease):
            further.append(effect)
    added = [f"{write_wanted([effect])} {action}" for effect in plain if effect.is_positive]
    deleted = [Literal(effect.atom) for effect in plain if not effect.is_positive]
    yield " ".join(["add:", *added] if added else [])
    yield f"delete: {write_literals(deleted)}" if deleted else ""
    for effect in further:
        yield from _further_words(action, effect)


def _further_words(action: str, effect: ConditionalEffect | UniversalEffect) -> Iterator[str]:
    if isinstance(effect, UniversalEffect):
        beginning = f"each: {_typed(effect.parameters)}"
    else:
        beginning = f"when: {write_literals(conjuncts_of(effect.condition))}"
    for group in _groups(effect.effects):
        yield " ".join(filter(None, [beginning, *_effect_words(action, group)]))


def _groups(effects: Sequence[Effect]) -> Iterator[Sequence[Effect]]:
    """Yield effects in groups before each of which all that they stand under is told again: the plain ones are one."""
    plain = [effect for effect in effects if isinstance(effect, Literal)]
    if plain:
        yield plain
    for effect in effects:
        if isinstance(effect, ConditionalEffect | UniversalEffect):
            yield [effect]


def _typed(parameters: Iterable[TypedName]) -> str:
    return " ".join(f"{typed.name} {' '.join(typed.types)}" for typed in parameters)


def _check(domain: Domain) -> None:
    if domain.derived:
        raise BadInputError(
            "compact texts cannot tell derived predicates", where=f"domain {domain.name}",
            got=domain.derived[0].predicate, expected="predicates that actions change, or nothing does",
            cure=CURE,
        )  # fmt: skip
    for action in domain.actions:
        for condition in conjuncts_of(action.precondition):
            if not isinstance(condition, Literal):
                raise BadInputError(
                    "compact texts tell conjunctive preconditions alone", where=f"domain {domain.name}, {action.name}",
                    got=str(condition), expected="literals", cure=CURE,
                )  # fmt: skip
