"""Compact texts that tell the domain, for policies that are to plan in domains they never saw.

The compact rendering only names a domain, which its policy has learnt. Here the prompt holds all of it: types, action
schemas, objects with their types, what no action changes. ::

    types: car site with: ?c car ?s site action: load since: at ?c ?s add: in? ?c load delete: at ?c ?s
    each: ?o car when: near ?o add: dirty? ?o load objects: c1 car s1 site always: road s1 s2 goal: in? c1
    now: at c1 s1 plan:

An add effect is marked as what is wanted is, and ends in its action. ``each:`` is an effect for every object of a type,
``when:`` one under a condition; both may stand together. Preconditions that no action changes stand first.

Chains are those of the compact rendering but that each object stands behind its variable, ``do: load ?c c1 ?s s1 check:
at ?c c1 ?s s1 ok: add: in ?c c1 delete: at ?c c1 ?s s1``, and that an aim and a need are told as the effect of the
action that shall serve them, then this action's preconditions, each with whether it holds: ``aim: in? ?c c1 load
since: at ?c c1 ?s s1 met:``. In these, variables whose objects were told come first, ``road ?s s1 ?r r1`` for
``(road ?r ?s)``, but where two preconditions of a predicate have the same variables. A step tells what it deletes, too,
what changes under a condition stands behind it, ``when: near ?o o1 add: dirty ?o o1``, and a state is the one before
with what is new at its end. What stands under ``always:`` is in no state. So each word is a look-up of one hop, if
every action's variables have names of their own (`plansmith.text.anonymisation` sees to it):
a policy of 3 million parameters never learnt to name an action that it had to leap to (docs/log.md). Not here: symbols
instead of names (`plansmith.text.anonymisation`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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
)
from plansmith.text.chains import Backtrack, Chain, ChainStep, ReadChain, chain_of_plan, in_order, whole_state
from plansmith.text.compact import write_chain, write_literals, write_wanted
from plansmith.text.compact_reader import like, read_chain

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
        reasons.append((wanted, there) if serving is None else serving.reason(wanted, task, held))
    after = step.next_state
    if after is not None:
        kept = [atom for atom in state if atom in after]
        after = tuple(dict.fromkeys((*kept, *(atom for atom in step.added if atom in after), *after)))
    acting = _Servant.of(step.action, task.domain)
    return replace(
        step,
        action=_with_parameters(step.action, task.domain),
        preconditions=step.preconditions if acting is None else acting.checked(step.preconditions),
        unsatisfied=step.unsatisfied if acting is None else acting.checked(step.unsatisfied),
        added=step.added if acting is None else acting.changed("add:", step.added, task, held),
        deleted=step.deleted if acting is None else acting.changed("delete:", step.deleted, task, held),
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
    """An action, as of a step or one that shall serve an aim: its literals over variables, its parameters' objects.

    ``effects`` stand beside the conditions that they are under.
    """

    name: str
    objects: dict[str, str]
    preconditions: tuple[Literal, ...]
    effects: tuple[tuple[tuple[Literal, ...], Literal], ...]

    @classmethod
    def of(cls, step: PlanStep, domain: Domain) -> _Servant | None:
        """Return an action with its arguments; None where the domain has none of its name."""
        if (action := domain.action(step.name)) is None:
            return None
        conditions = dict.fromkeys(_literals(action.precondition))
        objects = dict(zip((typed.name for typed in action.parameters), step.arguments, strict=True))
        return cls(action.name, objects, tuple(conditions), tuple(_effects(action.effects)))

    def reason(self, wanted: Condition, task: PlanningTask, state: int) -> tuple[Condition, tuple[Condition, ...]]:
        """Return what is wanted as an effect of the action, and the preconditions, each with whether it holds."""
        told = self._told(wanted)
        known = {term for term in told.atom.arguments if is_variable(term)} if isinstance(told, Literal) else set()
        marked = []
        for one in self.preconditions:
            mark = "met:" if task.holds(one.substitute(self.objects), state) else "unmet:"
            marked.append(_with_objects(self._known_first(one, known), self.objects, mark))
            known.update(one.atom.arguments)
        return told, tuple(marked)

    def checked(self, conditions: Iterable[Condition]) -> tuple[Condition, ...]:
        """Return preconditions over objects, each object behind its variable."""
        told = {one.substitute(self.objects): one for one in self.preconditions}
        return tuple(_with_objects(told[one], self.objects) if one in told else one for one in conditions)

    def changed(self, marker: str, atoms: Iterable[Atom], task: PlanningTask, state: int) -> tuple[Atom, ...]:
        """Return what the action adds or deletes, each object behind its variable, each atom behind its condition.

        Args:
            marker: ``add:`` or ``delete:``.
            atoms: which.
            task: domain and problem.
            state: before the action.
        """
        found = list[Atom]()
        for atom in atoms:
            for conditions, effect in self.effects:
                if effect.is_positive != (marker == "add:") or effect.atom.predicate != atom.predicate:
                    continue
                objects = unified(effect.atom, atom, self.objects)
                if objects is None or not all(task.holds(one.substitute(objects), state) for one in conditions):
                    continue
                if conditions:
                    words = write_literals(_with_objects(one, objects) for one in conditions).split()
                    found.append(Atom("when:", (*words, marker)))
                found.append(_with_objects(effect, objects).atom)
                break
            else:
                found.append(atom)
        return tuple(found)

    def _told(self, wanted: Condition) -> Condition:
        """Return what is wanted as an effect of the action, with objects of no precondition, and the action's name."""
        if not isinstance(wanted, Literal):
            return wanted
        for _, effect in self.effects:
            if (effect.atom.predicate, effect.is_positive) == (wanted.atom.predicate, wanted.is_positive):
                objects = unified(effect.atom, wanted.atom, self.objects)
                if objects is not None:
                    break
        else:
            return wanted
        told = _with_objects(effect, objects)
        named = {*effect.atom.arguments, *(name for one in self.preconditions for name in one.atom.arguments)}
        others = joined.from_iterable(pair for pair in self.objects.items() if pair[0] not in named)
        return Literal(Atom(wanted.atom.predicate, (*told.atom.arguments, *others, self.name)), wanted.is_positive)

    def _known_first(self, one: Literal, known: Collection[str]) -> Literal:
        """Return a precondition with the known variables first; as it is where it could be taken for another."""
        terms = one.atom.arguments
        if not all(map(is_variable, terms)) or len(like(one, terms, self.preconditions)) > 1:
            return one
        return Literal(Atom(one.atom.predicate, tuple(sorted(terms, key=lambda x: x not in known))), one.is_positive)


def _literals(condition: Condition) -> Iterator[Literal]:
    return (one for one in conjuncts_of(condition) if isinstance(one, Literal))


def _effects(
    effects: Iterable[Effect], under: tuple[Literal, ...] = ()
) -> Iterator[tuple[tuple[Literal, ...], Literal]]:
    """Yield every add and delete effect with the conditions that it stands under."""
    for effect in effects:
        match effect:
            case Literal():
                yield under, effect
            case UniversalEffect():
                yield from _effects(effect.effects, under)
            case ConditionalEffect():
                yield from _effects(effect.effects, (*under, *_literals(effect.condition)))
            case CostIncrease():
                pass


def _with_objects(one: Literal, objects: Mapping[str, str], mark: str = "") -> Literal:
    """Return a literal with each object behind its variable, and a mark as last word if there is one."""
    told = ((name, objects[name]) if name in objects else (name,) for name in one.atom.arguments)
    return Literal(Atom(one.atom.predicate, (*joined.from_iterable(told), *([mark] if mark else []))), one.is_positive)


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
