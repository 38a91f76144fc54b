"""What a model without pre-training learns domain writing of: schemas of invented domains, and their repair.

Self-CriTeach takes a base model for granted that can write PDDL; one trained from nothing has read none. Here are
questions of `plansmith.text.schema_words` about random STRIPS domains, with the schemas that made what is seen as
answers, and damaged ones with the faults that the checks find. Not here: the domains that a run is to write, which no
example may be equal to (`pipelines.stages.priming`).
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from plansmith.config.dataset import SymbolPoolConfig
from plansmith.data.inventing import write_files
from plansmith.data.rows import ExampleKind, ExampleRow
from plansmith.errors import BadInputError
from plansmith.judging.domain_checks import DomainChecks
from plansmith.judging.schema_writing import Shown, complaints, domain_of, of_skill
from plansmith.pddl.domain_forms import domain_form
from plansmith.pddl.model import (
    ActionSchema,
    Atom,
    Conjunction,
    Domain,
    Literal,
    PredicateSchema,
    Problem,
    TypedName,
    conjuncts_of,
)
from plansmith.problems.action_learning import learn_action
from plansmith.problems.demonstrations import Attempt, Demonstrations, lifted_atoms
from plansmith.problems.invention.folders import Invention
from plansmith.problems.library import load_domain
from plansmith.problems.simulator import Recording, demonstrate, demonstrations_of
from plansmith.text.schema_words import SchemaWords, hidden_names, telling_attempts

LOST_SHARE = 0.6
"""Of damaged literals those that are lost, and of added effects the add effects."""
DRAWS = 20
"""Draws of one scene before a domain is taken to have none."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A domain without types, and walks in it."""

    domain: Domain
    demonstrations: Demonstrations


def types_as_facts(domain: Domain) -> Domain:
    """Return a domain whose types are predicates of one argument, which every action wants of its parameters."""
    above = {name: sorted(types - {"object"}) for name, types in domain.ancestors().items()}
    predicates = [PredicateSchema(typed.name, (TypedName("?x"),)) for typed in domain.types]
    predicates += [replace(schema, parameters=_untyped(schema.parameters)) for schema in domain.predicates]
    actions = []
    for action in domain.actions:
        facts = tuple(
            Literal(Atom(name, (typed.name,))) for typed in action.parameters for name in _all_above(typed, above)
        )
        needed = Conjunction((*facts, *conjuncts_of(action.precondition)))
        actions.append(replace(action, parameters=_untyped(action.parameters), precondition=needed))
    return Domain(domain.name, (":strips",), (), (), tuple(predicates), tuple(actions))


def _with_types(domain: Domain, problem: Problem) -> Problem:
    """Return a problem whose objects have facts for types."""
    above = {name: sorted(types - {"object"}) for name, types in domain.ancestors().items()}
    facts = tuple(Atom(name, (typed.name,)) for typed in problem.objects for name in _all_above(typed, above))
    return replace(problem, objects=_untyped(problem.objects), init=(*facts, *problem.init))


def _all_above(typed: TypedName, above: dict[str, list[str]]) -> list[str]:
    return sorted({name for kind in typed.types for name in above.get(kind, ())})


def _untyped(names: Sequence[TypedName]) -> tuple[TypedName, ...]:
    return tuple(TypedName(typed.name) for typed in names)


def record(invention: Invention, recording: Recording, rng: random.Random, *, n_walks: int) -> Recorded | None:
    """Return an invented domain with walks in it; None where it has no scene."""
    with tempfile.TemporaryDirectory(prefix="plansmith-primer-") as name:
        write_files(invention, Path(name, "domain"))
        loaded = load_domain(str(Path(name, "domain")))
        levels = loaded.levels
        try:
            problems = [loaded.sample(levels[k % len(levels)], rng, max_draws=DRAWS) for k in range(n_walks)]
        except BadInputError:
            return None
    domain = types_as_facts(loaded.domain)
    walks = tuple(demonstrate(domain, _with_types(loaded.domain, problem), recording, rng) for problem in problems)
    return Recorded(domain, demonstrations_of(domain, "", walks))


@dataclass(frozen=True, slots=True)
class SchemaLessons:
    """How a domain is made into examples.

    Attributes:
        renamings: how often each schema is asked for, each time under other symbols.
        repairs: damaged schemas for each of these.
    """

    shown: Shown
    pool: SymbolPoolConfig
    renamings: int
    repairs: int

    def examples(self, recorded: Recorded, rng: random.Random) -> Iterator[ExampleRow]:
        """Yield questions and answers about the schemas of a domain that the attempts shown determine.

        Of others nobody could know the answer. Their ``problem_id`` is the form of the domain.
        """
        seen, form = recorded.demonstrations, domain_form(recorded.domain)
        all_names = [hidden_names(seen, rng, self.pool) for _ in range(self.renamings)]
        for skill in seen.skills:
            schema = recorded.domain.action(skill.name)
            assert schema is not None, "a domain's skills are its actions"
            shown = telling_attempts((one for _, one in seen.attempts), skill, most=self.shown.attempts)
            if not shown or not is_same(learn_action(skill, shown), schema):
                continue
            for number, names in enumerate(all_names):
                words, place = SchemaWords.of(skill, seen, names), f"{recorded.domain.name}-{skill.name}-{number}"
                asked, answer = words.question(shown), words.answer(shown, schema)
                yield ExampleRow(f"{place}-w", form, ExampleKind.WRITE_DOMAIN, None, asked, answer)
                for k, asked in enumerate(self._repairs(recorded, words, shown, rng)):
                    yield ExampleRow(f"{place}-r{k}", form, ExampleKind.REPAIR, None, asked, words.write(schema))

    def _repairs(
        self, recorded: Recorded, words: SchemaWords, shown: Sequence[Attempt], rng: random.Random
    ) -> Iterator[str]:
        """Yield questions that hand a damaged schema back; of damage that nobody has seen there is nothing to tell."""
        schema, seen = recorded.domain.action(words.skill.name), recorded.demonstrations
        assert schema is not None, "the caller has it"
        checks = DomainChecks(of_skill(seen, words.skill))
        for _ in range(self.repairs):
            damaged = damage(schema, shown, rng)
            faults = complaints(checks.check_domain(domain_of(seen, [damaged])).faults)
            if faults:
                yield words.repair_question(shown, damaged, faults, most=self.shown.faults)


def is_same(one: ActionSchema, other: ActionSchema) -> bool:
    """Return whether two schemas say the same of the same parameters, in whatever order."""
    return {*conjuncts_of(one.precondition)} == {*conjuncts_of(other.precondition)} and {*one.effects} == {
        *other.effects
    }


def damage(schema: ActionSchema, attempts: Sequence[Attempt], rng: random.Random) -> ActionSchema:
    """Return a schema with one or two literals lost, or taken from what was so before an attempt."""
    for _ in range(rng.randint(1, 2)):
        needed, effects = list(conjuncts_of(schema.precondition)), list(schema.effects)
        chosen = rng.choice([part for part in (needed, effects) if part] or [needed])
        if chosen and rng.random() < LOST_SHARE:
            chosen.pop(rng.randrange(len(chosen)))
        else:
            attempt, names = rng.choice(attempts), [typed.name for typed in schema.parameters]
            facts = sorted(lifted_atoms(attempt.state, names, attempt.action.arguments))
            if facts:
                chosen.append(Literal(rng.choice(facts), is_positive=chosen is needed or rng.random() < LOST_SHARE))
        schema = replace(schema, precondition=Conjunction(tuple(needed)), effects=tuple(effects))
    return schema
