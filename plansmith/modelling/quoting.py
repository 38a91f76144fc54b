"""Texts whose sentences are numbered, and answers that quote each sentence above what becomes of it.

A small model copies well what follows a word that it finds once, and changes well what it has just written; what it
finds hardly ever is what stands before a word (docs/log.md). Numbered, every sentence begins with a word that is found
once; quoted, each line of PDDL is made of the line before it, and the next number is one more than the last. Quotes are
comments of PDDL, so that answers are read as they are without them. The beginning of a sentence ends a list: it is no
part of what is written.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import cast

from plansmith.modelling.from_pddl import parameter_of
from plansmith.modelling.products import DialogueStep
from plansmith.modelling.reading import COMMENT, HEADINGS
from plansmith.modelling.references import Reference
from plansmith.modelling.script import ReferenceAnswers, subject_of
from plansmith.modelling.sentences import MARK, sentences
from plansmith.modelling.writing import write_parameters
from plansmith.pddl.model import (
    ActionSchema,
    Condition,
    ConditionalEffect,
    Conjunction,
    Effect,
    Implication,
    Junction,
    Literal,
    Negation,
    PredicateSchema,
    Quantification,
    UniversalEffect,
    literals_of,
    typed_text,
)
from plansmith.text.natural_language import FACTS, KINDS, THINGS, WORDINGS


class QuotedAnswers(ReferenceAnswers):
    """The right answers about a reference whose text is of `natural_language`, each line below what it is made of.

    All predicates are declared with the first action, in the order of the text, whether it needs them or not.
    """

    def __init__(self, reference: Reference) -> None:
        super().__init__(reference)
        self._sentences = sentences(reference.text)

    def answer(self, step: DialogueStep, asked: str) -> str:
        """Return the right answer to a question."""
        match step:
            case DialogueStep.TYPES:
                return _section("Types", self._types())
            case DialogueStep.HIERARCHY:
                return _section("Hierarchy", self._tree())
            case DialogueStep.ACTIONS:
                return _section("Actions", self._actions())
            case DialogueStep.TASK:
                return "\n\n".join(self._problem())
            case _:
                [action] = [own for own in self.domain.actions if own.name == subject_of(asked)]
                return "\n\n".join([*self._action(action), _section(HEADINGS["predicate"], self._declared(asked))])

    def _below(self, *headings: str) -> int:
        """Return the index of the sentence below the first of some headings that there is."""
        found = (index for index, one in enumerate(self._sentences, 1) if one.text.rstrip(".:") in headings)
        return next(found)

    def _way(self, end: int) -> Iterator[str]:
        """Yield the openings of the paragraphs up to a sentence: it is found by going through them from the first."""
        yield from (one.opening for one in self._sentences[:end] if one.paragraph)

    def _under(self, heading: str, made: Sequence[str]) -> Iterator[str]:
        """Yield the way to a heading, and what is below it; see `_quoted`."""
        first = self._below(heading)
        yield from self._way(first)
        yield from self._quoted(first, made)

    def _quoted(self, first: int, made: Sequence[str]) -> Iterator[str]:
        """Yield sentences from one on, each with what is made of it, and the beginning of the one that follows."""
        for index, text in enumerate(made, first):
            yield self._sentences[index].quote
            if text:
                yield text
        after = self._sentences[first + len(made)]
        yield f"{COMMENT} {MARK}{after.number} {after.beginning}"

    def _types(self) -> Iterator[str]:
        yield from self._under(KINDS, [f"- {typed.name}" for typed in self.domain.types])

    def _tree(self) -> Iterator[str]:
        first = self._below(KINDS)
        place = {typed.name: index for index, typed in enumerate(self.domain.types, first)}
        yield from self._way(first)
        yield "- object: everything"
        for node, depth in self.sketch.tree.depths():
            yield self._sentences[place[node.name]].quote
            yield f"{'  ' * depth}- {node.name}"

    def _actions(self) -> Iterator[str]:
        yield from self._way(min(self._place(action.name) for action in self.sketch.actions))
        for action in self.sketch.actions:
            header = self._sentences[self._place(action.name)]
            yield header.opening
            yield f"### {action.name}"
            yield header.quote.removeprefix(f"{COMMENT} ")
            after = next(one for one in self._sentences[header.number :] if one.paragraph)
        yield after.opening

    def _place(self, action: str) -> int:
        return next(index for index, one in enumerate(self._sentences) if one.text.startswith(f"Action {action}:"))

    def _action(self, action: ActionSchema) -> Iterator[str]:
        place, schema = self._place(action.name), next(own for own in self.sketch.schemas if own.name == action.name)
        needed = action.precondition
        *needs, needs_end = _nested(_opened(needed.parts if isinstance(needed, Conjunction) else (needed,)))
        *changes, changes_end = _nested(_opened(action.effects))
        parameters = [write_parameters([own]) for own in schema.parameters]
        headings = self._sentences[place : place + 1 + bool(parameters)]
        first = place + len(headings)
        about = [*(one.opening for one in headings), *self._quoted(first, parameters)]
        yield _section(HEADINGS["parameter"], about if parameters else [*about, "None"])
        first += len(parameters) + 1
        yield _section(HEADINGS["precondition"], _conjunction(self._quoted(first, needs), needs_end))
        first += len(needs) + 1
        yield _section(HEADINGS["effect"], _conjunction(self._quoted(first, changes), changes_end))

    def _declared(self, asked: str) -> Iterator[str]:
        known = self.told(asked)
        new = [own for own in self.domain.predicates if own.name not in known]
        *made, end = _nested(itertools.chain.from_iterable(map(_declaration, new)))
        if len(new) == len(self.domain.predicates) and new:
            yield from self._under(FACTS, made)
        else:
            yield from made if new else ["None"]
        yield from [end] if end else []

    def _problem(self) -> Iterator[str]:
        state, goal = self._below(*(own.start for own in WORDINGS)), self._below(*(own.goal for own in WORDINGS))
        objects = [write_parameters([own]) for own in self.problem.objects] or ["None"]
        yield _section(HEADINGS["object"], self._under(THINGS, objects))
        facts = [Literal(atom) for atom in self.posed.init]
        said = map(str, self._in_order_of_text(state, facts))
        yield _section(HEADINGS["state"], ["```", *self._quoted(state, list(said) or [""]), "```"])
        wanted = map(str, self._in_order_of_text(goal, literals_of(self.posed.goal)))
        yield _section(HEADINGS["goal"], _conjunction(self._quoted(goal, list(wanted))))

    def _in_order_of_text(self, first: int, literals: Sequence[Literal]) -> Iterable[Literal]:
        """Return literals as the sentences from one on say them: where they are grouped, predicate by predicate."""
        heading = self._sentences[first - 1].text
        if heading.endswith(".") or self._sentences[first].depth:
            return literals
        groups = list(dict.fromkeys(literal.atom.predicate for literal in literals))
        return sorted(literals, key=lambda literal: groups.index(literal.atom.predicate))


def _section(heading: str, lines: Iterable[str]) -> str:
    return "\n".join([f"## {heading}", *lines])


def _conjunction(lines: Iterable[str], end: str = "") -> list[str]:
    return ["```", "(and", *lines, f"{end})", "```"]


def _nested(opened: Iterable[tuple[int, str]]) -> list[str]:
    """Return what is written below each line of a description, one at least, and last the brackets that end it.

    A line with others below it opens a bracket. It is closed where a line stands that is not below it.

    Args:
        opened: how far each line stands in, and what begins there.
    """
    made, before = list[str](), 0
    for depth, text in opened:
        made.append(f"{')' * (before - depth)}\n{text}".strip("\n"))
        before = depth
    return [*(made or [""]), ")" * before]


def _declaration(predicate: PredicateSchema) -> Iterator[tuple[int, str]]:
    """Yield the name of a predicate, and below it each argument with its type.

    They are indented: so a type is as far from the one that is quoted above it as in a list of parameters.
    """
    yield 0, f"- ({predicate.name}{'' if predicate.parameters else ')'}"
    yield from ((1, f"  {parameter_of(typed).pddl}") for typed in predicate.parameters)


def _opened(parts: Iterable[Condition | Effect], depth: int = 0) -> Iterator[tuple[int, str]]:
    """Yield how far the lines of a description stand in, and what of the PDDL begins there, in their order."""
    for part in parts:
        below: Sequence[Condition | Effect]
        match part:
            case Junction(parts=(_, *_)):
                opening, below = f"({part.WORD}", part.members
            case Negation():
                opening, below = "(not", part.members
            case Implication():
                opening, below = "(imply", part.members
            case Quantification():
                word = "forall" if part.is_universal else "exists"
                opening, below = f"({word} ({typed_text(part.parameters)})", part.members
            case ConditionalEffect():
                opening, below = "(when", (part.condition, *_together(part.effects))
            case UniversalEffect():
                opening, below = f"(forall ({typed_text(part.parameters)})", _together(part.effects)
            case _:
                opening, below = str(part), ()
        yield depth, opening
        yield from _opened(below, depth + 1)


def _together(effects: Sequence[Effect]) -> Sequence[Condition | Effect]:
    """Return some changes as one, as a description has them."""
    return effects if len(effects) == 1 else (Conjunction(cast(tuple[Condition, ...], effects)),)
