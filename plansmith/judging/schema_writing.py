"""The loop of `domain_repair` for a model that writes one schema a completion: what is asked of each, and which counts.

So a completion stays short, and the faults of an action go back to that action alone. What counts is a schema as it was
written, under its names again; no code adds a literal. Source: Self-CriTeach, section A.1.2, which asks for domains.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from plansmith.generation import Conversation, asking
from plansmith.judging.domain_checks import CheckedDomain, DomainChecks, DomainFault, FaultKind
from plansmith.pddl.model import ActionSchema, Domain
from plansmith.problems.action_learning import mentioned_predicates
from plansmith.problems.demonstrations import Demonstrations, Skill
from plansmith.text.anonymisation import Anonymisation
from plansmith.text.schema_words import AFTERWARDS, ALLOWS, FORBIDS, Complaint, SchemaWords, telling_attempts

MARKERS = {
    FaultKind.REFUSES_DEMONSTRATED: FORBIDS,
    FaultKind.OTHER_EFFECT: AFTERWARDS,
    FaultKind.ALLOWS_REFUSED: ALLOWS,
    FaultKind.PLAN_REFUSED: ALLOWS,
}
"""Faults that say of an attempt what was so."""


@dataclass(frozen=True, slots=True)
class Shown:
    """How much of what was seen stands in a question."""

    attempts: int
    faults: int


@dataclass(frozen=True, slots=True)
class WrittenSchema:
    """A schema, None where the answer holds none, with the answer and what the skill's own attempts say of it."""

    completion: str
    schema: ActionSchema | None
    checked: CheckedDomain | None

    @property
    def worth(self) -> tuple[float, int]:
        """Return what answers are compared by: the sum of their scores, few faults; none at all is worth least."""
        if self.checked is None:
            return -1.0, 0
        return self.checked.scores.total, -len(self.checked.faults)


@dataclass(frozen=True)
class SchemaWriting:
    """Asks for the schemas of demonstrations.

    Attributes:
        demonstrations: U.
        names: symbols that it is asked with.
        shown: how much stands in a question.
    """

    demonstrations: Demonstrations
    names: Anonymisation
    shown: Shown

    @property
    def skills(self) -> tuple[Skill, ...]:
        """Return the skills that were seen to work, of which alone a schema can be written."""
        used = {attempt.action.name for _, attempt in self.demonstrations.attempts if attempt.after is not None}
        return tuple(skill for skill in self.demonstrations.skills if skill.name in used)

    def questions(
        self, schemas: Mapping[str, ActionSchema], faults: Iterable[DomainFault] = ()
    ) -> dict[str, Conversation]:
        """Return what is asked of each skill that has no schema, or one with a fault.

        Args:
            schemas: the best so far, by skill.
            faults: what the whole domain was found to have, of which plans that the robot refuses count.
        """
        refused = [fault for fault in faults if fault.kind is FaultKind.PLAN_REFUSED]
        asked = ((skill.name, self._question(skill, schemas.get(skill.name), refused)) for skill in self.skills)
        return {name: asking(question) for name, question in asked if question is not None}

    def judged(self, name: str, completion: str) -> WrittenSchema:
        """Return an answer about a skill with its schema checked on the attempts of this skill."""
        skill = next(skill for skill in self.skills if skill.name == name)
        schema = SchemaWords.of(skill, self.demonstrations, self.names).read(completion)
        return WrittenSchema(completion, schema, None if schema is None else self._checked(skill, schema))

    def kept(self, schema: ActionSchema) -> WrittenSchema:
        """Return a schema of an earlier turn with what is said of it."""
        skill = next(skill for skill in self.skills if skill.name == schema.name)
        return WrittenSchema("", schema, self._checked(skill, schema))

    def domain(self, schemas: Mapping[str, ActionSchema]) -> Domain:
        """Return the domain of schemas by skill, in the order of the skills."""
        return domain_of(self.demonstrations, [schemas[skill.name] for skill in self.skills if skill.name in schemas])

    def _question(self, skill: Skill, schema: ActionSchema | None, refused: Iterable[DomainFault]) -> str | None:
        words = SchemaWords.of(skill, self.demonstrations, self.names)
        attempts = (attempt for _, attempt in self.demonstrations.attempts)
        shown = telling_attempts(attempts, skill, most=self.shown.attempts)
        if schema is None:
            return words.question(shown)
        own = (*self._checked(skill, schema).faults, *(fault for fault in refused if fault.action == skill.name))
        told = complaints(own)
        return words.repair_question(shown, schema, told, most=self.shown.faults) if told else None

    def _checked(self, skill: Skill, schema: ActionSchema) -> CheckedDomain:
        return DomainChecks(of_skill(self.demonstrations, skill)).check_domain(domain_of(self.demonstrations, [schema]))


def complaints(faults: Iterable[DomainFault]) -> list[Complaint]:
    """Return those of the faults that can be told of an action, as they are told."""
    told = (fault for fault in faults if fault.kind in MARKERS)
    return [Complaint(MARKERS[fault.kind], fault.arguments, fault.literals) for fault in told]


def domain_of(demonstrations: Demonstrations, actions: Sequence[ActionSchema]) -> Domain:
    """Return the domain of some schemas, with the predicates that they mention."""
    predicates = mentioned_predicates(demonstrations.predicates, actions)
    return Domain(demonstrations.name, (":strips",), (), (), predicates, tuple(actions))


def of_skill(demonstrations: Demonstrations, skill: Skill) -> Demonstrations:
    """Return what was seen of one skill."""
    trajectories = tuple(
        replace(trajectory, attempts=tuple(one for one in trajectory.attempts if one.action.name == skill.name))
        for trajectory in demonstrations.trajectories
    )
    return replace(demonstrations, skills=(skill,), trajectories=trajectories)
