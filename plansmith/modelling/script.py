"""A stand-in that is no model: it answers NL2Plan's questions from reference domains, with mistakes where told to.

It proves that the steps, the checks and everything around them work; it says nothing about any model. An answer follows
from the messages alone, so that the same question is always answered alike. A mistake is planned for a step and an
attempt: ``construction/pick-up: [param_types, ""]`` makes one in the first answer and none in the second, and
``task: [pred_nargs, always]`` one in every answer. Behind an address it is `script_server`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

from plansmith.config.generation import SamplingConfig
from plansmith.errors import BadInputError
from plansmith.generation import Answers, Completion, Conversation, FinishReason, plain_text
from plansmith.modelling import writing
from plansmith.modelling.assembly import DOMAIN_NAME, PROBLEM_NAME
from plansmith.modelling.checks import argument_types
from plansmith.modelling.from_pddl import domain_sketch, problem_sketch
from plansmith.modelling.products import MODELLING_STEPS, DialogueStep, DomainSketch, Predicate, Schema
from plansmith.modelling.prompts import opening
from plansmith.modelling.reading import plain_lines, read_predicates
from plansmith.modelling.references import Reference
from plansmith.modelling.structured import as_json
from plansmith.pddl.model import OBJECT
from plansmith.pddl.parser import parse_domain, parse_problem
from plansmith.pddl.printer import print_domain, print_problem

PlannedT = TypeVar("PlannedT")

SCRIPT = "script (no model)"
"""What stands where a model's name would."""
TASK_MARK = "# Your task"
ATTEMPT = re.compile(r"\(attempt (\d+)\)")
HARMFUL = "Take all preconditions away; they are in the way."
REFUSAL = "I am sorry, but I cannot help with that."
ALWAYS = "always"
"""Stands for the mistake before it, in all attempts to come."""
FAULTS_OF_TEXT = ("cut", "empty", "refusal", "two_actions")
"""Mistakes that spoil an answer whatever its form."""
JSON_MARK = "one JSON object and nothing else"
"""What a question says that wants JSON."""
FAULTS = (
    "header_inclusion", "keyword_usage", "param_types", "predicate_names", "predicate_format", "predicate_usage",
    "obj_type", "obj_type_name", "obj_pred_name", "pred_exists", "pred_nargs", "pred_objs", "pred_types",
    "cut", "empty", "refusal", "two_actions", "unasked_action", "harmful", "needless",
    "no_effect", "one_way", "one_less",
)  # fmt: skip
"""The mistakes it can make: those of appendix E; answers that are cut, empty, a refusal, of two actions, or of one that
was not asked for; and, of feedback, advice that makes the answer worse or changes nothing; and three that no check
finds, for which there is no plan: an action without effects, a state that says each pair of a relation one way, and the
last action left out."""
ADVISING = "_feedback"
"""What stands after a step that asks for advice."""
ASKED_FOR = (*DialogueStep, *(f"{step}{ADVISING}" for step in MODELLING_STEPS))
"""What mistakes are planned for."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a conversation asks for: a step, or advice on one; the action of step 4, or none; which answer, from 1."""

    step: str
    subject: str = ""
    attempt: int = 1

    @classmethod
    def by(cls, messages: Conversation) -> Asked:
        """Return what a conversation asks for; one that begins as no step does asks for a plan."""
        asked = messages[0].text
        step = next((step for step in ASKED_FOR if asked.startswith(opening(step))), DialogueStep.ZERO_SHOT)
        return cls(step, subject_of(asked), _attempt(messages))

    def planned(self, plans: Mapping[str, Sequence[PlannedT]]) -> Sequence[PlannedT]:
        """Return what is planned for it, by its action or else by its step."""
        return plans.get(f"{self.step}/{self.subject}", plans.get(self.step, ()))


@dataclass(frozen=True)
class Script:
    """What is answered.

    Attributes:
        references: by whose texts questions are recognised.
        faults: by step, or step and action, the mistake of each attempt; an empty one is none.

    Raises:
        BadInputError: mistakes of no step, or one that it cannot make; `ALWAYS` is one but at the end, after another.
    """

    references: tuple[Reference, ...]
    faults: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key, planned in self.faults.items():
            if key.partition("/")[0] not in ASKED_FOR:
                raise BadInputError("mistakes of no step", got=key,
                                    expected=f"one of {', '.join(ASKED_FOR)}; or construction/ACTION")  # fmt: skip
            is_endless = len(planned) > 1 and planned[-1] == ALWAYS
            unknown = set(planned[:-1] if is_endless else planned) - {*FAULTS, ""}
            if unknown:
                raise BadInputError("a mistake that the script cannot make", where=key, got=", ".join(sorted(unknown)),
                                    expected=f"one of {', '.join(FAULTS)}; {ALWAYS} after the last")  # fmt: skip

    def answer(self, messages: Conversation) -> str:
        """Return the answer to a conversation; whatever it does not know is answered by a refusal."""
        text, asked = messages[0].text, Asked.by(messages)
        reference = self._reference(text)
        if reference is None:
            return REFUSAL
        own, fault = self._own[reference.name], self.fault_of(asked)
        if asked.subject and asked.subject not in own.sketch_names:
            return REFUSAL
        if asked.step == DialogueStep.ONE_CALL:
            return own.spoilt(fault, own.whole)
        if asked.step == DialogueStep.ZERO_SHOT:
            return own.spoilt(fault, f"I would take these actions: {', '.join(own.sketch_names)}.\n")
        if asked.step.endswith(ADVISING):
            said = {"harmful": HARMFUL, "needless": "Look at it again."}.get(fault, "No changes.")
            return f"1. No.\n\n## Advice\n{said}\n"
        said, told = own.answer(DialogueStep(asked.step), text), f"This is my answer (attempt {asked.attempt})."
        if len(messages) > 1 and HARMFUL in messages[-1].text:
            said = re.sub(r"(## Preconditions\n```\n).*?(\n```)", r"\1(and)\2", said, flags=re.DOTALL)
        if JSON_MARK not in text:
            return own.spoilt(fault, f"{told}\n\n{said}\n")
        content = "" if fault in FAULTS_OF_TEXT else fault
        written = as_json(DialogueStep(asked.step), own.spoilt(content, said), told)
        return own.spoilt(fault if not content else "", written)

    def fault_of(self, asked: Asked) -> str:
        """Return the mistake in an answer, empty for none."""
        planned, attempt = asked.planned(self.faults), asked.attempt
        if planned and planned[-1] == ALWAYS:
            attempt = min(attempt, len(planned) - 1)
        return planned[attempt - 1] if attempt <= len(planned) else ""

    def _reference(self, asked: str) -> Reference | None:
        told = _words(asked.rpartition(TASK_MARK)[2] if TASK_MARK in asked else asked)
        return next((one for one in self.references if _words(one.text) in told), None)

    @cached_property
    def _own(self) -> dict[str, ReferenceAnswers]:
        return {reference.name: ReferenceAnswers(reference) for reference in self.references}


def _attempt(messages: Conversation) -> int:
    """Return the number of an answer, from 1: one more than the last one's, which is the first if it does not say."""
    last = next((message.text for message in reversed(messages) if message.role == "assistant"), None)
    if last is None:
        return 1
    found = ATTEMPT.search(last)
    return int(found[1]) + 1 if found else 2


def _words(text: str) -> str:
    """Return a text by which it is recognised, however it is spaced."""
    return " ".join(text.split())


def subject_of(asked: str) -> str:
    """Return the action that a question is about, empty where it is about none."""
    found = re.search(r"^## Action\n([\w-]+):", asked.rpartition(TASK_MARK)[2], flags=re.MULTILINE)
    return found[1] if found else ""


class ReferenceAnswers:
    """The answers of one reference."""

    def __init__(self, reference: Reference) -> None:
        self.domain = parse_domain(reference.domain_pddl, source=f"{reference.name}, domain")
        self.posed = parse_problem(reference.problem_pddl, self.domain, source=reference.name)
        self.sketch: DomainSketch = domain_sketch(self.domain)
        self.problem = problem_sketch(self.posed)
        written = print_domain(replace(self.domain, name=DOMAIN_NAME))
        posed = print_problem(replace(self.posed, name=PROBLEM_NAME, domain_name=DOMAIN_NAME))
        self.whole = f"## Domain\n```\n{written}```\n\n## Problem\n```\n{posed}```\n"
        """Domain and problem in one answer."""

    @property
    def sketch_names(self) -> Iterator[str]:
        """Yield the names of the actions."""
        return (action.name for action in self.sketch.actions)

    def answer(self, step: DialogueStep, asked: str) -> str:
        """Return the right answer to a question."""
        if step is DialogueStep.TYPES:
            return f"## Types\n{writing.write_types(self.sketch.types)}"
        if step is DialogueStep.HIERARCHY:
            return f"## Hierarchy\n{writing.write_tree(self.sketch.tree)}"
        if step is DialogueStep.ACTIONS:
            return f"## Actions\n{writing.write_actions(self.sketch.actions)}"
        if step is DialogueStep.TASK:
            return writing.write_problem(self.problem)
        schema = next(one for one in self.sketch.schemas if one.name == subject_of(asked))
        return writing.write_schema(replace(schema, predicates=self._needed(schema, asked)))

    def _needed(self, schema: Schema, asked: str) -> tuple[Predicate, ...]:
        """Return the predicates of an action that the question does not offer."""
        words = set(re.findall(r"[^\s()]+", f"{schema.precondition} {schema.effect}"))
        return tuple(own for own in self.sketch.predicates if own.name in words - self.told(asked))

    def told(self, asked: str) -> set[str]:
        """Return the names of the predicates that a question offers."""
        offered = asked.rpartition(TASK_MARK)[2].rpartition("## Predicates\n")[2].partition("\n## ")[0]
        return {own.name for _, own in read_predicates(plain_lines(offered))}

    def spoilt(self, fault: str, answer: str) -> str:
        """Return an answer with a mistake."""
        return _SPOILING[fault](answer, self) if fault in _SPOILING else answer

    @property
    def a_type(self) -> str:
        """Return a type of the domain."""
        return self.sketch.tree.nodes[-1].name

    @property
    def an_object(self) -> str:
        """Return an object of the problem.

        Raises:
            BadInputError: it has none.
        """
        if not self.problem.objects:
            raise BadInputError("a mistake that cannot be made in this problem", got="no objects", expected="one")
        return self.problem.objects[0].name

    def a_predicate(self, least: int = 0) -> Predicate:
        """Return the first predicate with so many arguments at least.

        Raises:
            BadInputError: there is none.
        """
        for own in self.sketch.predicates:
            if own.declaration.count("?") >= least:
                return own
        raise BadInputError("a mistake that cannot be made in this domain",
                            got=f"no predicate of {least} arguments or more", expected="one")  # fmt: skip

    def misfit(self) -> str:
        """Return an atom, an object of which has the wrong type.

        Raises:
            BadInputError: no object of the problem misfits any predicate.
        """
        parents = {node.name: node.parent for node in self.sketch.tree.nodes}
        for own in self.sketch.predicates:
            kinds = argument_types(own)
            for thing in self.problem.objects:
                above, kind = {OBJECT}, thing.type
                while kind in parents:
                    above.add(kind)
                    kind = parents[kind]
                if kinds and kinds[0] not in above:
                    return f"({' '.join([own.name, *[thing.name] * len(kinds)])})"
        raise BadInputError("a mistake that cannot be made in this domain", got="pred_types",
                            expected="a predicate that not every object fits")  # fmt: skip


def _after(heading: str, added: str) -> Callable[[str, ReferenceAnswers], str]:
    return lambda answer, own: answer.replace(f"## {heading}\n", f"## {heading}\n{_filled(added, own)}\n", 1)


def _in_formula(heading: str, added: str) -> Callable[[str, ReferenceAnswers], str]:
    """Return what adds a formula to the one below a heading, which becomes a conjunction."""

    def spoil(answer: str, own: ReferenceAnswers) -> str:
        pattern = rf"(## {heading}\n```\n)(.*?)(\n```)"
        return re.sub(pattern, lambda found: f"{found[1]}(and {found[2]} {_filled(added, own)}){found[3]}", answer,
                      count=1, flags=re.DOTALL)  # fmt: skip

    return spoil


def _in_state(added: Callable[[ReferenceAnswers], str]) -> Callable[[str, ReferenceAnswers], str]:
    return lambda answer, own: answer.replace("## Initial state\n```\n", f"## Initial state\n```\n{added(own)}\n", 1)


def _filled(text: str, own: ReferenceAnswers) -> str:
    return text.replace("TYPE", own.a_type).replace("PREDICATE", own.a_predicate().name)


def _without_heading(answer: str, _: ReferenceAnswers) -> str:
    return re.sub(r"## (?:Effects|Goal)\n", "", answer, count=1)


def _of_another_action(answer: str, own: ReferenceAnswers) -> str:
    """Return another action in the place of the one that was asked for.

    Raises:
        BadInputError: the domain has no other.
    """
    for schema in own.sketch.schemas:
        if schema.effect not in answer:
            return writing.write_schema(replace(schema, predicates=()))
    raise BadInputError("a mistake that cannot be made in this domain", got="unasked_action",
                        expected="a domain of several actions")  # fmt: skip


def _one_way(answer: str, _: ReferenceAnswers) -> str:
    """Return an answer without the atoms that say another one the other way round."""
    kept, said = list[str](), set[tuple[str, ...]]()
    for line in answer.split("\n"):
        words = tuple(line.strip(" ()").split())
        if not (len(words) == 3 and (words[0], words[2], words[1]) in said):
            kept.append(line)
        said.add(words)
    return "\n".join(kept)


def _without_last(answer: str, own: ReferenceAnswers) -> str:
    """Return an answer of step 3 without the last action."""
    return f"## Actions\n{writing.write_actions(own.sketch.actions[:-1])}"


def _without_effects(answer: str, _: ReferenceAnswers) -> str:
    return re.sub(r"(## Effects\n```\n).*?(\n```)", r"\1(and)\2", answer, flags=re.DOTALL)


_SPOILING: Mapping[str, Callable[[str, ReferenceAnswers], str]] = {
    "header_inclusion": _without_heading,
    "keyword_usage": _in_formula("Effects", "(exists (?z - TYPE) (and))"),
    "param_types": _after("Parameters", "- ?gizmo - gizmo"),
    "predicate_names": _after("New predicates", "- (TYPE ?x - object)"),
    "predicate_format": _after("New predicates", "- (odd-thing ?x)"),
    "predicate_usage": _in_formula("Preconditions", "(no-such-thing ?nobody)"),
    "obj_type": _after("Objects", "- odd-one - gizmo"),
    "obj_type_name": _after("Objects", "- TYPE - TYPE"),
    "obj_pred_name": _after("Objects", "- PREDICATE - TYPE"),
    "pred_exists": _in_state(lambda own: f"(no-such-thing {own.an_object})"),
    "pred_nargs": _in_state(lambda own: f"({own.a_predicate().name}{f' {own.an_object}' * 7})"),
    "pred_objs": _in_state(
        lambda own: f"({own.a_predicate(1).name}{' ghost' * own.a_predicate(1).declaration.count('?')})"
    ),
    "pred_types": _in_state(lambda own: own.misfit()),
    "cut": lambda answer, _: answer[: len(answer) // 2],
    "empty": lambda answer, _: "",
    "refusal": lambda answer, _: REFUSAL,
    "two_actions": lambda answer, _: f"{answer}\n{answer}",
    "unasked_action": _of_another_action,
    "no_effect": _without_effects,
    "one_way": _one_way,
    "one_less": _without_last,
}


@dataclass(frozen=True)
class ScriptedGenerator:
    """The script as a `Generator`; what it counts as tokens are words."""

    script: Script

    def complete(
        self,
        conversations: Sequence[Conversation],
        sampling: SamplingConfig,
        *,
        seeds: Sequence[int],
        description: str | None = None,
    ) -> Answers:
        """Yield the answers; see `plansmith.generation.Generator`."""
        for number, messages in enumerate(conversations):
            text = self.script.answer(messages)
            n_asked, n_said = len(plain_text(messages).split()), len(text.split())
            yield (
                number,
                [
                    Completion(text, FinishReason.STOP, SCRIPT, seed, prompt_tokens=n_asked, completion_tokens=n_said)
                    for seed in seeds[number * sampling.n : (number + 1) * sampling.n]
                ],
            )
