"""Every mistake in a domain and a problem at once, and what is likely a mistake though it has a meaning.

Errors come from the readers; the warnings here look at the whole: what is used nowhere, what no action can reach, names
with two meanings, features that the requirements leave out. Includes the checks of NL2Plan (arXiv 2405.04215, appendix
E); which code answers to which of them is in `docs/diagnostics.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from plansmith.errors import BadInputError
from plansmith.pddl.diagnostics import Code, Diagnostic, Notebook
from plansmith.pddl.effect_reader import contradictions
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.missing_facts import out_of_reach
from plansmith.pddl.model import (
    EQUALITY,
    OBJECT,
    ActionSchema,
    Atom,
    Condition,
    ConditionalEffect,
    CostIncrease,
    Disjunction,
    Domain,
    Effect,
    Implication,
    Literal,
    Negation,
    Problem,
    Quantification,
    UniversalEffect,
    conjuncts_of,
    literals_in,
    literals_of_effects,
)
from plansmith.pddl.parser import read_domain, read_problem
from plansmith.pddl.sections import PlaceKey, Reading

REQUIREMENTS = frozenset(
    {":strips", ":typing", ":equality", ":negative-preconditions", ":disjunctive-preconditions", ":adl"}
    | {":existential-preconditions", ":universal-preconditions", ":quantified-preconditions", ":conditional-effects"}
    | {":derived-predicates", ":action-costs", ":fluents", ":numeric-fluents"}
)
_IMPLIED = {
    ":quantified-preconditions": frozenset({":existential-preconditions", ":universal-preconditions"}),
    ":adl": frozenset(
        {":strips", ":typing", ":equality", ":negative-preconditions", ":disjunctive-preconditions"}
        | {":existential-preconditions", ":universal-preconditions", ":conditional-effects"}
    ),
    ":fluents": frozenset({":action-costs"}),
    ":numeric-fluents": frozenset({":action-costs"}),
}


def diagnose(
    domain_text: str,
    problem_text: str | None = None,
    *,
    domain_source: str = "<domain>",
    problem_source: str = "<problem>",
    has_reachability: bool = False,
) -> tuple[Diagnostic, ...]:
    """Return every mistake in the order of the texts, the domain's first.

    A problem is checked against whatever of the domain could be read; not at all where the domain is no domain.

    Args:
        domain_text: the domain.
        problem_text: a problem of it.
        domain_source: what the domain's file is called.
        problem_source: what the problem's file is called.
        has_reachability: where neither has an error, warn also of goals that the delete relaxation does not reach.
    """
    domain = read_domain(domain_text, source=domain_source)
    is_domain = all(found.code is not Code.NOT_PDDL for found in domain.notebook.found)
    problem = None
    if problem_text is not None and is_domain:
        problem = read_problem(problem_text, domain.value, source=problem_source)
    _check_domain(domain, None if problem is None else problem.value)
    if problem is not None:
        _check_problem(problem, domain.value)
    notebooks = [domain.notebook, *([problem.notebook] if problem else [])]
    if problem is not None and has_reachability and not any(notes.errors() for notes in notebooks):
        _check_within_reach(problem, PlanningTask(domain.value, problem.value))
    return tuple(found for notebook in notebooks for found in sorted(notebook.found, key=lambda d: d.place))


def _check_domain(reading: Reading[Domain], problem: Problem | None) -> None:
    domain, notes, places = reading.value, reading.notebook, reading.places
    _check_requirements(domain, notes, places)
    _check_clashes(domain, notes, places)
    _check_unused_predicates(domain, problem, notes, places)
    for action in domain.actions:
        _check_unused_parameters(action, notes, places)
        for atom in contradictions(action.effects):
            notes.warn(
                Code.CONTRADICTORY_EFFECT, places[("effect", action.name)],
                f"action '{action.name}' both adds and deletes {atom}; it will be true",
                repair="remove one of the two effects",
            )  # fmt: skip


def _check_requirements(domain: Domain, notes: Notebook, places: dict[PlaceKey, int]) -> None:
    declared = set(domain.requirements)
    for flag in sorted(declared - REQUIREMENTS):
        notes.warn(
            Code.UNKNOWN_REQUIREMENT, places[("requirement", flag)], f"requirement {flag} is not known",
            repair="remove it, or check its spelling",
        )  # fmt: skip
    if not declared:
        return
    covered = declared.union(*(_IMPLIED.get(flag, frozenset()) for flag in declared))
    for flag, feature in used_features(domain):
        if flag not in covered:
            covered.add(flag)
            place = places.get(("requirement", domain.requirements[0]), 0)
            notes.warn(Code.MISSING_REQUIREMENT, place, f"{feature} without {flag}", repair=f"add {flag}")


def used_features(domain: Domain) -> Iterator[tuple[str, str]]:
    """Yield the requirement and the name of each feature that the domain uses."""
    if domain.types:
        yield ":typing", "types"
    if domain.derived:
        yield ":derived-predicates", "derived predicates"
    for action in domain.actions:
        yield from _features_of(action.precondition)
        for effect in _all_effects(action.effects):
            if isinstance(effect, ConditionalEffect | UniversalEffect):
                yield ":conditional-effects", f"{'when' if isinstance(effect, ConditionalEffect) else 'forall'} effects"
            if isinstance(effect, ConditionalEffect):
                yield from _features_of(effect.condition)
            if isinstance(effect, CostIncrease):
                yield ":action-costs", "action costs"
    for rule in domain.derived:
        yield from _features_of(rule.condition)


def _features_of(condition: Condition) -> Iterator[tuple[str, str]]:
    waiting: list[Condition] = [condition]
    while waiting:
        part = waiting.pop()
        match part:
            case Literal():
                if part.atom.predicate == EQUALITY:
                    yield ":equality", "'='"
                elif not part.is_positive:
                    yield ":negative-preconditions", "a negative condition"
                continue
            case Disjunction():
                yield ":disjunctive-preconditions", "'or'"
            case Negation():
                yield ":disjunctive-preconditions", "'not' of a formula"
            case Implication():
                yield ":disjunctive-preconditions", "'imply'"
            case Quantification():
                name = "universal" if part.is_universal else "existential"
                yield f":{name}-preconditions", f"'{'forall' if part.is_universal else 'exists'}'"
        waiting.extend(reversed(part.members))


def _all_effects(effects: Iterable[Effect]) -> Iterator[Effect]:
    for effect in effects:
        yield effect
        if isinstance(effect, ConditionalEffect | UniversalEffect):
            yield from _all_effects(effect.effects)


def _check_clashes(domain: Domain, notes: Notebook, places: dict[PlaceKey, int]) -> None:
    """Warn of names with two meanings; legal, but a reader or a model is likely to mix them up."""
    types = {typed.name for typed in domain.types} | {OBJECT}
    predicates = {schema.name for schema in domain.predicates}
    for predicate in sorted(predicates & types):
        _warn_clash(notes, places[("predicate", predicate)], predicate, "a predicate", "a type")
    for constant in domain.constants:
        for kind, names in (("a type", types), ("a predicate", predicates)):
            if constant.name in names:
                _warn_clash(notes, places[("constant", constant.name)], constant.name, "a constant", kind)


def _warn_clash(notes: Notebook, offset: int, name: str, kind: str, other: str) -> None:
    notes.warn(Code.NAME_CLASH, offset, f"'{name}' names both {kind} and {other}", repair="rename one of them")


@dataclass(frozen=True, slots=True)
class PredicateUses:
    """Which predicates a domain reads, adds, deletes and derives."""

    read: frozenset[str]
    added: frozenset[str]
    deleted: frozenset[str]
    derived: frozenset[str]

    @classmethod
    def of(cls, domain: Domain) -> PredicateUses:
        """Return the uses of a domain's predicates."""
        effects = [literal for action in domain.actions for literal in literals_of_effects(action.effects)]
        conditions = [action.precondition for action in domain.actions] + [rule.condition for rule in domain.derived]
        conditions += [
            effect.condition
            for action in domain.actions
            for effect in _all_effects(action.effects)
            if isinstance(effect, ConditionalEffect)
        ]
        return cls(
            read=frozenset(literal.atom.predicate for condition in conditions for literal in literals_in(condition)),
            added=frozenset(x.atom.predicate for x in effects if x.is_positive),
            deleted=frozenset(x.atom.predicate for x in effects if not x.is_positive),
            derived=frozenset(rule.predicate for rule in domain.derived),
        )

    @property
    def of_any_kind(self) -> frozenset[str]:
        """Return the predicates that occur outside declarations."""
        return self.read | self.added | self.deleted | self.derived


def _check_unused_predicates(
    domain: Domain, problem: Problem | None, notes: Notebook, places: dict[PlaceKey, int]
) -> None:
    used = PredicateUses.of(domain).of_any_kind
    if problem is not None:
        used |= {literal.atom.predicate for literal in literals_in(problem.goal)}
    for schema in domain.predicates:
        if schema.name not in used:
            notes.warn(
                Code.UNUSED_PREDICATE, places[("predicate", schema.name)],
                f"predicate '{schema.name}' occurs in no action", repair="use it or remove it",
            )  # fmt: skip


def _check_unused_parameters(action: ActionSchema, notes: Notebook, places: dict[PlaceKey, int]) -> None:
    used = _variables_in_condition(action.precondition) | _variables_in_effects(action.effects)
    for parameter in action.parameters:
        if parameter.name.startswith("?") and parameter.name not in used:
            notes.warn(
                Code.UNUSED_PARAMETER, places[("parameters", action.name)],
                f"parameter '{parameter.name}' of action '{action.name}' is not used", repair="use it or remove it",
            )  # fmt: skip


def _variables_in_condition(condition: Condition) -> set[str]:
    """Return the free variables of a condition."""
    if isinstance(condition, Quantification):
        return _variables_in_condition(condition.part) - {typed.name for typed in condition.parameters}
    if isinstance(condition, Literal):
        return set(condition.atom.arguments)
    return set().union(*map(_variables_in_condition, condition.members))


def _variables_in_effects(effects: Iterable[Effect]) -> set[str]:
    found: set[str] = set()
    for effect in effects:
        match effect:
            case Literal(atom):
                found |= set(atom.arguments)
            case ConditionalEffect(condition, inner):
                found |= _variables_in_condition(condition) | _variables_in_effects(inner)
            case UniversalEffect(parameters, inner):
                found |= _variables_in_effects(inner) - {typed.name for typed in parameters}
            case CostIncrease(amount):
                found |= set(amount.arguments) if isinstance(amount, Atom) else set()
    return found


def _check_problem(reading: Reading[Problem], domain: Domain) -> None:
    problem, notes, places = reading.value, reading.notebook, reading.places
    if problem.domain_name and domain.name and problem.domain_name != domain.name:
        notes.warn(
            Code.DOMAIN_MISMATCH, places[("domain",)],
            f"the problem is for domain '{problem.domain_name}', the domain is called '{domain.name}'",
            repair=f"write (:domain {domain.name})",
        )  # fmt: skip
    types = {typed.name for typed in domain.types} | {OBJECT}
    predicates = {schema.name for schema in domain.predicates}
    for typed in problem.objects:
        for kind, names in (("a type", types), ("a predicate", predicates)):
            if typed.name in names:
                _warn_clash(notes, places[("object", typed.name)], typed.name, "an object", kind)
    _check_reachable(problem, domain, notes, places)


def _check_reachable(problem: Problem, domain: Domain, notes: Notebook, places: dict[PlaceKey, int]) -> None:
    """Warn of goals that no plan can reach, whatever it does: never added, or never deleted."""
    uses, init = PredicateUses.of(domain), set(problem.init)
    known = {schema.name for schema in domain.predicates}
    for goal in conjuncts_of(problem.goal):
        if not isinstance(goal, Literal) or goal.atom.predicate not in known:
            continue
        if (goal.atom in init) == goal.is_positive:
            continue
        changed = uses.added if goal.is_positive else uses.deleted
        if goal.atom.predicate not in changed and goal.atom.predicate not in uses.derived:
            how = "adds" if goal.is_positive else "deletes"
            notes.warn(
                Code.UNREACHABLE_GOAL, places[("goal",)],
                f"no action {how} '{goal.atom.predicate}': {goal} stays false",
                repair="change the goal, or give an action that effect",
            )  # fmt: skip


def _check_within_reach(reading: Reading[Problem], task: PlanningTask) -> None:
    """Warn of goals that are out of reach for what the initial state lacks."""
    try:
        found = out_of_reach(task)
    except BadInputError:  # a condition with too many instances: it is not looked at
        found = None
    lacking = "" if found is None else " ".join(map(str, found.missing))
    for goal in () if found is None else found.goals:
        reading.notebook.warn(
            Code.UNREACHABLE_GOAL, reading.places[("goal",)],
            f"{goal} is out of reach, even if nothing were ever deleted",
            repair=f"add what is lacking to :init; with {lacking} all goals would be within reach",
        )  # fmt: skip
