"""What a model learns the steps of NL2Plan from: dialogues that a script has about domains whose PDDL is known.

Questions are those of the steps (`steps.make_all`), with whatever predicates the actions before have left; the right
answer follows from the PDDL. A first answer can be given with a mistake of appendix E: what is then learnt is the
answer to what the check says. Where advice is asked for, half of the first answers lack something that no check misses:
the advice names it.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from plansmith.config.domains import Phrases
from plansmith.config.modelling import ModellingConfig
from plansmith.errors import BadInputError
from plansmith.modelling.dialogue import Question, QuestionKind
from plansmith.modelling.products import DialogueStep
from plansmith.modelling.prompts import step_prompt
from plansmith.modelling.quoting import QuotedAnswers
from plansmith.modelling.reading import COMMENT
from plansmith.modelling.references import Reference
from plansmith.modelling.script import ReferenceAnswers
from plansmith.modelling.steps import RowProducts, make_all
from plansmith.pddl.model import EQUALITY, OBJECT, Domain, Problem
from plansmith.pddl.printer import print_domain, print_problem
from plansmith.text.anonymisation import Anonymisation, Renamer
from plansmith.text.spoken import SpokenDomain

MISTAKES: Mapping[str, Sequence[str]] = {
    DialogueStep.CONSTRUCTION: (
        "header_inclusion", "param_types", "predicate_format", "predicate_usage", "cut",
    ),
    DialogueStep.TASK: ("header_inclusion", "obj_type", "pred_exists", "pred_nargs", "pred_objs", "cut"),
}  # fmt: skip
"""Those that are made, by step."""
LACKING_SHARE = 0.5
"""Share of the first answers that are advised on and lack something, where something can be left out."""
ACCEPTED = "No changes."
BLANK = "zz"
"""How the words begin that stand for those of a domain; see `blank`."""
_ACTION = re.compile(r"### \S+")
_ATOM = re.compile(r"\([^()]*\)|\(not \([^()]*\)\)")


def spoken_reference(spoken: SpokenDomain, problem: Problem, *, name: str) -> Reference:
    """Return a task whose reference is called as its text calls it."""
    pddl = print_domain(spoken.pddl), print_problem(spoken.problem_pddl(problem))
    return Reference(name, "", spoken.text, spoken.problem_text(problem), *pddl)


def lessons(
    reference: Reference, config: ModellingConfig, rng: random.Random, *, mistakes: float
) -> Iterator[tuple[Question, str]]:
    """Yield the questions about a task with their right answers.

    Args:
        reference: the task.
        config: of the dialogue; whether advice is asked for.
        rng: draws which first answers have a mistake, and which.
        mistakes: share of these.
    """
    own = QuotedAnswers(reference)
    dialogue = make_all(reference.text, RowProducts(), config)
    question, advice = next(dialogue), ACCEPTED
    while True:
        is_advice, is_first = question.kind is QuestionKind.FEEDBACK, question.kind is QuestionKind.DRAFT
        right = f"## Advice\n{advice}" if is_advice else own.answer(question.step, question.messages[0].text)
        yield question, right
        said, kinds = right, MISTAKES.get(question.step, ())
        if not is_advice:
            advice = ACCEPTED
        if is_first and kinds and rng.random() < mistakes:
            with contextlib.suppress(BadInputError):  # in a domain that leaves no room for it
                said = own.spoilt(rng.choice(kinds), right)
        elif is_first and config.feedback == "model" and rng.random() < LACKING_SHARE:
            said, advice = _lacking(question.step, right, rng)
        try:
            question = dialogue.send(said)
        except StopIteration:
            return


def _lacking(step: DialogueStep, answer: str, rng: random.Random) -> tuple[str, str]:
    """Return an answer without an action, an atom of an action, or a fact, and the advice to add it.

    Both are whole where nothing of that is in it. The advice quotes the sentence, as answers do.
    """
    lines = answer.split("\n")
    pattern = _ACTION if step is DialogueStep.ACTIONS else _ATOM
    places = [place for place, line in enumerate(lines) if pattern.fullmatch(line) and lines[place - 1][:1] == COMMENT]
    if not places or (step is DialogueStep.ACTIONS and len(places) == 1):
        return answer, ACCEPTED
    place = rng.choice(places)
    kept = [*lines[: place - 1], *lines[place + (2 if step is DialogueStep.ACTIONS else 1) :]]
    return "\n".join(kept), f"{lines[place - 1]}\n{lines[place].removeprefix('### ')} is missing."


def straight_lesson(reference: Reference, plan: Iterable[str], config: ModellingConfig) -> tuple[str, str]:
    """Return the question for a plan straight from a text, with the answer: the control of the steps."""
    return step_prompt(config.prompts, DialogueStep.ZERO_SHOT, text=reference.text), "\n".join(["## Plan", *plan])


def one_call_lesson(reference: Reference, config: ModellingConfig) -> tuple[str, str]:
    """Return the question for domain and problem in one answer, with the answer: another control of the steps."""
    asked = step_prompt(config.prompts, DialogueStep.ONE_CALL, text=reference.text)
    return asked, ReferenceAnswers(reference).whole


def blank(domain: Domain, phrases: Phrases, problem: Problem) -> tuple[Domain, Phrases, Problem]:
    """Return a domain and a problem that are called nothing, with phrases that say nothing.

    What words then stand in a text beside those that begin with `BLANK` are of the frame.
    """
    numbers = itertools.count()
    actions = {action.name: f"{BLANK}{next(numbers)}" for action in domain.actions}
    objects = {typed.name: f"{BLANK}{next(numbers)}" for typed in problem.objects}
    same = {schema.name: schema.name for schema in domain.predicates} | {EQUALITY: EQUALITY}
    kinds = {typed.name: typed.name for typed in domain.types} | {OBJECT: OBJECT}
    renamer = Renamer(Anonymisation(actions, same, {}, kinds, objects))

    def said(entries: Mapping[str, tuple[str, ...]], names: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
        return {
            names[name]: tuple(" ".join([f"{BLANK}{next(numbers)}", *re.findall(r"\{\d+\}", text)]) for text in texts)
            for name, texts in entries.items()
        }

    blanks = Phrases(
        topic=BLANK,
        types={name: (f"{BLANK}{next(numbers)}", "") for name in kinds},
        predicates=said(phrases.predicates, same),
        actions=said(phrases.actions, actions),
    )
    return renamer.domain(domain), blanks, renamer.problem(problem)
